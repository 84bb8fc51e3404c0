"""Generic traversal of planned statements."""

from __future__ import annotations

from collections.abc import Iterator

from tilec.plan.plan import (
    Chained, PFor, PGemms, PIf, Pipeline, PSeq, PStmt, PWhile, Stepped, Streamed, TileLoop, Variant, WarpSpecialized, WhenScaled,
)  # fmt: skip


def plan_children(s: PStmt) -> tuple[PStmt, ...]:
    """The direct statements inside a planned statement."""
    match s:
        case PSeq(body):
            return body
        case PFor() | PWhile() | TileLoop() | Stepped() | WhenScaled():
            return (s.body,)
        case PIf():
            return (s.then, s.orelse)
        case PGemms(products):
            return (*products, *s.meanwhile)
        case Pipeline():
            return (s.producers, s.consumers)
        case WarpSpecialized():
            return (s.setup, s.ahead, s.epilogue)
        case Streamed():
            return (s.setup, s.prologue, s.mask, s.rows, s.late, s.epilogue)
        case Chained():
            return (s.setup, s.prologue, *(x for x in s.steps if isinstance(x, PSeq)), s.epilogue)
        case _:
            return ()


def walk_plan(s: PStmt) -> Iterator[PStmt]:
    """`s` and every planned statement below it, parents first."""
    yield s
    for c in plan_children(s):
        yield from walk_plan(c)


def specialised(v: Variant) -> bool:
    """True for a body of Hopper's own: a whole kernel of warp groups whose blocks are persistent."""
    return any(isinstance(s, WarpSpecialized | Streamed | Chained) for s in v.body.body)
