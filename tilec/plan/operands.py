"""Operands of products that are plain copies of shared tiles: the product reads the shared tile itself.

    T.copy(acc_s, S_shared)
    T.copy(S_shared, P)           ->  T.copy(acc_s, S_shared)
    T.gemm(P, V_shared, acc_o)        T.gemm(S_shared, V_shared, acc_o)

A fragment that every warp multiplies lies in each of them whole; from shared memory a warp fetches what it needs for a step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from tilec.ir.expr import Buffer, Const, Load, Scope
from tilec.ir.tile import Alloc, Copy, Gemm, Region, Seq, Stmt
from tilec.ir.visit import buffers_of, map_stmt, pointers, stmt_exprs, storage, walk_expr, walk_stmt
from tilec.plan.pipelines import touched


def operands_in_place(body: Stmt) -> Stmt:
    """`body` without fragments that are copied from a shared tile for products of the same sequence and for nothing else, where the
    tile keeps its elements until the last of these products."""
    named = Counter(b for s in walk_stmt(body) for b in (*buffers_of(s), *(b for e in stmt_exprs(s) for b, _ in pointers(e))))
    viewed = {b.view_of for b in named}
    dropped: set[Buffer] = set()

    def sequence(stmts: Sequence[Stmt]) -> list[Stmt]:
        out = list(stmts)
        for at, s in enumerate(stmts):
            if isinstance(s, Copy) and _fills_fragment(s) and s.dst.buffer not in viewed:
                users = _users(stmts, at, s.dst.buffer)
                if users and named[s.dst.buffer] == len(users) + 2 and not _changed(s.src.buffer, stmts[at + 1 : users[-1]]):
                    dropped.add(s.dst.buffer)
                    for user in users:
                        out[user] = _reading(out[user], s)
        return [s for s in out if not (isinstance(s, Copy) and s.dst.buffer in dropped)]

    def visit(s: Stmt) -> Stmt:
        s = map_stmt(s, lambda e: e, visit)
        return replace(s, body=tuple(sequence(s.body))) if isinstance(s, Seq) else s

    def declared(s: Stmt) -> Stmt:
        s = map_stmt(s, lambda e: e, declared)
        if not isinstance(s, Seq):
            return s
        return replace(s, body=tuple(x for x in s.body if not (isinstance(x, Alloc) and x.buffer in dropped)))

    found = visit(body)
    return declared(found) if dropped else body


def _fills_fragment(s: Copy) -> bool:
    """True for a copy of a shared tile, or of a part of one at a place that no memory tells, to all of a fragment of the same type."""
    a, b = s.src.buffer, s.dst.buffer
    outer, inner = s.src.extents[:-2], s.src.extents[-2:]
    return (
        a.scope is Scope.SHARED and b.scope is Scope.FRAGMENT and a.dtype == b.dtype and len(b.shape) == 2 and inner == b.shape
        and all(e == Const(1, e.dtype) for e in outer) and b.view_of is None and _whole(s.dst)
        and not any(isinstance(x, Load) for e in s.src.starts for x in walk_expr(e))
    )  # fmt: skip


def _whole(r: Region) -> bool:
    return r.extents == r.buffer.shape and all(isinstance(e, Const) and e.value == 0 for e in r.starts)


def _users(stmts: Sequence[Stmt], at: int, tile: Buffer) -> list[int]:
    """The products behind statement `at` that multiply all of `tile`, by their place; each has it as one operand."""
    return [n for n in range(at + 1, len(stmts)) if _multiplies(stmts[n], tile)]


def _multiplies(s: Stmt, tile: Buffer) -> bool:
    if not isinstance(s, Gemm):
        return False
    found = [r for r in (s.a, s.b) if r.buffer is tile]
    return len(found) == 1 and _whole(found[0])


def _changed(tile: Buffer, stmts: Sequence[Stmt]) -> bool:
    """True when one of these statements writes to the tile."""
    return storage(tile) in touched(stmts)[1]


def _reading(g: Stmt, copy: Copy) -> Stmt:
    """The product with the tile in place of its copy."""
    assert isinstance(g, Gemm)
    return replace(g, a=copy.src) if g.a.buffer is copy.dst.buffer else replace(g, b=copy.src)


__all__ = ["operands_in_place"]
