"""Records Tile IR while the evaluator walks a kernel.

The evaluator keeps `span`, `chain` and `hint` up to date; primitives emit statements and raise errors through here.

    b.emit(Fill(region, Const(0.0, FLOAT32), b.span))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tilec.diagnostics import NOWHERE, CompileError, Diagnostic, Label, Span, error, note
from tilec.ir.expr import Buffer, Expr, Var, VarKind
from tilec.ir.tile import Let, Seq, Stmt
from tilec.targets import SM90A, Target


@dataclass(slots=True)
class LaunchState:
    """What is known about the T.Kernel being recorded; primitives such as use_swizzle and get_thread_binding use it."""

    block_vars: tuple[Var, ...]
    thread_vars: tuple[Var, ...]
    threads: tuple[int, int, int] | None
    panel: int = 0
    panel_order: str = "row"
    cluster: tuple[int, int, int] = (1, 1, 1)
    min_blocks: int = 0
    barriers: dict[Buffer, tuple[int, ...]] = field(default_factory=dict)  # of T.alloc_barrier, with their arrival counts
    listed: Buffer | None = None  # the barriers of T.create_list_of_mbarrier
    groups: list[Expr] = field(default_factory=list)  # the conditions of T.ws
    grid: tuple[Expr, ...] = ()
    waits: bool = False  # T.pdl_sync
    releases: bool = False  # T.pdl_trigger
    registers: dict[Buffer, Buffer] = field(default_factory=dict)  # fragments that private arrays of an emitter stand for
    axes: dict[tuple[VarKind, int], Expr] | None = None  # T.launch_thread's, in a kernel without T.Kernel


@dataclass(slots=True)
class Domain:
    """The T.Parallel being recorded: its indices, and statements that belong in front of it and behind it."""

    vars: tuple[Var, ...]
    extents: tuple[Expr, ...]
    before: list[Stmt] = field(default_factory=list)
    after: list[Stmt] = field(default_factory=list)
    repeated: int = 0  # loops inside it, around the statement being recorded
    base: Var | None = None  # of its random numbers
    draws: int = 0


@dataclass(slots=True)
class Builder:
    """The recording of one kernel function.

    `span` is the place of the statement or call being evaluated, `chain` the call sites of inlined helpers (innermost
    first), `hint` the name that the value being computed will be bound to (for tiles and variables). `safe_values` collects
    T.annotate_safe_value: the evaluator applies it at the end (`tilec.language.tensors.apply_safe_values`). `target` is the
    GPU for which questions such as get_num_sms() are answered.
    """

    span: Span = NOWHERE
    chain: tuple[Span, ...] = ()
    hint: str = ""
    launch: LaunchState | None = None
    in_parallel: bool = False
    notes: list[Diagnostic] = field(default_factory=list)
    flags: set[str] = field(default_factory=set)
    safe_values: dict[Buffer, Expr] = field(default_factory=dict)
    orders: dict[Buffer, Any] = field(default_factory=dict)  # tensors whose elements lie in an order of their own, by launch
    sources: list[str] = field(default_factory=list)  # CUDA of the author's own
    reducers: dict[Buffer, str] = field(default_factory=dict)  # tiles of T.alloc_reducer and their operations
    random: Any = None  # the launch, seed, sequence and count of draws of T.rng_init
    pointers: dict[Var, Buffer] = field(default_factory=dict)  # the tensors that pointer parameters are
    domain: Domain | None = None  # while in_parallel
    snapshots: dict[Var, Expr] = field(default_factory=dict)  # what names hold that depends on no memory
    unbound: list[Var] = field(default_factory=list)  # names that T.let gives a value
    target: Target = SM90A
    in_function: bool = False  # recording a kernel function, though perhaps not yet a launch
    apply: Callable[[Any, tuple[Any, ...]], Any] | None = None  # calls a function of the author's
    reducer: Any = None  # the T.comm_reducer around the statement being recorded
    _blocks: list[list[Stmt]] = field(default_factory=lambda: [[]])

    def emit(self, stmt: Stmt) -> None:
        """Appends a statement to the block being recorded."""
        self._blocks[-1].append(stmt)

    @contextmanager
    def block(self) -> Iterator[list[Stmt]]:
        """Records what is emitted inside into a list of its own, which the caller wraps (`Seq(tuple(stmts))`)."""
        self._blocks.append([])
        try:
            yield self._blocks[-1]
        finally:
            self._blocks.pop()

    def definition(self, var: Var) -> Expr | None:
        """The value that a variable got where it is still in scope; None for a variable that got none."""
        for block in reversed(self._blocks):
            for s in reversed(block):
                if isinstance(s, Let) and s.var is var:
                    return s.value
        return None

    def body(self) -> Seq:
        """All statements of the block being recorded."""
        return Seq(tuple(self._blocks[-1]), self.span)

    def error(self, code: str, message: str, *labels: Label, span: Span | None = None, help: str = "") -> CompileError:
        """An error at `span` (default: where the builder stands) with the chain of call sites; the caller raises it."""
        return error(code, message, span or self.span, *labels, help=help, chain=self.chain)

    def note(self, code: str, message: str, span: Span | None = None, help: str = "") -> None:
        """Keeps a note for the user."""
        self.notes.append(note(code, message, span or self.span, help))
