"""Names that the language takes over from TVM: expressions written as calls, declarations of buffers, marks on conditions.

    T.FloorMod(i, 4)           ->  i % 4
    T.IntImm("int32", 7)       ->  Const(7, INT32)
    T.buffer_store(A, x, [i])  ->  A[i] = x
"""

from __future__ import annotations

from typing import Any

from tilec.ir.dtypes import INT32, INT64, DType
from tilec.ir.expr import Buffer, Cast, Const, Expr
from tilec.ir.tile import If, Seq
from tilec.language.access import as_expr, cast_expr, dtype_of, host_int
from tilec.language.alloc import alloc_buffer
from tilec.language.arith import binary, compare, convert_to, select, truth, unary
from tilec.language.bind import Entry, ignored, refused, works
from tilec.language.builder import Builder
from tilec.language.context import in_kernel
from tilec.language.lanes import let
from tilec.language.launch import thread_binding
from tilec.language.mathfns import float_function
from tilec.language.pointers import make_tensor
from tilec.language.regions import region, write
from tilec.language.show import describe
from tilec.language.values import Ref


def _node(op: str, doc: str) -> Any:
    def function(builder: Builder, a: Any, b: Any, span: Any = None) -> Any:
        return binary(builder, op, as_expr(builder, a), as_expr(builder, b))

    function.__doc__ = doc
    return function


def _comparison(op: str, doc: str) -> Any:
    def function(builder: Builder, a: Any, b: Any, span: Any = None) -> Any:
        return compare(builder, op, as_expr(builder, a), as_expr(builder, b))

    function.__doc__ = doc
    return function


def Div(builder: Builder, a: Any, b: Any, span: Any = None) -> Any:
    """Quotient; of integers rounded towards zero."""
    first, second = as_expr(builder, a), as_expr(builder, b)
    return binary(builder, "div" if first.dtype.is_float or second.dtype.is_float else "truncdiv", first, second)


def IntImm(b: Builder, dtype: Any, value: Any, span: Any = None) -> Expr:
    """An integer literal of a type."""
    return convert_to(b, host_int(b, value, "the value of T.IntImm"), dtype_of(b, dtype))


def FloatImm(b: Builder, dtype: Any, value: Any, span: Any = None) -> Expr:
    """A floating literal of a type."""
    return convert_to(b, value, dtype_of(b, dtype))


def StringImm(b: Builder, value: Any, span: Any = None) -> Any:
    """A string."""
    return value


def BufferLoad(b: Builder, buffer: Any, indices: Any, predicate: Any = None, span: Any = None) -> Ref:
    """An element of a buffer, `buffer[indices]`."""
    if predicate is not None:
        raise b.error("TL0204", "a load with a predicate is not supported", help="use T.if_then_else(predicate, buffer[i], 0)")
    return _reference(b, buffer, indices)


def buffer_store(b: Builder, buffer: Any, value: Any, indices: Any, predicate: Any = None) -> None:
    """buffer[indices] = value, only where `predicate` holds if one is given."""
    ref, met = _reference(b, buffer, indices), True if predicate is None else truth(b, predicate)
    with b.block() as made:
        write(b, ref, value)
    if isinstance(met, Expr):
        b.emit(If(met, Seq(tuple(made), b.span), Seq((), b.span), b.span))
        return
    for s in made if met else []:
        b.emit(s)


def _reference(b: Builder, buffer: Any, indices: Any) -> Ref:
    if not isinstance(buffer, Buffer):
        raise b.error("TL0206", f"expected a buffer, got {describe(buffer)}")
    items = tuple(indices) if isinstance(indices, (tuple, list)) else (indices,)
    return Ref(buffer, items, b.span)


def bind_(b: Builder, value: Any, type_annotation: Any = None, *, var: Any = None) -> Expr:
    """A value computed here, for a name: x = T.bind(A[i] + 1)."""
    return let(b, as_expr(b, value), b.hint or "value")


def mark(b: Builder, cond: Any, span: Any = None) -> Any:
    """The condition itself; that it usually holds is a hint."""
    return cond


def ldexp(b: Builder, x1: Any, x2: Any) -> Any:
    """x1 * 2 ** x2."""
    base = as_expr(b, x1)
    power = as_expr(b, x2, INT32)
    half = binary(b, "shr", power, 1)
    wide = base if base.dtype.bits >= 32 and base.dtype.is_float else cast_expr(base, dtype_of(b, "float32"))
    for part in (half, binary(b, "sub", power, half)):  # in two steps, so that no power of two on the way is out of range
        wide = binary(b, "mul", wide, float_function(b, "exp2", cast_expr(part, wide.dtype)))
    return cast_expr(wide, base.dtype) if base.dtype.is_float else wide


def q_multiply_shift(b: Builder, x: Any, y: Any, q: Any, s: Any) -> Expr:
    """x * y * 2 ** s of fixed-point numbers with `q` bits behind the point, rounded to nearest, ties up."""
    shift = as_expr(b, s, INT32)
    zero = Const(0, INT32)
    left = select(b, compare(b, "gt", shift, zero), shift, zero)
    right = select(b, compare(b, "gt", shift, zero), zero, unary(b, "neg", shift))
    return _fixed(b, x, y, left, binary(b, "add", right, as_expr(b, q, INT32)))


def q_multiply_shift_per_axis(
    b: Builder, x: Any, y: Any, ls: Any, rs: Any, q: Any, is_lshift_required: Any, is_rshift_required: Any
) -> Expr:
    """x * y of fixed-point numbers with `q` bits behind the point, shifted left by `ls` before and right by `rs` behind, as asked."""
    left, right = (select(b, truth(b, flag), as_expr(b, n, INT32), Const(0, INT32))
                   for n, flag in ((ls, is_lshift_required), (rs, is_rshift_required)))  # fmt: skip
    return _fixed(b, x, y, left, binary(b, "add", right, as_expr(b, q, INT32)))


def _fixed(b: Builder, x: Any, y: Any, left: Any, right: Any) -> Expr:
    wide = binary(b, "mul", binary(b, "shl", as_expr(b, x, INT64), left), as_expr(b, y, INT64))
    half = binary(b, "shl", Const(1, INT64), binary(b, "sub", right, 1))
    return Cast(as_expr(b, binary(b, "shr", binary(b, "add", wide, half), right)), INT32)


def allocate(b: Builder, extents: Any, dtype: Any = "float32", scope: Any = "global", annotations: Any = None) -> Buffer:
    """T.alloc_buffer."""
    return alloc_buffer(b, extents, dtype, scope)


def decl_buffer(b: Builder, shape: Any, dtype: Any = "float32", data: Any = None, strides: Any = None, scope: Any = "global") -> Buffer:
    """A buffer over the memory of another one, or at a pointer; without `data` T.alloc_buffer."""
    if data is None:
        return alloc_buffer(b, shape, dtype, scope)
    if isinstance(data, (Buffer, Ref)):
        from tilec.language.tensors import view

        return view(b, data, shape, dtype)
    return make_tensor(b, data, shape, dtype, strides)


def env_thread(b: Builder, thread_tag: Any, dtype: Any = "int32") -> Any:
    """The index along an axis such as "threadIdx.x"."""
    launch = in_kernel(b, "env_thread")
    kind, _, axis = str(thread_tag).partition(".")
    counts = launch.threads or (128, 1, 1)
    at = "xyz".find(axis) if len(axis) == 1 else -1
    return thread_binding(b, counts[at] if kind == "threadIdx" and at >= 0 else 1, None, thread_tag)


def device_type(b: Builder, value: Any) -> DType:
    """An element type from its name."""
    return dtype_of(b, value, vectors=True)


def _is_kind(name: str, *kinds: str) -> Any:
    def function(b: Builder, value: Any) -> bool:
        return str(dtype_of(b, value, vectors=True).lane) in kinds

    function.__doc__ = f"Whether an element type is one of {', '.join(kinds)}."
    function.__name__ = name
    return function


def _in_scope(*scopes: str) -> Any:
    def function(b: Builder, buffer: Any) -> bool:
        return region(b, buffer).buffer.scope.value in scopes

    function.__doc__ = f"Whether a buffer lies in {' or '.join(scopes)} memory."
    return function


_NODES = {
    "Add": ("add", "a + b."), "Sub": ("sub", "a - b."), "Mul": ("mul", "a * b."), "FloorDiv": ("floordiv", "a // b."),
    "FloorMod": ("mod", "a % b."), "Mod": ("truncmod", "Remainder of integers with the dividend's sign."), "Min": ("min", "T.min."),
    "Max": ("max", "T.max."),
}  # fmt: skip
_COMPARISONS = {"EQ": "eq", "NE": "ne", "LT": "lt", "LE": "le", "GT": "gt", "GE": "ge"}
_SIGNS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}

ENTRIES: tuple[Entry, ...] = (
    tuple(e for name, (op, doc) in _NODES.items() for e in works(_node(op, doc), name=name, host=True, lanewise=True))
    + tuple(
        e for n, op in _COMPARISONS.items() for e in works(_comparison(op, f"a {_SIGNS[op]} b."), name=n, host=True, lanewise=True)
    )
    + works(Div, host=True, lanewise=True)
    + works(IntImm, host=True)
    + works(FloatImm, host=True)
    + works(StringImm, host=True)
    + works(BufferLoad)
    + works(buffer_store)
    + works(bind_, name="bind")
    + works(mark, "tvm_thread_invariant", "ignore_loop_partition", name="likely", host=True)
    + works(ldexp, host=True, lanewise=True)
    + works(q_multiply_shift, lanewise=True)
    + works(q_multiply_shift_per_axis, lanewise=True)
    + works(allocate, host=True)
    + works(decl_buffer, "buffer", "buffer_decl", "sblock_alloc_buffer", host=True)
    + works(env_thread)
    + works(device_type, name="get_tvm_dtype", host=True)
    + works(_is_kind("is_float4", "float4_e2m1fn"), "is_float4_e2m1fn", host=True)
    + works(_is_kind("is_float4_e2m1_unpacked"), host=True)
    + works(_is_kind("is_f8f6f4_family", "float8_e4m3fn", "float8_e5m2", "float4_e2m1fn"), host=True)
    + ignored(mark, name="sblock_attr", host=True)
    + refused("write `if`", "If", "Then", "Else", "where")
    + refused("write `while`", "While")
    + refused("write `for i in range(...)`", "Range", "IterVar", "iter_var", "axis")
    + refused("assign to a name: `x = ...`", "get_let_value", "has_let_value", "buffer_var", "type_annotation")
    + refused("use T.dynamic", "SizeVar")
    + refused("use T.device_assert", "Assert")
    + refused("write `break`", "loop_break", "break_loop")
    + refused("write `continue`", "continue_loop")
    + refused("put what follows under an `if`", "ret")
    + refused("use T.reduce_sum and its kin, or T.comm_reducer with T.tvm_thread_allreduce", "CommReducer", "Reduce", "init")
    + refused(
        "write a @T.prim_func with annotated parameters", "arg", "func_name", "func_ret", "target", "meta_var", "block_name_suffix_context",
    )
    + refused("write a @T.macro, or a plain function", "inline", "meta_class")
    + refused("subscript the buffer", "ProducerLoad", "index_map")
)  # fmt: skip

UTILS: tuple[Entry, ...] = (
    works(_in_scope("fragment"), name="is_fragment", host=True)
    + works(_in_scope("global"), name="is_global", host=True)
    + works(_in_scope("shared"), "is_shared_dynamic", name="is_shared", host=True)
    + works(_in_scope("local", "var"), name="is_local", host=True)
    + refused(
        "use the buffer's own .shape, .strides and .dtype", "retrieve_shape", "retrieve_stride", "retrive_ptr_from_buffer_region",
        "to_buffer_region", "get_buffer_region_from_load", "is_full_region", "array_reduce", "get_prim_func_name", "side_effect",
        "is_tensor_memory",
    )
)  # fmt: skip
"""Names of tilelang.utils."""
