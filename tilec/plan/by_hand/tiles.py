"""Tiles and copies of a kernel written for Hopper by hand: tiles as the copy engine lays them, and its boxes.

The author has said who does what and who waits for whom. Left are the instruction of each product (`products`), the place of
each element in shared memory, and how a region goes through the copy engine:

    T.tma_copy(A[by * 128, k * 64], A_s)   ->  one box of 64 x 128 halves, rows of 128 bytes, swizzled over 128 bytes
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from math import prod

from tilec.analysis.facts import Facts
from tilec.analysis.ranges import divisor
from tilec.analysis.simplify import simplify
from tilec.ir.dtypes import INT32
from tilec.ir.expr import Binary, Buffer, Const, Expr, Scope
from tilec.ir.tile import BulkCopy, Copy, Gemm, Parallel, Reduce, Region, Stmt
from tilec.ir.visit import buffers_of, storage, viewed, walk_stmt
from tilec.layout.shared import CHUNK, SharedLayout, dense
from tilec.plan.domains import static, static_shape
from tilec.plan.gemm_plan import GemmPlan
from tilec.plan.by_hand.products import row_of
from tilec.plan.by_hand.plan import BulkBox
from tilec.plan.hopper.plan import TensorMap
from tilec.plan.copy_engine import panelled, unreachable, widest_span

MOST_BOX = 256
"""Elements of a box along each dimension."""


def hand_layouts(body: Stmt, gemms: Mapping[int, GemmPlan]) -> dict[Buffer, SharedLayout]:
    """The layouts of tiles that the copy engine or warp-group products touch: rows of 128, 64 or 32 bytes, swizzled over these, wider
    ones cut into panels that lie one behind the other. Tiles that no product and no register tile meets keep plain rows, which take
    the fewest boxes."""
    wanted: dict[Buffer, None] = {}
    tiled = {b for s in walk_stmt(body) if (found := _shared_beside_registers(s)) for b in found}
    barred = set(viewed(walk_stmt(body)))
    for s in walk_stmt(body):
        sides: Iterable[Region] = ()
        if isinstance(s, BulkCopy) and s.dst.buffer.peer is None:
            sides = (s.src, s.dst)
        elif isinstance(s, Gemm) and gemms[id(s)].kind == "wgmma":
            sides = (s.a, s.b)
        elif isinstance(s, Gemm):
            barred.update(r.buffer for r in (s.a, s.b))
        for r in sides:
            if r.buffer.scope is Scope.SHARED:
                wanted[r.buffer] = None
    out: dict[Buffer, SharedLayout] = {}
    for b in wanted:
        shape, item = static_shape(b), b.dtype.bytes
        row = shape[-1] * item
        span = widest_span(row)
        rows = prod(shape[:-1])
        if b not in tiled and shape[-1] <= MOST_BOX:
            continue
        if len(shape) < 2 or not span or rows % 8 or (b in barred and row != span):
            continue
        out[b] = panelled(b, span)
    peers = {b: b.view_of for s in walk_stmt(body) for b in buffers_of(s) if b.peer is not None}
    return out | {b: out[own] for b, own in peers.items() if own in out}


def _shared_beside_registers(s: Stmt) -> list[Buffer]:
    """The shared tiles of a product, or of a statement that touches register tiles too."""
    if not isinstance(s, Copy | Gemm | Parallel | Reduce):
        return []
    used = [b for x in walk_stmt(s) for b in buffers_of(x)]
    registers = isinstance(s, Gemm) or any(b.scope is Scope.FRAGMENT for b in used)
    return [storage(b) for b in used if b.scope is Scope.SHARED] if registers else []


def span_of(layout: SharedLayout) -> int:
    """Bytes of the rows of a hand layout, over which it is swizzled."""
    return layout.pitch * layout.itemsize


def operand_fits(r: Region, layout: SharedLayout | None, facts: Facts) -> str:
    """Why a region of a tile is no operand of a warp-group product; empty when it is one."""
    name = r.buffer.name
    if layout is None or layout.swizzle is None:
        return f"rows of {name} are no multiple of 32 bytes, or it has views or other products, or its rows are no multiple of 8"
    if divisor(row_of(r, layout.shape), facts) % 8 or divisor(r.starts[-1], facts) % layout.pitch:
        return f"the operand does not start on 8 rows and {span_of(layout)} bytes of {name}"
    leading = [static(e) for e in r.extents[:-2]]
    return f"the operand is no matrix of {name}" if any(e != 1 for e in leading) else ""


def bulk_boxes(s: BulkCopy, layout: SharedLayout, facts: Facts) -> tuple[TensorMap, tuple[BulkBox, ...]] | str:
    """The boxes of a copy and the tensor as the engine sees it; or why it cannot do the copy."""
    tensor, tile = (s.src, s.dst) if s.barrier is not None else (s.dst, s.src)
    name, item = tensor.buffer.name, tensor.buffer.dtype.bytes
    walked = [d for d, e in enumerate(tile.extents) if static(e) != 1]
    dims = [d for d, e in enumerate(tensor.extents) if static(e) != 1]
    rank = tensor.buffer.rank
    if tensor.buffer.view_of is not None or tensor.buffer.workspace or tensor.buffer.address is not None or rank > 5:
        return f"{name} is no tensor parameter of 1 to 5 dimensions"
    if reason := unreachable(tensor.buffer, facts):
        return reason
    if tensor.buffer.safe_value is not None or any(e.dtype != INT32 for e in tensor.starts):
        return f"{name} has another value out of range than 0, or is indexed with 64 bits"
    if not walked or walked[-1] != len(tile.extents) - 1 or len(dims) != len(walked) or dims[-1] != rank - 1:
        return "the rows of the tile are not rows of the tensor"
    sizes = [static(e) or 0 for e in tile.extents]
    shape = layout.shape
    if any(sizes[d] != shape[d] for d in walked[1:-1]) or any(sizes[d] != 1 for d in range(walked[0])):
        return "the rows of the tile's region do not lie one behind the other"
    swizzled = layout.swizzle is not None
    rows, columns = prod(sizes[:-1]), sizes[-1]
    pitch = layout.pitch
    if swizzled and (divisor(row_of(tile, shape), facts) % 8 or divisor(tile.starts[-1], facts) % pitch or columns % pitch):
        return f"the region does not start on 8 rows and {pitch} columns of {tile.buffer.name}"
    width = pitch if swizzled else columns if len(walked) > 1 else min(columns, MOST_BOX)
    if width > MOST_BOX or columns % width or width * item % CHUNK or (not swizzled and rows > 1 and columns != shape[-1]):
        return f"rows of {columns} elements are no boxes"
    if not swizzled and divisor(tile.starts[-1], facts) * item % 128 and len(shape) == 1:
        return f"the region of {tile.buffer.name} does not start on 128 bytes"
    outer = [(d, sizes[t]) for d, t in zip(dims[:-1], walked[:-1], strict=True)]
    counts = {d: max(n for n in range(1, min(size, MOST_BOX) + 1) if size % n == 0) for d, size in outer}
    if any(counts[d] != size for d, size in outer[1:]) or (outer and counts[outer[0][0]] * prod(n for _, n in outer[1:]) % 8 and swizzled):
        return "a box is larger than the copy engine's"
    box = tuple(width if d == rank - 1 else counts.get(d, 1) for d in reversed(range(rank)))
    span = span_of(layout) if swizzled else 0
    boxes = _cut(tensor, tile, layout, counts, outer, width, rows, columns, facts)
    return TensorMap(tensor.buffer, box, span), boxes


def _cut(
    tensor: Region, tile: Region, layout: SharedLayout, counts: Mapping[int, int], outer: list[tuple[int, int]], width: int, rows: int,
    columns: int, facts: Facts,
) -> tuple[BulkBox, ...]:  # fmt: skip
    """The boxes of a region, with the element of the tile where each lands."""
    total = prod(layout.shape[:-1])
    row = row_of(tile, layout.shape)
    out: list[BulkBox] = []
    first = outer[0][0] if outer else -1
    along = range(0, outer[0][1], counts[first]) if outer else range(1)
    per_row = rows // outer[0][1] if outer else 1
    for down, right in product(along, range(0, columns, width)):
        at = list(tensor.starts)
        at[-1] = _plus(at[-1], right)
        if outer:
            at[first] = _plus(at[first], down)
        column = _plus(tile.starts[-1], right)
        place = _plus(row, down * per_row)
        if layout.panel:
            panel = simplify(Binary("floordiv", column, Const(layout.panel, INT32), INT32), facts)
            offset = _sum(_times(panel, total * layout.panel), _times(place, layout.panel))
        else:
            offset = _sum(_times(place, layout.pitch), column)
        out.append(BulkBox(simplify(offset, facts), tuple(reversed(at))))
    return tuple(out)


def _plus(e: Expr, n: int) -> Expr:
    if isinstance(e, Const):
        return Const(int(e.value) + n, INT32)
    return e if n == 0 else Binary("add", e, Const(n, INT32), INT32)


def _times(e: Expr, n: int) -> Expr:
    return Const(int(e.value) * n, INT32) if isinstance(e, Const) else Binary("mul", e, Const(n, INT32), INT32)


def _sum(a: Expr, b: Expr) -> Expr:
    if static(a) == 0:
        return b
    return a if static(b) == 0 else Binary("add", a, b, INT32)


def plain(b: Buffer) -> SharedLayout:
    """Rows without padding or exchange."""
    return dense(static_shape(b), b.dtype.bytes)
