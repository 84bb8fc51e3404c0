"""Names for particular instructions whose meaning the language has already: element by element, in the order of the source.

T.ptx_cp_async(dst, src, 8)  ->  dst[k] = src[k] for the 8 elements;  T.ptx_wait_group(0) waits for nothing then
T.dp4a(A[0], B[0], C[0])     ->  C[0] += A[0] * B[0] + ... + A[3] * B[3] in int32
"""

from __future__ import annotations

from typing import Any

from tilec.ir.dtypes import BOOL, INT32, UINT32, vector_of
from tilec.ir.expr import Buffer, Const, Expr, Load, Scope, Select, Var, VarKind
from tilec.ir.tile import Alloc, For, If, Parallel, Seq, Stmt, Store
from tilec.language.access import as_expr, buffer_label, cast_expr, element, host_int, read
from tilec.language.arith import binary, compare, truth
from tilec.language.bind import Entry, ignored, works
from tilec.language.builder import Builder
from tilec.language.context import in_kernel, scope_error, tile_statement
from tilec.language.copy import copy
from tilec.language.extents import equal
from tilec.language.extern import pointee
from tilec.language.lanes import among, is_vector, places_of, vector
from tilec.language.regions import is_element, region, write
from tilec.language.show import describe, shape_text
from tilec.language.values import Ref, Vec
from tilec.language.vectors import reinterpret


def async_copy(b: Builder, src: Any, dst: Any, **hints: Any) -> None:
    """T.copy; the waits are where the compiler needs them."""
    copy(b, src, dst)


def ptx_cp_async(b: Builder, dst: Any, src: Any, count: Any, predicate: Any = None) -> None:
    """Copies `count` neighbouring elements of global to shared memory, zeros where the predicate is false."""
    in_kernel(b, "ptx_cp_async")
    (to, places), (source, indices) = pointee(b, dst, "the destination"), pointee(b, src, "the source")
    n = host_int(b, count, "the number of elements")
    if to.dtype != source.dtype or n < 1:
        raise b.error("TL0206", f"cannot copy {n} elements of {source.dtype} to {to.dtype}", *buffer_label(to), *buffer_label(source))
    k = Var("k", INT32, VarKind.LOOP, span=b.span)
    value: Expr = Load(source, _further(b, indices, k))
    if predicate is not None:
        met = truth(b, predicate)
        cond = Const(met, BOOL) if isinstance(met, bool) else met
        value = Select(cond, value, Const(0.0 if to.dtype.is_float else 0, to.dtype), to.dtype)
    store = Store(to, _further(b, places, k), value, b.span)
    b.emit(For(k, Const(0, INT32), Const(n, INT32), Const(1, INT32), "vectorized", Seq((store,), b.span), span=b.span))


def _further(b: Builder, indices: tuple[Expr, ...], k: Any) -> tuple[Expr, ...]:
    return (*indices[:-1], as_expr(b, binary(b, "add", indices[-1], k)))


def ptx_commit_group(b: Builder) -> None:
    """Closes a group of asynchronous copies; copies are complete where they stand."""


def ptx_wait_group(b: Builder, num: Any = 0) -> None:
    """Waits for groups of asynchronous copies; copies are complete where they stand."""


def pdl_sync(b: Builder) -> None:
    """The launch may begin while those in front of it in the stream end, and waits for them at its beginning (sm_90). Hopper's own
    bodies of products and attention begin in stream order."""
    in_kernel(b, "pdl_sync").waits = True


def pdl_trigger(b: Builder) -> None:
    """The next launch in the stream may begin, if it has T.pdl_sync, once all blocks of this one have (sm_90)."""
    in_kernel(b, "pdl_trigger").releases = True


def transpose(b: Builder, src: Any, dst: Any) -> None:
    """dst[..., j, i] = src[..., i, j]."""
    tile_statement(b, "transpose")
    left, right = region(b, src, "the source of T.transpose"), region(b, dst, "the destination of T.transpose")
    rank = len(left.extents)
    turned = (*left.extents[:-2], *left.extents[:-3:-1])
    if rank < 2 or len(right.extents) != rank or not all(equal(x, y) for x, y in zip(turned, right.extents, strict=True)):
        text = f"T.transpose of {shape_text(left.extents)} does not give {shape_text(right.extents)}"
        raise b.error("TL0312", text, *buffer_label(left.buffer), *buffer_label(right.buffer))
    variables = tuple(Var("ijklmnpq"[d % 8], INT32, VarKind.LOOP, span=b.span) for d in range(rank))
    swapped = (*variables[:-2], variables[-1], variables[-2])
    read_at = tuple(as_expr(b, binary(b, "add", s, v)) for s, v in zip(left.starts, variables, strict=True))
    write_at = tuple(as_expr(b, binary(b, "add", s, v)) for s, v in zip(right.starts, swapped, strict=True))
    store = Store(right.buffer, write_at, cast_expr(Load(left.buffer, read_at), right.buffer.dtype), b.span)
    b.emit(Parallel(variables, left.extents, Seq((store,), b.span), b.span))


def dp4a(b: Builder, A: Any, B: Any, C: Any) -> None:
    """C += the product of four 8-bit integers from A on with four from B on, in int32."""
    in_kernel(b, "dp4a")
    a, c, total = (_start(b, x) for x in (A, B, C))
    if a.buffer.dtype.bits != 8 or c.buffer.dtype.bits != 8 or total.buffer.dtype.bits != 32:
        raise b.error("TL0340", "T.dp4a multiplies 8-bit integers into a 32-bit one", *buffer_label(a.buffer))
    value: Any = read(b, total)
    for k in range(4):
        x, y = (as_expr(b, _at(b, r, k), INT32) for r in (a, c))
        value = binary(b, "add", value, binary(b, "mul", x, y))
    write(b, total, value)


def _start(b: Builder, value: Any) -> Ref:
    """The first element of a buffer, or the element given; of a vector its first lane."""
    if is_vector(value):
        buffer, at = places_of(b, value)[0]
        return Ref(buffer, at, b.span)
    if isinstance(value, Buffer):
        return Ref(value, (0,) * value.rank, b.span)
    if isinstance(value, Ref):
        return Ref(value.buffer, element(b, value) if is_element(value) else region(b, value).starts, b.span)
    raise b.error("TL0206", f"expected an element of a buffer, got {describe(value)}")


def _at(b: Builder, ref: Ref, k: int) -> Ref:
    return Ref(ref.buffer, (*ref.items[:-1], binary(b, "add", ref.items[-1], k)), ref.span)


def im2col(
    b: Builder, img: Any, col: Any, nhw_step: Any, c_step: Any, kernel: Any, stride: Any, dilation: Any, pad: Any,
    eviction_policy: Any = None,
) -> None:  # fmt: skip
    """One tile of the matrix whose rows are the patches of an NHWC image that a square kernel sees; zeros outside of the image."""
    tile_statement(b, "im2col")
    image, tile = img, col
    if not isinstance(image, Buffer) or image.rank != 4 or not isinstance(tile, Buffer) or tile.rank != 2:
        raise b.error("TL0206", "T.im2col takes an image of shape (N, H, W, C) and a tile of two dimensions")
    scope_error(b, image, "the image of T.im2col", (Scope.GLOBAL,), "pass the tensor itself")
    k, s, d, p = (host_int(b, v, what) for v, what in ((kernel, "kernel"), (stride, "stride"), (dilation, "dilation"), (pad, "pad")))
    _, height, width, channels = image.shape
    out_h, out_w = (_windows(b, n, k, s, d, p) for n in (height, width))
    i, j = (Var(n, INT32, VarKind.LOOP, span=b.span) for n in "ij")
    m = binary(b, "add", binary(b, "mul", nhw_step, tile.shape[0]), i)
    n = binary(b, "add", binary(b, "mul", c_step, tile.shape[1]), j)
    per_image = binary(b, "mul", out_h, out_w)
    y = binary(b, "mul", binary(b, "floordiv", binary(b, "mod", m, per_image), out_w), s)
    x = binary(b, "mul", binary(b, "mod", m, out_w), s)
    row = binary(b, "floordiv", n, binary(b, "mul", channels, k))
    column = binary(b, "mod", binary(b, "floordiv", n, channels), k)
    at_h = as_expr(b, binary(b, "sub", binary(b, "add", y, binary(b, "mul", row, d)), p))
    at_w = as_expr(b, binary(b, "sub", binary(b, "add", x, binary(b, "mul", column, d)), p))
    places = (as_expr(b, binary(b, "floordiv", m, per_image)), at_h, at_w, as_expr(b, binary(b, "mod", n, channels)))
    seen = as_expr(b, compare(b, "lt", row, k))  # columns behind the last tap are padding
    value = cast_expr(Load(image, places), tile.dtype)
    zero = Const(0.0 if tile.dtype.is_float else 0, tile.dtype)
    store = Store(tile, (i, j), Select(seen, value, zero, tile.dtype), b.span)
    b.emit(Parallel((i, j), tile.shape, Seq((store,), b.span), b.span))


def _windows(b: Builder, size: Expr, k: int, s: int, d: int, p: int) -> Any:
    """How many places a kernel has along one side."""
    return binary(b, "add", binary(b, "floordiv", binary(b, "sub", binary(b, "add", size, 2 * p), d * (k - 1) + 1), s), 1)


def index_to_coordinates(b: Builder, index: Any, shape: Any) -> list[Any]:
    """The coordinates of a running index in a row-major box."""
    sizes = list(shape) if isinstance(shape, (tuple, list)) else [shape]
    out: list[Any] = []
    for extent in reversed(sizes[1:]):
        out.append(_host("mod", b, index, extent))
        index = _host("floordiv", b, index, extent)
    return [index, *reversed(out)]


def _host(op: str, b: Builder, x: Any, y: Any) -> Any:
    if isinstance(x, int) and isinstance(y, int) and y != 0:
        return x % y if op == "mod" else x // y
    return binary(b, op, x, y)


def ldg(b: Builder, load_or_buf: Any, index: Any = None) -> Expr:
    """An element of a tensor that no one writes meanwhile."""
    in_kernel(b, "__ldg")
    if isinstance(load_or_buf, Buffer):
        items = index if isinstance(index, (tuple, list)) else (index,)
        return read(b, Ref(load_or_buf, tuple(items), b.span))
    if not isinstance(load_or_buf, Ref) or not is_element(load_or_buf):
        raise b.error("TL0206", f"T.__ldg takes an element, got {describe(load_or_buf)}", help="T.__ldg(A[i])")
    return read(b, load_or_buf)


def _load(name: str, text: str, count: int) -> Any:
    def function(b: Builder, src: Any, pred: Any = None) -> Any:
        in_kernel(b, name)
        words = _words(b, name, src, pred, count)
        return words.lanes[0] if count == 1 else words

    function.__doc__ = f"{text} from an element on, 0 where the predicate is false."
    return function


def _words(b: Builder, name: str, src: Any, pred: Any, count: int) -> Vec:
    """Neighbouring words of 32 bits, read at once."""
    start = _start(b, src)
    elements = count * _per_word(b, start)
    met = True if pred is None else truth(b, pred)
    own = Buffer(b.hint or "words", start.buffer.dtype, (Const(elements, INT32),), Scope.LOCAL, span=b.span)
    b.emit(Alloc(own, b.span))
    k = Var("k", INT32, VarKind.LOOP, span=b.span)
    zero = Store(own, (k,), Const(0.0 if own.dtype.is_float else 0, own.dtype), b.span)
    move = Store(own, (k,), Load(start.buffer, _further(b, element(b, start), k)), b.span)
    if met is not True:
        b.emit(_over(b, k, elements, zero))
    if isinstance(met, Expr):
        b.emit(If(met, Seq((_over(b, k, elements, move),), b.span), Seq((), b.span), b.span))
    elif met:
        b.emit(_over(b, k, elements, move))
    found = reinterpret(b, Vec(tuple(Load(own, (Const(n, INT32),)) for n in range(elements))), vector_of(UINT32, count))
    return found if isinstance(found, Vec) else Vec((found,))


def _over(b: Builder, k: Var, count: int, body: Stmt) -> For:
    """Neighbours, as one access where alignment allows it."""
    return For(k, Const(0, INT32), Const(count, INT32), Const(1, INT32), "vectorized", Seq((body,), b.span), span=b.span)


def _per_word(b: Builder, start: Ref) -> int:
    dtype = start.buffer.dtype
    if dtype.bits not in (8, 16, 32) or not start.items:
        raise b.error("TL0340", f"four bytes of `{start.buffer.name}`, which holds {dtype}", *buffer_label(start.buffer))
    return 32 // dtype.bits


def _save(name: str, text: str, count: int) -> Any:
    def function(b: Builder, dst: Any, value: Any, pred: Any = None) -> None:
        in_kernel(b, name)
        _store_words(b, name, dst, value, pred, count)

    function.__doc__ = f"Writes {text} from an element on, not where the predicate is false."
    return function


def _store_words(b: Builder, name: str, dst: Any, value: Any, pred: Any, count: int) -> None:
    start = _start(b, dst)
    elements = count * _per_word(b, start)
    words = Vec(tuple(as_expr(b, w) for w in value)) if isinstance(value, (tuple, list)) and value else value
    lanes = vector(b, words).lanes if among(words) else (as_expr(b, words),)
    if sum(x.dtype.bits for x in lanes) != 32 * count:
        text = f"T.{name} writes {count} words of 32 bits, got {describe(value)}"
        raise b.error("TL0206", text, help=f"such as those of T.{name.replace('st', 'ld')}")
    found = reinterpret(b, Vec(lanes), vector_of(start.buffer.dtype, elements))
    kept = found.lanes if isinstance(found, Vec) else (found,)
    with b.block() as stores:
        own = Buffer(f"{start.buffer.name}_words", start.buffer.dtype, (Const(elements, INT32),), Scope.LOCAL, span=b.span)
        b.emit(Alloc(own, b.span))
        for n, e in enumerate(kept):
            b.emit(Store(own, (Const(n, INT32),), e, b.span))
        k = Var("k", INT32, VarKind.LOOP, span=b.span)
        b.emit(_over(b, k, elements, Store(start.buffer, _further(b, element(b, start), k), Load(own, (k,)), b.span)))
    met = True if pred is None else truth(b, pred)
    if isinstance(met, bool):
        for s in stores if met else []:
            b.emit(s)
        return
    b.emit(If(met, Seq(tuple(stores), b.span), Seq((), b.span), b.span))


_SIZES = {
    32: ("Four bytes as a uint32", "a uint32 as four bytes"), 64: ("Eight bytes as a uint32x2", "eight bytes of any type"),
    128: ("16 bytes as a uint32x4", "16 bytes of any type"), 256: ("32 bytes as a uint32x8", "32 bytes of any type"),
}  # fmt: skip
"""What T.ldg64 and its kin read and write."""

_WIDE = tuple(
    e
    for bits, (read_text, write_text) in _SIZES.items()
    for place in ("gs" if bits < 256 else "g")
    for e in works(_load(f"ld{place}{bits}", read_text, bits // 32), name=f"ld{place}{bits}")
    + works(_save(f"st{place}{bits}", write_text, bits // 32), name=f"st{place}{bits}")
)

ENTRIES: tuple[Entry, ...] = (
    works(async_copy)
    + works(ptx_cp_async)
    + ignored(ptx_commit_group)
    + ignored(ptx_wait_group)
    + works(pdl_sync)
    + works(pdl_trigger)
    + works(transpose)
    + works(dp4a)
    + works(im2col, "c2d_im2col")
    + works(index_to_coordinates, host=True)
    + works(ldg, name="__ldg")
    + _WIDE
)
