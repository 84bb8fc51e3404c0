"""Joins neighbouring blocks of a GEMM kernel into one of twice the columns, where nothing in the source can tell.

    join_columns(launch, match) -> the launch with 128x256 tiles for one with 128x128, half as many blocks; None where it can tell

Each place that mentions the block index must do so as `index * n + column`, and the author's blocks must cover the tensors that are
written, so that the half of a last block that has no partner lies out of range.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tilec.analysis.affine import coefficient, depends_on
from tilec.analysis.facts import Facts
from tilec.analysis.proofs import prove
from tilec.ir.dtypes import INT32, INT64
from tilec.ir.expr import Binary, Buffer, Call, Compare, Const, Expr, Load, Scope, Var
from tilec.ir.kernel import Launch
from tilec.ir.tile import Alloc, Copy, Fill, For, Gemm, Parallel, Region, Seq, Stmt, Store
from tilec.ir.visit import map_expr, map_stmt, stmt_exprs, walk_expr, walk_stmt
from tilec.plan.domains import cast, static, static_shape
from tilec.plan.hopper.gemm_match import Match


class _Tells(Exception):
    """Something in the source depends on the size of a block."""


def join_columns(launch: Launch, found: Match) -> Launch | None:
    """The launch with blocks of twice the columns."""
    n = static_shape(found.acc)[1]
    index = next((v for v in launch.block_vars if any(coefficient(e, v) == n for e in found.copies[1].src.starts)), None)
    if index is None or found.lets or found.ahead or any(depends_on(e, (index,)) for e in found.copies[0].src.starts):
        return None
    try:
        return _Join(launch, found, index, n, 2 * n).launched()
    except _Tells:
        return None


@dataclass(slots=True)
class _Join:
    """One attempt: `wide` are the buffers that get `columns` instead of `n`."""

    launch: Launch
    found: Match
    index: Var
    n: int
    columns: int
    wide: dict[Buffer, Buffer] = field(default_factory=dict)

    def launched(self) -> Launch:
        """The rewritten launch."""
        launch, index = self.launch, self.index
        tile = self.found.gemm.b.buffer
        for s in walk_stmt(launch.body):
            if isinstance(s, Alloc) and (s.buffer is tile or self.like_acc(s.buffer)):
                self.wide[s.buffer] = self.widened(s.buffer)
        axis = launch.block_vars.index(index)
        body = self.renamed(self.statement(launch.body))
        blocks, two = launch.grid[axis], Const(2, launch.grid[axis].dtype)
        fewer: Expr = Call("ceildiv", (blocks, two), two.dtype)
        grid = tuple(fewer if a == axis else e for a, e in enumerate(launch.grid))
        return replace(launch, grid=grid, body=body)

    def like_acc(self, b: Buffer) -> bool:
        """True for tiles of the accumulator's shape: they hold results."""
        return b.scope in (Scope.FRAGMENT, Scope.SHARED) and static_shape(b) == static_shape(self.found.acc) and b not in self.operands()

    def operands(self) -> tuple[Buffer, Buffer]:
        return self.found.gemm.a.buffer, self.found.gemm.b.buffer

    def widened(self, b: Buffer) -> Buffer:
        """A buffer with the new columns of the product."""
        across = 0 if b is self.found.gemm.b.buffer and self.found.gemm.trans_b else 1
        return replace(b, shape=tuple(Const(self.columns, INT32) if d == across else e for d, e in enumerate(b.shape)))

    def statement(self, s: Stmt) -> Stmt:
        """A statement for the wide tile; raises _Tells where its meaning would change."""
        match s:
            case Seq():
                return replace(s, body=tuple(self.statement(c) for c in s.body))
            case For() if any(isinstance(x, Gemm) for x in walk_stmt(s)):
                return replace(s, body=self.statement(s.body))
            case Alloc(buffer):
                return replace(s, buffer=self.wide.get(buffer, buffer))
            case Gemm():
                return replace(s, b=self.region(s.b), c=self.region(s.c))
            case Fill():
                return replace(s, dst=self.region(s.dst))
            case Copy():
                if self.mentions(s):
                    s = replace(s, src=self.region(s.src), dst=self.region(s.dst))
                    self.covered(s.dst)
                return s
            case Parallel():
                return self.parallel(s) if self.mentions(s) else s
            case _:
                if self.mentions(s):
                    raise _Tells
                return s

    def mentions(self, s: Stmt) -> bool:
        """True when the statement uses the block index or a wide tile."""
        for x in walk_stmt(s):
            if isinstance(x, Copy) and (x.src.buffer in self.wide or x.dst.buffer in self.wide):
                return True
            if isinstance(x, Store) and x.buffer in self.wide:
                return True
            for root in stmt_exprs(x):
                if any(e is self.index or (isinstance(e, Load) and e.buffer in self.wide) for e in walk_expr(root)):
                    return True
        return False

    def region(self, r: Region) -> Region:
        """A whole wide tile, or the box of a tensor with the new columns."""
        columns = Const(self.columns, INT32)
        if r.buffer in self.wide:
            wide = self.wide[r.buffer]
            if any(static(e) != 0 for e in r.starts) or r.extents != r.buffer.shape:
                raise _Tells
            return replace(r, buffer=wide, extents=wide.shape)
        moving = [d for d, e in enumerate(r.starts) if depends_on(e, (self.index,))]
        if len(moving) != 1 or coefficient(r.starts[moving[0]], self.index) != self.n or static(r.extents[moving[0]]) != self.n:
            raise _Tells
        return replace(r, extents=tuple(columns if d == moving[0] else e for d, e in enumerate(r.extents)))

    def covered(self, r: Region) -> None:
        """Raises _Tells unless the author's blocks reach the end of a tensor that is written."""
        if r.buffer.scope is Scope.GLOBAL:
            self.reaches(r.buffer, r.starts)

    def reaches(self, b: Buffer, starts: tuple[Expr, ...]) -> None:
        """Raises _Tells unless all blocks together cover the dimension of `b` that the block index walks."""
        axis = self.launch.block_vars.index(self.index)
        for d, e in enumerate(starts):
            if depends_on(e, (self.index,)):
                columns = Binary("mul", cast(self.launch.grid[axis], INT64), Const(self.n, INT64), INT64)
                offset = Facts().with_launch(self.launch)
                if coefficient(e, self.index) != self.n or prove(Compare("ge", columns, cast(b.shape[d], INT64)), offset) is not True:
                    raise _Tells

    def parallel(self, s: Parallel) -> Parallel:
        """An element loop over the accumulator's shape: with the new columns."""
        extents = tuple(static(e) for e in s.extents)
        if extents != static_shape(self.found.acc):
            raise _Tells
        column = s.vars[1]

        def checked(b: Buffer, indices: tuple[Expr, ...]) -> None:
            for e in indices:
                if b in self.wide:
                    fine = not depends_on(e, (self.index,)) and (e is column or not depends_on(e, (column,)))
                else:
                    fine = coefficient(e, self.index) == self.n * (coefficient(e, column) or 0) and coefficient(e, column) is not None
                if not fine:
                    raise _Tells

        for x in walk_stmt(s.body):
            if not isinstance(x, Store | Seq):
                raise _Tells
            if isinstance(x, Store):
                checked(x.buffer, x.indices)
                self.values(x.value, column, checked)
                if x.buffer.scope is Scope.GLOBAL:
                    self.reaches(x.buffer, x.indices)
        return replace(s, extents=(s.extents[0], Const(self.columns, INT32)))

    def values(self, e: Expr, column: Var, checked: object) -> None:
        """Checks an expression: the block index and the column occur in indices of loads only."""
        assert callable(checked)
        if isinstance(e, Load):
            checked(e.buffer, e.indices)
            return
        if e is self.index or e is column:
            raise _Tells

        def visit(c: Expr) -> Expr:
            self.values(c, column, checked)
            return c

        map_expr(e, visit)

    def renamed(self, s: Stmt) -> Stmt:
        """The statement with the block index counting the new blocks, and wide buffers in place of the author's."""
        twice = Binary("mul", self.index, Const(2, self.index.dtype), self.index.dtype)

        def expr(e: Expr) -> Expr:
            if e is self.index:
                return twice
            e = map_expr(e, expr)
            return replace(e, buffer=self.wide[e.buffer]) if isinstance(e, Load) and e.buffer in self.wide else e

        def stmt(x: Stmt) -> Stmt:
            x = map_stmt(x, expr, stmt)
            return replace(x, buffer=self.wide[x.buffer]) if isinstance(x, Store) and x.buffer in self.wide else x

        return stmt(s)
