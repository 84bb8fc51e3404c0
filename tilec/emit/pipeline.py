"""The CUDA text of a pipelined loop on cp.async: copies run `stages - 1` steps ahead of the arithmetic.

Inside the producers' bodies the loop variable and `stage` (the version of the tiles to fill) are parameters; inside the
consumers the loop variable is the current step and `stage` the version to read. One barrier a step orders both: when it is
passed, the step's tiles have arrived for every thread, and every thread is done with the version that is filled next.

    stages 3, producers copy_A and copy_B: two steps are copied in front of the loop, step k + 2 while k is multiplied
"""

from __future__ import annotations

import re
from collections.abc import Callable

from tilec.record import record
from tilec.emit.gemm import Need, clear_text, fragment_text, gemm_text
from tilec.emit.gemm_operands import Render, SharedOperand, lines
from tilec.plan.gemm_plan import GemmPlan

RESERVED = frozenset("stage fill phase load_fragments multiply step a_frags b_frags".split())
"""C names that the text declares for itself."""


@record
class GemmInPipeline:
    """The product that ends every step when fragments are to be loaded one k-step ahead, across the barrier.

    `a` and `b` give the operand for the C text of a version number. `before` runs in front of each step's product and must
    leave the operands alone. The plan must be one that `can_prefetch`.
    """

    plan: GemmPlan
    a: Callable[[str], SharedOperand]
    b: Callable[[str], SharedOperand]
    c: str
    clear: str = ""
    before: str = ""


@record
class PipelineText:
    """A pipelined loop in pieces of C.

    `var`, of the C type `type`, counts from `start` to `stop`; `trips` is their distance when it is known. `producers` are pairs
    of a function name and its body, called once a step and in the order of the steps; `setup` is text in front of them (pointers
    they advance); `consumers` the text of a step or the product that is all of it. `asynchronous`: some producer uses cp.async.
    Producers of the numbers `late` are called by `late_text`, which `consumers` then hold, and not at the start of a step. `fenced`:
    warp groups are to see what the producers have brought. `full` names the barriers at which the copy engine reports, one a version.
    `puts` are the functions that store what some producers hold in registers, called where the consumers `put` them, or at the end of a
    step.
    """

    var: str
    start: str
    stop: str
    trips: int | None
    stages: int
    asynchronous: bool
    producers: tuple[tuple[str, str], ...]
    consumers: str | GemmInPipeline
    setup: str = ""
    late: tuple[int, ...] = ()
    type: str = "int"
    fenced: bool = False
    full: str = ""
    puts: tuple[tuple[str, str], ...] = ()
    put: bool = False


@record
class _Copies:
    """What the templates need to know of the loop: names, distances, and which tests are needed."""

    type: str
    var: str
    start: str
    stop: str
    declarations: tuple[str, ...]
    stages: int
    ahead: int
    pending: int
    asynchronous: bool
    producers: tuple[tuple[str, str], ...]
    first: str
    first_test: str
    some: str
    fetch: str
    never: bool
    last_stage: int
    fenced: bool
    full: str
    puts: tuple[tuple[str, str], ...]
    written: str


def pipeline_text(render: Render, need: Need, p: PipelineText) -> str:
    """Statements of the whole loop, in braces. Right for any number of trips, none included.

    Afterwards no cp.async of the loop is in flight, but other threads may still read the tiles: whoever reuses their memory
    puts a barrier first; likewise in front of the loop when the tiles were in use before.
    """
    if p.asynchronous:
        need("cp_async_commit")
        need("cp_async_wait")
    for name, wanted in (("fence_proxy_async", p.fenced), ("mbarrier_wait", p.full)):
        if wanted:
            need(name)
    copies = _copies(p)
    producers = render("pipeline/producers.cu.jinja", p=copies, setup=p.setup)
    consumers = p.consumers
    if isinstance(consumers, GemmInPipeline):
        if p.stages > 1 and consumers.plan.can_prefetch:
            return _prefetching(render, need, consumers, copies, producers)
        g = consumers
        consumers = lines(g.before, gemm_text(render, need, g.plan, g.a("stage"), g.b("stage"), g.c, g.clear))
    if p.stages <= 1:
        return render("pipeline/single.cu.jinja", p=copies, producers=producers, consumers=consumers)
    fill, fetch = _fill_and_fetch(render, copies, p.late)
    end = "" if p.put else puts_text(render, p)
    return render("pipeline/multistage.cu.jinja", p=copies, producers=producers, fill=fill, fetch=fetch, consumers=consumers, end=end)


def late_text(render: Render, p: PipelineText) -> str:
    """The calls of the producers that are `late`, which end the copies of a step."""
    called = tuple(name for n, (name, _) in enumerate(p.producers) if n in p.late)
    return render("pipeline/fetch.cu.jinja", p=_copies(p), called=called, ends=True)


def puts_text(render: Render, p: PipelineText) -> str:
    """The stores of what is held in registers for a later step; nothing where nothing is."""
    return render("pipeline/put.cu.jinja", p=_copies(p)) if p.puts else ""


def _fill_and_fetch(render: Render, copies: _Copies, late: tuple[int, ...] = ()) -> tuple[str, str]:
    """The copies in front of the loop and those at the start of a step."""
    called = tuple(name for n, (name, _) in enumerate(copies.producers) if n not in late)
    return render("pipeline/fill.cu.jinja", p=copies), render("pipeline/fetch.cu.jinja", p=copies, called=called, ends=not late)


def _copies(p: PipelineText) -> _Copies:
    declarations = []
    bounds = []
    for text, name in ((p.start, f"{p.var}_start"), (p.stop, f"{p.var}_stop")):
        if re.fullmatch(r"\w+", text):
            bounds.append(text)
        else:
            declarations.append(f"const {p.type} {name} = {text};")
            bounds.append(name)
    start, stop = bounds
    ahead = p.stages - 1
    first = "step" if start == "0" else f"{start} + step"
    known = p.trips is not None and p.trips >= ahead
    return _Copies(
        p.type, p.var, start, stop, tuple(declarations), p.stages, ahead, max(0, p.stages - 2), p.asynchronous, p.producers, first,
        first_test="" if known else f"{first} < {stop}",
        some="" if p.trips else f"{start} < {stop}",
        fetch=f"{p.var} + {ahead}",
        never=p.trips is not None and p.trips <= ahead,
        last_stage=p.stages - 1,
        fenced=p.fenced,
        full=p.full,
        puts=p.puts,
        written="1 - stage" if ahead == 1 else f"stage == 0 ? {p.stages - 1} : stage - 1",
    )  # fmt: skip


def _prefetching(render: Render, need: Need, g: GemmInPipeline, copies: _Copies, producers: str) -> str:
    """The loop whose fragments are double-buffered in registers, also across the barrier between two steps."""
    f = fragment_text(render, need, g.plan, g.a("stage"), g.b("stage"), g.c)
    step = g.plan.step[2]
    k_steps = tuple(_KStep(i * step, (i + 1) * step, i % 2, 1 - i % 2) for i in range(g.plan.k_steps))
    fill, fetch = _fill_and_fetch(render, copies)
    before = lines(g.before, clear_text(render, g.plan, g.c, g.clear))
    return render(
        "pipeline/prefetch.cu.jinja", p=copies, f=f, k_steps=k_steps, producers=producers, fill=fill, fetch=fetch, before=before
    )  # fmt: skip


@record
class _KStep:
    """One k-step of a prefetching loop: its k, that of the next one, and the buffers of both."""

    k: int
    following: int
    buffer: int
    other: int

