"""What is known about the variables of an index expression: an immutable environment that grows with the nesting.

    facts = Facts().with_launch(launch).with_loop(ko, zero, ceildiv(K, 32), one).with_divisor(K, 32)

A variable without an entry has the range of its type; block and thread indices and extents are never negative.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from math import gcd, lcm
from types import MappingProxyType

from tilec.record import record, replace
from tilec.ir.dtypes import int_range
from tilec.ir.expr import Binary, Compare, Const, Expr, Load, Logical, Unary, Var, VarKind, const_int
from tilec.ir.kernel import Launch
from tilec.ir.visit import walk_expr

MAX_DEPTH = 64
"""Names that stand for expressions of names and so on: behind so many of them a name is only a name."""

_NEVER_NEGATIVE = (VarKind.BLOCK, VarKind.THREAD, VarKind.EXTENT)


@record
class VarFacts:
    """What is known about one variable: `lo <= v <= hi`, `divisor` divides v, and bounds that are expressions.

    `below` says v < below, `at_least` says v >= at_least, `equals` says v has that value (a Let without loads), which is made of
    names in `depth` steps.
    """

    lo: int | None = None
    hi: int | None = None
    divisor: int = 1
    at_least: Expr | None = None
    below: Expr | None = None
    equals: Expr | None = None
    depth: int = 0


_NOTHING = VarFacts()


@record
class Facts:
    """Facts about variables; every `with_...` gives a new environment that knows more."""

    known: Mapping[Var, VarFacts] = field(default_factory=lambda: MappingProxyType({}))
    ranges: dict[Var, tuple[int, int]] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Ranges of variables found so far: they follow from `known`, so remembering them changes no answer."""
    seen: dict[int, tuple[Expr, tuple[int, int]]] = field(default_factory=dict, init=False, repr=False, compare=False)
    """The same for expressions, by identity: one that is part of another many times over is looked into once."""
    divisors: dict[int, tuple[Expr, int]] = field(default_factory=dict, init=False, repr=False, compare=False)
    """The same for divisors of expressions."""

    def about(self, var: Var) -> VarFacts:
        """The entry of `var`, or an empty one."""
        return self.known.get(var, _NOTHING)

    def numbers(self, var: Var) -> tuple[int, int]:
        """The numeric range of an integer variable: its entry within the range of its type."""
        lo, hi = int_range(var.dtype)
        if var.kind in _NEVER_NEGATIVE:
            lo = 0
        entry = self.about(var)
        return (lo if entry.lo is None else max(lo, entry.lo)), (hi if entry.hi is None else min(hi, entry.hi))

    def _with(self, var: Var, entry: VarFacts) -> Facts:
        return Facts(MappingProxyType({**self.known, var: entry}))

    def with_range(
        self,
        var: Var,
        lo: int | None = None,
        hi: int | None = None,
        divisor: int = 1,
        at_least: Expr | None = None,
        below: Expr | None = None,
    ) -> Facts:
        """Adds `lo <= var <= hi` (inclusive), a positive divisor and symbolic bounds to what is known already."""
        if divisor < 1:
            raise ValueError(f"{divisor} is no positive divisor")
        old = self.about(var)
        return self._with(
            var,
            replace(
                old,
                lo=old.lo if lo is None else lo if old.lo is None else max(lo, old.lo),
                hi=old.hi if hi is None else hi if old.hi is None else min(hi, old.hi),
                divisor=lcm(old.divisor, divisor),
                at_least=old.at_least if at_least is None else at_least,
                below=old.below if below is None else below,
            ),
        )

    def with_divisor(self, var: Var, divisor: int) -> Facts:
        """Adds that `divisor` divides `var` (K % 8 == 0 of a variant)."""
        return self.with_range(var, divisor=divisor)

    def with_let(self, var: Var, value: Expr) -> Facts:
        """Adds that `var` has the value of `value`; forgotten when the value reads memory, which may change."""
        parts = tuple(walk_expr(value))
        if any(isinstance(e, Load) for e in parts) or not (var.dtype.is_int and value.dtype == var.dtype):
            return self
        depth = 1 + max((self.about(e).depth for e in parts if isinstance(e, Var)), default=0)
        return self if depth > MAX_DEPTH else self._with(var, replace(self.about(var), equals=value, depth=depth))

    def with_loop(self, var: Var, start: Expr, stop: Expr, step: Expr) -> Facts:
        """Adds the range of a loop variable inside the body of `for var in range(start, stop, step)`."""
        match step:
            case Const(value=int(n)) if n > 0:
                stride = _loop_divisor(start, n)
                return self.with_range(var, at_least=start, below=stop, divisor=stride)
            case Const(value=int(n)) if n < 0:
                # Counts down from start: v <= start, and v > stop.
                above = Binary("add", start, const_int(1, start.dtype), start.dtype)
                return self.with_range(var, below=above, at_least=Binary("add", stop, const_int(1, stop.dtype), stop.dtype))
            case _:
                return self

    def with_index(self, var: Var, extent: Expr) -> Facts:
        """Adds `0 <= var < extent`: a Parallel variable, a block or thread index."""
        return self.with_range(var, lo=0, below=extent)

    def with_launch(self, launch: Launch, threads: tuple[int, int, int] | None = None) -> Facts:
        """Adds the ranges of block indices (grid y and z are at most 65535) and of thread indices."""
        facts = self
        for axis, (var, extent) in enumerate(zip(launch.block_vars, launch.grid, strict=True)):
            facts = facts.with_range(var, lo=0, hi=None if axis == 0 else 65534, below=extent)
        counts = threads or launch.threads
        for axis, var in enumerate(launch.thread_vars):
            facts = facts.with_range(var, lo=0, hi=counts[axis] - 1 if counts else 1023)
        return facts

    def assume(self, cond: Expr) -> Facts:
        """Adds what a true condition says: `and`, comparisons of a variable with an expression, `v % n == 0`."""
        match cond:
            case Logical("and", a, b):
                return self.assume(a).assume(b)
            case Compare("eq", Binary("mod" | "truncmod", Var() as v, Const(value=int(n))), Const(value=0)) if n != 0:
                return self.with_divisor(v, abs(n))
            case Compare(op, Var() as v, b) if v.dtype.is_int and v is not b:
                return self._compared(op, v, b)
            case Compare(op, a, Var() as v) if v.dtype.is_int:
                return self._compared(_MIRROR[op], v, a)
            case Unary("not", Compare(op, a, b)) if a.dtype.is_int:
                return self.assume(Compare(_OPPOSITE[op], a, b))
            case _:
                return self

    def _compared(self, op: str, var: Var, other: Expr) -> Facts:
        if isinstance(other, Const):
            n = int(other.value)
            lo = {"eq": n, "ge": n, "gt": n + 1}.get(op)
            hi = {"eq": n, "le": n, "lt": n - 1}.get(op)
            return self.with_range(var, lo, hi)
        if any(isinstance(e, Load) or e is var for e in walk_expr(other)):
            return self
        if op == "lt" and self.about(var).below is None:
            return self.with_range(var, below=other)
        if op == "ge" and self.about(var).at_least is None:
            return self.with_range(var, at_least=other)
        return self


_MIRROR = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
_OPPOSITE = {"eq": "ne", "ne": "eq", "lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}


def _loop_divisor(start: Expr, step: int) -> int:
    """A number that divides every value of a loop from `start` in steps of `step`."""
    match start:
        case Const(value=int(first)):
            return gcd(first, step)
        case _:
            return 1
