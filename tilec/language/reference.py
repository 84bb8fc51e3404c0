"""docs/language.md from the catalogue: every name, its signature, what it means, and what the compiler does with it.

python -c "from tilec.language.reference import render; print(render(), end='')" > docs/language.md
"""

from __future__ import annotations

from tilec.language.bind import Entry, State, signature
from tilec.language.catalogue import ANNOTATIONS, DTYPE_NAMES, FAMILIES, MARKERS
from tilec.language.gemm import ACCUMULATORS, POLICIES

_HEAD = """# The language

Every name that a kernel may use, with `import tilelang.language as T` (or `import tilelang as T`, or `import tilec.language as T`).
This page is generated from `tilec/language` by `tilec.language.reference.render`; edit the docstrings there.

- **works**: compiled.
- **ignored**: accepted; it changes nothing about what the kernel computes.
- **refused**: a known name that is not compiled; the error says what to write instead.

An unknown name or keyword is an error that gives the nearest known one.
"""

_RULES = """
## Types and literals

Element types, each also a cast (`T.float16(x)`): {types}.

- An integer literal takes the type of the other operand when that type holds it, otherwise int32, int64 or uint64, whichever is first
  to hold it. A float literal is a float32, beside a float64 a float64. A literal is rounded once, to the type it ends up in.
- Two floats meet in the wider one (float16 beside bfloat16: float16; the two 8-bit types: float16). An integer and a float meet in the
  float. Of two integers the wider wins; of equal widths the unsigned one. bool gives way to everything; two bools add as int32.
- Integers wrap at the width of their type, in literals too. 8-bit floats are computed in float32 and rounded back after each operation.
- `T.uint8(300)`, and a literal stored or filled into a type that cannot hold it, are errors; `T.cast(300, "uint8")` wraps.
- `//` and `%` follow Python for integers and floats. `/` of two integers is an error. Comparisons of integers are exact across types.
- 4-bit elements lie two a byte, the first in the low half: a tensor of K of them is passed as one of K / 2 bytes (int8 for int4,
  uint8 for the others). They are computed as int8, uint8 and float16; float8_e8m0fnu, an exponent, as float32. Two elements of a
  byte must be written by one thread: in T.Parallel, at an even number plus its last variable. T.gemm spreads them out first.
- `float32x4` and the like, of every type but bool, with 2, 4, 8, 16, 32 or 64 lanes: types of tensors, tiles, private arrays and
  variables. `T.float32x4(x, y, z, w)` makes one. Operations, functions and casts are done lane by lane, numbers beside them count for
  each lane. A slice of so many elements, and an element under `T.Ramp(i, 1, 4)`, are vectors too where a value is needed. The Tile IR
  has none: a tensor of them is passed as one with a dimension more, `float32x4[N]` as `float32[N, 4]`.
- 6-bit floats, single bits and the 8-bit floats of other GPUs (`float8_e4m3fnuz` and the like) are refused: neither conversions nor
  tensor cores of these GPUs know them.
- Casts: floats round to nearest even, to an integer they truncate and stop at the nearest end, NaN becomes 0; 8-bit floats saturate to
  the largest finite value and keep NaN; anything to bool is `!= 0`.
- `max`, `min`, their reductions, scans and atomics drop NaN. `T.clamp(x, lo, hi)` is `min(max(x, lo), hi)`: NaN becomes `lo`.
- `x ** n` with a whole literal n up to 16 is a product (in float32 for narrower floats); with n = 0 it is 1, with a negative n the
  reciprocal of one.

## Indices, slices and copies

- An element needs one index a dimension. A literal index of a tile must lie inside it; a negative literal counts from the end.
- Reads of a global tensor out of its range give 0 (or `T.annotate_safe_value`), writes and atomics there are dropped.
- A slice has step 1 and must not be reversed; copies, fills and atomics of an empty one do nothing, elsewhere it is an error. Slices
  of tiles must lie inside them, slices of global tensors are masked.
- In `T.copy` and the tile forms of the atomics, dimensions of extent 1 are dropped and the rest must agree. A side without slices is a
  start address that takes the extents of the other side, aligned at the last dimension; two such sides are one element.
- Where an extent of a global side is only known at run time, the tile's extent is used and the global side is masked.

## Threads and launches

- Tile statements and `T.Parallel` are done once by the whole block. Other statements are executed by every thread; a store to a tensor
  or tile whose index and value do not depend on the thread happens once, an atomic once for each thread that comes to it.
- `continue` ends an iteration of any loop, of `T.Parallel` too; `break` leaves loops with an order: `T.serial`, `range`, `while`.
- Inside `T.ws(...)` tile statements still belong to the whole block; the scalar ones run in the named warp groups only. Under another
  branch on thread indices (`if tx < 32:`) tile statements belong to the threads that come to them, which must be whole warps of
  neighbours, or one thread; register tiles inside are theirs, and threads wait for each other as everywhere. Under a branch of other
  threads a tile statement is an error; loops with `T.serial` are each thread's own.
- In a kernel with barriers of its own (`T.alloc_barrier`, `T.tma_copy`, `T.wgmma_gemm`) a branch on thread indices makes a team:
  whole warps of neighbours, or one thread. Tile statements inside, those of `T.ws` included, belong to the team, and its register
  tiles are its own. Inside a team tilec orders shared tiles itself; between teams the barriers do. Queued copies and products are
  waited for by the author.
- Threads are made to wait for each other wherever a tile is read that others have written. A branch that only some threads take cannot
  wait for all of them: `TL_DISABLE_THREAD_STORAGE_SYNC` leaves the order inside such branches to the author.
- Several `T.Kernel` in one function are launches that follow each other on the stream. `T.alloc_global` makes scratch tensors that they
  share: the launcher then takes a `workspace` of `SYMBOL_workspace(...)` bytes, aligned to 16.
- With `T.sync_grid` the launch is cooperative: all blocks must fit on the device at once, else the launcher returns an error.
- `T.annotate_layout` of a tensor in global memory orders its elements in memory, for every kernel that uses the tensor.
- A `T.ptr` parameter is a tensor parameter of the shape that `T.make_tensor` gives it. Tensors behind addresses that are read from
  memory are only assumed to be aligned to their element.
- The author's CUDA (`T.import_source`, `prelude=`) stands in front of the kernels, behind tilec's own helpers. `tilec run` executes
  it where it compiles for the CPU, and compares nothing: what it means only the compiled code knows.

## GEMM types

| operands | accumulators |
| --- | --- |
{accumulators}

Operands have one type; float32 beside tfloat32 and the two 8-bit floats may be mixed. `T.GemmWarpPolicy` has {policies}.
"""


def render() -> str:
    """The whole page as Markdown."""
    accumulators = "\n".join(f"| {a} | {', '.join(map(str, found))} |" for a, found in ACCUMULATORS.items())
    policies = ", ".join(POLICIES)
    rules = _RULES.format(types=", ".join(f"`{n}`" for n in DTYPE_NAMES), accumulators=accumulators, policies=policies)
    parts = [_HEAD, rules, _markers()] + [_family(title, entries) for title, entries in FAMILIES.items()]
    return "".join(parts)


def _markers() -> str:
    rows = "".join(f"| `{name}` | {meaning} |\n" for name, meaning in MARKERS.items())
    names = ", ".join(f"`{n}`" for n in ANNOTATIONS)
    return f"\n## Decorators\n\n| name | meaning |\n| --- | --- |\n{rows}\nOnly in annotations: {names}.\n"


def _family(title: str, entries: tuple[Entry, ...]) -> str:
    """One table for the names that are accepted, one list for those that are refused."""
    accepted = [e for e in entries if e.state is not State.REFUSED]
    text = f"\n## {title}\n"
    if accepted:
        text += "\n| name | meaning | state |\n| --- | --- | --- |\n" + "".join(map(_row, accepted))
    by_help: dict[str, list[str]] = {}
    for e in entries:
        if e.state is State.REFUSED:
            by_help.setdefault(e.instead, []).append(f"`{e.name}`")
    if by_help:
        text += "\nRefused:\n\n" + "".join(f"- {', '.join(names)}: {instead}\n" for instead, names in by_help.items())
    return text


def _row(entry: Entry) -> str:
    state = "works" if entry.state is State.WORKS else "ignored"
    return f"| `{signature(entry.name, entry.fn).replace('|', chr(92) + '|')}` | {entry.doc} | {state} |\n"
