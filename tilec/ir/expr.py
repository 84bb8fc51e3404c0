"""Scalar expressions of the Tile IR: what one thread computes. Data only.

Every expression has a `dtype`. The operands of a `Binary` (except shifts' right side), of a `Compare` and both arms of a
`Select` have one and the same type: the frontend inserts `Cast` where Python's operands differ. Meaning:

- integers wrap at the width of their type; `floordiv` and `mod` follow Python (floor, sign of the divisor), for floats too;
  `truncdiv` and `truncmod` are C's; `div` is true division and takes floats only;
- `min` and `max` drop NaN (fmin, fmax);
- `Logical` short-circuits and `Select` evaluates one arm only.

    Binary("add", Var("i", INT32), Const(1, INT32)) is i + 1
"""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

from tilec.record import record
from tilec.diagnostics import NOWHERE, Span
from tilec.ir.dtypes import BOOL, INT32, DType


class VarKind(Enum):
    """Where the value of a variable comes from; decides its range and its spelling."""

    BLOCK = "block"  # a block index, 0 <= v < grid extent
    THREAD = "thread"  # a thread index, 0 <= v < threads along that axis
    LOOP = "loop"  # the variable of a For or Parallel
    LET = "let"  # bound once by a Let
    PARAM = "param"  # a scalar parameter of the kernel
    EXTENT = "extent"  # a run-time extent or stride of a tensor


@record(eq=False)
class Var:
    """A scalar name. Two variables are the same only if they are the same object."""

    name: str
    dtype: DType = INT32
    kind: VarKind = VarKind.LET
    axis: int = 0  # for BLOCK and THREAD: 0 x, 1 y, 2 z
    span: Span = NOWHERE


class Scope(Enum):
    """Where a buffer lives."""

    GLOBAL = "global"  # the warehouse: device memory
    SHARED = "shared"  # the shelf: shared memory of the block
    FRAGMENT = "fragment"  # the tray: registers, one logical tile for the whole block
    LOCAL = "local"  # a private array of each thread
    VAR = "var"  # a private mutable scalar of each thread (rank 0)


@record(eq=False)
class Buffer:
    """A named array. Two buffers are the same only if they are the same object.

    `strides` (in elements) is None for dense row-major. `view_of` names the buffer whose bytes this one reinterprets
    (T.reshape, T.view): same size in bytes, both dense row-major in their own shape. `safe_value` replaces 0 for
    out-of-range reads of a global tensor. `workspace` marks a global buffer that no caller passes (T.alloc_global);
    `address` is where a global buffer begins that is found through a pointer in memory (T.make_tensor), an int64. `peer`, a variable
    or constant, makes a shared buffer that of another block of the cluster, by its rank: `view_of` names the tile in the own one.
    Of `lanes` other than 0 the last dimension is one element as the author wrote it, a vector such as float32x4.
    """

    name: str
    dtype: DType
    shape: tuple[Expr, ...]
    scope: Scope
    strides: tuple[Expr, ...] | None = None
    view_of: Buffer | None = None
    safe_value: Expr | None = None
    workspace: bool = False
    span: Span = NOWHERE
    address: Expr | None = None
    peer: Expr | None = None
    lanes: int = 0

    @property
    def rank(self) -> int:
        """Number of dimensions; 0 for a scalar."""
        return len(self.shape)


@record
class Const:
    """A literal; `value` is already reduced to the range of `dtype` (bool for BOOL, int for integers, float for floats)."""

    value: int | float
    dtype: DType


@record
class Load:
    """One element of a buffer. A read of a global tensor out of its range gives its safe value (0 unless annotated)."""

    buffer: Buffer
    indices: tuple[Expr, ...]

    @property
    def dtype(self) -> DType:
        """The element type of the buffer."""
        return self.buffer.dtype


@record
class Unary:
    """`op` is neg, not (bool only) or invert (integers)."""

    op: str
    a: Expr
    dtype: DType


@record
class Binary:
    """`op` is one of BINARY_OPS; both operands and the result have `dtype` (a shift's right side may be any integer)."""

    op: str
    a: Expr
    b: Expr
    dtype: DType


BINARY_OPS = (
    "add", "sub", "mul", "div", "floordiv", "mod", "truncdiv", "truncmod", "min", "max", "pow", "and", "or", "xor", "shl", "shr",
)  # fmt: skip


@record
class Compare:
    """`op` is eq, ne, lt, le, gt or ge, over two operands of one type."""

    op: str
    a: Expr
    b: Expr

    @property
    def dtype(self) -> DType:
        """Always bool."""
        return BOOL


@record
class Logical:
    """`op` is and / or over bools; the right side is evaluated only when the left one does not decide."""

    op: str
    a: Expr
    b: Expr

    @property
    def dtype(self) -> DType:
        """Always bool."""
        return BOOL


@record
class Select:
    """`a` if `cond` else `b`; only the chosen arm is evaluated."""

    cond: Expr
    a: Expr
    b: Expr
    dtype: DType


@record
class Cast:
    """Conversion to `dtype`: floats round to nearest even, float to integer truncates and clamps (NaN gives 0), integers
    wrap, fp8 saturates to the largest finite value and keeps NaN, anything to bool is `!= 0`."""

    a: Expr
    dtype: DType


@record
class Reinterpret:
    """The same bits read as `dtype`, a type of the same width."""

    a: Expr
    dtype: DType


@record
class Call:
    """An intrinsic by name (exp, exp2, log, log2, sqrt, rsqrt, abs, floor, ceil, round, trunc, sin, cos, tan, tanh, erf,
    sigmoid, isnan, isinf, isfinite, popcount, fma, ceildiv (exact, any signs), ...); `language` declares each."""

    name: str
    args: tuple[Expr, ...]
    dtype: DType
    foreign: bool = False  # a function of the author's own, called once for each time that its statement is executed


POINTER_CALLS = {"address_r": "r", "address_w": "w", "address_rw": "rw"}
"""Intrinsics that give a pointer (a handle) to the element that their one operand, a Load, names: for reading, writing or both."""

WARP_CALLS = frozenset(
    ("shfl_xor", "shfl_up", "shfl_down", "shfl_idx", "any_sync", "all_sync", "ballot", "match_any", "activemask")
)  # fmt: skip
"""Intrinsics that exchange values inside a warp. All but activemask take a lane mask (uint32) first; the shuffles then a value of
32 or 64 bits, a lane or distance (int32) and the width of a group; the votes a bool; match_any an integer of 32 or 64 bits."""

BLOCK_CALLS = frozenset(("sync_and", "sync_or", "sync_count"))
"""Intrinsics that wait for all threads of the block and count those in which a bool holds."""

Expr: TypeAlias = Const | Var | Load | Unary | Binary | Compare | Logical | Select | Cast | Reinterpret | Call


def const_int(value: int, dtype: DType = INT32) -> Const:
    """An integer literal of type `dtype`."""
    return Const(value, dtype)
