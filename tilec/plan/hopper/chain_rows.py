"""What the consumers of a chain of products do with fragments, as planned statements: casts by pairs, bulk stores, bulk additions.

    for i, j in T.Parallel(64, 128): T.atomic_add(dQ[b, k * 64 + i, h, j], dq[i, j])
 -> BulkAdd(dq): 64 rows through shared memory, added by the copy engine, which drops what is out of range
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilec.analysis.affine import coefficient, depends_on
from tilec.analysis.facts import Facts
from tilec.analysis.simplify import simplify
from tilec.ir.dtypes import FLOAT32, INT32
from tilec.ir.expr import Buffer, Compare, Const, Expr, Load, Logical, Scope, Var
from tilec.ir.tile import Atomic, Copy, If, Parallel, Stmt
from tilec.ir.visit import flat, substitute
from tilec.layout import atoms
from tilec.layout.fragment import same_map
from tilec.plan.domains import static, static_shape
from tilec.plan.hopper.parts import bulk_store_of, cast_by_pairs, touched_elsewhere
from tilec.plan.hopper.plan import Staging, TensorMap
from tilec.plan.lower import Lowering, Setting
from tilec.plan.plan import BulkAdd, BulkStore, PStmt
from tilec.plan.copy_engine import unreachable


class RowLowering(Lowering):
    """Lowers what the consumers do: whole fragments leave through the copy engine, casts of fragments go two at a time."""

    def __init__(self, at: Setting, consumers: int, columns: frozenset[Buffer], launch_body: Stmt) -> None:
        super().__init__(at)
        self.consumers = consumers
        self.columns = columns
        self.whole = launch_body
        self.stores: list[BulkStore | BulkAdd] = []

    def copy(self, s: Copy, facts: Facts, ahead: bool = False) -> PStmt:
        """A copy: to a tensor in bulk, between fragments by pairs, or as any other."""
        src, dst = s.src.buffer, s.dst.buffer
        if src.scope is Scope.FRAGMENT and src not in self.columns and src.rank == 2 and not touched_elsewhere(dst, self.whole):
            m, n = static_shape(src)
            if m == 64 * self.consumers:
                found = bulk_store_of(s, self.at.layouts.get(src), (m, n), self.consumers, facts)
                if found is not None:
                    found = replace(found, drains=True)
                    self.stores.append(found)
                    return found
        return cast_by_pairs(s, self.at.layouts) or super().copy(s, facts, ahead)

    def statement(self, s: Stmt, facts: Facts, uniform: bool) -> list[PStmt]:
        """A statement: an addition in bulk, or as any other."""
        found = self.bulk_add(s, facts) if isinstance(s, Parallel) else None
        if found is None:
            return super().statement(s, facts, uniform)
        self.stores.append(found)
        return [found]

    def bulk_add(self, s: Parallel, facts: Facts) -> BulkAdd | None:
        """A fragment added to a box of a tensor, as one addition of the copy engine."""
        added = _added(s)
        if added is None or touched_elsewhere(added.buffer, self.whole):
            return None
        value = added.operands[0]
        assert isinstance(value, Load)
        src, dst = value.buffer, added.buffer
        m, n = static_shape(src)
        by_columns = src in self.columns
        width = n // self.consumers if by_columns else n
        wanted = (atoms.warp_group_columns if by_columns else atoms.warp_group_accumulator)(m, n, self.consumers)
        rows = m if by_columns else m // self.consumers
        if not same_map(self.at.layouts[src], wanted) or width % 32 or unreachable(dst, facts) or rows != 64:
            return None
        start = [_start(e, s.vars) for e in added.indices]
        row = [d for d, (_, v) in enumerate(start) if v == 0]
        if [v for _, v in start if v is not None] != [0, 1] or start[-1][1] != 1 or any(e.dtype != INT32 for e, _ in start):
            return None
        box = tuple(32 if d == dst.rank - 1 else 64 if d == row[0] else 1 for d in reversed(range(dst.rank)))
        area = (Const(self.consumers * width // 32 * 64, INT32), Const(32, INT32))
        staging = Staging(Buffer(f"{dst.name}_staged", FLOAT32, area, Scope.SHARED), 32, width // 32, 128)
        return BulkAdd(src, TensorMap(dst, box, 128), tuple(e for e, _ in reversed(start)), staging, by_columns, s.span)


def _added(s: Parallel) -> Atomic | None:
    """The addition of a fragment's element to a float32 tensor that is all of a loop's body; tests of its range may be around it."""
    body = flat(s.body)
    tests: list[Expr] = []
    match body:
        case [If() as branch] if not flat(branch.orelse):
            body, tests = flat(branch.then), _conjuncts(branch.cond)
        case _:
            pass
    match body:
        case [Atomic("add", dst, indices, (Load(src, own),), "relaxed", None) as found]:
            pass
        case _:
            return None
    fits = src.scope is Scope.FRAGMENT and src.rank == 2 and src.dtype == FLOAT32 and tuple(own) == tuple(s.vars)
    fits = fits and tuple(static(e) for e in s.extents) == static_shape(src)
    fits = fits and dst.scope is Scope.GLOBAL and dst.dtype == FLOAT32 and 2 <= dst.rank <= 5
    if not fits or dst.view_of is not None or dst.workspace:
        return None
    inside = {Compare("lt", i, n) for i, n in zip(indices, dst.shape, strict=True)}
    return found if all(c in inside for c in tests) else None


def _conjuncts(e: Expr) -> list[Expr]:
    return [*_conjuncts(e.a), *_conjuncts(e.b)] if isinstance(e, Logical) and e.op == "and" else [e]


def _start(e: Expr, variables: Sequence[Var]) -> tuple[Expr, int | None]:
    """An index as what it is at the start of the loop, and the number of the variable that it follows step by step."""
    mine = [n for n, v in enumerate(variables) if depends_on(e, (v,))]
    if not mine:
        return e, None
    if len(mine) > 1 or coefficient(e, variables[mine[0]]) != 1:
        return e, -1
    v = variables[mine[0]]
    return simplify(substitute(e, {v: Const(0, v.dtype)})), mine[0]
