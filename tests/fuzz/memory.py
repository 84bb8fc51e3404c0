"""Statements about memory: atomics, tensors that a block writes and reads again, views, private arrays, slices of tiles.

    atomics(program)  ->  for i3 in T.Parallel(64): T.atomic_add(s1[i3 * 3 % 16], f2[i3])
"""

from __future__ import annotations

from math import inf, prod

from tests.fuzz.program import Program
from tests.fuzz.values import Tile, Value, dtype

_ATOMIC = ("int32", "uint32", "int64", "uint64", "float32", "float16", "int8", "float64")


def atomics(p: Program) -> None:
    """Elements of a shared tile, each changed by any number of iterations: whole numbers, so that the order is free."""
    c = p.choices
    d = dtype(c.pick(_ATOMIC))
    target = p.alloc(d, p.shape(c.pick((1, 2)), 512), "shared")
    p.line(f"T.clear({target.name})")
    n = c.pick((16, 1, 48, 200))
    i = p.name("i")
    p.line(f"for {i} in T.Parallel({n}):")
    p.level += 1
    context = p.context((i, n))
    context.hidden = {target.name}
    e = p.expressions
    value = e.value(d, context, 2)
    if d.is_float:
        value = e.clamped(value, 2, whole=True)
    index = ", ".join(e.index(n, context) for n in target.shape)
    p.line(f"T.atomic_{c.pick(('add', 'max', 'min'))}({target.name}[{index}], {value.text})")
    p.level -= 1
    p.learn(target, Value("", d, 0.0, 400 if d.is_float else None, 400.0), True)


def scratch(p: Program) -> None:
    """A tensor of which each block writes its own part, and reads it back in another order."""
    c = p.choices
    olds = [t for t in p.readable() if t.noise == 0]
    if not olds:
        return p.copy_in()
    source = c.pick(olds)
    written = p.tensor(source.dtype, (*reversed(p.grid), *source.shape), "poison")
    part = ", ".join(v for v, _ in reversed(p.blocks))
    whole = ", ".join(f"0:{n}" for n in source.shape)
    p.line(f"T.copy({source.name}, {written.name}[{part}, {whole}])")
    target = p.target(source.shape, source.dtype)
    if c.chance(30):
        p.line(f"T.copy({written.name}[{part}, {whole}], {target.name})")
        return p.learn(target, source.element(), True)
    names = [p.name("i") for _ in source.shape]
    mirrored = ", ".join(f"{n - 1} - {v}" for v, n in zip(names, source.shape, strict=True))
    p.line(f"for {', '.join(names)} in T.Parallel({', '.join(map(str, source.shape))}):")
    p.level += 1
    p.line(f"{target.name}[{', '.join(names)}] = {written.name}[{part}, {mirrored}]")
    p.level -= 1
    return p.learn(target, source.element(), True)


def view(p: Program) -> None:
    """A shared tile under another shape or element type; from here on it goes by its new name."""
    c = p.choices
    olds = [t for t in p.writable() if t.ready and t.scope == "shared" and t.level == p.level and t.noise == 0]
    if not olds:
        return p.fill()
    old = c.pick(olds)
    count = prod(old.shape)
    d = old.dtype
    if d.name in ("int32", "float32", "uint32", "int16", "uint16", "float16", "int8", "uint8") and c.chance(50):
        d = dtype(c.pick([t for t in ("int32", "uint32", "int16", "uint16", "int8", "uint8") if dtype(t).bits == d.bits]))
    first = c.pick([n for n in (1, 2, 3, 7, 16) if count % n == 0])
    shape = (first, count // first)
    new = Tile(p.name("s"), d, shape, "shared", p.level, True, 0.0, old.bound if d is old.dtype else None, old.peak if d is old.dtype else inf)
    changed = "" if d is old.dtype else f", dtype='{d}'"
    p.line(f"{new.name} = T.{'view' if changed or c.chance(50) else 'reshape'}({old.name}, ({shape[0]}, {shape[1]}){changed})")
    p.tiles.remove(old)
    p.tiles.append(new)
    return None


def private_copies(p: Program) -> None:
    """Each thread moves a few elements of a tensor through a private array into its own part of a shared tile."""
    c = p.choices
    inputs = [t.tile for t in p.tensors if t.is_input and len(t.tile.shape) == 1]
    source = c.pick(inputs) if inputs else p.tensor(dtype(c.pick(("float32", "float16", "int8", "int32"))), (c.pick((229, 64, 500)),))
    per = c.pick((4, 1, 2, 8, 3))
    target = p.alloc(source.dtype, (p.threads * per,), "shared")
    tx, local = p.name("tx"), p.name("l")
    p.line(f"{tx} = T.get_thread_binding(0)")
    p.line(f"{local} = T.alloc_local(({per},), '{source.dtype}')")
    if c.chance(30):
        p.line(f"T.clear({local})")
    p.line(f"T.copy({source.name}[{tx} * {per}:{tx} * {per} + {per}], {local})")
    if c.chance(40):
        k = p.name("k")
        p.line(f"for {k} in {c.pick(('T.vectorized', 'T.unroll', 'T.serial'))}({per}):")
        p.line(f"    {local}[{k}] = T.max({local}[{k}], T.cast({k}, '{source.dtype}'))" if source.dtype.bits > 8 else "    pass")
    p.line(f"T.copy({local}, {target.name}[{tx} * {per}:{tx} * {per} + {per}])")
    p.learn(target, Value("", source.dtype), True)


def sliced_gemm(p: Program) -> None:
    """A product of slices of three-dimensional shared tiles."""
    c = p.choices
    if p.threads % 32:
        return p.copy_in()
    m, n, k = c.pick((16, 32, 64)), c.pick((16, 32, 8)), c.pick((16, 32))
    d = dtype(c.pick(("float16", "bfloat16", "float32")))
    tb = c.chance(40)
    tiles = [p.alloc(d, (2, m, k), "shared"), p.alloc(d, (2, n, k) if tb else (2, k, n), "shared")]
    for t in tiles:
        p.copy_in(t, p.tensor(d, (3, 40, 57), "small"))
    acc = p.alloc(dtype("float32"), (m, n), "fragment")
    p.line(f"T.clear({acc.name})")
    i = p.name("k")
    p.line(f"for {i} in {c.pick(('T.serial', 'T.unroll'))}(2):")
    p.line(f"    T.gemm({tiles[0].name}[{i}, :, :], {tiles[1].name}[1 - {i}, :, :], {acc.name}{', transpose_B=True' if tb else ''})")
    p.learn(acc, Value("", acc.dtype, 0.0, 18 * k, 18.0 * k), True)
    return None


def left_early(p: Program) -> None:
    """A loop with break and continue that all threads take alike."""
    c = p.choices
    tiles = [t for t in p.writable() if t.ready and t.dtype.is_int]
    if not tiles:
        return p.fill()
    target = c.pick(tiles)
    k = p.name("k")
    p.line(f"for {k} in {c.pick(('T.serial', 'range'))}({c.between(1, 5)}):")
    p.level += 1
    context = p.context((k, 5))
    context.hidden = {target.name}
    p.line(f"if {p.expressions.condition(context, 1).text}:")
    p.line(f"    {c.pick(('break', 'continue'))}")
    names = [p.name("i") for _ in target.shape]
    p.line(f"for {', '.join(names)} in T.Parallel({', '.join(map(str, target.shape))}):")
    element = f"{target.name}[{', '.join(names)}]"
    p.line(f"    {element} = {element} + T.cast({k} + 1, '{target.dtype}')")
    p.level -= 1
    return p.learn(target, Value("", target.dtype), False)


def runtime_extent(p: Program) -> None:
    """A T.Parallel nest of which one extent is known at run time only."""
    c = p.choices
    targets = [t for t in p.writable() if t.ready and t.shape[0] >= 16]
    if not targets or "n0" not in p.arguments:
        return p.copy_in()
    target = c.pick(targets)
    names = [p.name("i") for _ in target.shape]
    sizes = ["n0", *map(str, target.shape[1:])]
    p.line(f"for {', '.join(names)} in T.Parallel({', '.join(sizes)}):")
    p.level += 1
    context = p.context((names[0], 9), *zip(names[1:], target.shape[1:], strict=True))
    context.hidden = {target.name}
    value = p.expressions.value(target.dtype, context, 2)
    value = p.fitted(target, value)
    p.line(f"{target.name}[{', '.join(names)}] = {value.text}")
    p.level -= 1
    return p.learn(target, value, False)
