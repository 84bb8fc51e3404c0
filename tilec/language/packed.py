"""Types that are stored in bytes of another type: 4-bit integers and floats, two a byte, and the 8-bit exponents of block scales.

The author's statements name elements; here, at the end of a recording, they come to mean bytes. Element 2k of a row is the low
half of byte k. In registers such values are held in the next wider type that has all of them.

    A: T.Tensor((M, K), "int4")  ->  A: int8[M, K // 2];   A[i, k]  ->  int8(((A[i, k // 2] >> k % 2 * 4 & 15) ^ 8) - 8)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from tilec.analysis.ranges import divisor
from tilec.diagnostics import Span
from tilec.ir.dtypes import (
    BOOL,
    FLOAT4_E2M1,
    FLOAT8_E8M0,
    FLOAT16,
    FLOAT32,
    INT4,
    INT8,
    INT32,
    STORED,
    UINT8,
    UINT16,
    UINT32,
    DType,
)  # fmt: skip
from tilec.ir.expr import (
    POINTER_CALLS,
    Binary,
    Buffer,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    Reinterpret,
    Scope,
    Select,
    Unary,
    Var,
    VarKind,
)  # fmt: skip
from tilec.ir.kernel import Launch, Param
from tilec.ir.tile import Alloc, Atomic, Copy, Fill, For, Gemm, Let, Parallel, Reduce, Region, Scan, Seq, Stmt, Store
from tilec.ir.visit import buffers_of, map_expr, map_stmt, replace_buffers, stmt_exprs, substitute, walk_expr, walk_stmt
from tilec.language.access import buffer_label
from tilec.language.builder import Builder
from tilec.language.extents import constant
from tilec.language.layouts import elementwise
from tilec.language.promote import VALUES

STORAGE = {INT4: INT8}
"""The types of the bytes; unsigned ones for all others."""

_MEMORY = (Scope.GLOBAL, Scope.SHARED)


def unpack(b: Builder, params: tuple[Param, ...], launches: tuple[Launch, ...]) -> tuple[tuple[Param, ...], tuple[Launch, ...]]:
    """The kernel without stored types. Raises CompileError where two threads would write one byte."""
    used = [p for p in params if isinstance(p, Buffer)] + [x for launch in launches for x in _buffers(launch.body)]
    if not any(x.dtype in STORED for x in used) and not any(_mentions(launch.body) for launch in launches):
        return params, launches
    work = _Unpacking(b)
    for launch in launches:
        work.lets |= {s.var: s.value for s in walk_stmt(launch.body) if isinstance(s, Let)}
    whole = replace_buffers(work.statement(Seq(tuple(launch.body for launch in launches))), {x: work.buffer(x) for x in used})
    assert isinstance(whole, Seq)
    done = tuple(replace(launch, body=body) for launch, body in zip(launches, whole.body, strict=True))
    return tuple(work.buffer(p) if isinstance(p, Buffer) else work.var(p) for p in params), done


def _buffers(body: Stmt) -> Iterator[Buffer]:
    for s in walk_stmt(body):
        for x in buffers_of(s):
            at: Buffer | None = x
            while at is not None:
                yield at
                at = at.view_of


def _mentions(body: Stmt) -> bool:
    """True when some expression has a stored type."""
    return any(e.dtype in STORED for s in walk_stmt(body) for x in stmt_exprs(s) for e in walk_expr(x))


def _int(value: int) -> Const:
    return Const(value, INT32)


def _binary(op: str, a: Expr, b: Expr) -> Expr:
    return Binary(op, a, b, a.dtype)


def decode(code: Expr, dtype: DType) -> Expr:
    """The value, in the type it is computed in, of an element's bits as an int32."""
    if dtype == FLOAT8_E8M0:
        exponent = Reinterpret(Cast(_binary("shl", code, _int(23)), UINT32), FLOAT32)
        small = Select(Compare("eq", code, _int(0)), Const(2.0**-127, FLOAT32), exponent, FLOAT32)
        return Select(Compare("eq", code, _int(255)), Const(float("nan"), FLOAT32), small, FLOAT32)
    if dtype == FLOAT4_E2M1:
        sign, rest = _binary("shl", _binary("and", code, _int(8)), _int(12)), _binary("shl", _binary("and", code, _int(7)), _int(9))
        return Binary("mul", Reinterpret(Cast(_binary("or", sign, rest), UINT16), FLOAT16), Const(16384.0, FLOAT16), FLOAT16)
    if dtype == INT4:
        code = _binary("sub", _binary("xor", code, _int(8)), _int(8))
    return Cast(code, VALUES[dtype])


def encode(value: Expr, dtype: DType) -> Expr:
    """The bits of a value as an int32; floats round to nearest, ties to even, and stop at the largest."""
    if isinstance(value, Const) and dtype.is_int:
        return _int(int(value.value) & 15)
    if dtype.is_int:
        return _binary("and", Cast(value, INT32), _int(15))
    x = value if value.dtype == FLOAT32 else Cast(value, FLOAT32)
    size = Call("abs", (x,), FLOAT32)
    if dtype == FLOAT8_E8M0:
        bits = Cast(Reinterpret(size, UINT32), INT32)
        exponent = _binary("shr", _binary("add", bits, _int(0x3FFFFF)), _int(23))
        limited = Binary("min", exponent, _int(254), INT32)
        return Select(Call("isnan", (x,), BOOL), _int(255), limited, INT32)
    code = _binary("and", _binary("shr", Reinterpret(x, INT32), _int(28)), _int(8))
    for op, bound in (("gt", 0.25), ("ge", 0.75), ("gt", 1.25), ("ge", 1.75), ("gt", 2.5), ("ge", 3.5), ("gt", 5.0)):
        code = _binary("add", code, Cast(Compare(op, size, Const(bound, FLOAT32)), INT32))
    return Select(Call("isnan", (x,), BOOL), _int(7), code, INT32)


@dataclass(slots=True)
class _Unpacking:
    """One pass over a kernel; `lets` are the values of its names."""

    b: Builder
    lets: dict[Var, Expr] = field(default_factory=dict)
    table: dict[Buffer, Buffer] = field(default_factory=dict)
    names: dict[Var, Var] = field(default_factory=dict)

    # ---- buffers and names

    def var(self, old: Var) -> Var:
        """What a name becomes."""
        if old.dtype not in STORED:
            return old
        if old not in self.names:
            self.names[old] = replace(old, dtype=VALUES[old.dtype])
        return self.names[old]

    def buffer(self, old: Buffer) -> Buffer:
        """What a buffer becomes."""
        if old not in self.table:
            base = None if old.view_of is None else self.buffer(old.view_of)
            if old.dtype in STORED:
                self.table[old] = self._bytes(old, base) if old.scope in _MEMORY else self._wider(old, base)
            else:
                self.table[old] = old if base is old.view_of else replace(old, view_of=base)
        return self.table[old]

    def _bytes(self, old: Buffer, base: Buffer | None) -> Buffer:
        kind = STORAGE.get(old.dtype, UINT8)
        safe = old.safe_value
        if safe is not None:
            safe = Const(0, kind) if not isinstance(safe, Const) or safe.value == 0 else self._refuse(old, "a safe value other than 0")
        if old.dtype.bits == 8:
            return replace(old, dtype=kind, view_of=base, safe_value=safe)
        last = constant(old.shape[-1]) if old.shape else None
        if old.strides is not None or not old.shape or (last is not None and last % 2 and old.scope is Scope.GLOBAL):
            self._refuse(old, "strides" if old.strides is not None else "rows of an odd number of elements")
        half: Expr = Binary("floordiv", old.shape[-1], _int(2), old.shape[-1].dtype) if last is None else _int((last + 1) // 2)
        return replace(old, dtype=kind, shape=(*old.shape[:-1], half), view_of=base, safe_value=safe)

    def _wider(self, old: Buffer, base: Buffer | None) -> Buffer:
        if base is not None and old.view_of is not None and old.view_of.dtype != old.dtype:
            self._refuse(old, "a view in registers")
        return replace(old, dtype=VALUES[old.dtype], view_of=base)

    def _refuse(self, x: Buffer, what: str) -> Const:
        text = f"`{x.name}` holds {x.dtype} elements, which cannot have {what}"
        raise self.b.error("TL0302", text, *buffer_label(x), span=x.span)

    # ---- expressions

    def expr(self, e: Expr) -> Expr:
        """`e` with elements taken from their bytes."""
        if isinstance(e, Call) and e.name in POINTER_CALLS and isinstance(e.args[0], Load) and _packed(e.args[0].buffer):
            load = e.args[0]
            return replace(e, args=(Load(self.buffer(load.buffer), self.place(load.buffer, tuple(map(self.expr, load.indices)))[0]),))
        if isinstance(e, Var):
            return self.var(e)
        old = e
        e = map_expr(e, self.expr)
        match e:
            case Load(buffer, indices) if _packed(buffer):
                place, shift = self.place(buffer, indices)
                return decode(_bits(Load(self.buffer(buffer), place), shift, buffer.dtype), buffer.dtype)
            case Load(buffer, indices) if buffer.dtype in STORED:
                return Load(self.buffer(buffer), indices)
            case Cast(a, dtype) if dtype in STORED:
                return a if isinstance(old, Cast) and old.a.dtype == dtype else decode(encode(a, dtype), dtype)
            case Reinterpret(_, dtype) if dtype in STORED or (isinstance(old, Reinterpret) and old.a.dtype in STORED):
                raise self.b.error("TL0302", "the bits of a 4-bit element have no type of their own", help="use T.view on the whole buffer")
            case Cast(a, dtype) if a.dtype == dtype:
                return a
            case Const(value, dtype) if dtype in STORED:
                return Const(value, VALUES[dtype])
            case Unary() | Binary() | Select() | Call() if e.dtype in STORED:
                return replace(e, dtype=VALUES[e.dtype])
            case _:
                return e

    def place(self, buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[tuple[Expr, ...], Expr]:
        """Where the byte of an element is, and by how many bits it is shifted."""
        if buffer.dtype.bits == 8:
            return indices, _int(0)
        last = indices[-1]
        if isinstance(last, Const):
            return (*indices[:-1], Const(int(last.value) // 2, last.dtype)), _int(int(last.value) % 2 * 4)
        half, odd = (Binary(op, last, Const(2, last.dtype), last.dtype) for op in ("floordiv", "mod"))
        shift = Binary("mul", odd, Const(4, last.dtype), last.dtype)
        return (*indices[:-1], half), shift if last.dtype == INT32 else Cast(shift, INT32)

    # ---- statements

    def statement(self, s: Stmt) -> Stmt:
        """`s` on bytes."""
        match s:
            case Copy(src, dst) if src.buffer.dtype in STORED or dst.buffer.dtype in STORED:
                return self.copy(s)
            case Fill(dst, value) if _packed(dst.buffer):
                if self.even(dst) and isinstance(value, Const):
                    return Fill(self.half(dst), self.both(value, dst.buffer), s.span)
                return self.statement(elementwise(dst, value, None, s))
            case Parallel(variables, extents, body, span) if any(isinstance(x, Store) and _divided(x.buffer) for x in walk_stmt(body)):
                return self.pairs(variables, extents, body, span)
            case Store(buffer, indices, value, span) if _packed(buffer):
                self.own(s)
                return self.store(buffer, tuple(map(self.expr, indices)), self.expr(value), span)
            case Gemm():
                return self.gemm(s)
            case Reduce() | Scan() if _packed(s.src.buffer) or _packed(s.dst.buffer):
                text = f"a reduction of {s.src.buffer.dtype} elements"
                raise self.b.error("TL0331", text, span=s.span, help="T.copy them to a fragment first")
            case Atomic() if s.buffer.dtype in STORED:
                text = f"an atomic operation on {s.buffer.dtype} elements"
                raise self.b.error("TL0340", text, *buffer_label(s.buffer), span=s.span)
            case Let(var, value, span):
                return Let(self.var(var), self.expr(value), span)
            case _:
                return map_stmt(s, self.expr, self.statement)

    def copy(self, s: Copy) -> Stmt:
        """A copy of bytes where both sides begin with whole ones; else element by element."""
        src, dst = s.src, s.dst
        if src.buffer.dtype == dst.buffer.dtype and src.buffer.scope not in _MEMORY and dst.buffer.scope not in _MEMORY:
            return map_stmt(s, self.expr, self.statement)
        if _packed(src.buffer) and _packed(dst.buffer) and src.buffer.dtype == dst.buffer.dtype and self.even(src) and self.even(dst):
            return Copy(self.half(src), self.half(dst), s.span)
        return self.statement(elementwise(dst, Load(src.buffer, ()), src, s))

    def even(self, r: Region) -> bool:
        """True when a region is made of whole bytes."""
        if r.buffer.dtype.bits == 8:
            return True
        extent = constant(r.extents[-1])
        whole = constant(r.buffer.shape[-1]) == extent and constant(r.starts[-1]) == 0
        return extent is not None and (extent % 2 == 0 or whole) and extent > 1 and divisor(self.resolved(r.starts[-1])) % 2 == 0

    def resolved(self, e: Expr) -> Expr:
        """An index with the names in it spelled out."""
        for _ in range(8):
            new = substitute(e, self.lets)
            if new == e:
                break
            e = new
        return e

    def half(self, r: Region) -> Region:
        """The bytes of a region of whole ones."""
        starts, extents = tuple(map(self.expr, r.starts)), r.extents
        if r.buffer.dtype.bits == 4:
            (*_, byte), _ = self.place(r.buffer, starts)
            starts, extents = (*starts[:-1], byte), (*extents[:-1], _int(((constant(extents[-1]) or 0) + 1) // 2))
        return Region(self.buffer(r.buffer), starts, extents, r.span)

    def both(self, value: Const, buffer: Buffer) -> Expr:
        """The byte that holds a literal in each of its elements."""
        code = encode(Const(value.value, VALUES[buffer.dtype]), buffer.dtype)
        byte = code if buffer.dtype.bits == 8 else _binary("mul", code, _int(17))
        return Cast(byte, STORAGE.get(buffer.dtype, UINT8))

    def store(self, buffer: Buffer, indices: tuple[Expr, ...], value: Expr, span: Span) -> Stmt:
        """One element of a byte that keeps its other one."""
        place, shift = self.place(buffer, indices)
        new, code = self.buffer(buffer), encode(value, buffer.dtype)
        if buffer.dtype.bits == 4:
            old = Cast(Load(new, place), INT32)
            kept = _binary("and", old, Unary("invert", _binary("shl", _int(15), shift), INT32))
            code = _binary("or", kept, _binary("shl", code, shift))
        return Store(new, place, Cast(code, new.dtype), span)

    def own(self, s: Store) -> None:
        """Refuses stores of neighbouring threads to one byte."""
        inside = walk_expr(self.resolved(s.indices[-1]))
        if _divided(s.buffer) and any(isinstance(x, Var) and x.kind is VarKind.THREAD for x in inside):
            text = f"threads that are neighbours would write one byte of `{s.buffer.name}`, which holds two {s.buffer.dtype} elements"
            raise self.b.error("TL0302", text, *buffer_label(s.buffer), span=s.span, help="write the elements in T.Parallel")

    def pairs(self, variables: tuple[Var, ...], extents: tuple[Expr, ...], body: Stmt, span: Span) -> Stmt:
        """A loop that stores 4-bit elements, two neighbours of its last variable at a time by one thread."""
        last, count = variables[-1], constant(extents[-1])
        for x in walk_stmt(body):
            if isinstance(x, Store) and _divided(x.buffer) and not self._follows(x.indices[-1], last, count):
                text = f"different threads would write one byte of `{x.buffer.name}`, which holds two {x.buffer.dtype} elements"
                hint = f"let the last index of `{x.buffer.name}` be an even number plus `{last.name}`, of an even extent"
                raise self.b.error("TL0302", text, *buffer_label(x.buffer), span=x.span, help=hint)
        assert count is not None
        pair, odd = (Var(n, INT32, VarKind.LOOP, span=last.span) for n in (last.name, "odd"))
        twice = _binary("mul", pair, _int(2))
        at = (*variables[:-1], pair), (*extents[:-1], _int(count // 2))
        only = body.body[0] if isinstance(body, Seq) and len(body.body) == 1 else body
        if isinstance(only, Store):
            low, high = (self._value(only, {last: e}) for e in (twice, _binary("add", twice, _int(1))))
            place, _ = self.place(only.buffer, tuple(self.expr(substitute(e, {last: twice})) for e in only.indices))
            new = self.buffer(only.buffer)
            byte = _binary("or", low, _binary("shl", high, _int(4)))
            return Parallel(*at, Seq((Store(new, place, Cast(byte, new.dtype), only.span),), span), span)
        whole = _binary("add", twice, odd)
        inner = self.statement(_substituted(body, {last: whole}))
        both = For(odd, _int(0), _int(2), _int(1), "unroll", inner, span=span)
        return Parallel(*at, Seq((both,), span), span)

    def _follows(self, index: Expr, last: Var, count: int | None) -> bool:
        """True when an index is an even number plus `last`."""
        index = self.resolved(index)
        rest = substitute(index, {last: _int(0)})
        plain = index is last or (isinstance(index, Binary) and index.op == "add" and (index.a is last or index.b is last))
        other = [e for e in (index.a, index.b) if e is not last] if isinstance(index, Binary) else []
        apart = all(last not in tuple(walk_expr(e)) for e in other)
        return count is not None and count % 2 == 0 and plain and apart and (index is last or divisor(rest) % 2 == 0)

    def _value(self, s: Store, table: dict[Var, Expr]) -> Expr:
        return encode(self.expr(substitute(s.value, table)), s.buffer.dtype)

    def gemm(self, s: Gemm) -> Stmt:
        """A product whose packed operands are first spread out in shared memory."""
        before: list[Stmt] = []

        def side(r: Region) -> Region:
            if not _packed(r.buffer):
                return r
            tile = Buffer(f"{r.buffer.name}_wide", VALUES[r.buffer.dtype], r.extents[-2:], Scope.SHARED, span=s.span)
            whole = Region(tile, (_int(0), _int(0)), tile.shape, s.span)
            before.extend((Alloc(tile, s.span), self.statement(elementwise(whole, Load(r.buffer, ()), r, Copy(r, whole, s.span)))))
            return whole

        s = replace(s, a=side(s.a), b=side(s.b))
        done = map_stmt(s, self.expr, self.statement)
        return Seq((*before, done), s.span) if before else done


def _packed(buffer: Buffer) -> bool:
    """True for a buffer whose elements lie in bytes."""
    return buffer.dtype in STORED and buffer.scope in _MEMORY


def _nibbles(buffer: Buffer) -> bool:
    return _packed(buffer) and buffer.dtype.bits == 4


def _divided(buffer: Buffer) -> bool:
    """True where neighbouring elements share a byte; the lanes of a vector are one element of whole bytes."""
    return _nibbles(buffer) and not buffer.lanes


def _bits(byte: Load, shift: Expr, dtype: DType) -> Expr:
    """The bits of an element of a byte, as an int32."""
    wide: Expr = Cast(byte, INT32)
    if dtype.bits == 8:
        return wide
    return _binary("and", wide if isinstance(shift, Const) and shift.value == 0 else _binary("shr", wide, shift), _int(15))


def _substituted(s: Stmt, table: dict[Var, Expr]) -> Stmt:
    return map_stmt(s, lambda e: substitute(e, table), lambda child: _substituted(child, table))
