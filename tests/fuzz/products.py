"""Whole kernels of the two forms that have paths of their own: matrix products with an epilogue, and attention.

    matmul(program)     T.copy(A), T.copy(B), T.gemm in a pipelined loop, then bias, activation and store
"""

from __future__ import annotations

from tests.fuzz.program import Program
from tests.fuzz.values import Tile, Value, dtype
from tilec.ir.dtypes import INT32

_TYPES = (
    ("float16", "float32"), ("bfloat16", "float32"), ("float16", "float16"), ("float32", "float32"), ("int8", "int32"), ("uint8", "int32"),
    ("float8_e4m3fn", "float32"), ("float8_e5m2", "float32"),
)  # fmt: skip


def _launch(p: Program, threads: tuple[int, ...], *grid: int) -> None:
    """The program's launch, its block indices in reach again."""
    p.threads, p.grid = p.choices.pick(threads), grid
    p.blocks = list(zip(("bx", "by", "bz"), grid, strict=False))
    p.scalars = [Value(v, INT32, bound=n - 1, peak=n) for v, n in p.blocks]


def _extent(p: Program, most: int) -> int:
    """A size up to about `most`: often a multiple of 8, as the copy engine wants rows."""
    n = p.choices.between(1, most)
    return n if p.choices.chance(30) else -(-n // 8) * 8


def _sized(p: Program, name: str, extents: dict[str, int]) -> str:
    """An extent as the kernel writes it: a number, or a name known at run time."""
    if p.choices.chance(60):
        return str(extents[name])
    if f'{name} = T.dynamic("{name}")' not in p.head:
        p.head.append(f'{name} = T.dynamic("{name}")')
    return name


def matmul(p: Program) -> None:
    """C = act(A @ B + bias), tiles with tails along every dimension."""
    c = p.choices
    p.arch = c.pick(("sm_90a", "sm_80"))
    operand, result = (dtype(t) for t in c.pick(_TYPES))
    bm, bn, bk = c.pick((64, 128, 32, 256)), c.pick((64, 128, 32, 16, 96, 256)), c.pick((64, 32, 128))
    while bm * bn > 128 * 128:
        bn //= 2
    sizes = {"M": _extent(p, 2 * bm), "N": _extent(p, 2 * bn), "K": _extent(p, 4 * bk)}
    plain = operand.bits == 16 or c.chance(30)
    ta, tb = (c.chance(30), c.chance(50)) if plain else (False, True)
    batch = c.pick((0, 0, 2))
    grid = (-(-sizes["N"] // bn), -(-sizes["M"] // bm))
    _launch(p, (128, 256, 64), *grid, *([2] if batch else []))
    written = {n: _sized(p, n, sizes) for n in "MNK"}
    splits = c.pick((2, 3)) if not batch and result.bits == 32 and c.chance(20) else 0
    if splits:
        _launch(p, (128, 256), *grid, splits)
    if c.chance(50):
        ends = [str(n) for n in p.grid[2:]]
        p.grid_text = (f"T.ceildiv({written['N']}, {bn})", f"T.ceildiv({written['M']}, {bm})", *ends)
    if c.chance(20):
        p.line(f"T.use_swizzle({c.pick((4, 10))})")
    first, lead, shape = ("2, ", "bz, ", (2,)) if batch else ("", "", ())

    def tensor(rows: str, columns: str) -> Tile:
        return p.tensor(operand, (*shape, sizes[rows], sizes[columns]), "small", f"({first}{written[rows]}, {written[columns]})")

    a, b = tensor(*("KM" if ta else "MK")), tensor(*("NK" if tb else "KN"))
    a_s = p.alloc(operand, (bk, bm) if ta else (bm, bk), "shared")
    b_s = p.alloc(operand, (bn, bk) if tb else (bk, bn), "shared")
    acc = p.alloc(result, (bm, bn), "fragment")
    more = [(tensor(*("NK" if tb else "KN")), p.alloc(operand, b_s.shape, "shared"), p.alloc(result, (bm, bn), "fragment"))] if c.chance(15) else []
    clears = c.chance(30)
    for one in (acc, *(t for _, _, t in more)) if not clears else ():
        p.line(f"T.clear({one.name})")
    steps, step = f"T.ceildiv({written['K']}, {bk})", "k"
    if splits:
        steps, step = f"T.ceildiv({steps}, {splits})", f"(k * {splits} + bz)"
    p.line(f"for k in T.Pipelined({steps}, num_stages={c.pick((2, 0, 1, 3, 4))}):")
    right = f"bx, {step}" if tb else f"{step}, bx"
    for source, tile, at in ((a, a_s, f"{step}, by" if ta else f"by, {step}"), (b, b_s, right), *((t, s, right) for t, s, _ in more)):
        where = ", ".join(f"{v} * {n}" for v, n in zip(at.split(", "), tile.shape, strict=True))
        p.line(f"    T.copy({source.name}[{lead}{where}], {tile.name})")
    flags = f"{', transpose_A=True' if ta else ''}{', transpose_B=True' if tb else ''}{', clear_accum=k == 0' if clears else ''}"
    flags += c.pick(("", ", policy=T.GemmWarpPolicy.FullRow"))
    for tile, one in ((b_s, acc), *((s, t) for _, s, t in more)):
        p.line(f"    T.gemm({a_s.name}, {tile.name}, {one.name}{flags})")
    for _, _, one in more:
        p.line(f"for i, j in T.Parallel({bm}, {bn}):")
        p.line(f"    {acc.name}[i, j] = T.{c.pick(('max', 'min'))}({acc.name}[i, j], {one.name}[i, j])")
    p.tiles = [acc]
    bound = 9 * sizes["K"]
    p.learn(acc, Value("", result, 0.0 if bound <= 2048 or result.bits == 32 else 2.0**-10, bound, float(bound)), True)
    if splits:
        out = p.tensor(result, (sizes["M"], sizes["N"]), "counted", f"({written['M']}, {written['N']})")
        p.line(f"T.atomic_add({out.name}[by * {bm}, bx * {bn}], {acc.name})")
        p.tiles = []
        return
    _epilogue(p, acc, (bm, bn), (sizes["M"], sizes["N"]), (written["M"], written["N"]), first, lead)


def _epilogue(p: Program, acc: Tile, tile: tuple[int, int], sizes: tuple[int, int], written: tuple[str, str], first: str, lead: str) -> None:
    """What happens to the accumulator, and how it is stored."""
    c = p.choices
    (bm, bn), (m, n) = tile, sizes
    if c.chance(40):
        bias = p.tensor(acc.dtype, (n,), "small", f"({written[1]},)")
        p.line(f"for i, j in T.Parallel({bm}, {bn}):")
        p.line(f"    {acc.name}[i, j] = {acc.name}[i, j] + {bias.name}[bx * {bn} + j]")
    if c.chance(40):
        p.line(f"for i, j in T.Parallel({bm}, {bn}):")
        p.line(f"    {acc.name}[i, j] = T.max({acc.name}[i, j], 0)")
    if c.chance(20):
        rows = p.alloc(acc.dtype, (bm,), "fragment")
        p.line(f"T.reduce_{c.pick(('max', 'min'))}({acc.name}, {rows.name}, dim=1)")
        p.line(f"for i, j in T.Parallel({bm}, {bn}):")
        p.line(f"    {acc.name}[i, j] = {acc.name}[i, j] - {rows.name}[i]")
        p.learn(acc, Value("", acc.dtype, acc.noise, None, 2 * acc.peak), True)
    d = dtype(c.pick((acc.dtype.name, "float16", "float32", "bfloat16")))
    out = p.tensor(d, (*((2,) if first else ()), m, n), "poison", f"({first}{written[0]}, {written[1]})")
    out.learn(acc.element(), True)
    kind = c.pick(("copy", "shared", "parallel"))
    if kind == "copy":
        p.line(f"T.copy({acc.name}, {out.name}[{lead}by * {bm}, bx * {bn}])")
    elif kind == "shared":
        stage = p.alloc(d, (bm, bn), "shared")
        p.line(f"T.copy({acc.name}, {stage.name})")
        p.line(f"T.copy({stage.name}, {out.name}[{lead}by * {bm}:by * {bm} + {bm}, bx * {bn}:bx * {bn} + {bn}])")
    else:
        p.line(f"for i, j in T.Parallel({bm}, {bn}):")
        p.line(f"    {out.name}[{lead}by * {bm} + i, bx * {bn} + j] = T.cast({acc.name}[i, j], '{d}')")
    p.tiles = []


def chained(p: Program) -> None:
    """(A B) C: the first product becomes the left operand of the second, through a fragment or through shared memory."""
    c = p.choices
    if p.threads % 32:
        return p.copy_in()
    m, n, k, w = c.pick((16, 64, 32, 128)), c.pick((16, 32, 64)), c.pick((16, 32)), c.pick((16, 32, 8, 64))
    d = dtype(c.pick(("float16", "bfloat16", "float16")))
    ta, tb, tc = c.chance(20), c.chance(50), c.chance(20)
    a, b, right = (p.alloc(d, s, "shared") for s in ((k, m) if ta else (m, k), (n, k) if tb else (k, n), (w, n) if tc else (n, w)))
    first, second = p.alloc(dtype("float32"), (m, n), "fragment"), p.alloc(dtype("float32"), (m, w), "fragment")
    between = p.alloc(d, (m, n), c.pick(("fragment", "shared")))
    for t in (a, b, right):
        p.copy_in(t, p.tensor(d, (c.pick((64, 33, 200)), c.pick((64, 40, 57))), "small"))
    p.line(f"T.clear({second.name})")
    loop, policy = p.name("k"), c.pick(("", ", policy=T.GemmWarpPolicy.FullRow"))
    turns = c.pick((1, 2, 0, 3))
    p.line(f"for {loop} in {c.pick(('T.serial', 'T.unroll', 'range'))}({turns}):")
    p.line(f"    T.clear({first.name})")
    p.line(f"    T.gemm({a.name}, {b.name}, {first.name}, transpose_A={ta}, transpose_B={tb}{policy})")
    p.line(f"    for i, j in T.Parallel({m}, {n}):")
    p.line(f"        {first.name}[i, j] = T.max(T.min({first.name}[i, j] + {loop}, {c.pick((100, 3))}), -100)")
    p.line(f"    T.copy({first.name}, {between.name})")
    p.line(f"    T.gemm({between.name}, {right.name}, {second.name}, transpose_B={tc}{policy})")
    p.tiles = [t for t in p.tiles if t is not between and (turns or t is not first)]
    if turns:
        p.learn(first, Value("", first.dtype, 0.0, 100, 100.0), True)
    return p.learn(second, Value("", second.dtype, 0.0, 300 * n * turns, 300.0 * n * turns), True)


def rows(p: Program) -> None:
    """Each row of a matrix by its maximum and the sum of its squares: in one pass over the columns, then another one."""
    c = p.choices
    p.arch = c.pick(("sm_80", "sm_90a"))
    d = dtype(c.pick(("float32", "float16", "bfloat16", "int32")))
    high, wide = c.pick((4, 1, 16, 64, 3)), c.pick((128, 64, 256, 512, 1024, 100))
    m, n = c.between(1, 3 * high), _extent(p, 3 * wide)
    _launch(p, (128, 256, 64, 32, 96), -(-m // high))
    written = _sized(p, "M", {"M": m}), _sized(p, "N", {"N": n})
    if c.chance(50):
        p.grid_text = (f"T.ceildiv({written[0]}, {high})",)
    x, y = p.tensor(d, (m, n), "small", f"({written[0]}, {written[1]})"), p.tensor(dtype("float32"), (m, n), "poison", f"({written[0]}, {written[1]})")
    work = d if d.bits == 32 else dtype("float32")
    lowest = "-T.infinity('float32')" if work.is_float else "-9"
    shared = c.chance(60)
    scope = "shared" if shared else "fragment"
    if shared:
        p.line(f"x_s = T.alloc_shared(({high}, {wide}), '{d}')")
    p.line(f"x_f = T.alloc_fragment(({high}, {wide}), '{work}')")
    for name in ("top", "part", "total"):
        p.line(f"{name} = T.alloc_{'fragment' if c.chance(80) else 'shared'}(({high},), '{work}')")
    p.line(f"T.fill(top, {lowest})")
    p.line("T.clear(total)")
    for first in (True, False):
        p.line(f"for k in {c.pick(('T.Pipelined', 'T.serial'))}(T.ceildiv({written[1]}, {wide})):" if c.chance(40) else
               f"for k in T.Pipelined(T.ceildiv({written[1]}, {wide}), num_stages={c.pick((2, 1, 3, 0))}):")  # fmt: skip
        p.line(f"    T.copy({x.name}[bx * {high}, k * {wide}], {'x_s' if scope == 'shared' else 'x_f'})")
        if scope == "shared":
            p.line("    T.copy(x_s, x_f)")
        if first:
            p.line("    T.reduce_max(x_f, top, dim=1, clear=False)")
            p.line(f"    for i, j in T.Parallel({high}, {wide}):")
            p.line("        x_f[i, j] = x_f[i, j] * x_f[i, j]")
            p.line("    T.reduce_sum(x_f, part, dim=1)")
            p.line(f"    for i in T.Parallel({high}):")
            p.line("        total[i] += part[i]")
        else:
            p.line(f"    for i, j in T.Parallel({high}, {wide}):")
            p.line("        x_f[i, j] = (x_f[i, j] - top[i]) * 2 + total[i]")
            p.line(f"    T.copy(x_f, {y.name}[bx * {high}, k * {wide}])")


def attention(p: Program) -> None:
    """Softmax(Q K^T) V with a running maximum, causal or not, rows with tails."""
    c = p.choices
    p.arch = c.pick(("sm_90a", "sm_80"))
    operand = dtype(c.pick(("float16", "bfloat16")))
    bm, bn, width = c.pick((64, 128)), c.pick((64, 32, 128)), c.pick((64, 32, 128))
    queries, keys = _extent(p, 2 * bm), _extent(p, 3 * bn)
    _launch(p, (128, 256), -(-queries // bm), 2)
    q, k, v = (p.tensor(operand, (2, n, width), "quarters", f"(2, {n}, {width})") for n in (queries, keys, keys))
    out = p.tensor(operand, (2, queries, width), "poison", f"(2, {queries}, {width})")
    out.noise, out.peak = (2.0**-9 if operand.name == "float16" else 2.0**-6), 2.0
    causal, stages, policy = c.chance(40), c.pick((2, 0, 1, 3)), c.pick(("FullRow", "Square"))
    mask = f"T.if_then_else(bx * {bm} + i >= k * {bn} + j, 0, -T.infinity('float32'))"
    steps = f"T.min(T.ceildiv({keys}, {bn}), T.ceildiv((bx + 1) * {bm}, {bn}))" if causal else f"T.ceildiv({keys}, {bn})"
    scale = "0.18"
    text = f"""
Q_s = T.alloc_shared(({bm}, {width}), '{operand}')
K_s = T.alloc_shared(({bn}, {width}), '{operand}')
V_s = T.alloc_shared(({bn}, {width}), '{operand}')
S = T.alloc_fragment(({bm}, {bn}), 'float32')
P = T.alloc_fragment(({bm}, {bn}), '{operand}')
O = T.alloc_fragment(({bm}, {width}), 'float32')
top = T.alloc_fragment(({bm},), 'float32')
before = T.alloc_fragment(({bm},), 'float32')
factor = T.alloc_fragment(({bm},), 'float32')
part = T.alloc_fragment(({bm},), 'float32')
total = T.alloc_fragment(({bm},), 'float32')
T.copy({q.name}[by, bx * {bm}:(bx + 1) * {bm}, :], Q_s)
T.fill(O, 0)
T.fill(total, 0)
T.fill(top, -T.infinity('float32'))
for k in T.Pipelined({steps}, num_stages={stages}):
    T.copy({k.name}[by, k * {bn}:(k + 1) * {bn}, :], K_s)
    {f'''for i, j in T.Parallel({bm}, {bn}):
        S[i, j] = {mask}''' if causal else 'T.clear(S)'}
    T.gemm(Q_s, K_s, S, transpose_B=True, policy=T.GemmWarpPolicy.{policy})
    T.copy(top, before)
    T.reduce_max(S, top, dim=1, clear=False)
    for i in T.Parallel({bm}):
        factor[i] = T.exp2(before[i] * {scale} - top[i] * {scale})
    for i, j in T.Parallel({bm}, {bn}):
        S[i, j] = T.exp2(S[i, j] * {scale} - top[i] * {scale})
    T.reduce_sum(S, part, dim=1)
    for i in T.Parallel({bm}):
        total[i] = total[i] * factor[i] + part[i]
    T.copy(S, P)
    for i, j in T.Parallel({bm}, {width}):
        O[i, j] *= factor[i]
    T.copy({v.name}[by, k * {bn}:(k + 1) * {bn}, :], V_s)
    T.gemm(P, V_s, O, policy=T.GemmWarpPolicy.{policy})
for i, j in T.Parallel({bm}, {width}):
    O[i, j] /= total[i]
T.copy(O, {out.name}[by, bx * {bm}:(bx + 1) * {bm}, :])
"""
    for line in text.strip().split("\n"):
        p.line(line)
