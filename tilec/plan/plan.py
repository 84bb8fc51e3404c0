"""The Plan: every decision about how the machine will do what the kernel means. Data only.

A `Plan` is what the planner hands to `emit`, to `tilec explain` and to the manifest. Its statements say what each thread does;
scalar leaves are still Tile IR. Nothing here is CUDA text, and nothing is left to decide.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TypeAlias

from tilec.record import record
from tilec.analysis.facts import Facts
from tilec.diagnostics import NOWHERE, Diagnostic, Span
from tilec.ir.dtypes import INT32
from tilec.ir.expr import Buffer, Expr, Var, VarKind
from tilec.ir.kernel import Kernel, Launch
from tilec.ir.tile import Alloc, Atomic, Break, Continue, Evaluate, Let, Print, Region, Store, Trap
from tilec.layout.fragment import FragmentLayout
from tilec.layout.shared import SharedLayout
from tilec.plan.gemm_plan import GemmPlan
from tilec.plan.hopper.chain_plan import ChainProduct, ChainSchedule, Multiply, Publish, Settle
from tilec.plan.by_hand.plan import PBarriers, PBulkCopy, PBulkFetch, PControl, PMbarrier, PSend, TeamPlan
from tilec.plan.hopper.plan import Operand, RowProduct, Schedule, Staging, StreamSchedule, TensorMap, WarpGroupGemm
from tilec.plan.ladder import LADDERS, Rung
from tilec.plan.workspace import Workspace
from tilec.targets import Target

THREAD = Var("thread", INT32, VarKind.THREAD)
"""The running number of a thread in its block, as planned statements mention it."""


@record
class Registers:
    """A fragment that lives in registers, `layout.registers` elements a thread; the last `shelved` of them in shared memory, in 16 bytes
    of one thread after those of the next, from byte `offset` of the block (see `shelves`)."""

    layout: FragmentLayout
    shelved: int = 0
    offset: int = 0

    @property
    def kept(self) -> int:
        """Elements of a thread that are in registers."""
        return self.layout.registers - self.shelved


@record
class SharedTile:
    """A tile in shared memory at byte `offset` of the block, `stages` versions of it one behind the other."""

    layout: SharedLayout
    offset: int
    stages: int = 1

    @property
    def bytes(self) -> int:
        """Bytes of all versions."""
        return self.layout.bytes * self.stages


@record
class Private:
    """A private array of each thread (alloc_local), row-major, or one scalar (alloc_var)."""


Placement: TypeAlias = Registers | SharedTile | Private
Leaf: TypeAlias = Alloc | Let | Store | Atomic | Print | Trap | Evaluate | Break | Continue


@record
class PSeq:
    """Planned statements in order."""

    body: tuple[PStmt, ...]


@record
class PScalar:
    """A scalar statement every thread executes; `once` restricts it to the first thread of the block.

    `together`: in a TileLoop by vectors, it is the same for all elements of a chunk and stands in front of them.
    """

    stmt: Leaf
    once: bool = False
    together: bool = False


@record
class PFor:
    """A counted loop of each thread; `unroll` asks for unrolling, `factor` steps at a time or, if 0, as a whole."""

    var: Var
    start: Expr
    stop: Expr
    step: Expr
    body: PSeq
    unroll: bool = False
    span: Span = NOWHERE
    factor: int = 0


@record
class PWhile:
    """A loop on a condition."""

    cond: Expr
    body: PSeq
    span: Span = NOWHERE


@record
class PIf:
    """A branch; `together`: in a TileLoop by vectors, the elements of a chunk take it together.

    `teams` are those that take either side; inside, threads are numbered from the first of the team.
    """

    cond: Expr
    then: PSeq
    orelse: PSeq
    span: Span = NOWHERE
    together: bool = False
    teams: tuple[TeamPlan | None, TeamPlan | None] = (None, None)


@record
class Spread:
    """How the iterations of a tile loop are spread over the threads: by running number.

    Chunk c = round * threads + thread covers `vector` neighbours along the last variable; chunks count the domain row-major.
    There are `rounds` rounds.
    """

    threads: int
    vector: int
    rounds: Expr


@record
class InRegisters:
    """An element of a register tile: the number of its register."""

    register: Expr


@record
class InMemory:
    """An element of a tensor or shared tile: the tests it needs before it may be touched, and whether a whole vector goes."""

    checks: tuple[Expr, ...] = ()
    wide: bool = False


Element: TypeAlias = InRegisters | InMemory
ElementKey: TypeAlias = tuple[Buffer, tuple[Expr, ...]]


@record
class TileLoop:
    """Iterations over `vars`, spread over the block by a register layout or by running number.

    With a `FragmentLayout` there is one loop a register digit (`digits` are their variables, fastest first) and fragments are
    read and written in place. `vector` iterations along the
    last variable go together: memory accesses marked `wide` move that many elements at once, and the last variable then names the first of
    them. `guard` (over `vars`) drops iterations in the padding; `once` keeps one of the threads that hold copies; `unroll` asks for full
    unrolling. `rows`: the loop is one store from an mma accumulator, done 16 bytes of a row at a time after an exchange between lanes (see
    `plan.rows`).
    """

    vars: tuple[Var, ...]
    how: FragmentLayout | Spread
    digits: tuple[Var, ...]
    values: tuple[Expr, ...]  # of `vars`, over `digits` (or the round) and the thread
    vector: int
    guard: Expr | None
    once: Expr | None
    unroll: bool
    body: PSeq
    span: Span = NOWHERE
    rows: bool = False
    extents: tuple[Expr, ...] = ()  # of `vars`
    alone: bool = False  # one round at a time, because registers are short
    parted: int = 0  # iterations of the second loop from inside whose loads may go together, for the same reason; 0: all


@record
class AsyncCopy:
    """A tile copied from global to shared memory in asynchronous chunks of `chunk` elements (4, 8 or 16 bytes), iterated as in a
    TileLoop.

    `src_index` and `dst_index` are those of the first element of a chunk. `valid` tells when the source chunk exists; otherwise zeros
    are written. None when it always does. With `held` registers all elements of a chunk are the same one, which the thread loads when
    the copy begins, and stores where a `Fetch` that `puts` says so, or at the end of the step.
    """

    vars: tuple[Var, ...]
    how: Spread
    digits: tuple[Var, ...]
    values: tuple[Expr, ...]
    chunk: int
    src: Buffer
    src_index: tuple[Expr, ...]
    dst: Buffer
    dst_index: tuple[Expr, ...]
    valid: Expr | None
    guard: Expr | None
    span: Span = NOWHERE
    held: int = 0


@record
class FillRegisters:
    """Every register of a fragment = value."""

    buffer: Buffer
    value: Expr
    span: Span = NOWHERE


@record
class PGemm:
    """A matrix product by the whole block, as `plan` says; regions are those of the author, `clear` zeroes c first."""

    plan: GemmPlan
    a: Region
    b: Region
    c: Region
    clear: Expr
    span: Span = NOWHERE
    waits: bool = True
    marks: Region | None = None
    rolled: bool = False  # the steps of the product stay a loop
    in_place: bool = False  # by warp groups of a body whose author orders nothing

    @property
    def operands(self) -> tuple[Region, ...]:
        """What it reads."""
        return (self.a, self.b, self.c) if self.marks is None else (self.a, self.b, self.c, self.marks)


@record
class PGemms:
    """Products that warp groups queue one behind the other and wait for once: none reads what another one leaves. `meanwhile` is what
    threads do in front of the wait: copies for a later step, work on other registers."""

    products: tuple[PGemm, ...]
    meanwhile: tuple[PStmt, ...] = ()


@record
class PReduce:
    """A reduction of a register tile over `dim` into one of layout `src_layout.without(dim)`.

    Registers first, then lanes by shuffles over `lane_steps` (distances of exclusive-or), then the threads that differ in the digits
    `partners` (place value, size) through `scratch` in shared memory, if any.
    """

    op: str
    src: Buffer
    dst: Buffer
    dim: int
    clear: bool
    nan_propagate: bool
    src_layout: FragmentLayout
    lane_steps: tuple[int, ...]
    partners: tuple[tuple[int, int], ...]
    scratch: Buffer | None
    span: Span = NOWHERE
    chains: int = 1  # partial results that a thread keeps of a line, joined before the lanes meet


@record
class PScan:
    """Running sums or maxima along `dim` of a register tile in place (see `plan.scans`); `scratch` as in PReduce."""

    op: str
    buffer: Buffer
    dim: int
    reverse: bool
    layout: FragmentLayout
    scratch: Buffer | None
    span: Span = NOWHERE


@record
class PBarrier:
    """A barrier: kind block (planned or the author's), team (of those who are here), named, arrive, warp or grid; or `copies`, where each
    thread waits for its own asynchronous copies. `why` names the tiles it orders."""

    kind: str = "block"
    id: Expr | None = None
    count: Expr | None = None
    why: str = ""
    span: Span = NOWHERE


@record
class Pipeline:
    """A loop whose copies into shared memory run `stages - 1` steps ahead of the rest.

    `producers` fill the tiles `versioned`; at step k they write version k % stages. `consumers` see the version of their
    step. `prefetch_registers` asks for the operands of the GEMM that ends `consumers` to be loaded one k-step early, across the barrier.
    `asynchronous` is false when no producer uses cp.async. With `fenced`, warp groups read what threads have put into the tiles.
    """

    var: Var
    start: Expr
    stop: Expr
    stages: int
    versioned: tuple[Buffer, ...]
    producers: PSeq
    consumers: PSeq
    prefetch_registers: bool
    asynchronous: bool
    span: Span
    ahead: Var  # counts the steps of the producers, as `var` counts those of the consumers
    fenced: bool = False
    full: Buffer | None = None  # the barriers at which the copy engine reports, where it brings tiles


@record
class Fetch:
    """Inside the consumers of a pipeline: here the producers of these numbers copy for a later step, not at its start; or, where it
    `puts`, those that hold what they have loaded in registers store it."""

    producers: tuple[int, ...]
    puts: bool = False


@record
class Stepped:
    """Marks the statement of the author that the planned statements inside do: becomes a source comment."""

    span: Span
    body: PSeq


@record
class WarpSpecialized:
    """A whole kernel of one GEMM for Hopper: a producer warp group, consumers, persistent tiles (see `plan.hopper.gemm`).

    The loop counts `var` from `start` to `stop` by `step`; `setup` are scalars that its coordinates and the epilogue use. Tiles are
    counted by `block_vars` in `grid`, taken one after another. `zero` asks for an accumulator that is zeroed first, where the loop may
    have no steps. The producer does `ahead` before it loads a tile, the consumers `epilogue` behind it.
    """

    schedule: Schedule
    gemm: WarpGroupGemm
    acc: Buffer
    a: Operand
    b: Operand
    block_vars: tuple[Var, ...]
    grid: tuple[Expr, ...]
    var: Var
    start: Expr
    stop: Expr
    step: int
    zero: bool
    setup: PSeq
    ahead: PSeq
    epilogue: PSeq
    guard: Expr | None  # tiles for which it does not hold are passed over
    early: bool  # the guard needs `ahead`, with which consumers begin, too
    spans: tuple[Span, Span, Span, Span]  # loop, copy of a, copy of b, gemm


@record
class Streamed:
    """A whole kernel for Hopper that streams tiles `a` and `b` past the tile `held` (see `plan.hopper.attention`).

    Step by step, scores = held x a, then the author's statements, then out += probs x b. `mask` drops elements of the scores; it drops none
    while `var` is below `clean`, and all from `dead` on: such steps are passed over. `rows` run under the second product of the step
    before, `late` behind it. `some`: every tile has a step. `fragments` are all of the consumers' registers, `setup` scalars, `prologue`
    what the consumers do before a tile's first step, `epilogue` what after its last.
    """

    schedule: StreamSchedule
    held: Operand
    a: Operand
    b: Operand
    first: RowProduct
    second: RowProduct
    scores: Buffer
    probs: Buffer
    out: Buffer
    block_vars: tuple[Var, ...]
    grid: tuple[Expr, ...]
    var: Var
    start: Expr
    stop: Expr
    some: bool
    clean: Expr | None
    dead: Expr | None
    fragments: tuple[Buffer, ...]
    setup: PSeq
    prologue: PSeq
    mask: PSeq
    rows: PSeq
    late: PSeq
    epilogue: PSeq
    spans: tuple[Span, Span, Span, Span, Span, Span]  # loop, copies of held, a and b, both products


ChainStep: TypeAlias = Multiply | Settle | Publish | PSeq


@record
class Chained:
    """A whole kernel for Hopper that chains products (see `plan.hopper.chain`): held tiles, streamed ones, `steps` of the consumers.

    Products into the accumulators `carried` run on into the next step. `held` are brought once a tile, `streams` step by step. `fragments`
    are registers that live across steps, `passing` those of one step. `setup` are scalars, `prologue` what the consumers do before a
    tile's first step, `epilogue` what after its last.
    """

    schedule: ChainSchedule
    held: tuple[Operand, ...]
    streams: tuple[Operand, ...]
    exchanged: tuple[Buffer, ...]
    products: tuple[ChainProduct, ...]
    block_vars: tuple[Var, ...]
    grid: tuple[Expr, ...]
    var: Var
    start: Expr
    stop: Expr
    fragments: tuple[Buffer, ...]
    passing: tuple[Buffer, ...]
    setup: PSeq
    prologue: PSeq
    steps: tuple[ChainStep, ...]
    carried: tuple[Buffer, ...]
    epilogue: PSeq
    spans: tuple[Span, ...]  # the loop, copies of held tiles, copies of streamed ones


@record
class BulkAdd:
    """A float32 fragment added to a tensor by the copy engine, its first element at `at` (innermost first).

    `by_columns`: its consumers hold columns of 64 rows, `rows` of them in parts of 64.
    """

    src: Buffer
    map: TensorMap
    at: tuple[Expr, ...]
    staging: Staging
    by_columns: bool
    span: Span = NOWHERE


@record
class PackRegisters:
    """`words` pairs of neighbouring registers of the float fragment `src`, rounded into the 16-bit fragment `dst`."""

    src: Buffer
    dst: Buffer
    words: int
    span: Span = NOWHERE


@record
class WhenScaled:
    """`body` multiplies by the row factors `factor`: a warp in which all of them are 1 leaves it out."""

    factor: Buffer
    body: PSeq


@record
class JoinLanes:
    """Every register of a float fragment becomes the sum of those of the lanes at the distances `lane_steps` (of exclusive-or)."""

    buffer: Buffer
    registers: int
    lane_steps: tuple[int, ...]


@record
class BulkStore:
    """A fragment with the accumulator's map stored by the copy engine, its first element at `at` (innermost first).

    `drains` asks to wait for all earlier stores first, as the chunks in the staging area do not come round evenly.
    """

    src: Buffer
    map: TensorMap
    at: tuple[Expr, ...]
    staging: Staging
    drains: bool
    span: Span = NOWHERE


PStmt: TypeAlias = (
    PSeq | WarpSpecialized | Streamed | Chained | BulkAdd | PackRegisters | WhenScaled | JoinLanes | BulkStore | PScalar | PFor
    | PWhile | PIf | TileLoop | AsyncCopy | FillRegisters | PGemm | PGemms | PReduce | PScan | PBarrier | PBarriers | PMbarrier | PBulkCopy
    | PBulkFetch | PSend | PControl | Pipeline | Fetch | Stepped
)  # fmt: skip


STANDS_IN = "__general"
"""What the symbol of a body ends with that takes the calls for which no other is made."""


@record
class Variant:
    """One compiled body of a launch. `when` (over extents and parameters; a tensor's name is its address) admits it.

    `facts` are what it may rely on: ranges and divisors of variables.
    """

    symbol: str
    when: Expr | None
    facts: Facts
    body: PSeq
    placements: Mapping[Buffer, Placement]
    elements: Mapping[ElementKey, Element]
    shared_bytes: int
    registers: int
    remarks: tuple[Diagnostic, ...] = ()
    threads: tuple[int, int, int] | None = None  # where this body takes other threads and another grid than the launch
    grid: tuple[Expr, Expr, Expr] | None = None
    tensor_maps: tuple[TensorMap, ...] = ()  # passed in front of the other arguments
    hopper: bool = False  # not one of Hopper's whole kernels, but with instructions that only it has
    arch: str = ""  # the one architecture that this body is for, where the file is for older ones too
    cluster: int = 1  # blocks, neighbours along x, that run together and reach each other's shared memory
    ladder: str = ""  # of `ladder.LADDERS`, "" for bodies that have one configuration only
    rung: int = 0  # the configuration's number on it
    below: int = 0  # the number of the next one that makes a difference to this body; 0 for none
    sure: int = 0  # where it may not fit: the number of the next one that may be known to; those between are known not to be
    strain: int = 0  # by how many registers a thread the body may exceed what is known to fit; 0 and less: it is known to
    open: bool = False  # it is known to fit, but the assembler may give up registers that it need not
    least: int | None = None  # blocks that are to fit a multiprocessor, 0 for any number; None: as many as the author wants
    fuller: bool = False  # it waits for memory, and nobody said how many blocks are to fit: one more may be worth some registers

    @property
    def configuration(self) -> Rung:
        """What the rung of this body changes."""
        return LADDERS[self.ladder][self.rung]

    @property
    def doubtful(self) -> bool:
        """True when nobody knows without ptxas that it spills nothing."""
        return self.strain > 0 or self.open


@record
class LaunchPlan:
    """One grid of blocks: `grid` in blocks and `threads` along x, y, z, and the bodies to choose from, best first."""

    launch: Launch
    grid: tuple[Expr, Expr, Expr]
    threads: tuple[int, int, int]
    variants: tuple[Variant, ...]
    panel: int = 0  # blocks are renumbered in panels of this many rows; 0: as the hardware counts
    cooperative: bool = False  # blocks wait for each other
    overlaps: bool = False  # it may begin before the launches in front of it have ended: its bodies wait for them
    releases: bool = False  # the next one that overlaps may begin before this one has ended


@record
class HostCheck:
    """A condition over extents and parameters without which the launcher refuses the call, and what to tell then."""

    holds: Expr
    message: str
    span: Span = NOWHERE


@record
class Plan:
    """How one kernel will be done on one target."""

    kernel: Kernel
    symbol: str  # as spelled in CUDA
    target: Target
    launches: tuple[LaunchPlan, ...]
    workspace: Expr | None = None
    flop: Expr | None = None
    bytes: Expr | None = None
    read: frozenset[Buffer] = frozenset()
    written: frozenset[Buffer] = frozenset()
    notes: tuple[Diagnostic, ...] = ()
    checks: tuple[HostCheck, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    scratch: Workspace = field(default_factory=Workspace)
    asked: tuple[str, ...] = ()  # what was asked about registers, and what for an answer came
