"""Statements of the Tile IR: what the block does, tile by tile. Data only; each carries the span of its source.

Semantics are those of one thread block that executes statement after statement:

- tile statements (Copy, Fill, Gemm, Reduce, Scan, Parallel) act once for the whole block;
- scalar statements outside Parallel (Let, Store, If, loops) are executed by every thread; a Store to a tile whose index and
  value do not depend on the thread happens once;
- a Store or Atomic out of the range of a global tensor is dropped; a Load out of range gives the safe value.
"""

from __future__ import annotations

from typing import TypeAlias

from tilec.record import record
from tilec.diagnostics import NOWHERE, Span
from tilec.ir.expr import Buffer, Expr, Var


@record
class Region:
    """A box of a buffer: per dimension a start and an extent (1 for a dimension that was indexed by a scalar)."""

    buffer: Buffer
    starts: tuple[Expr, ...]
    extents: tuple[Expr, ...]
    span: Span = NOWHERE


@record
class Seq:
    """Statements in order."""

    body: tuple[Stmt, ...]
    span: Span = NOWHERE


@record
class For:
    """A counted loop; bounds and step are taken once. `kind` is serial, unroll, vectorized or pipelined.

    `num_stages` belongs to pipelined loops: None when the author gave none. `factor` belongs to unrolled ones: how many steps are
    written out at a time, 0 for all.
    """

    var: Var
    start: Expr
    stop: Expr
    step: Expr
    kind: str
    body: Stmt
    num_stages: int | None = None
    span: Span = NOWHERE
    factor: int = 0


@record
class Parallel:
    """Independent iterations over `0 <= vars[d] < extents[d]`, spread over the threads of the block; each happens once."""

    vars: tuple[Var, ...]
    extents: tuple[Expr, ...]
    body: Stmt
    span: Span = NOWHERE


@record
class While:
    """Repeats `body` while `cond` holds."""

    cond: Expr
    body: Stmt
    span: Span = NOWHERE


@record
class If:
    """Takes one branch. `orelse` may be an empty Seq."""

    cond: Expr
    then: Stmt
    orelse: Stmt
    span: Span = NOWHERE


@record
class Break:
    """Leaves the innermost serial loop or While."""

    span: Span = NOWHERE


@record
class Continue:
    """Next iteration of the innermost serial loop or While."""

    span: Span = NOWHERE


@record
class Let:
    """Binds `var` to the value that `value` has here (a snapshot)."""

    var: Var
    value: Expr
    span: Span = NOWHERE


@record
class Store:
    """buffer[indices] = value; `value` has the buffer's type. Rank-0 buffers (alloc_var) have no indices."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr
    span: Span = NOWHERE


@record
class Alloc:
    """Brings a shared, fragment, local or var buffer into being; its contents are undefined (a var starts at zero)."""

    buffer: Buffer
    span: Span = NOWHERE


@record
class Copy:
    """dst = src, element by element with a cast. The extents of both sides agree once dimensions of extent 1 are dropped."""

    src: Region
    dst: Region
    span: Span = NOWHERE


@record
class Fill:
    """Every element of `dst` = value (of the buffer's type)."""

    dst: Region
    value: Expr
    span: Span = NOWHERE


@record
class Gemm:
    """c += op(a) @ op(b); with `clear` true, c = op(a) @ op(b). Tiles are the last two dimensions of each region.

    op(a) is M x K and op(b) is K x N; `trans_a` means that a is stored K x M, `trans_b` that b is stored N x K.
    `policy` is square, full_row or full_col: how the author wants the warps spread. Unless it `waits`, the product is only queued:
    c holds it behind a Control("products_wait").

    With `marks`, a holds two of every four elements along K, and marks which: 4 bits of an integer for each four, the lowest first,
    of these two for the place of the first kept element and two for that of the second, in ascending order; as many rows as a.
    """

    a: Region
    b: Region
    c: Region
    trans_a: bool
    trans_b: bool
    policy: str
    clear: Expr
    span: Span = NOWHERE
    waits: bool = True
    marks: Region | None = None


@record
class Reduce:
    """dst = op over dimension `dim` of src; `clear` false combines with what dst holds, once.

    `op` is sum, max, min, abssum, absmax, any, all, bitand, bitor or bitxor. Accumulates in dst's type. dst's shape is src's
    without `dim`, or with extent 1 there. max and min drop NaN unless `nan_propagate`.
    """

    op: str
    src: Region
    dst: Region
    dim: int
    clear: bool
    nan_propagate: bool = False
    span: Span = NOWHERE


@record
class Scan:
    """Inclusive scan (`op` sum or max) along `dim`, from the end when `reverse`."""

    op: str
    src: Region
    dst: Region
    dim: int
    reverse: bool
    span: Span = NOWHERE


@record
class Atomic:
    """dst[...] op= value for one element, indivisibly; `op` is add, max, min, and, or, xor, exch, cas, load or store.

    `result` receives the old value when the author asked for it. `operands` has one value (two for cas, none for load).
    """

    op: str
    buffer: Buffer
    indices: tuple[Expr, ...]
    operands: tuple[Expr, ...]
    order: str = "relaxed"
    result: Var | None = None
    span: Span = NOWHERE


@record
class Barrier:
    """Waits for other threads. `kind` is block, named (with `id` and `count`), warp (`id` may be a mask of lanes), grid or cluster;
    arrive counts at a named one without waiting. cluster_arrive and cluster_wait are the halves of that of the cluster,
    cluster_arrive_relaxed is an arrival that makes nothing visible."""

    kind: str
    id: Expr | None = None
    count: Expr | None = None
    span: Span = NOWHERE


@record
class Mbarrier:
    """What each executing thread does with `buffer[index]`, a barrier in shared memory (a uint64 tile of rank 1).

    `kind` is init (its phases end after `value` arrivals), arrive, arrive_copies (the same, but the element by element copies into
    shared memory right in front of it need not be complete before it counts), expect (`value` bytes more must come in this phase),
    arrive_expect (both) or wait (until the phase of parity `value` is over; a new barrier is in phase 0).
    """

    kind: str
    buffer: Buffer
    index: Expr
    value: Expr | None = None
    span: Span = NOWHERE


@record
class BulkCopy:
    """dst = src, queued for the copy engine once for all executing threads; one side is global, the other shared.

    A load tells `barrier[index]` to expect its bytes, and they arrive there. A store has no barrier; it belongs to the group
    that the next Control("stores_commit") closes. From a shared tile to that of another block of the cluster it is an arrival at the
    barrier there, and brings its bytes. A load with a `mask` is the same in all blocks of the cluster whose bits are set: one of
    them may load for all.
    """

    src: Region
    dst: Region
    barrier: Buffer | None = None
    index: Expr | None = None
    span: Span = NOWHERE
    mask: int = 0


@record
class Control:
    """Orders work that runs beside the threads. `kind` is one of CONTROLS; `value` is a count of groups or of registers.

    products_fence, products_commit and products_wait are those of queued GEMMs (a GEMM closes a group of its own),
    stores_commit and stores_wait those of queued stores; a wait leaves the newest `value` groups in flight. fence makes what
    threads have written visible to the copy engine. registers_take and registers_give move registers between warp groups.
    """

    kind: str
    value: int = 0
    span: Span = NOWHERE


CONTROLS = (
    "products_fence", "products_commit", "products_wait", "stores_commit", "stores_wait", "fence", "registers_take", "registers_give",
)  # fmt: skip


@record
class Trap:
    """Stops the kernel when `cond` is false; `message` is printed."""

    cond: Expr
    message: str
    span: Span = NOWHERE


@record
class Print:
    """printf from every executing thread (thread 0 of the block when `once`)."""

    message: str
    args: tuple[Expr, ...]
    once: bool = False
    span: Span = NOWHERE


@record
class Evaluate:
    """An expression for its effects, such as a call of the author's own device function."""

    value: Expr
    span: Span = NOWHERE


Stmt: TypeAlias = (
    Seq | For | Parallel | While | If | Break | Continue | Let | Store | Alloc | Copy | Fill | Gemm | Reduce | Scan | Atomic | Barrier
    | Mbarrier | BulkCopy | Control | Trap | Print | Evaluate
)
