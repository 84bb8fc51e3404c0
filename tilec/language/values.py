"""Values that a kernel's Python can hold besides plain host values and IR expressions.

The evaluator passes these around without knowing what they mean; the primitives make and read them. A value in tilec is one
of: a host value (int, float, bool, str, None, tuple, list, dict, DType, Slice), an IR `Expr`, a `Buffer`, a `Ref`, one of
the specifications below, a `Namespace`, a `Primitive` or a `Marker`, or something of the evaluator's own (functions, poison).

    A[by * 128, 0:32]  ->  Ref(A, (Binary(...), Slice(0, 32)), span)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from tilec.record import record
from tilec.diagnostics import NOWHERE, Span
from tilec.ir.dtypes import DType, vector_of
from tilec.ir.expr import Buffer, Expr, Var

if TYPE_CHECKING:
    from tilec.language.builder import Builder


@record
class Slice:
    """`start:stop:step` of a subscript, or of Python's slice(); parts are host ints, expressions or None."""

    start: Any
    stop: Any
    step: Any = None


@record
class Ref:
    """A subscripted buffer that nobody has read yet: an element, the start of a tile, or a region, as its user decides."""

    buffer: Buffer
    items: tuple[Any, ...]  # Expr, int or Slice, one per dimension given by the author
    span: Span = NOWHERE
    variable: bool = False  # stands for a T.Ref parameter of a macro: assigning to the name stores to the element


@record
class Vec:
    """A value of several lanes, such as a float32x4: one expression of one type a lane.

    `source` is the buffer and the indices of the first lane where all lanes lie there side by side.
    """

    lanes: tuple[Expr, ...]
    source: tuple[Buffer, tuple[Expr, ...]] | None = None

    @property
    def dtype(self) -> DType:
        """The vector's type."""
        return vector_of(self.lanes[0].dtype, len(self.lanes))


@record
class TensorSpec:
    """`T.Tensor(shape, dtype)` and its kin in an annotation. Shape entries are ints or Exprs; dtype None means "infer"."""

    shape: tuple[Any, ...]
    dtype: DType | None
    strides: tuple[Any, ...] | None = None
    span: Span = NOWHERE


@record
class EmptySpec:
    """`T.empty(shape, dtype)` in an eager body: an output tensor that the callable allocates."""

    shape: tuple[Any, ...]
    dtype: DType
    span: Span = NOWHERE


@record
class LoopSpec:
    """What `for x in ...` runs over: kind is serial, unroll, vectorized, pipelined, parallel, grid or persistent.

    Counted kinds have one range (start, stop, step); parallel and grid have `extents`. `options` keeps num_stages and so on.
    """

    kind: str
    start: Any = 0
    stop: Any = 0
    step: Any = 1
    extents: tuple[Any, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    span: Span = NOWHERE


@record
class KernelSpec:
    """`T.Kernel(*blocks, threads=...)`: grid extents (ints or Exprs), threads as (x, y, z) or None for the default, and the
    blocks of a cluster along x, y, z."""

    grid: tuple[Any, ...]
    threads: tuple[int, int, int] | None
    span: Span = NOWHERE
    cluster: tuple[int, int, int] = (1, 1, 1)


@record
class SourceSpec:
    """`T.CUDASourceCodeKernel(...)`: a launch of a kernel of the author's own; `source` is its text or the name of a file that
    holds it, `entry` names it among several."""

    launch: KernelSpec
    source: str
    entry: str


@record
class WithSpec:
    """Any other context manager of the language: `enter` is called with the builder and a function that records the body."""

    name: str
    enter: Callable[[Builder, Callable[[], None]], None]


@record
class ConstSpec:
    """`T.const("M, N")`: names of compile-time sizes that tensors or -D give; the evaluator decides what each becomes."""

    names: tuple[str, ...]
    single: bool
    span: Span = NOWHERE


@record
class DynamicSpec:
    """`T.dynamic("m, n")` / `T.symbolic`: run-time sizes of type `dtype`; the evaluator makes one variable a name."""

    names: tuple[str, ...]
    single: bool
    dtype: DType
    span: Span = NOWHERE


@record
class Marker:
    """A decorator or class that the evaluator itself gives meaning to: prim_func, macro, jit, autotune, ignore.

    Called with arguments (`@tilelang.jit(out_idx=[-1])`) it stays a Marker with `options`.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


@record
class Primitive:
    """One callable name of the language. `call(builder, args, kwargs)` binds the arguments, checks them and acts."""

    name: str
    call: Callable[[Builder, tuple[Any, ...], Mapping[str, Any]], Any]
    host: bool = False  # true when it may be used outside a kernel (T.ceildiv, T.Tensor, tilelang.cdiv, ...)


@record
class Namespace:
    """A module or class of the language as the author sees it: dotted names resolve through `members`."""

    name: str
    members: Mapping[str, Any]


Value = Any
"""Any of the values above; Python's type system gains nothing from spelling the union."""

__all__ = [
    "ConstSpec", "DynamicSpec", "EmptySpec", "KernelSpec", "LoopSpec", "Marker", "Namespace", "Primitive", "Ref", "Slice", "SourceSpec",
    "TensorSpec", "Value", "Var", "Vec", "WithSpec", "Expr",
]  # fmt: skip
