"""Kernels without T.Kernel, as articles write them: what they leave out is inferred, and each inference is told in a note.

    @T.jit
    def gemm(A, B, C, M, N, K): ... T.copy(A[by * 128, ko * 32], A_shared) ...
    ->  bx, by are block indices; A is a float16 tensor of M x K; the grid is ceildiv(N, 128) x ceildiv(M, 128)

The body is recorded twice: once with tensors of unknown shape, from which `tilec.frontend.infer` reads shapes, dtypes and the
grid, and then for good.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import libcst as cst

from tilec.record import record
from tilec.diagnostics import CompileError, Span
from tilec.frontend.finish import finish
from tilec.frontend.forms import Bindings, Signature, annotated, recording, tensor
from tilec.frontend.infer import Answer, Sketch, annotate_help, infer
from tilec.frontend.launches import record_launch
from tilec.frontend.machine import Machine
from tilec.frontend.names import assigned, dotted
from tilec.frontend.syntax import parameters, walk
from tilec.frontend.values import Fatal, Frame, Function
from tilec.ir.dtypes import FLOAT32, INT32, lookup
from tilec.ir.expr import Buffer, Const, Expr, Scope, Var, VarKind
from tilec.ir.kernel import Kernel, Launch, Param
from tilec.ir.tile import Alloc, Copy, Fill, Gemm, Region, Seq, Stmt, Store
from tilec.ir.visit import map_stmt, storage, substitute, walk_stmt
from tilec.language.show import expr_text, shape_text
from tilec.language.values import TensorSpec, Value

BLOCKS = ("bx", "by", "bz")
_TILE_VERBS = ("copy", "atomic_add", "fill", "clear")


def tensor_parameters(function: Function) -> frozenset[str]:
    """The parameters of an implicit kernel that are tensors: those subscripted, annotated as one, or copied whole."""
    names = {p.name.value for p in parameters(function.node)}
    found = set()
    for n in walk(function.node.body):
        match n:
            case cst.Subscript(value=cst.Name(value=name)):
                found.add(name)
            case cst.Call(func=func, args=args) if dotted(func).rpartition(".")[2] in _TILE_VERBS:
                found |= {a.value.value for a in args if isinstance(a.value, cst.Name)}
    return frozenset(found & names)


@dataclass(slots=True)
class Implicit(Signature):
    """The signature of an implicit kernel: its tensors, sizes and block indices, known or not."""

    blocks: tuple[Var, ...] = ()


def record_implicit(m: Machine, function: Function, symbol: str, values: Mapping[str, Value], bindings: Bindings) -> Kernel:
    """The kernel of a function without T.Kernel; `values` are the parameters that have a value while compiling."""
    tensors = tensor_parameters(function)
    order = [p.name.value for p in parameters(function.node)]
    open_sizes = [n for n in order if n not in tensors and n not in function.defaults]
    sketch, sizes = _sketch(m, function, values, tensors, open_sizes)
    answer = infer(m, function, sketch, sizes, tuple(n for n in order if n in tensors))
    fixed = {**{n: v for n, v in values.items() if n not in sizes}, **_bound(m, function, values, sizes, answer)}
    return _final(m, function, symbol, _Parts(order, sizes, fixed, answer), (*bindings, *_more(bindings, fixed, sizes)))


def _more(bindings: tuple[tuple[str, str], ...], fixed: Mapping[str, Value], sizes: Mapping[str, Var]) -> tuple[tuple[str, str], ...]:
    known = {n for n, _ in bindings}
    return tuple((n, str(fixed[n])) for n in sizes if n in fixed and n not in known)


@record
class _Parts:
    """What the final recording is made of: parameter order, size variables, fixed values, the inferred rest."""

    order: list[str]
    sizes: Mapping[str, Var]
    fixed: Mapping[str, Value]
    answer: Answer


def _sketch(
    m: Machine, function: Function, values: Mapping[str, Value], tensors: frozenset[str], open_sizes: list[str]
) -> tuple[Sketch, dict[str, Var]]:
    """Records the body with unknown tensors and every size left open, even those that -D gives, if the body allows it."""
    source = function.frame.source
    places = {p.name.value: source.span(p.name) for p in parameters(function.node)}
    sizes = {n: Var(n, INT32, VarKind.PARAM, span=places[n]) for n in open_sizes}
    scope = Frame(source, {**sizes}, function.frame)
    unknown = {n: _unknown(m, function, n, places[n], scope) for n in tensors}
    fixed: dict[str, Value] = {}
    while True:
        left = {n: v for n, v in sizes.items() if n not in fixed}
        try:
            return _record_sketch(m, function, {**values, **left, **unknown}, unknown), left
        except Fatal:
            raise
        except CompileError as fault:
            given = {n: v for n, v in values.items() if n in left}
            needed = {n: v for n, v in given.items() if any(f"-D {n}=" in d.help for d in fault.diagnostics)}
            if not given:
                raise
            fixed |= needed or given


def _unknown(m: Machine, function: Function, name: str, place: Span, scope: Frame) -> Buffer:
    """A tensor as far as it is known before the inference: the annotation's (which may use sizes), or a rank and placeholders."""
    for p in parameters(function.node):
        if p.name.value == name and p.annotation is not None:
            with m.outside():
                spec = annotated(m, p.annotation.annotation, scope)
            if isinstance(spec, TensorSpec):
                return tensor(name, spec, place)
    rank = _rank(m, function, name, place)
    arg = m.request.args.get(name)
    dtype = lookup(arg.dtype) if arg is not None else FLOAT32
    if dtype is None:
        raise m.fail("TL0208", f"--arg {name} has the unknown dtype `{arg.dtype if arg else ''}`", place)
    shape = tuple(Var(f"{name}_{d}", INT32, VarKind.EXTENT, span=place) for d in range(rank))
    return Buffer(name, dtype, shape, Scope.GLOBAL, span=place)


def _rank(m: Machine, function: Function, name: str, place: Span) -> int:
    """How many indices the tensor is given; one number everywhere."""
    ranks = {
        len(n.slice) for n in walk(function.node.body)
        if isinstance(n, cst.Subscript) and isinstance(n.value, cst.Name) and n.value.value == name
    }  # fmt: skip
    arg = m.request.args.get(name)
    if arg is not None:
        return len(arg.shape)
    if len(ranks) == 1:
        return ranks.pop()
    what = "is never indexed" if not ranks else f"is indexed with {' and with '.join(str(r) for r in sorted(ranks))} indices"
    raise m.fail("TL0230", f"the tensor `{name}` {what}", place, help=annotate_help(name, max(ranks, default=2)))


def _record_sketch(m: Machine, function: Function, names: dict[str, Value], unknown: Mapping[str, Buffer]) -> Sketch:
    blocks = _blocks(m, function)
    notes = len(m.notes)
    with recording(m, Implicit(function, blocks=tuple(blocks.values()))):
        launch = _launch(m, function, {**names, **blocks}, tuple(blocks.values()), tuple(Const(1, INT32) for _ in blocks))
    del m.notes[notes:]
    return Sketch(launch, dict(unknown))


def _blocks(m: Machine, function: Function) -> dict[str, Var]:
    """Block indices for the names bx, by, bz that nothing else defines."""
    node = function.node
    taken = {p.name.value for p in parameters(node)} | assigned(node.body)
    module = function.frame.module
    if module is not None:
        taken |= set(module.bindings)
    return {n: Var(n, INT32, VarKind.BLOCK, axis, function.span) for axis, n in enumerate(BLOCKS) if n not in taken}


def _launch(m: Machine, function: Function, names: dict[str, Value], blocks: tuple[Var, ...], grid: tuple[Expr, ...]) -> Launch:
    node = function.node
    assert isinstance(node, cst.FunctionDef)
    held = frozenset(names) | assigned(node.body)
    frame = Frame(function.frame.source, names, function.frame, locals=held, dsl=True)
    threads = tuple(Var(f"t{a}", INT32, VarKind.THREAD, k, function.span) for k, a in enumerate("xyz"))
    record_launch(m, blocks, grid, threads, None, lambda: m.run(node.body, frame), function.span)
    return m.launches[-1]


def _bound(m: Machine, function: Function, values: Mapping[str, Value], sizes: Mapping[str, Var], answer: Answer) -> dict[str, Value]:
    """Sizes with a value: those of -D, and those that an `--arg` extent gives."""
    found: dict[str, Value] = {n: v for n, v in values.items() if n in sizes}
    for name, spec in m.request.args.items():
        shape = answer.shapes.get(name)
        if shape is None:
            continue
        for e, given in zip(shape, spec.shape, strict=True):
            if isinstance(e, Var) and isinstance(given, int) and sizes.get(e.name) is e:
                if found.setdefault(e.name, given) != given:
                    text = f"`{e.name}` is {found[e.name]} and {given}"
                    raise m.fail("TL0208", text, function.span, help=f"--arg {name} and another value disagree")
            elif isinstance(e, Const) and isinstance(given, int) and e.value != given:
                raise m.fail("TL0208", f"--arg {name} has an extent {given} where the kernel needs {e.value}", function.span)
    for name, value in found.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise m.fail("TL0208", f"the size `{name}` must be a whole number, not {value!r}", sizes[name].span)
        if value >= 1 << 31:
            raise m.fail("TL0208", f"the size `{name}` is an int32 and cannot be {value}", sizes[name].span)
    return found


def _final(m: Machine, function: Function, symbol: str, parts: _Parts, bindings: tuple[tuple[str, str], ...]) -> Kernel:
    """The recording that counts, with everything known."""
    answer, fixed = parts.answer, parts.fixed
    table: dict[Var, Expr] = {v: Const(fixed[n], INT32) for n, v in parts.sizes.items() if n in fixed}
    params: dict[str, Param] = {}
    for name in parts.order:
        if name in answer.shapes:
            span = answer.places[name]
            shape = tuple(substitute(e, table) for e in answer.shapes[name])
            params[name] = Buffer(name, answer.dtypes[name], shape, Scope.GLOBAL, answer.strides.get(name), span=span)
        elif name not in fixed:
            params[name] = parts.sizes[name]
    axes = 1 + max(answer.grid, default=0)
    grid = tuple(_fold(substitute(answer.grid.get(a, Const(1, INT32)), table)) for a in range(axes))
    named = _blocks(m, function)
    blocks = tuple(named.get(BLOCKS[a], Var(BLOCKS[a], INT32, VarKind.BLOCK, a, function.span)) for a in range(axes))
    with recording(m, Implicit(function, blocks=blocks)):
        _launch(m, function, {**fixed, **params, **named}, blocks, grid)
        launch = m.launches[-1]
        launch = replace(launch, body=_zeroed(m, function, launch.body))
        m.launches[-1] = launch
        _tell(m, function, params, answer, launch)
        return finish(m, function, symbol, tuple(params.values()), function.markers, bindings, implicit=True)


def _fold(e: Expr) -> Expr:
    """A grid extent whose sizes have become numbers."""
    from tilec.ir.expr import Call

    if isinstance(e, Call) and e.name == "ceildiv":
        x, y = e.args
        if isinstance(x, Const) and isinstance(y, Const):
            return Const(-(-int(x.value) // int(y.value)), INT32)
    return e


def _zeroed(m: Machine, function: Function, body: Stmt) -> Stmt:
    """The body with every accumulator cleared that a GEMM adds to before anything has written it."""
    written: set[Buffer] = set()
    clear: dict[Buffer, Gemm] = {}
    for s in walk_stmt(body):
        match s:
            case Gemm(c=c, clear=flag):
                tile = storage(c.buffer)
                if tile not in written and tile.scope is not Scope.GLOBAL and flag == Const(False, flag.dtype):
                    clear.setdefault(tile, s)
                written.add(tile)
            case Copy(dst=dst) | Fill(dst=dst):
                written.add(storage(dst.buffer))
            case Store(buffer=buffer):
                written.add(storage(buffer))
    for tile in clear:
        m.b.note("TL0225", f"the accumulator `{tile.name}` starts at zero: nothing writes it before T.gemm adds to it", tile.span,
                 help=f"write `T.clear({tile.name})` to say so")  # fmt: skip

    def visit(s: Stmt) -> Stmt:
        if isinstance(s, Seq):
            parts: list[Stmt] = []
            for part in s.body:
                parts.append(visit(part))
                if isinstance(part, Alloc) and part.buffer in clear:
                    parts.append(_fill(part.buffer, part.span))
            return Seq(tuple(parts), s.span)
        return map_stmt(s, lambda e: e, visit)

    return visit(body)


def _fill(tile: Buffer, span: Span) -> Fill:
    zero = Const(0.0 if tile.dtype.is_float else 0, tile.dtype)
    return Fill(Region(tile, tuple(Const(0, INT32) for _ in tile.shape), tile.shape, span), zero, span)


def _tell(m: Machine, function: Function, params: Mapping[str, Param], answer: Answer, launch: Launch) -> None:
    """One note for each inference."""
    for name, p in params.items():
        if isinstance(p, Buffer):
            text = f"`{name}` is a {p.dtype} tensor of shape {shape_text(p.shape)} ({answer.reasons[name]})"
            listed = ", ".join(map(expr_text, p.shape)) + "," * (len(p.shape) == 1)
            m.b.note("TL0221", text, p.span, help=f'annotate it to say so: `{name}: T.Tensor(({listed}), "{p.dtype}")`')
    sizes = [n for n, p in params.items() if isinstance(p, Var)]
    if sizes:
        listed = ", ".join(f"`{n}`" for n in sizes)
        text = f"{listed} {'is a' if len(sizes) == 1 else 'are'} run-time int32 argument{'s' * (len(sizes) > 1)}"
        m.b.note("TL0222", text, function.span, help="give " + " ".join(f"-D {n}=VALUE" for n in sizes) + " to fix them")
    used = ", ".join(f"`{v.name}` is the block index along {'xyz'[v.axis]}" for v in launch.block_vars)
    m.b.note("TL0223", used, function.span)
    grid = " x ".join(expr_text(e) for e in launch.grid)
    m.b.note("TL0224", f"the grid is {grid} blocks", function.span, help="write `with T.Kernel(...)` to choose it")
    if launch.threads is None:
        text = "the number of threads is the compiler's choice"
        m.b.note("TL0226", text, function.span, help="write `with T.Kernel(..., threads=128)` to choose it")


__all__ = ["annotate_help", "record_implicit", "tensor_parameters"]
