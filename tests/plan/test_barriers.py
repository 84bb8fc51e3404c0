"""Barriers stand where tiles are handed from thread to thread, and nowhere else."""

from __future__ import annotations

import pytest

from tilec.diagnostics import CompileError
from tilec.ir.text import parse
from tilec.plan.plan import PBarrier, PSeq, PStmt, Stepped
from tilec.plan.planner import PlanOptions, plan
from tilec.plan.walk import plan_children
from tilec.targets import lookup

HEAD = "kernel k(A: float32[64], B: float32[64], O: float32[64], n: int32):\n  launch (bx) in (1) threads (64, 1, 1):\n"
HEAD = HEAD.replace(", n: int32", "")


def outline(body: str, head: str = HEAD) -> list[str]:
    """The planned statements of a launch body by name, barriers included, nested ones indented."""
    target = lookup("sm_80")
    assert target is not None
    text = head + "".join(f"    {line}\n" for line in body.strip().split("\n"))
    variant = plan(parse(text), PlanOptions(target), "k").launches[0].variants[0]
    out: list[str] = []

    def visit(s: PStmt, depth: int) -> None:
        if not isinstance(s, PSeq | Stepped):
            out.append(" " * depth + ("BARRIER" if isinstance(s, PBarrier) else type(s).__name__))
            depth += 1
        if type(s).__name__ != "TileLoop":
            for c in plan_children(s):
                visit(c, depth)

    visit(variant.body, 0)
    return out


def turned(to: str) -> str:
    """A loop that reads the tile s from its other end."""
    return f"parallel i in 64:\n  {to}[i] = s[63 - i]"


def test_write_then_read_of_a_tile_waits_once() -> None:
    body = f"alloc s: shared float32[64]\ncopy A -> s\n{turned('O')}\n{turned('B')}"
    assert outline(body) == ["TileLoop", "BARRIER", "TileLoop", "TileLoop"]


def test_elements_that_stay_with_their_thread_need_no_barrier() -> None:
    alloc, twice = "alloc s: shared float32[64]\ncopy A -> s\n", "parallel i in 64:\n  s[i] = s[i] * 2.0\n"
    assert outline(alloc + twice + "copy s -> O") == ["TileLoop"] * 3
    looped = "for k in serial(0, 4, 1):\n  parallel i in 64:\n    s[i] = s[i] * 2.0\n"
    assert outline(alloc + looped + "copy s -> O\ncopy B -> s") == ["TileLoop", "PFor", " TileLoop", "TileLoop", "TileLoop"]
    assert outline(alloc + "copy s -> O\n" + turned("B")) == ["TileLoop", "TileLoop", "BARRIER", "TileLoop"]
    shifted = "for k in serial(0, 4, 1):\n  parallel i in 32:\n    s[i + k] = 1.0\n  parallel i in 32:\n    O[i] = s[i + k]\n"
    assert outline(alloc + shifted)[1:] == ["PFor", " BARRIER", " TileLoop", " BARRIER", " TileLoop"]
    fewer = "parallel i in 32:\n  s[i] = 1.0\n"
    wide = "alloc s: shared float32[128]\nfill s = 0.0\n" + twice.replace("64", "128")
    assert outline(wide + fewer)[-2:] == ["BARRIER", "TileLoop"]


def test_different_tiles_share_a_barrier() -> None:
    body = "alloc s: shared float32[64]\nalloc t: shared float32[64]\ncopy A -> s\ncopy B -> t\nparallel i in 64:\n  O[i] = s[63 - i] + t[63 - i]"
    assert outline(body) == ["TileLoop", "TileLoop", "BARRIER", "TileLoop"]


def test_overwriting_what_others_read_waits() -> None:
    body = f"alloc s: shared float32[64]\ncopy A -> s\n{turned('O')}\ncopy B -> s"
    assert outline(body) == ["TileLoop", "BARRIER", "TileLoop", "BARRIER", "TileLoop"]


def test_the_end_of_a_step_meets_the_start_of_the_next() -> None:
    body = "alloc s: shared float32[64]\nfor k in serial(0, 4, 1):\n  copy A -> s\n  " + turned("O").replace("\n", "\n  ")
    assert outline(body) == ["PFor", " BARRIER", " TileLoop", " BARRIER", " TileLoop"]


def test_registers_need_no_barrier() -> None:
    assert outline("alloc f: fragment float32[64]\ncopy A -> f\ncopy f -> O") == ["PScalar", "TileLoop", "TileLoop"]


def test_global_tensors_that_are_only_read_or_only_written_need_none() -> None:
    assert outline("copy A -> O\ncopy B -> O") == ["TileLoop", "TileLoop"]


def test_a_global_tensor_read_back_waits() -> None:
    body = "copy A -> O\nparallel i in 64:\n  B[i] = O[63 - i]"
    assert outline(body) == ["TileLoop", "BARRIER", "TileLoop"]


def test_a_branch_that_all_threads_take_may_wait_inside() -> None:
    body = "alloc s: shared float32[64]\ncopy A -> s\nif A[0] > 0.0:\n  " + turned("O").replace("\n", "\n  ")
    assert outline(body) == ["TileLoop", "PIf", " BARRIER", " TileLoop"]


def test_a_divergent_branch_waits_in_front() -> None:
    head = HEAD.replace("threads (64, 1, 1)", "threads (64, 1, 1) index (x = tx)")
    body = "alloc s: shared float32[64]\ncopy A -> s\nif tx < 8:\n  O[tx] = s[63 - tx]"
    assert outline(body, head) == ["TileLoop", "BARRIER", "PIf", " PScalar"]


def test_a_barrier_that_only_some_threads_would_reach_is_refused() -> None:
    head = HEAD.replace("threads (64, 1, 1)", "threads (64, 1, 1) index (x = tx)")
    body = "alloc s: shared float32[64]\nif tx < 8:\n  s[tx] = A[tx]\n  O[tx] = s[7 - tx]"
    with pytest.raises(CompileError) as caught:
        outline(body, head)
    assert caught.value.diagnostics[0].code == "TL0502"


def test_atomic_updates_of_one_kind_do_not_wait_for_each_other() -> None:
    fill = "alloc s: shared float32[64]\nfill s = 0.0\n"
    loop = "for k in serial(0, 4, 1):\n  parallel i in 64:\n    atomic add s[i / 2] (1.0) relaxed\n"
    assert outline(fill + loop + "copy s -> O") == ["TileLoop", "BARRIER", "PFor", " TileLoop", "BARRIER", "TileLoop"]
    other = "for k in serial(0, 4, 1):\n  parallel i in 64:\n    atomic add s[i] (1.0) relaxed\n  parallel i in 64:\n    atomic max s[i] (2.0) relaxed\n"
    assert outline(fill + other)[1:] == ["PFor", " BARRIER", " TileLoop", " BARRIER", " TileLoop"]


@pytest.mark.parametrize("word", ["break", "continue"])
def test_what_is_pending_where_a_loop_is_left_early_is_pending_behind_it(word: str) -> None:
    """The barrier inside the loop, for t, is not met by a step that ends in front of it: s is still being read then."""
    body = (
        "alloc s: shared float32[64]\nalloc t: shared float32[64]\ncopy A -> s\ncopy B -> t\ncopy t -> O\n"
        f"for k in serial(0, 4, 1):\n  if s[k] > 0.0:\n    {word}\n  parallel i in 64:\n    t[i] = A[i]\ncopy B -> s"
    )
    lines = outline(body)
    behind = lines[max(n for n, line in enumerate(lines) if line.startswith(" ")) + 1 :]
    assert behind == ["BARRIER", "TileLoop"], lines
