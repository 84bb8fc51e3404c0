"""How an element of a buffer is spelled: pointers, offsets, register numbers, bounds.

One `Spelling` serves one kernel body; it knows the C name of every variable and buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tilec.analysis.facts import Facts
from tilec.analysis.simplify import simplify
from tilec.diagnostics import Span
from tilec.emit.cexpr import PRIMARY, TERNARY, CWriter, Text
from tilec.emit.cliteral import ctype
from tilec.emit.names import Names
from tilec.ir.dtypes import INT32, DType
from tilec.ir.expr import Binary, Buffer, Const, Expr, Load, Logical, Scope, Var
from tilec.ir.visit import storage, walk_expr
from tilec.layout.shared import CHUNK, SharedLayout
from tilec.plan.access import row_strides
from tilec.plan.domains import static
from tilec.plan.plan import ElementKey, InMemory, InRegisters, SharedTile, Variant

WIDE_BYTES = 1 << 31
"""Tensors of this many bytes and more, or of unknown size, are addressed with 64-bit offsets."""


@dataclass(slots=True)
class Spelling:
    """Names and element texts of one kernel body.

    `define(function, tile, layout)` adds a layout function to the file; it is false when the name has another meaning there.
    `mark` gives the #line of a place, "" unless the user asked for it. `stages` holds the C text of the version in use of a tile
    with several; `vectors` the loaded vector of a wide access;
    `renamed` the text that stands for a variable for a while, `tested` the bounds checks that have been made already.
    """

    variant: Variant
    names: Names
    need: Callable[[str], None]
    define: Callable[[str, str, SharedLayout], bool]
    fast_math: bool
    facts: Facts
    mark: Callable[[Span], str] = field(default=lambda span: "")
    variables: dict[Var, str] = field(default_factory=dict)
    buffers: dict[Buffer, str] = field(default_factory=dict)
    stages: dict[Buffer, str] = field(default_factory=dict)
    vectors: dict[ElementKey, str] = field(default_factory=dict)
    renamed: dict[Var, str] = field(default_factory=dict)
    functions: dict[Buffer, str] = field(default_factory=dict)
    tested: frozenset[Expr] = frozenset()

    # ---- names -----------------------------------------------------------------------------------------------------

    def var(self, v: Var) -> str:
        """The C text of a variable, as a primary expression."""
        if v in self.renamed:
            return self.renamed[v]
        if v not in self.variables:
            self.variables[v] = self.names.fresh(v.name)
        return self.variables[v]

    def buffer(self, b: Buffer) -> str:
        """The C name of a buffer's array or pointer."""
        if b.address is not None:
            return f"reinterpret_cast<{ctype(b.dtype)}*>({self.expr(b.address, self.facts)})"
        if b.peer is not None and b.view_of is not None:
            self.need("cluster_peer")
            return f"cluster_peer({self.buffer(b.view_of)}, {self.expr(b.peer, self.facts)})"
        if b not in self.buffers:
            self.buffers[b] = self.names.fresh(b.name)
        return self.buffers[b]

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Frees the names of variables that are first spelled inside the block: C braces close around them."""
        variables, names = dict(self.variables), self.names.taken()
        try:
            yield
        finally:
            self.variables = variables
            self.names.release(self.names.taken() - names - set(self.buffers.values()) - set(self.functions.values()))

    @contextmanager
    def meaning(self, texts: Mapping[Var, str]) -> Iterator[None]:
        """Lets variables be spelled otherwise inside the block."""
        saved = dict(self.renamed)
        self.renamed.update(texts)
        try:
            yield
        finally:
            self.renamed = saved

    @contextmanager
    def versions(self, owners: Sequence[Buffer], stage: str) -> Iterator[None]:
        """Lets accesses to the tiles `owners` go to version `stage` inside the block."""
        saved = dict(self.stages)
        self.stages.update(dict.fromkeys(owners, stage))
        try:
            yield
        finally:
            self.stages = saved

    # ---- expressions -----------------------------------------------------------------------------------------------

    def writer(self, facts: Facts) -> CWriter:
        """A writer of expressions under `facts`."""
        at = lambda e: self.place(e.buffer, e.indices, facts)  # noqa: E731
        under = lambda c: self.having(conjuncts(c))  # noqa: E731
        return CWriter(self.var, lambda e: self.load(e, facts), self.need, facts, self.fast_math, at, under)

    def expr(self, e: Expr, facts: Facts) -> str:
        """An expression, simplified where that keeps its meaning."""
        return self.writer(facts).expr(simplify(e, facts) if e.dtype.is_int or e.dtype.bits == 1 else e)

    def load(self, e: Load, facts: Facts) -> Text:
        """The value of an element, the safe value where it is out of range."""
        key = (e.buffer, e.indices)
        if key in self.vectors:
            return self.vectors[key], PRIMARY
        place = self.place(e.buffer, e.indices, facts)
        if checks := self.checks(e.buffer, e.indices):
            return f"{self.tests(checks, facts)} ? {place} : {self.safe(e.buffer, facts)}", TERNARY
        return place, PRIMARY

    def safe(self, b: Buffer, facts: Facts) -> str:
        """What a read out of range gives, as a value of the element's C type."""
        value = b.safe_value if b.safe_value is not None else Const(0.0 if b.dtype.is_float else 0, b.dtype)
        return self.writer(facts).operand(value)

    def checks(self, b: Buffer, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """The bounds checks that the plan wants for an access."""
        element = self.variant.elements.get((b, indices))
        return tuple(c for c in element.checks if c not in self.tested) if isinstance(element, InMemory) else ()

    @contextmanager
    def having(self, checks: Sequence[Expr]) -> Iterator[None]:
        """Leaves out `checks` inside the block, whose text stands under them."""
        saved = self.tested
        self.tested = saved | frozenset(checks)
        try:
            yield
        finally:
            self.tested = saved

    def need_type(self, dtype: DType) -> None:
        """Records the prelude's definition of a type that CUDA has no name for."""
        name = ctype(dtype)
        if name.endswith("_t"):
            self.need(name)

    def tests(self, checks: Sequence[Expr], facts: Facts) -> str:
        """The conjunction of bounds checks."""
        return " && ".join(self.writer(facts).operand(c, 8) for c in checks)

    # ---- places ----------------------------------------------------------------------------------------------------

    def place(self, b: Buffer, indices: Sequence[Expr], facts: Facts) -> str:
        """The element as something that can be read and assigned."""
        match b.scope:
            case Scope.VAR:
                return self.buffer(b)
            case Scope.FRAGMENT:
                element = self.variant.elements[b, tuple(indices)]
                assert isinstance(element, InRegisters)
                return f"{self.buffer(b)}[{self.expr(element.register, facts)}]"
            case Scope.SHARED | Scope.GLOBAL:
                offset = self.offset(b, indices, facts)
                return f"{self.buffer(b)}[{self._stage_offset(b)} + {offset}]" if self._staged(b) else f"{self.buffer(b)}[{offset}]"
            case Scope.LOCAL:
                terms = list(zip(indices, row_strides(b), strict=True))
                return f"{self.buffer(b)}[{self.writer(facts).offset(terms, False)}]"

    def address(self, b: Buffer, indices: Sequence[Expr], facts: Facts) -> str:
        """A pointer to the element."""
        offset = self.offset(b, indices, facts)
        base = self.tile_pointer(b)
        if offset == "0":
            return base
        # Many terms are one sum for the pointer, not additions of 64 bits each; two keep the row apart from what steps through it.
        return f"{base} + ({offset})" if len(_terms(offset)) > 2 else f"{base} + {offset}"

    def _staged(self, b: Buffer) -> bool:
        return storage(b) in self.stages

    def _stage_offset(self, b: Buffer) -> str:
        return f"{self.stages[storage(b)]} * {self.tile(b).layout.elements}"

    def tile_pointer(self, b: Buffer) -> str:
        """The first element of a tensor, or of the version in use of a shared tile."""
        return f"{self.buffer(b)} + {self._stage_offset(b)}" if self._staged(b) else self.buffer(b)

    def tile(self, b: Buffer) -> SharedTile:
        """Where a shared buffer lies."""
        found = self.variant.placements[b]
        assert isinstance(found, SharedTile)
        return found

    def offset(self, b: Buffer, indices: Sequence[Expr], facts: Facts) -> str:
        """The element offset of an index inside a tensor or one version of a shared tile."""
        writer = self.writer(facts)
        if b.scope is Scope.GLOBAL:
            return writer.offset(list(zip(indices, row_strides(b), strict=True)), is_wide(b))
        layout = self.tile(b).layout
        if layout.swizzle is None:
            return writer.offset(list(zip(indices, layout.strides, strict=True)), False)
        row, col = flat_row(indices, layout)
        return f"{self.layout_function(b)}({self.expr(row, facts)}, {self.expr(col, facts)})"

    def layout_function(self, b: Buffer) -> str:
        """The function that turns row and column of a shared tile into an offset, defined on first use."""
        if b.peer is not None and b.view_of is not None:
            return self.layout_function(b.view_of)
        while b not in self.functions:
            name = self.names.fresh(f"{self.buffer(b)}_at")
            if self.define(name, self.buffer(b), self.tile(b).layout):
                self.functions[b] = name
        return self.functions[b]


def _terms(text: str) -> list[str]:
    """The terms of a sum: what stands between its plus signs outside of parentheses."""
    out, depth = [""], 0
    for part in text.split(" + "):
        out[-1] += part
        depth += part.count("(") - part.count(")")
        if depth == 0:
            out.append("")
    return out[:-1]


def conjuncts(cond: Expr) -> tuple[Expr, ...]:
    """The conditions that hold where `cond` does, whatever is stored meanwhile."""
    match cond:
        case Logical("and", a, b):
            return (*conjuncts(a), *conjuncts(b))
        case _:
            return () if any(isinstance(e, Load) for e in walk_expr(cond)) else (cond,)


def flat_row(indices: Sequence[Expr], layout: SharedLayout) -> tuple[Expr, Expr]:
    """Row (all leading dimensions counted through) and column of an index."""
    row: Expr = Const(0, INT32)
    for e, extent in zip(indices[:-1], layout.shape[:-1], strict=True):
        scaled = Binary("mul", row, Const(extent, INT32), INT32) if static(row) != 0 else row
        row = e if static(scaled) == 0 else Binary("add", scaled, e, INT32)
    return row, indices[-1] if indices else Const(0, INT32)


def swizzle_period(layout: SharedLayout) -> tuple[int, int, int]:
    """(elements a chunk, rows that share an exchange, number of exchanges) of a swizzled tile with rows of 2^k chunks."""
    assert layout.swizzle is not None
    per = CHUNK // layout.itemsize
    chunks = layout.pitch // per
    return per, max(1, (1 << layout.swizzle.shift) // chunks), layout.swizzle.mask + 1


def is_wide(b: Buffer) -> bool:
    """True when offsets inside the tensor may not fit 32 bits."""
    size = b.dtype.bytes
    for e in (*b.shape, *(b.strides or ())):
        n = static(e)
        if n is None:
            return True
        size *= max(1, n)
    return size >= WIDE_BYTES


