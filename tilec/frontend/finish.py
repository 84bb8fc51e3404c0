"""The end of a recording: extents, outputs, flags and configurations of the finished kernel.

Run-time extents come in the order of their first appearance in the annotations, strides last and as int64.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from tilec.frontend import hostops
from tilec.frontend.machine import Machine
from tilec.frontend.values import Fatal, Function, Iter
from tilec.diagnostics import CompileError
from tilec.ir.dtypes import HANDLE, INT64
from tilec.ir.expr import Buffer, Cast, Expr, Var, VarKind
from tilec.ir.kernel import Kernel, Launch, Param
from tilec.ir.tile import Seq, Stmt
from tilec.ir.visit import buffers_of, map_expr, map_stmt, replace_buffers, stmt_exprs, walk_expr, walk_stmt
from tilec.language.launch import flags_of
from tilec.language.packed import unpack
from tilec.language.tensors import apply_safe_values
from tilec.language.values import Marker

MAX_CONFIGS = 10_000


def finish(
    m: Machine, function: Function, symbol: str, params: tuple[Param, ...], markers: tuple[Marker, ...],
    bindings: tuple[tuple[str, str], ...], outputs: tuple[str, ...] = (), implicit: bool = False,
) -> Kernel:  # fmt: skip
    """The kernel that has been recorded in the machine. Raises CompileError when it launches nothing."""
    if m.errors:
        raise CompileError(*m.errors)
    stray = m.b.body().body
    if stray:
        span = getattr(stray[0], "span", function.span)
        raise m.fail("TL0205", "this happens outside of T.Kernel", span, help="move it under `with T.Kernel(...)`")
    if not m.launches:
        raise m.fail("TL0205", f"`{function.name}` launches nothing: it has no `with T.Kernel(...)`", function.span)
    params = _pointers(m, params, function)
    params, launches = _safe_values(m, params, tuple(m.launches))
    params, launches = _wide_strides(params, launches)
    params, launches = unpack(m.b, params, launches)
    with m.outside():
        configs = configurations(m, markers)
    return Kernel(
        symbol=symbol,
        params=params,
        extents=extents(params, launches),
        launches=launches,
        outputs=outputs or _outputs(m, function, params, markers),
        bindings=bindings,
        flags=_flags(m, markers),
        configs=configs,
        implicit=implicit,
        sources=tuple(m.b.sources),
        span=function.span,
    )


def _pointers(m: Machine, params: tuple[Param, ...], function: Function) -> tuple[Param, ...]:
    """The parameters with every pointer as the tensor that T.make_tensor makes of it."""
    for p in params:
        if isinstance(p, Var) and p.dtype == HANDLE and p not in m.b.pointers:
            hint = f"T.make_tensor({p.name}, shape, dtype) makes a tensor of it"
            raise m.fail("TL0207", f"the pointer `{p.name}` is not used", p.span, help=hint)
    return tuple(m.b.pointers.get(p, p) if isinstance(p, Var) else p for p in params)


def _safe_values(m: Machine, params: tuple[Param, ...], launches: tuple[Launch, ...]) -> tuple[tuple[Param, ...], tuple[Launch, ...]]:
    """Applies T.annotate_safe_value: the annotated tensors are replaced everywhere."""
    if not m.b.safe_values:
        return params, launches
    whole, table = apply_safe_values(m.b, Seq(tuple(launch.body for launch in launches)))
    assert isinstance(whole, Seq)
    bodies = whole.body
    return tuple(table.get(p, p) if isinstance(p, Buffer) else p for p in params), tuple(
        replace(launch, body=body) for launch, body in zip(launches, bodies, strict=True)
    )


def shape_vars(params: tuple[Param, ...]) -> Iterator[Var]:
    """The extents in the shapes of the tensors, in order, repeated as they appear."""
    for p in params:
        if isinstance(p, Buffer):
            for e in p.shape:
                yield from (v for v in walk_expr(e) if isinstance(v, Var))


def stride_vars(params: tuple[Param, ...]) -> Iterator[Var]:
    """The extents in the strides of the tensors."""
    for p in params:
        if isinstance(p, Buffer):
            for e in p.strides or ():
                yield from (v for v in walk_expr(e) if isinstance(v, Var))


def extents(params: tuple[Param, ...], launches: tuple[Launch, ...]) -> tuple[Var, ...]:
    """Run-time extents that the launcher must be given: of shapes, then of grids and bodies, then strides."""
    inner = [v for launch in launches for e in _exprs(launch) for v in walk_expr(e) if isinstance(v, Var)]
    strides = set(stride_vars(params)) - set(shape_vars(params))
    ordered = (*shape_vars(params), *(v for v in inner if v not in strides), *stride_vars(params))
    return tuple(dict.fromkeys(v for v in ordered if v.kind is VarKind.EXTENT))


def _exprs(launch: Launch) -> Iterator[Expr]:
    yield from launch.grid
    for s in walk_stmt(launch.body):
        yield from stmt_exprs(s)
        yield from (e for b in buffers_of(s) if b.workspace for e in b.shape)


def _wide_strides(params: tuple[Param, ...], launches: tuple[Launch, ...]) -> tuple[tuple[Param, ...], tuple[Launch, ...]]:
    """Sizes that are only strides become int64 parameters, everywhere they are used."""
    narrow = [v for v in dict.fromkeys(stride_vars(params)) if v.kind is VarKind.EXTENT and v.dtype != INT64]
    narrow = [v for v in narrow if v not in set(shape_vars(params))]
    if not narrow:
        return params, launches
    wide = {v: Var(v.name, INT64, VarKind.EXTENT, span=v.span) for v in narrow}

    def in_stride(e: Expr) -> Expr:
        if not any(v in wide for v in walk_expr(e)):
            return e if e.dtype == INT64 else Cast(e, INT64)
        return wide[e] if isinstance(e, Var) else replace(map_expr(e, in_stride), dtype=INT64)  # type: ignore[arg-type]

    def in_body(e: Expr) -> Expr:
        if isinstance(e, Var):
            return Cast(wide[e], e.dtype) if e in wide else e
        return map_expr(e, in_body)

    def in_stmt(s: Stmt) -> Stmt:
        return map_stmt(s, in_body, in_stmt)

    buffers: dict[Buffer, Buffer] = {}
    for p in params:
        if isinstance(p, Buffer) and p.strides is not None:
            buffers[p] = replace(p, strides=tuple(in_stride(e) if any(v in wide for v in walk_expr(e)) else e for e in p.strides))

    def in_launch(launch: Launch) -> Launch:
        return replace(launch, grid=tuple(map(in_body, launch.grid)), body=replace_buffers(in_stmt(launch.body), buffers))

    changed = tuple(map(in_launch, launches))
    return tuple(buffers.get(p, p) if isinstance(p, Buffer) else p for p in params), changed


def _outputs(m: Machine, function: Function, params: tuple[Param, ...], markers: tuple[Marker, ...]) -> tuple[str, ...]:
    """The tensors that `out_idx` says the callable allocates."""
    given: Any = next((k.options["out_idx"] for k in markers if k.options.get("out_idx") is not None), None)
    if given is None:
        return ()
    names = []
    for index in given if isinstance(given, (list, tuple)) else (given,):
        if isinstance(index, bool) or not isinstance(index, int) or not -len(params) <= index < len(params):
            text = f"out_idx {hostops.short(index)} names none of the {len(params)} parameters"
            raise m.fail("TL0208", text, function.span)
        if not isinstance(params[index], Buffer):
            raise m.fail("TL0208", f"out_idx {index} is `{params[index].name}`, which is no tensor", function.span)
        names.append(params[index].name)
    return tuple(names)


def _flags(m: Machine, markers: tuple[Marker, ...]) -> tuple[str, ...]:
    flags = set(m.b.flags)
    for marker in markers:
        options = marker.options.get("pass_configs")
        if isinstance(options, Mapping):
            flags.update(flags_of(options))
    return tuple(sorted(flags))


def configurations(m: Machine, markers: tuple[Marker, ...]) -> tuple[tuple[tuple[str, str], ...], ...]:
    """The configurations of an autotune decorator, as pairs of text; none when they cannot be evaluated."""
    return tuple(tuple((str(k), hostops.text(v)) for k, v in c.items()) for c in raw_configurations(m, markers))


def raw_configurations(m: Machine, markers: tuple[Marker, ...]) -> list[dict[Any, Any]]:
    """The configurations of an autotune decorator as dictionaries."""
    given: Any = next((k.options["configs"] for k in markers if k.name == "autotune" and "configs" in k.options), None)
    try:
        if isinstance(given, Function):
            given = m.call(given, (), {}, given.span)
        if isinstance(given, Iter):
            given = list(islice(given.source, MAX_CONFIGS))
    except Fatal:
        raise
    except CompileError:
        return []
    if not isinstance(given, (list, tuple)):
        return []
    return [c for c in given[:MAX_CONFIGS] if isinstance(c, dict)]


__all__ = ["configurations", "extents", "finish", "raw_configurations"]
