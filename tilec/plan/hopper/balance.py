"""Which sections of tiles even out the shares of persistent blocks, where some tiles take longer than others.

Blocks take tiles there and back: block b of n takes tile b, then 2 n - 1 - b, then 2 n + b. In each section the longest tiles come
first. Whether the shares come out even depends on how many rounds a section has; sections of most sizes are off by 2 to 6 %,
some by half.

    balanced(rows=32, others=128, most=24, steps=[2, 4, ..., 64], blocks=132) -> 23: 24 would be 14 % off
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from tilec.analysis.affine import depends_on
from tilec.analysis.simplify import simplify
from tilec.ir.dtypes import INT32, INT64
from tilec.ir.expr import Binary, Const, Expr, Var
from tilec.ir.kernel import Launch
from tilec.ir.tile import Copy
from tilec.ir.visit import substitute
from tilec.plan.domains import cast, paired, static

BLOCKS = 132
"""The multiprocessors of the GPU that shares are evened out for."""

GOOD = 1.015
"""How much longer than the mean the longest share may take."""

TOLERABLE = 1.05
"""The same, where sections would have to be larger than the cache."""

MOST_TILES = 1 << 14
"""With more tiles than this no section is off by much, and trying takes time."""

AROUND = 3
"""Steps' worth of time that a tile takes besides its steps."""


def excess(rows: int, others: int, section: int, steps: Sequence[int], blocks: int = BLOCKS) -> float:
    """The longest share of a block over the mean; `steps` are those of a tile by row, in the order in which rows are taken."""
    shares = [0] * blocks
    tile, total = 0, 0
    for top in range(0, others, section):
        width = min(section, others - top)
        for n in steps[:rows]:
            for _ in range(width):
                turn, place = divmod(tile, blocks)
                shares[place if turn % 2 == 0 else blocks - 1 - place] += n + AROUND
                tile += 1
            total += (n + AROUND) * width
    return max(shares) * blocks / total if total else 1.0


def balanced(rows: int, others: int, most: int, steps: Sequence[int], blocks: int = BLOCKS) -> int:
    """The number of others a section should have: `most` or less where that does, since their tensors share the cache, else more."""
    if rows * others > MOST_TILES or rows * others <= blocks:
        return most
    best, least = most, float("inf")
    for section in (*range(most, max(0, most // 2 - 1), -1), *range(most + 1, min(others, 3 * most) + 1)):
        if section == most + 1 and least < TOLERABLE:
            break
        found = excess(rows, others, section, steps, blocks)
        if found < least:
            best, least = section, found
        if found <= GOOD:
            break
    return best


def balanced_section(section: Expr, launch: Launch, axis: int, span: tuple[Expr, Expr], uneven: int) -> Expr:
    """`section` as it evens out shares, where all sizes are known: `span` are the bounds of a tile's loop, over the block indices;
    it grows longer with that of `axis` (`uneven` 1) or shorter (-1)."""
    row = launch.block_vars[axis]
    most, count, *rest = (static(simplify(e)) for e in (section, launch.grid[axis], *(e for n, e in enumerate(launch.grid) if n != axis)))
    if most is None or count is None or None in rest:
        return section
    start, stop = span
    steps: list[int] = []
    for n in range(count) if uneven < 0 else reversed(range(count)):
        table: dict[Var, Expr] = {row: Const(n, INT32)}
        trips = static(simplify(Binary("sub", substitute(stop, table), substitute(start, table), INT32)))
        if trips is None:
            return section
        steps.append(max(0, trips))
    return Const(balanced(count, prod(n or 1 for n in rest), most, steps), INT32)


def row_axis(launch: Launch, rows: Copy, resolved: Mapping[Var, Expr]) -> int:
    """The block index that the first row of a block's own tile follows: blocks that differ in it alone stream the same tiles."""
    at = substitute(rows.src.starts[paired(rows.src)[0]], resolved)
    return next((n for n, v in enumerate(launch.block_vars) if depends_on(at, (v,))), 0)


def section_of(launch: Launch, axis: int, streams: Sequence[Copy], cache: int) -> Expr:
    """How many of the block indices other than `axis` stream tensors that fit `cache` bytes together."""
    others: Expr = Const(1, INT64)
    for n, e in enumerate(launch.grid):
        if n != axis:
            others = Binary("mul", others, cast(e, INT64), INT64)
    size: Expr = Const(0, INT64)
    for c in streams:
        one: Expr = Const(c.src.buffer.dtype.bytes, INT64)
        for e in c.src.buffer.shape:
            one = Binary("mul", one, cast(e, INT64), INT64)
        size = Binary("add", size, one, INT64)
    fit = Binary("floordiv", Binary("mul", others, Const(cache, INT64), INT64), size, INT64)
    return cast(Binary("max", Const(1, INT64), Binary("min", others, fit, INT64), INT64), INT32)
