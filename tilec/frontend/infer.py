"""What an implicit kernel leaves out, read from a first recording of its body.

- the dtype of a tensor is that of the tile it is copied to or stored from;
- a dimension indexed by `k * B` in a loop over ceildiv(X, B) has extent X;
- dimensions indexed by the same block index and tile have one extent;
- extents still open take the unused size parameters in their order, along the dimensions of the stored tensor;
- the grid is the number of tiles along each block index.

    A[by * 128, ko * 32], ko < ceildiv(K, 32); C[by * 128 + i, ...] stored, M unused   ->   A is M x K
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tilec.record import record
from tilec.diagnostics import CompileError, Label, Span
from tilec.frontend.machine import Machine
from tilec.frontend.values import Function
from tilec.ir.dtypes import INT32, DType
from tilec.ir.expr import Binary, Buffer, Call, Cast, Const, Expr, Load, Scope, Var, VarKind
from tilec.ir.kernel import Launch
from tilec.ir.tile import Atomic, Copy, For, Let, Region, Stmt, Store
from tilec.ir.visit import regions, stmt_exprs, walk_expr, walk_stmt
from tilec.language.show import expr_text

Dim = tuple[str, int]
"""A dimension of a tensor: its name and the number of the dimension."""

Block = tuple[int, int]
"""An axis of the grid and the extent of a tile along it."""


@record
class Sketch:
    """The first recording: its launch, and the tensors as they stand there."""

    launch: Launch
    tensors: Mapping[str, Buffer]


@dataclass(slots=True)
class Answer:
    """The inferred rest: shapes and dtypes of the tensors, why, and the grid extents by axis."""

    shapes: dict[str, tuple[Expr, ...]] = field(default_factory=dict)
    dtypes: dict[str, DType] = field(default_factory=dict)
    strides: dict[str, tuple[Expr, ...]] = field(default_factory=dict)
    places: dict[str, Span] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    grid: dict[int, Expr] = field(default_factory=dict)


@dataclass(slots=True)
class _Facts:
    """What the statements of the sketch say."""

    lets: dict[Var, Expr] = field(default_factory=dict)
    loops: dict[Var, For] = field(default_factory=dict)
    blocks: dict[Dim, list[Block]] = field(default_factory=dict)
    known: dict[Dim, list[tuple[Expr, Span]]] = field(default_factory=dict)
    dtypes: dict[str, list[tuple[DType, Buffer, Span]]] = field(default_factory=dict)
    stored: list[str] = field(default_factory=list)


def infer(m: Machine, function: Function, sketch: Sketch, sizes: Mapping[str, Var], order: tuple[str, ...]) -> Answer:
    """Everything the kernel leaves out. Raises TL0230 for what stays open or is contradictory."""
    facts = _gather(sketch)
    answer = Answer()
    extents = _extents(m, function, sketch, facts, sizes, order)
    errors: list[CompileError] = []
    for name in order:
        buffer = sketch.tensors[name]
        answer.places[name] = buffer.span
        try:
            answer.shapes[name] = _shape(m, name, buffer, extents)
            answer.dtypes[name], answer.reasons[name] = _dtype(m, name, buffer, facts)
        except CompileError as fault:
            errors.append(fault)
        if buffer.strides is not None:
            answer.strides[name] = buffer.strides
    if errors:
        raise CompileError(*(d for e in errors for d in e.diagnostics))
    answer.grid = _grid(m, function, sketch, facts, extents)
    return answer


def _gather(sketch: Sketch) -> _Facts:
    facts = _Facts()
    for s in walk_stmt(sketch.launch.body):
        if isinstance(s, Let):
            facts.lets[s.var] = s.value
        elif isinstance(s, For):
            facts.loops[s.var] = s
    names = {b: n for n, b in sketch.tensors.items()}
    for s in walk_stmt(sketch.launch.body):
        for buffer, indices, span in _accesses(s):
            if buffer in names:
                for d, index in enumerate(indices):
                    _access(facts, (names[buffer], d), index, span)
        _types(facts, names, s)
        for buffer in _stored(s):
            if buffer in names and names[buffer] not in facts.stored:
                facts.stored.append(names[buffer])
    return facts


def _accesses(s: Stmt) -> Iterator[tuple[Buffer, tuple[Expr, ...], Span]]:
    """Every place of a statement where a buffer is indexed."""
    span = s.span
    reads, writes = regions(s)
    for r in (*reads, *writes):
        yield r.buffer, r.starts, r.span
    match s:
        case Store(buffer=buffer, indices=indices) | Atomic(buffer=buffer, indices=indices):
            yield buffer, indices, span
    for e in stmt_exprs(s):
        for part in walk_expr(e):
            if isinstance(part, Load):
                yield part.buffer, part.indices, span


def _stored(s: Stmt) -> Iterator[Buffer]:
    match s:
        case Store(buffer=buffer) | Atomic(buffer=buffer):
            yield buffer
        case _:
            yield from (r.buffer for r in regions(s)[1])


def _access(facts: _Facts, dim: Dim, index: Expr, span: Span) -> None:
    """One index of one dimension: along a block index, along a loop, or neither."""
    terms = _linear(index, facts.lets)
    if terms is None:
        return
    blocks = [(v, c) for v, c in terms.items() if v is not None and v.kind is VarKind.BLOCK]
    if len(blocks) == 1 and blocks[0][1] > 0:
        block = (blocks[0][0].axis, blocks[0][1])
        if block not in facts.blocks.setdefault(dim, []):
            facts.blocks[dim].append(block)
        return
    if blocks:
        return
    for v, c in terms.items():
        loop = facts.loops.get(v) if v is not None else None
        extent = _loop_extent(loop, c) if loop is not None else None
        if loop is not None and extent is not None:
            facts.known.setdefault(dim, []).append((extent, loop.span))


def _loop_extent(loop: For, factor: int) -> Expr | None:
    """X for a loop from 0 over ceildiv(X, factor) or X // factor, or over X itself when factor is 1."""
    if loop.start != Const(0, loop.start.dtype) or loop.step != Const(1, loop.step.dtype):
        return None
    match loop.stop:
        case Call(name="ceildiv", args=(x, Const(value=by))) if by == factor:
            return x
        case Binary(op="floordiv", a=Binary(op="add", a=x, b=Const(value=more)), b=Const(value=by)) if by == factor and more == factor - 1:
            return x
        case Binary(op="floordiv", a=x, b=Const(value=by)) if by == factor:
            return x
        case Var() as x if factor == 1:
            return x
        case _:
            return None


def _linear(e: Expr, lets: Mapping[Var, Expr]) -> dict[Var | None, int] | None:
    """An index as a sum of variables with integer factors (None: the constant); None when it is not one."""
    match e:
        case Const(value=value):
            return {None: int(value)}
        case Var() if e in lets:
            return _linear(lets[e], lets)
        case Var():
            return {e: 1}
        case Cast(a=a):
            return _linear(a, lets)
        case Binary(op="add" | "sub" | "mul" as op, a=a, b=b):
            x, y = _linear(a, lets), _linear(b, lets)
            return None if x is None or y is None else _combine(op, x, y)
        case _:
            return None


def _combine(op: str, x: dict[Var | None, int], y: dict[Var | None, int]) -> dict[Var | None, int] | None:
    if op == "mul":
        if set(y) == {None}:
            return {v: c * y[None] for v, c in x.items()}
        if set(x) == {None}:
            return {v: c * x[None] for v, c in y.items()}
        return None
    sign = -1 if op == "sub" else 1
    result = dict(x)
    for v, c in y.items():
        result[v] = result.get(v, 0) + sign * c
    return {v: c for v, c in result.items() if c or v is None}


def _types(facts: _Facts, names: Mapping[Buffer, str], s: Stmt) -> None:
    """The tiles that tensors are copied to and stored from."""
    match s:
        case Copy(src=Region(buffer=src), dst=Region(buffer=dst)):
            pairs = [(src, dst), (dst, src)]
        case Store(buffer=dst, value=value):
            source = _loaded(value, facts.lets)
            pairs = [] if source is None else [(source, dst), (dst, source)]
        case _:
            return
    span = s.span
    for outer, tile in pairs:
        if outer in names and tile.scope is not Scope.GLOBAL:
            facts.dtypes.setdefault(names[outer], []).append((tile.dtype, tile, span))


def _loaded(value: Expr, lets: Mapping[Var, Expr]) -> Buffer | None:
    """The one buffer that a stored value comes from; casts and arithmetic with constants do not count."""
    found: list[Buffer] = []

    def visit(e: Expr) -> None:
        if isinstance(e, Var) and e in lets:
            visit(lets[e])
        elif isinstance(e, Load):
            found.append(e.buffer)
        elif not isinstance(e, Load):
            for part in walk_expr(e):
                if part is not e and isinstance(part, (Load, Var)):
                    visit(part)

    visit(value)
    tiles = {b for b in found if b.scope is not Scope.GLOBAL}
    if not tiles:
        return found[0] if len(set(found)) == 1 else None
    return tiles.pop() if len({b.dtype for b in tiles}) == 1 else None


def _dtype(m: Machine, name: str, buffer: Buffer, facts: _Facts) -> tuple[DType, str]:
    """The dtype of a tensor and why."""
    if name in m.request.args:
        return buffer.dtype, "from --arg"
    if not isinstance(buffer.shape[0] if buffer.shape else None, Var) or not _is_open(buffer, 0):
        return buffer.dtype, "from its annotation"
    found = facts.dtypes.get(name, [])
    if not found:
        text = f"the dtype of `{name}` cannot be inferred: it is neither copied to nor stored from a tile"
        raise m.fail("TL0230", text, buffer.span, help=annotate_help(name, len(buffer.shape)))
    dtype, tile, span = found[0]
    for other, second, place in found[1:]:
        if other != dtype:
            raise m.fail("TL0230", f"`{name}` would be {dtype} and {other}", buffer.span, Label(span, f"`{tile.name}` is {dtype}"),
                         Label(place, f"`{second.name}` is {other}"), help=annotate_help(name, len(buffer.shape)))  # fmt: skip
    return dtype, f"as its tile `{tile.name}`"


def annotate_help(name: str, rank: int) -> str:
    """How to say what cannot be inferred about a tensor of so many dimensions."""
    listed = ("M", "N") if rank == 2 else ("N",) if rank == 1 else tuple(f"N{d}" for d in range(rank))
    annotation = ", ".join(listed) + "," * (rank == 1)
    return f'annotate it, `{name}: T.Tensor(({annotation}), "float16")`, or give --arg {name}=float16[{",".join(listed)}]'


def _is_open(buffer: Buffer, d: int) -> bool:
    """True for an extent of the sketch that stands for an unknown one."""
    e = buffer.shape[d]
    return isinstance(e, Var) and e.name == f"{buffer.name}_{d}"


def _extents(
    m: Machine, function: Function, sketch: Sketch, facts: _Facts, sizes: Mapping[str, Var], order: tuple[str, ...]
) -> dict[Dim | Block, Expr]:
    """The extent of each dimension and of each (axis, tile) class, as far as it can be told."""
    extents: dict[Dim | Block, Expr] = {}
    places: dict[Dim | Block, Span] = {}

    def learn(dim: Dim, e: Expr, span: Span) -> None:
        keys: list[Dim | Block] = [dim, *facts.blocks.get(dim, ())]
        for key in keys:
            if key in extents and extents[key] != e:
                text = f"dimension {dim[1]} of `{dim[0]}` would have the extents {expr_text(extents[key])} and {expr_text(e)}"
                help = annotate_help(dim[0], sketch.tensors[dim[0]].rank)
                raise m.fail("TL0230", text, span, Label(places[key], f"{expr_text(extents[key])} from here"), help=help)
            extents[key] = e
            places.setdefault(key, span)

    for name in order:
        for d in range(sketch.tensors[name].rank):
            if not _is_open(sketch.tensors[name], d):
                learn((name, d), sketch.tensors[name].shape[d], sketch.tensors[name].span)
            for e, span in facts.known.get((name, d), ()):
                learn((name, d), e, span)
    _from_names(m, sketch, sizes, learn_name=learn)
    unused = _unused(extents, sizes)
    for name in (*facts.stored, *order):
        for d in range(sketch.tensors[name].rank):
            keys: list[Dim | Block] = [(name, d), *facts.blocks.get((name, d), ())]
            known = next((extents[k] for k in keys if k in extents), None)
            if known is None and name in facts.stored and unused:
                known = unused.pop(0)
            if known is None:
                known = _given(m, name, d)
            if known is not None:
                learn((name, d), known, sketch.tensors[name].span)
    return extents


def _unused(extents: Mapping[Dim | Block, Expr], sizes: Mapping[str, Var]) -> list[Var]:
    """Size parameters that no extent uses yet, in the order of the signature."""
    used = {v for e in extents.values() for v in walk_expr(e) if isinstance(v, Var)}
    return [v for v in sizes.values() if v not in used]


def _from_names(m: Machine, sketch: Sketch, sizes: Mapping[str, Var], learn_name: object) -> None:
    """Extents that --arg gives by name."""
    fresh: dict[str, Var] = {}
    assert callable(learn_name)
    for name, spec in m.request.args.items():
        buffer = sketch.tensors.get(name)
        if buffer is None or len(spec.shape) != buffer.rank:
            continue
        for d, given in enumerate(spec.shape):
            if isinstance(given, str):
                var = sizes.get(given) or fresh.setdefault(given, Var(given, INT32, VarKind.EXTENT, span=buffer.span))
                learn_name((name, d), var, buffer.span)


def _given(m: Machine, name: str, d: int) -> Expr | None:
    spec = m.request.args.get(name)
    value = spec.shape[d] if spec is not None and d < len(spec.shape) else None
    return Const(value, INT32) if isinstance(value, int) else None


def _shape(m: Machine, name: str, buffer: Buffer, extents: Mapping[Dim | Block, Expr]) -> tuple[Expr, ...]:
    missing = [d for d in range(buffer.rank) if (name, d) not in extents]
    if missing:
        listed = " and ".join(str(d) for d in missing)
        text = f"the extent of dimension {listed} of `{name}` cannot be inferred"
        raise m.fail("TL0230", text, buffer.span, help=annotate_help(name, len(buffer.shape)))
    return tuple(extents[name, d] for d in range(buffer.rank))


def _grid(m: Machine, function: Function, sketch: Sketch, facts: _Facts, extents: Mapping[Dim | Block, Expr]) -> dict[int, Expr]:
    """The number of tiles along each block index that the kernel uses."""
    found = (v for s in walk_stmt(sketch.launch.body) for e in stmt_exprs(s) for v in walk_expr(e) if isinstance(v, Var))
    used = {v.axis for v in found if v.kind is VarKind.BLOCK}
    grid: dict[int, Expr] = {}
    for axis in sorted(used):
        counts: list[Expr] = []
        for name in (*facts.stored, *sketch.tensors):
            for d in range(sketch.tensors[name].rank):
                for a, tile in facts.blocks.get((name, d), ()):
                    count = _tiles(extents[name, d], tile) if a == axis else None
                    if count is not None and count not in counts:
                        counts.append(count)
        letter = f"b{'xyz'[axis]}"
        if not counts:
            raise m.fail("TL0230", f"the number of blocks along `{letter}` cannot be inferred: it indexes no tensor", function.span,
                         help="write `with T.Kernel(...) as (bx, by):`")  # fmt: skip
        if len(counts) > 1:
            text = f"`{letter}` would count {expr_text(counts[0])} blocks and {expr_text(counts[1])} blocks"
            raise m.fail("TL0230", text, function.span, help="write `with T.Kernel(...) as (bx, by):`")
        grid[axis] = counts[0]
    return grid


def _tiles(extent: Expr, tile: int) -> Expr:
    if tile == 1:
        return extent
    if isinstance(extent, Const):
        return Const(-(-int(extent.value) // tile), INT32)
    return Call("ceildiv", (extent, Const(tile, extent.dtype)), extent.dtype)
