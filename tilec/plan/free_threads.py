"""Whether the number of a block's threads may be another one than the author's, because nothing that the kernel does can tell; and which
one a block has whose author left it open.

    free_threads(body of copies, products and element loops) -> True;  with T.sync_warp, shuffles or thread indices -> False
"""

from __future__ import annotations

from tilec.ir.expr import BLOCK_CALLS, POINTER_CALLS, WARP_CALLS, Call, Expr, Var, VarKind
from tilec.ir.kernel import Launch
from tilec.ir.tile import (
    Alloc, Atomic, Break, Continue, Copy, Fill, For, Gemm, If, Let, Parallel, Reduce, Scan, Seq, Stmt, Store, Trap, While,
)  # fmt: skip
from tilec.ir.visit import stmt_children, stmt_exprs, walk_expr, walk_stmt
from tilec.plan.domains import static

_KNOWN = (Seq, For, While, If, Break, Continue, Let, Store, Alloc, Copy, Fill, Gemm, Parallel, Reduce, Scan, Trap)
_TELLING = WARP_CALLS | BLOCK_CALLS | set(POINTER_CALLS)


def free_threads(body: Stmt) -> bool:
    """True when only statements that the block does as a whole are there. An atomic is one of them inside of T.Parallel."""
    fine = isinstance(body, _KNOWN) and not any(_tells(x) for root in stmt_exprs(body) for x in walk_expr(root))
    return fine and all(_free_inside(s) if isinstance(body, Parallel) else free_threads(s) for s in stmt_children(body))


def _free_inside(s: Stmt) -> bool:
    """The same for a statement of T.Parallel, which is carried out once for each of its indices."""
    fine = isinstance(s, (*_KNOWN, Atomic)) and not any(_tells(x) for root in stmt_exprs(s) for x in walk_expr(root))
    return fine and all(map(_free_inside, stmt_children(s)))


def _tells(x: Expr) -> bool:
    return (isinstance(x, Var) and x.kind is VarKind.THREAD) or (isinstance(x, Call) and (x.foreign or x.name in _TELLING))


def thread_count(launch: Launch) -> int:
    """The threads of a block whose author left them open: a warp for each 64 x 64 of the largest product, 4 to 8 of them."""
    tiles = [(static(s.c.extents[-2]) or 1) * (static(s.c.extents[-1]) or 1) for s in walk_stmt(launch.body) if isinstance(s, Gemm)]
    return 32 * min(8, max(4, max(tiles, default=0) // 4096))
