"""What a kernel computes, told from its Tile IR: a matrix product, one for each matrix of a batch, or attention.

    recognise(kernel, {"A": (4096, 4096), ...}) -> Product(a="A", b="B", c="C", batch=1, m=4096, ...)

This is a guess by structure. `oracle` holds the guess against what the kernel gave, so a wrong guess costs nothing but the peer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from tilec.record import record
from tilec.ir.expr import Buffer, Const, Load, Scope
from tilec.ir.kernel import Kernel
from tilec.ir.tile import BulkCopy, Copy, Gemm, Reduce, Region, Stmt, Store
from tilec.ir.visit import storage, walk_expr, walk_stmt

Shapes: TypeAlias = Mapping[str, tuple[int, ...]]


@record
class Product:
    """C = op(A) @ op(B) for each of `batch` matrices, by the names of the tensors; the types by name."""

    a: str
    b: str
    c: str
    batch: int
    m: int
    n: int
    k: int
    trans_a: bool
    trans_b: bool
    operand: str
    result: str
    accumulator: str

    @property
    def flop(self) -> int:
        """Operations, a multiplication and an addition counted as two."""
        return 2 * self.batch * self.m * self.n * self.k

    def __str__(self) -> str:
        batch = f"{self.batch} of " if self.batch > 1 else ""
        return f"GEMM, {batch}{self.m} x {self.n} x {self.k}, {self.operand} with {self.accumulator} accumulators"


@record
class Attention:
    """O = softmax(Q K' / sqrt(d)) V, by the names of the tensors. `axis` is the dimension of the sequence in all of them.

    `head` is the dimension in which K and V may have fewer entries (grouped queries). `causal` is set once the results show it.
    """

    q: str
    k: str
    v: str
    o: str
    axis: int
    head: int
    heads: int
    q_length: int
    k_length: int
    dim: int
    operand: str
    accumulator: str
    causal: bool = False

    @property
    def flop(self) -> int:
        """Operations of the two products; a causal mask halves them."""
        whole = 4 * self.heads * self.q_length * self.k_length * self.dim
        return whole // 2 if self.causal else whole

    def __str__(self) -> str:
        kind = "causal attention" if self.causal else "attention"
        return f"{kind}, {self.heads} heads, {self.q_length} x {self.k_length} x {self.dim}, {self.operand}"


Problem: TypeAlias = Product | Attention


def recognise(kernel: Kernel, shapes: Shapes) -> Problem | None:
    """The problem that the kernel seems to solve for tensors of these shapes; None for any other kernel."""
    if len(kernel.launches) != 1:
        return None
    flow = _Flow(kernel.launches[0].body)
    tensors = {p.name: p for p in kernel.params if isinstance(p, Buffer)}
    match flow.gemms:
        case [gemm]:
            return _product(gemm, flow, tensors, shapes)
        case [first, second] if flow.softmax:
            return _attention(first, second, flow, tensors, shapes)
        case _:
            return None


class _Flow:
    """Which tensors feed a tile and which ones a tile is written to, over any number of copies."""

    def __init__(self, body: Stmt) -> None:
        self.gemms: list[Gemm] = []
        self.softmax = False
        self._moves: list[tuple[Buffer, Buffer, Region | None]] = []
        for s in walk_stmt(body):
            match s:
                case Gemm():
                    self.gemms.append(s)
                case Copy(src, dst) | BulkCopy(src, dst):
                    self._moves.append((storage(src.buffer), storage(dst.buffer), src))
                case Store(buffer, _, value):
                    loads = (x for x in walk_expr(value) if isinstance(x, Load))
                    self._moves += [(storage(x.buffer), storage(buffer), None) for x in loads]
                case Reduce(op):
                    self.softmax |= op == "max"
                case _:
                    pass

    def source(self, region: Region) -> tuple[Buffer, Region | None] | None:
        """The one tensor that the tile of `region` holds a piece of, and the region it was copied from."""
        found = {b: r for b, r in self._back(storage(region.buffer), None) if b.scope is Scope.GLOBAL}
        return next(iter(found.items())) if len(found) == 1 else None

    def sink(self, region: Region) -> Buffer | None:
        """The one tensor that the tile of `region` is written to."""
        found = {b for b in self._forward(storage(region.buffer)) if b.scope is Scope.GLOBAL}
        return found.pop() if len(found) == 1 else None

    def _back(self, tile: Buffer, through: Region | None, seen: frozenset[Buffer] = frozenset()) -> Iterator[tuple[Buffer, Region | None]]:
        if tile.scope is Scope.GLOBAL:
            yield tile, through
            return
        for source, target, region in self._moves:
            if target is tile and source not in seen and source is not tile:
                yield from self._back(source, region, seen | {tile})

    def _forward(self, tile: Buffer, seen: frozenset[Buffer] = frozenset()) -> Iterator[Buffer]:
        if tile.scope is Scope.GLOBAL:
            yield tile
            return
        for source, target, _ in self._moves:
            if source is tile and target not in seen and target is not tile:
                yield from self._forward(target, seen | {tile})


def _product(gemm: Gemm, flow: _Flow, tensors: Mapping[str, Buffer], shapes: Shapes) -> Product | None:
    left, right, c = flow.source(gemm.a), flow.source(gemm.b), flow.sink(gemm.c)
    if left is None or right is None or c is None or len({left[0], right[0], c}) != 3 or set(tensors.values()) != {left[0], right[0], c}:
        return None
    a, b = left[0], right[0]
    if any(t.strides is not None for t in (a, b, c)) or not 2 <= a.rank == b.rank == c.rank <= 3:
        return None
    *batch, m, n = shapes[c.name]
    k = shapes[a.name][-2 if gemm.trans_a else -1]
    wanted = {a: (*batch, *((k, m) if gemm.trans_a else (m, k))), b: (*batch, *((n, k) if gemm.trans_b else (k, n)))}
    if any(shapes[t.name] != shape for t, shape in wanted.items()) or a.dtype != b.dtype:
        return None
    return Product(
        a.name, b.name, c.name, math.prod(batch), m, n, k, gemm.trans_a, gemm.trans_b, a.dtype.name, c.dtype.name, gemm.c.buffer.dtype.name
    )


def _attention(first: Gemm, second: Gemm, flow: _Flow, tensors: Mapping[str, Buffer], shapes: Shapes) -> Attention | None:
    found = [flow.source(first.a), flow.source(first.b), flow.source(second.b)]
    # What the second product adds up is scaled, divided and stored: follow its tile alone.
    o = flow.sink(second.c)
    if o is None or not first.trans_b or second.trans_b or any(x is None for x in found):
        return None
    (q, region), (k, _), (v, _) = (x for x in found if x is not None)
    if len({q, k, v, o}) != 4 or region is None or not 3 <= q.rank == k.rank == v.rank == o.rank <= 4:
        return None
    axes = [d for d, e in enumerate(region.extents) if not (isinstance(e, Const) and e.value == 1)]
    q_shape, k_shape = shapes[q.name], shapes[k.name]
    if len(axes) != 2 or axes[1] != q.rank - 1 or q_shape != shapes[o.name] or k_shape != shapes[v.name] or q_shape[-1] != k_shape[-1]:
        return None
    axis, dim = axes[0], q_shape[-1]
    others = [d for d in range(q.rank - 1) if d != axis]
    different = [d for d in others if q_shape[d] != k_shape[d]]
    head = different[0] if different else others[-1]
    if len(different) > 1 or q_shape[head] % max(1, k_shape[head]) or q.dtype != k.dtype or k.dtype != v.dtype:
        return None
    heads = math.prod(q_shape[d] for d in others)
    return Attention(
        q.name, k.name, v.name, o.name, axis, head, heads, q_shape[axis], k_shape[axis], dim, q.dtype.name, second.c.buffer.dtype.name
    )
