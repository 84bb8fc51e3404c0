"""Takes the author's own loop over waves of tiles apart: Hopper's body is persistent by itself.

    one_tile_a_block(launch) -> for `for wave in ...` over tiles `wave * 132 + block`, a launch of as many blocks as there are tiles

A block that walks tiles `wave * blocks + block` does what as many blocks would do that take one tile each, provided that its body
knows wave and block by that number only, and carries nothing from tile to tile.
"""

from __future__ import annotations

from dataclasses import replace

from tilec.analysis.simplify import simplify
from tilec.ir.expr import Binary, Expr, Load, Scope, Var, VarKind
from tilec.ir.kernel import Launch
from tilec.ir.tile import Alloc, For, Gemm, Seq, Stmt
from tilec.ir.visit import flat, map_stmt, stmt_exprs, substitute, walk_expr, walk_stmt
from tilec.plan.domains import cast, static


def one_tile_a_block(launch: Launch) -> Launch:
    """The launch with its loop over waves turned into blocks; the launch itself where it has none, or one of another kind."""
    body = flat(launch.body)
    allocs, rest = body[:-1], body[-1] if body else None
    if len(launch.block_vars) != 1 or not isinstance(rest, For) or rest.kind != "serial" or not all(isinstance(s, Alloc) for s in allocs):
        return launch
    if static(rest.start) != 0 or static(rest.step) != 1 or not any(isinstance(s, Gemm) for s in walk_stmt(rest.body)):
        return launch
    carried = any(s.buffer.scope in (Scope.VAR, Scope.LOCAL) for s in allocs if isinstance(s, Alloc))
    if carried or any(isinstance(s, Gemm) for s in flat(rest.body)):
        return launch
    block = launch.block_vars[0]
    number = Var(block.name, block.dtype, VarKind.BLOCK, 0, block.span)
    width = cast(launch.grid[0], block.dtype)
    wave = cast(rest.var, block.dtype)
    earlier = Binary("mul", wave, width, block.dtype)
    table: dict[Var, Expr] = {block: Binary("sub", number, earlier, block.dtype)}

    def expr(e: Expr) -> Expr:
        return simplify(substitute(e, table))

    def stmt(s: Stmt) -> Stmt:
        return map_stmt(s, expr, stmt)

    inner = stmt(rest.body)
    left = (e for s in walk_stmt(inner) for root in stmt_exprs(s) for e in walk_expr(root))
    if any(e is rest.var or e is block for e in left) or any(isinstance(e, Load) for e in walk_expr(rest.stop)):
        return launch
    grid = simplify(Binary("mul", cast(rest.stop, block.dtype), width, block.dtype))
    return replace(launch, block_vars=(number,), grid=(grid,), body=Seq((*allocs, *flat(inner)), launch.span))
