"""Decides where two neighbouring blocks of a GEMM on Hopper should fetch the operand that both need once for the two of them.

    pair_of(launch, match, a, b) -> Pair(axis=1, shared="b", when=...) for 128x256 tiles: blocks below one another share b

Rows that start off a 128-byte line cost the copy engine two requests each, and tiles arrive slower than they are multiplied. A pair
halves what is fetched of one operand. Otherwise it gains nothing, and idles where the tiles along its axis are odd in number.
"""

from __future__ import annotations

from dataclasses import replace

from tilec.record import record
from tilec.analysis.affine import depends_on
from tilec.ir.dtypes import BOOL, INT64
from tilec.ir.expr import Binary, Compare, Const, Expr, Load, Logical, Unary
from tilec.ir.kernel import Launch
from tilec.ir.visit import substitute, walk_expr
from tilec.plan.access import row_strides
from tilec.plan.domains import cast, paired
from tilec.plan.hopper.gemm_match import Match
from tilec.plan.hopper.plan import MULTIPROCESSORS, Operand, Pair

CLUSTERED = Const(True, BOOL)
"""When a pair that the author's cluster_dims ask for pays: always."""

LINE = 128
"""Bytes of a line of the cache."""


@record
class Rules:
    """What measurements on an H200 settled. A row off the lines keeps the copy engine busy for `row` cycles. Sharing a is preferred
    where the loads of a step then take at most 5/4 of its products' time; else the larger operand is shared."""

    row: int = 4


RULES = Rules()


def pair_of(launch: Launch, found: Match, a: Operand, b: Operand, axes: tuple[int, ...] = (0, 1)) -> Pair | None:
    """How blocks may pair up along one of the axes, and for which sizes they should; None where they cannot."""
    if found.guard is not None or found.ahead or len(launch.block_vars) < 2 or any(_reads(o) for o in (a, b)):
        return None
    rows = [o.shape[0] if o.k_major else o.shape[1] for o in (a, b)]
    loads, products = RULES.row * (rows[0] // 2 + rows[1]), rows[0] * rows[1] // 32
    order = ("a", "b") if 4 * loads <= 5 * products or rows[0] > rows[1] else ("b", "a")
    for shared in order:
        one, other = (a, b) if shared == "a" else (b, a)
        for axis in axes:
            if one.shape[0] % 16 == 0 and len(one.at) == 2 and _separates(launch, found, axis, one, other):
                return Pair(axis, shared, _when(launch, found, axis))
    return None


def halved(o: Operand) -> Operand:
    """The operand as each of two blocks fetches it: half of its rows, into the shared memory of both."""
    across, rows = o.map.box
    return replace(o, map=replace(o.map, box=(across, rows // 2)), halved=True)


def pair_grid(grid: tuple[Expr, ...], axis: int) -> Expr:
    """Blocks of a launch: two for each pair of tiles, as many as run at once."""
    two = Const(2, INT64)
    pairs: Expr = Const(1, INT64)
    for d, e in enumerate(grid):
        one: Expr = cast(e, INT64)
        if d == axis:
            one = Binary("floordiv", Binary("add", one, Const(1, INT64), INT64), two, INT64)
        pairs = one if d == 0 else Binary("mul", pairs, one, INT64)
    at_once = Binary("floordiv", cast(MULTIPROCESSORS, INT64), two, INT64)
    return Binary("mul", Binary("min", pairs, at_once, INT64), two, INT64)


def without(when: Expr | None, pair: Pair) -> Expr:
    """The condition of the body that does not pair blocks up."""
    alone = Unary("not", pair.when, BOOL)
    return alone if when is None else Logical("and", when, alone)


def _reads(o: Operand) -> bool:
    """True when the place of an operand is read from memory, which blocks beyond the last tile must not do."""
    return any(isinstance(x, Load) for e in o.at for x in walk_expr(e))


def _separates(launch: Launch, found: Match, axis: int, one: Operand, other: Operand) -> bool:
    """True when blocks along an axis need the same tiles of `one`, and different ones of `other`, in as many steps as all others."""
    var = (launch.block_vars[axis],)
    ends = [substitute(e, found.resolved) for e in (found.loop.start, found.loop.stop)]
    steady = not any(depends_on(e, launch.block_vars) for e in ends)  # blocks count the steps of all their tiles ahead
    return steady and not any(depends_on(e, var) for e in one.at) and any(depends_on(e, var) for e in other.at)


def _when(launch: Launch, found: Match, axis: int) -> Expr:
    """There is a neighbour, and rows lie off the lines."""
    tests: list[Expr] = []
    for c in found.copies:
        tensor = c.src.buffer
        row = cast(row_strides(tensor)[paired(c.src)[0]], INT64)
        tests.append(Compare("ne", Binary("mod", row, Const(LINE // tensor.dtype.bytes, INT64), INT64), Const(0, INT64)))
    pays = tests[0]
    for t in dict.fromkeys(tests[1:]):
        pays = pays if t == pays else Logical("or", pays, t)
    return Logical("and", Compare("gt", launch.grid[axis], Const(1, launch.grid[axis].dtype)), pays)


def chosen_pair(launch: Launch, found: Match, a: Operand, b: Operand, wanted: str) -> Pair | None:
    """How blocks pair up by the option `wanted` (auto, on or off) and the author's cluster_dims; None where they do not."""
    if wanted == "off":
        return None
    axis = {(2, 1, 1): 0, (1, 2, 1): 1}.get(launch.cluster)
    asked = None if axis is None else pair_of(launch, found, a, b, (axis,))
    if asked is not None:
        return replace(asked, when=CLUSTERED)
    pair = pair_of(launch, found, a, b)
    if pair is None or wanted == "auto":
        return pair
    extent = launch.grid[pair.axis]
    return replace(pair, when=Compare("gt", extent, Const(1, extent.dtype)))
