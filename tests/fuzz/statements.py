"""Random programs: loops of independent iterations, products, pipelines, code of single threads, and what nests them.

    generate(Choices(random.Random(1))).text()  ->  "import tilelang.language as T ..."

Every program is well defined: no iteration of T.Parallel touches what another writes, nothing is read before it is written.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from tests.fuzz import exchange, memory, products
from tests.fuzz.choices import Choices
from tests.fuzz.program import MOST_ELEMENTS, Program
from tests.fuzz.teams import team
from tests.fuzz.values import Context, Tile, Value, dtype, noise_of, whole_range
from tilec.ir.dtypes import INT32

_GEMMS = (
    ("float16", "float32"), ("bfloat16", "float32"), ("float32", "float32"), ("float16", "float16"), ("int8", "int32"),
    ("uint8", "int32"), ("float64", "float64"), ("float8_e4m3fn", "float32"), ("float8_e5m2", "float32"),
)  # fmt: skip


def generate(c: Choices, most: int = 12) -> Program:
    """A whole program; every tile at its end is stored."""
    p = Program.start(c)
    form = c.weighted(((82, None), (10, products.matmul), (4, products.attention), (4, products.rows)))
    if form is not None:
        p.tensors, p.head, p.arguments = [], [], {}
        form(p)
        return p
    launch(p, most)
    if c.chance(6):
        p.relaunch()
        launch(p, 3)
    return p


def launch(p: Program, most: int) -> None:
    """The statements of a launch, and the stores of what its tiles hold."""
    p.choices.repeat(1, most, 88, lambda: statement(p, 2))
    for tile in [t for t in p.tiles if t.ready and t.scope in ("shared", "fragment")]:
        p.dump(tile)
    if not any(t.is_output for t in p.tensors):
        p.fill()
        p.dump(p.tiles[-1])


def statement(p: Program, depth: int) -> None:
    """One statement, with up to `depth` levels of nesting."""
    simple: list[tuple[int, Callable[[Program], None]]] = [
        (3, Program.copy_in), (4, Program.copy_tile), (2, Program.fill), (4, Program.reduce), (2, Program.scan), (9, parallel),
        (2, gemm), (2, snapshot), (1, threads_code), (1, stored_here), (1, memory.atomics), (1, memory.scratch), (1, memory.view),
        (1, memory.private_copies), (1, memory.sliced_gemm), (1, memory.left_early), (1, memory.runtime_extent),
        (1, exchange.shared_updates), (1, exchange.elementwise), (1, exchange.moved), (1, exchange.warps), (1, products.chained),
    ]  # fmt: skip
    nested: list[tuple[int, Callable[[Program, int], None]]] = [(2, serial), (2, branch), (2, pipelined), (1, whiles), (1, parted)]
    if depth and p.choices.chance(20):
        return p.choices.weighted(nested)(p, depth - 1)
    return p.choices.weighted(simple)(p)


# independent iterations


def parallel(p: Program, target: Tile | None = None) -> None:
    """A T.Parallel nest that writes one tile, perhaps two, or a part of one."""
    c = p.choices
    target = target or p.target()
    partial = target.ready and c.chance(35)
    sizes = [c.between(1, n) if partial else n for n in target.shape]
    names = [p.name("i") for _ in sizes]
    if not partial and len(sizes) > 1 and prod(sizes) <= MOST_ELEMENTS and c.chance(15):
        flat = p.name("i")
        loops, index = [(flat, prod(sizes))], []
        for d, n in enumerate(sizes):
            after = prod(sizes[d + 1 :])
            index.append(f"{flat} // {after}" if d == 0 and after > 1 else f"{flat} // {after} % {n}" if after > 1 else f"{flat} % {n}")
    else:
        loops = c.shuffled(list(zip(names, sizes, strict=True)))
        index = [own_index(p, v, size, n) for v, size, n in zip(names, sizes, target.shape, strict=True)]
    extents = ", ".join(str(n) for _, n in loops)
    p.line(f"for {', '.join(v for v, _ in loops)} in T.Parallel({extents}):")
    others = [t for t in p.writable() if t.shape == target.shape and t is not target and (t.ready or not partial)]
    other = c.pick(others) if others and c.chance(35) else None
    p.level += 1
    context = p.context(*loops)
    context.hidden = {other.name} if other else set()
    body(p, target, index, context, whole=not partial, last=other is None)
    turns = [(other, target), *([(target, other)] if c.chance(40) else []), *([(other, target)] if c.chance(20) else [])] if other else []
    for n, (now, before) in enumerate(turns):  # each sees what the other has become in this iteration
        context = p.context(*loops)
        context.hidden = {before.name}
        if before.ready and before.noise == 0:
            context.leaves = [before.element(*index)]
        body(p, now, index, context, whole=not partial and n == 0, last=n == len(turns) - 1)
    p.level -= 1


def own_index(p: Program, variable: str, size: int, extent: int) -> str:
    """An index that no other value of the variable gives."""
    c = p.choices
    shift = c.below(extent - size + 1)
    if c.chance(15):
        return f"{size - 1 + shift} - {variable}"
    return f"{variable} + {shift}" if shift else variable


def body(p: Program, target: Tile, index: list[str], context: Context, whole: bool, last: bool) -> None:
    """What one iteration does to its own element of the target; the last body may end the iteration early."""
    c = p.choices
    level, p.level = p.level, p.level  # the nest's own level does not count: `bound_here` speaks of blocks that may not run
    hidden = {*context.hidden, target.name}
    own = [target.element(*index)] if target.ready else []
    context = Context(context.indices, hidden, [*context.leaves, *own])
    exact = not p_admits(p, target)
    if c.chance(15):
        d = dtype(c.pick(("float32", "int32", "float16")))
        name, value = p.name("v"), p.expressions.value(d, context, 2)
        p.line(f"{name} = {value.text}")
        context.leaves.append(Value(name, d, 0.0, value.bound, value.peak))
    if c.chance(12):
        context.leaves.append(private(p, context))
    element = target.element(*index).text
    kind = c.weighted(((6, "plain"), (2, "guarded"), (2, "serial"), (2 if last else 0, "skipping")))
    if not target.ready or kind == "plain":
        value = store(p, target, element, context, exact)
        note(p, target, value, whole)
    elif kind == "guarded":
        p.line(f"if {p.expressions.condition(context, 2).text}:")
        p.level += 1
        values = [store(p, target, element, context, exact)]
        p.level -= 1
        if c.chance(40):
            p.line("else:")
            p.level += 1
            values.append(store(p, target, element, context, exact))
            p.level -= 1
        for value in values:
            note(p, target, value, False)
    elif kind == "skipping":
        for value in skipping(p, target, element, context, exact, 2):
            note(p, target, value, False)
    else:
        k, n = p.name("k"), c.between(0, 5)
        p.line(f"for {k} in {c.pick(('T.serial', 'T.unroll', 'range'))}({n}):")
        p.level += 1
        if c.chance(20):
            p.line(f"if {p.expressions.condition(context, 1).text}:")
            p.line(f"    {c.pick(('continue', 'break'))}")
        target_known = (target.noise, target.bound, target.peak)
        if target.noise == 0:
            target.bound, target.peak = None, float("inf")
            inner = Context([(k, max(n, 1)), *context.indices], hidden, [target.element(*index)])
            value = store(p, target, element, inner, True)
        else:
            inner = Context([(k, max(n, 1)), *context.indices], hidden, [])
            value = store(p, target, element, inner, False, plain=True)
        target.noise, target.bound, target.peak = target_known
        note(p, target, Value("", target.dtype, value.noise, None, float("inf") if value.exact and not target.noise else 100.0), False)
        p.level -= 1
    p.level = level


def skipping(p: Program, target: Tile, element: str, context: Context, exact: bool, depth: int) -> list[Value]:
    """Stores of which conditions, nested up to `depth`, skip those that follow."""
    c, values = p.choices, []
    p.line(f"if {p.expressions.condition(context, 1).text}:")
    p.level += 1
    if c.chance(40):
        values.append(store(p, target, element, context, exact))
    if depth > 1 and c.chance(40):
        values += skipping(p, target, element, context, exact, depth - 1)
    else:
        p.line("continue")
    p.level -= 1
    if c.chance(30):
        p.line("else:")
        p.level += 1
        values.append(store(p, target, element, context, exact))
        p.level -= 1
    return [*values, store(p, target, element, context, exact)]


def private(p: Program, context: Context) -> Value:
    """A variable or an array of one iteration, filled by a serial loop."""
    c = p.choices
    d, n, k = dtype(c.pick(("float32", "int32", "float16", "int8", "int64"))), c.between(1, 5), p.name("k")
    e = p.expressions
    inner = Context([(k, n), *context.indices], context.hidden, list(context.leaves))
    if c.chance(50):
        name = p.name("w")
        p.line(f"{name} = T.alloc_var('{d}')")
        p.line(f"{name} = {e.value(d, context, 1).text}")
        inner.leaves.append(Value(name, d))
        found = Value(name, d)
        store_to = name
    else:
        name = p.name("l")
        p.line(f"{name} = T.alloc_local(({n},), '{d}')")
        found, store_to = Value(f"{name}[{c.below(n)}]", d), f"{name}[{k}]"
    p.line(f"for {k} in {c.pick(('T.serial', 'T.unroll', 'range'))}({n}):")
    p.line(f"    {store_to} = {e.value(d, inner, 2).text}")
    return found


def p_admits(p: Program, target: Tile) -> bool:
    """Whether the target may hold values that differ between runs. The nest itself counts one level."""
    p.level -= 1
    ok = p.admits(target, 1)
    p.level += 1
    return ok


def note(p: Program, target: Tile, value: Value, whole: bool) -> None:
    """Records a write from inside a nest."""
    p.level -= 1
    p.learn(target, value, whole)
    p.level += 1


def store(p: Program, target: Tile, element: str, context: Context, exact: bool, plain: bool = False) -> Value:
    """element = value, or element += value."""
    c = p.choices
    e = p.expressions
    value = e.value(target.dtype, context, c.between(1, 3), exact)
    if (not exact and not value.exact) or target.noise:
        value = e.clamped(value, 20) if value.peak > 20 else value
    if target.ready and not plain and c.chance(20) and target.dtype.name != "bool" and (target.noise == 0 or target.peak < 1e3):
        p.line(f"{element} {c.pick(('+', '-'))}= {value.text}")
        noise = max(value.noise, target.noise)
        bound = None if value.bound is None or target.bound is None else value.bound + target.bound
        if bound is not None and bound > whole_range(target.dtype):
            bound = None
        return Value("", target.dtype, noise, bound, value.peak + target.peak)
    if not exact and not value.exact and value.peak > 100:
        value = e.clamped(value, 100)
    p.line(f"{element} = {value.text}")
    return value


# products


def operand(p: Program, d: str, shape: tuple[int, int], scope: str) -> Tile:
    """A tile of small whole numbers."""
    c = p.choices
    tile = p.alloc(dtype(d), shape, scope)
    bounded = [t for t in p.readable(True) if t.bound is not None and t.bound <= 8 and t.shape == shape and (t.dtype.bits <= 16 or d != "bool")]
    if bounded and tile.dtype.is_float and c.chance(40):
        source = c.pick(bounded)
        p.line(f"T.copy({source.name}, {tile.name})")
        p.learn(tile, source.element(), True)
        return tile
    inputs = [t.tile for t in p.tensors if t.contents == "small" and len(t.tile.shape) >= 2 and t.tile.dtype is tile.dtype]
    source = c.pick(inputs) if inputs else p.tensor(tile.dtype, (c.pick((64, 33, 96, 1)), c.pick((64, 32, 40, 57))), "small")
    p.copy_in(tile, source)
    return tile


def gemm(p: Program) -> None:
    """A product of two new tiles on an old or a new accumulator."""
    c = p.choices
    types = c.pick(_GEMMS)
    m, n, k = c.pick((16, 32, 64, 48, 128)), c.pick((16, 32, 64, 8, 24)), c.pick((16, 32, 64))
    if p.threads % 32:
        return p.copy_in()
    ta, tb = c.chance(30), c.chance(40)
    scope_a = "fragment" if c.chance(25) else "shared"
    scope_b = "fragment" if scope_a == "shared" and c.chance(10) else "shared"
    olds = [t for t in p.writable() if t.ready and t.scope == "fragment" and t.shape == (m, n) and t.dtype.name == types[1]]
    acc = c.pick(olds) if olds and c.chance(70) else p.alloc(dtype(types[1]), (m, n), "fragment")
    clear = not acc.ready
    if clear and c.chance(60):
        p.fill(acc)
        clear = False
    a = operand(p, types[0], (k, m) if ta else (m, k), scope_a)
    b = operand(p, types[0], (n, k) if tb else (k, n), scope_b)
    multiply(p, a, b, acc, k, ta, tb, clear)
    return None


def multiply(p: Program, a: Tile, b: Tile, acc: Tile, k: int, ta: bool, tb: bool, clear: bool) -> None:
    """T.gemm where its sums are known to be well defined; an accumulator of anything is cleared."""
    c = p.choices
    bound = k * (a.bound if a.bound is not None else 99) * (b.bound if b.bound is not None else 99)
    before = None if acc.bound is None or acc.noise else acc.bound
    if not clear and before is None and acc.dtype.is_float and not (acc.noise and acc.peak < 1e3):
        clear = True
    exact = bound + (0 if clear else before or 0) <= whole_range(acc.dtype) and (clear or acc.noise == 0)
    if acc.dtype.is_float and not exact and not p.admits(acc, 1):
        clear, exact = True, bound <= whole_range(acc.dtype)
    flags = "".join(f", {n}=True" for n, on in (("transpose_A", ta), ("transpose_B", tb), ("clear_accum", clear)) if on)
    policy = c.pick(("", "", ", policy=T.GemmWarpPolicy.FullRow", ", policy=T.GemmWarpPolicy.FullCol"))
    p.line(f"T.gemm({a.name}, {b.name}, {acc.name}{flags}{policy})")
    noise = 0.0 if exact or not acc.dtype.is_float else noise_of(acc.dtype)
    total = bound + (0 if clear else before or 0)
    p.learn(acc, Value("", acc.dtype, noise, total if exact else None, float(total)), True)


# scalars and single threads


def snapshot(p: Program) -> None:
    """A name for a value as it is now, or a variable that all threads change alike."""
    c = p.choices
    d = dtype(c.pick(("int32", "float32", "float16", "int64", "uint8", "bool")))
    value = p.expressions.value(d, p.context(), 2)
    if c.chance(50):
        name = p.name("v")
        p.line(f"{name} = {value.text}")
        p.scalars.append(Value(name, d, 0.0, value.bound, value.peak))
        return
    name = p.name("w")
    p.line(f"{name} = T.alloc_var('{d}')")
    p.line(f"{name} = {value.text}")
    p.scalars.append(Value(name, d))
    if c.chance(50):
        k = p.name("k")
        p.line(f"for {k} in {c.pick(('range', 'T.serial', 'T.unroll'))}({c.between(0, 4)}):")
        p.level += 1
        p.line(f"{name} = {p.expressions.value(d, p.context((k, 4)), 2).text}")
        p.level -= 1


def threads_code(p: Program) -> None:
    """Each thread writes its own elements of a shared tile, some through a private array."""
    c = p.choices
    n = c.pick((16, 1, 32, 64, 96, 128))
    target = p.alloc(dtype(c.pick(("float32", "int32", "float16", "int8", "uint8", "int64"))), (n,), "shared")
    tx = p.name("tx")
    p.line(f"{tx} = T.get_thread_binding(0)")
    p.fill(target)
    hidden = {target.name, *(t.name for t in p.tiles if t.scope == "fragment")}
    context = p.context((tx, p.threads))
    context.hidden = hidden
    if c.chance(40):
        local, k = p.name("l"), p.name("k")
        p.line(f"{local} = T.alloc_local((4,), '{target.dtype}')")
        p.line(f"for {k} in {c.pick(('T.serial', 'T.unroll', 'T.vectorized'))}(4):")
        p.level += 1
        inner = p.context((k, 4), (tx, p.threads))
        inner.hidden = hidden
        p.line(f"{local}[{k}] = {p.expressions.value(target.dtype, inner, 2).text}")
        p.level -= 1
        context.leaves.append(Value(f"{local}[{c.below(4)}]", target.dtype))
    guards = ([f"{tx} < {n}"] if n < p.threads else []) + ([p.expressions.condition(context, 1).text] if c.chance(30) else [])
    if guards:
        p.line(f"if {' and '.join(guards)}:")
        p.level += 1
    p.line(f"{target.name}[{tx}] = {p.expressions.value(target.dtype, context, 2).text}")
    if guards:
        p.level -= 1
    target.noise, target.bound, target.peak = 0.0, None, float("inf")


def stored_here(p: Program) -> None:
    """One element of a tile, by a statement of the whole block."""
    c = p.choices
    targets = [t for t in p.writable() if t.ready]
    if not targets:
        return p.fill()
    target = c.pick(targets)
    index = [str(c.below(n)) for n in target.shape]
    context = p.context()
    context.hidden = {target.name}
    value = p.fitted(target, p.expressions.value(target.dtype, context, 2))
    p.line(f"{target.element(*index).text} = {value.text}")
    return p.learn(target, value, False)


# nests


def mutables(p: Program) -> list[Tile]:
    """Some of the tiles that a nest may write."""
    olds = [t for t in p.writable() if t.ready]
    return p.choices.shuffled(olds)[: p.choices.between(1, 3)]


def several(p: Program, depth: int, most: int = 3) -> None:
    """A few statements."""
    p.choices.repeat(1, most, 60, lambda: statement(p, depth))


def ensure(p: Program) -> None:
    """There is something to work on."""
    if not any(t.ready for t in p.writable()):
        p.copy_in()


def serial(p: Program, depth: int) -> None:
    """A serial or unrolled loop."""
    c = p.choices
    ensure(p)
    k, n = p.name("k"), c.pick((2, 0, 1, 3, 5))
    kind = c.pick(("T.serial", "T.unroll", "range"))
    bounds = c.pick((f"{n}", f"1, {n + 1}", f"0, {2 * n}, 2", f"{n}, 0, -1"))
    if c.chance(20):
        bounds = run_time(p, 4)
    with p.nest(f"for {k} in {kind}({bounds}):", mutables(p), (k, 2 * n + 4)):
        several(p, depth)


def run_time(p: Program, most: int) -> str:
    """A number of steps below `most` that all threads of a block know at run time only."""
    if p.choices.chance(40) and "n0" in p.arguments:
        return f"n0 % {most}"
    value = p.expressions.leaf(INT32, p.context(), 1)
    return f"{value.text} % {most}"


def branch(p: Program, depth: int) -> None:
    """An if of the whole block, perhaps with an else."""
    ensure(p)
    keep = mutables(p)
    with p.nest(f"if {p.expressions.condition(p.context(), 2).text}:", keep):
        several(p, depth, 2)
    if p.choices.chance(40):
        with p.nest("else:", keep):
            several(p, depth, 2)


def parted(p: Program, depth: int) -> None:
    """Tile statements of some threads."""
    p.copy_in()
    team(p, [(3, Program.copy_in), (4, Program.copy_tile), (2, Program.fill), (4, Program.reduce), (2, Program.scan), (9, parallel), (2, gemm)])


def whiles(p: Program, depth: int) -> None:
    """A while loop over a variable, or over an element in shared memory that all threads see change."""
    c = p.choices
    ensure(p)
    w, n = p.name("w"), c.between(0, 4)
    if c.chance(35):
        p.line(f"{w}_s = T.alloc_shared(({c.between(1, 3)},), 'int32')")
        p.line(f"T.fill({w}_s, {n})")
        count = f"{w}_s[0]"
    else:
        p.line(f"{w} = T.alloc_var('int32')")
        p.line(f"{w} = {n}")
        count = w
    with p.nest(f"while {count} > 0:", mutables(p)):
        p.scalars.append(Value(count, INT32, bound=4, peak=4))
        several(p, depth, 2)
        if count != w and c.chance(40):
            tx = p.name("tx")
            p.line(f"{tx} = T.get_thread_binding(0)")
            p.line(f"if {tx} == {c.below(p.threads)}:")
            p.line(f"    {count} = {count} - 1")
        else:
            p.line(f"{count} = {count} - 1")
    p.scalars.append(Value(count, INT32, bound=4, peak=4))


def pipelined(p: Program, depth: int) -> None:
    """Copies that may run ahead, and what is made of them: a product, or anything."""
    c = p.choices
    ensure(p)
    k, n, stages = p.name("k"), c.pick((3, 0, 1, 2, 5, 8)), c.pick((2, 0, 1, 3, 4))
    bounds = run_time(p, n + 1) if c.chance(20) else c.pick((f"{n}", f"1, {n + 1}"))
    product = p.threads % 32 == 0 and c.chance(50)
    if product:
        types = c.pick(_GEMMS)
        m, w, d = c.pick((64, 16, 32, 128)), c.pick((64, 16, 32, 24)), c.pick((32, 16, 64))
        ta, tb = c.chance(30), c.chance(40)
        acc = p.alloc(dtype(types[1]), (m, w), "fragment")
        p.line(f"T.clear({acc.name})")
        p.learn(acc, Value("", acc.dtype, 0.0, 0, 0.0), True)
        tiles = [p.alloc(dtype(types[0]), s, "shared") for s in ((d, m) if ta else (m, d), (w, d) if tb else (d, w))]
        sources = [p.tensor(t.dtype, (t.shape[0] * 2 + c.below(9), t.shape[1] * 3 - c.below(9)), "small") for t in tiles]
    keep = mutables(p)
    with p.nest(f"for {k} in T.Pipelined({bounds}, num_stages={stages}):", [t for t in keep if not product or t is not acc], (k, n + 1)):
        if product:
            acc.frozen = False
            for t, s in zip(tiles, sources, strict=True):
                t.frozen = False
                p.line(f"T.copy({s.name}[{p.start_of(s.shape[0], t.shape[0])}, {p.start_of(s.shape[1], t.shape[1])}], {t.name})")
            flags = f", transpose_A={ta}, transpose_B={tb}"
            p.line(f"T.gemm({tiles[0].name}, {tiles[1].name}, {acc.name}{flags})")
            for t in (acc, *tiles):
                t.frozen = True
            if c.chance(40):
                several(p, depth, 2)
        else:
            for _ in range(c.between(1, 2)):
                fresh = p.alloc(None, None, "shared")
                p.copy_in(fresh)
            several(p, depth)
    if product:
        total = 9 * d * (n + 1)
        exact = total <= whole_range(acc.dtype)
        p.learn(acc, Value("", acc.dtype, 0.0 if exact or not acc.dtype.is_float else noise_of(acc.dtype), total if exact else None, total), True)
