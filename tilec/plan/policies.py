"""How the warps of each product lie, where the products of a launch should agree.

An author who writes no policy leaves the warp grid open. Then products that meet in registers are given grids under which
their fragments have one layout: a score tile whose cast is the left operand of the next product lies with its warps along M,
so that it becomes that operand without moving; products that add into one accumulator, or into fragments that one element-wise
loop reads together, lie alike.

    gemm s += q @ k.T square; copy s -> p; gemm o += p @ v square   ->   full_row for both (64 rows, 4 warps)
"""

from __future__ import annotations

from collections.abc import Iterable

from tilec.ir.expr import Buffer, Scope
from tilec.ir.tile import Gemm, Stmt
from tilec.plan.domains import domain_fits, static, static_shape
from tilec.plan.fragments import domain

MMA_ROWS = 16


def policies(stmts: Iterable[Stmt], threads: int) -> dict[int, str]:
    """The policy of every Gemm among `stmts`, by id(): the author's, or what agreement asks for where that is `square`."""
    stmts = tuple(stmts)
    gemms = [s for s in stmts if isinstance(s, Gemm)]
    out = {id(g): _own(g) for g in gemms}
    if len(gemms) < 2:
        return out
    kin = kin_of(stmts)
    operands = {kin.get(b, b) for g in gemms for b in _row_operands(g)}
    for g in gemms:
        rows = static(g.c.extents[-2]) or 1
        if out[id(g)] == "square" and kin.get(g.c.buffer, g.c.buffer) in operands and rows % (MMA_ROWS * threads // 32) == 0:
            out[id(g)] = "full_row"
    decided: dict[Buffer, str] = {}
    for g in gemms:
        if out[id(g)] != "square":
            decided.setdefault(kin.get(g.c.buffer, g.c.buffer), out[id(g)])
    return {id(g): decided.get(kin.get(g.c.buffer, g.c.buffer), "square") if out[id(g)] == "square" else out[id(g)] for g in gemms}


def _own(g: Gemm) -> str:
    """The policy that a product has by itself: an operand in registers is copied along the other axis, so it pulls the warps
    towards its own where the author left them open."""
    a, b = (r.buffer.scope is Scope.FRAGMENT for r in (g.a, g.b))
    if g.policy != "square" or a == b:
        return g.policy
    return "full_row" if a else "full_col"


def _row_operands(g: Gemm) -> list[Buffer]:
    """Operands in registers that an accumulator with its warps along its rows becomes without moving between threads."""
    out = [g.a.buffer] if g.a.buffer.scope is Scope.FRAGMENT and not g.trans_a else []
    return [*out, g.b.buffer] if g.b.buffer.scope is Scope.FRAGMENT and g.trans_b else out


def kin_of(stmts: Iterable[Stmt]) -> dict[Buffer, Buffer]:
    """For each fragment one that stands for all fragments of its shape that element-wise statements tie to it."""
    kin: dict[Buffer, Buffer] = {}

    def head(b: Buffer) -> Buffer:
        while kin.setdefault(b, b) is not b:
            b = kin[b]
        return b

    for s in stmts:
        found = domain(s)
        if found is None:
            continue
        together: dict[tuple[object, ...], Buffer] = {}
        for access in found[2]:
            if domain_fits(access, found[1]):
                key = (access.dims, static_shape(access.buffer))
                first = together.setdefault(key, access.buffer)
                kin[head(access.buffer)] = head(first)
    return {b: head(b) for b in kin}
