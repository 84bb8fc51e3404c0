"""`with`: T.Kernel begins a launch, the language's other context managers record their body in their own way.

    with T.Kernel(T.ceildiv(N, 128), T.ceildiv(M, 128), threads=128) as (bx, by): ...   ->  Launch((bx, by), ...)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import libcst as cst

from tilec.analysis.teams import by_hand, parted, separate
from tilec.diagnostics import Span
from tilec.frontend import hostops
from tilec.frontend.expressions import spread
from tilec.frontend.finish import extents
from tilec.frontend.machine import Flow, Machine, is_device
from tilec.frontend.names import assigned, target_names
from tilec.frontend.request import roots
from tilec.frontend.skips import without_returns
from tilec.frontend.values import Frame, Stale
from tilec.ir.dtypes import INT32
from tilec.ir.expr import BLOCK_CALLS, WARP_CALLS, Call, Const, Var, VarKind
from tilec.ir.kernel import Launch
from tilec.ir.tile import Seq, Stmt
from tilec.ir.visit import stmt_exprs, walk_expr, walk_stmt
from tilec.language import arith
from tilec.language.alloc import with_early
from tilec.language.builder import LaunchState
from tilec.language.clusters import meet_around_peers
from tilec.language.emitter import settle_registers
from tilec.language.hopper import without_controls
from tilec.language.layouts import apply_orders
from tilec.language.lets import check_bound
from tilec.language.reducers import settle
from tilec.language.source_kernel import call_source, is_text
from tilec.language.threads import settle_groups
from tilec.language.values import KernelSpec, SourceSpec, Value, WithSpec

DEFAULT_THREADS = (128, 1, 1)


def run_with(m: Machine, node: cst.With, frame: Frame) -> Flow:
    """Runs a `with` statement; several managers nest from left to right."""
    return _items(m, node, 0, frame)


def _items(m: Machine, node: cst.With, k: int, frame: Frame) -> Flow:
    if k == len(node.items):
        return m.run(node.body, frame)
    item = node.items[k]
    span = frame.source.span(item.item)
    value = m.eval(item.item, frame)
    target = item.asname.name if item.asname is not None else None
    match value:
        case KernelSpec():
            _check_written(m, item.item, frame)
            _launch(m, value, target, lambda: _items(m, node, k + 1, frame), frame, assigned(node.body), span)
        case Var():  # an index of T.launch_thread, or a name of T.let
            if target is not None:
                _bind_blocks(m, target, (value,), frame)
            return _items(m, node, k + 1, frame)
        case WithSpec():
            m.b.span = span
            value.enter(m.b, lambda: _nothing(_items(m, node, k + 1, frame)))
        case _:
            raise m.fail("TL0102", f"{hostops.kind(value)} is not a context manager that the compiler knows", span)
    return None


def _check_written(m: Machine, call: cst.BaseExpression, frame: Frame) -> None:
    """Refuses an extent of a grid that is written as 0: where sizes lead to 0 there is nothing to do, but nobody asks for that."""
    for arg in call.args if isinstance(call, cst.Call) else ():
        if arg.keyword is None and isinstance(arg.value, cst.Integer) and arg.value.evaluated_value == 0:
            text = "the extents of a grid must be at least 1, got 0"
            raise m.fail("TL0401", text, frame.source.span(arg.value), help="write the number of blocks, as in T.Kernel(T.ceildiv(N, 128))")


def _nothing(flow: Flow) -> None:
    return None


def _launch(
    m: Machine, spec: KernelSpec, target: cst.CSTNode | None, body: Callable[[], Flow], frame: Frame, names: frozenset[str], span: Span
) -> None:
    b = m.b
    if not m.recording:
        text = "T.Kernel outside of a kernel function"
        raise m.fail("TL0205", text, span, help="decorate the function with @T.prim_func or @tilelang.jit")
    given = list(target_names(target)) if target is not None else []
    axes = "xyz"
    grid = tuple(arith.as_expr(b, e) if not isinstance(e, int) else Const(e, INT32) for e in spec.grid)
    blocks = tuple(
        Var(given[k] if len(given) == len(grid) else f"b{axes[k]}", INT32, VarKind.BLOCK, k, frame.source.span(target) if target else span)
        for k in range(len(grid))
    )
    threads = tuple(Var(f"t{axes[k]}", INT32, VarKind.THREAD, k, span) for k in range(3))
    if target is not None:
        _bind_blocks(m, target, blocks, frame)
    record_launch(m, blocks, grid, threads, spec.threads, body, span, spec.cluster)
    for name in (*names, *given):
        if is_device(frame.names.get(name)):
            frame.names[name] = Stale(name, "it belongs to a launch that is over", span)


def launch_source(m: Machine, spec: SourceSpec, span: Span) -> None:
    """Records the launch of a kernel of the author's own. Raises TL0103 for a file that cannot be read."""
    if not m.recording or m.form is None:
        raise m.fail("TL0205", "T.CUDASourceCodeKernel outside of a kernel function", span)
    text, form = spec.source, m.form
    if not is_text(text):
        text = _file(m, text, span)
    grid = tuple(arith.as_expr(m.b, e) if not isinstance(e, int) else Const(e, INT32) for e in spec.launch.grid)
    blocks = tuple(Var(f"b{'xyz'[k]}", INT32, VarKind.BLOCK, k, span) for k in range(len(grid)))
    threads = tuple(Var(f"t{'xyz'[k]}", INT32, VarKind.THREAD, k, span) for k in range(3))
    params = form.parameters()

    def body() -> Flow:
        known = extents(params, ())
        sizes = tuple(e for e in m.sizes.values() if isinstance(e, Const) or e in known)
        call_source(m.b, text, spec.entry, params, known if len(known) == len(sizes) else sizes)
        return None

    record_launch(m, blocks, grid, threads, spec.launch.threads, body, span, spec.launch.cluster)


def _file(m: Machine, name: str, span: Span) -> str:
    """The text of a file beside the kernel's or under -I."""
    for root in roots(m.request):
        path = root / name
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, ValueError):
            continue
        m.files.append(str(path))
        return text
    raise m.fail("TL0103", f"cannot read the CUDA file {hostops.short(name)}", span, help="it is looked for beside this file and under -I")


def record_launch(
    m: Machine, blocks: tuple[Var, ...], grid: tuple[Value, ...], threads: tuple[Var, ...], counts: tuple[int, int, int] | None,
    body: Callable[[], Flow], span: Span, cluster: tuple[int, int, int] = (1, 1, 1), axes: bool = False,
) -> None:  # fmt: skip
    """Records the statements of `body` as one launch. With `axes`, T.launch_thread gives its grid."""
    b = m.b
    b.launch = LaunchState(blocks, threads, counts, cluster=cluster, grid=grid, axes={} if axes else None)
    try:
        with b.block() as statements:
            body()
    finally:
        state, b.launch = b.launch, None
    body_: Stmt = Seq(tuple(without_returns(statements, span)), span)
    check_bound(b, body_)
    body_ = settle_registers(b, body_, state.registers)
    hand = by_hand(body_)
    if not hand:
        body_ = without_controls(settle_groups(b, body_, state.groups))
    whole = meet_around_peers(settle(b, apply_orders(b, with_early(body_))))
    b.orders, b.reducers = {}, {}
    launch = Launch(blocks, state.grid, counts, threads, whole, state.panel, state.panel_order, span, cluster, state.min_blocks)
    launch = replace(launch, waits=state.waits, releases=state.releases)
    if counts is None and (hand or uses_threads(launch)):
        launch = replace(launch, threads=DEFAULT_THREADS)
    m.launches.append(separate(launch, ordered=not hand) if hand or parted(launch) else launch)


def uses_threads(launch: Launch) -> bool:
    """True when the body names a thread index or lets threads exchange values: their number is part of its meaning then."""
    threads = set(launch.thread_vars)
    return any(
        x in threads if isinstance(x, Var) else isinstance(x, Call) and (x.foreign or x.name in WARP_CALLS | BLOCK_CALLS)
        for s in walk_stmt(launch.body) for e in stmt_exprs(s) for x in walk_expr(e)
    )  # fmt: skip


def _bind_blocks(m: Machine, target: cst.CSTNode, blocks: tuple[Var, ...], frame: Frame) -> None:
    match target:
        case cst.Name(value=name):
            frame.names[name] = blocks[0] if len(blocks) == 1 else blocks
        case cst.Tuple(elements=elements) | cst.List(elements=elements):
            for e, var in zip(elements, spread(m, elements, blocks, frame.source.span(target)), strict=True):
                if not isinstance(e.value, cst.Name):
                    raise m.fail("TL0102", "block indices need plain names", frame.source.span(target))
                frame.names[e.value.value] = var
        case _:
            raise m.fail("TL0102", "block indices need plain names", frame.source.span(target))
