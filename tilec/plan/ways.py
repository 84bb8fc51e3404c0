"""Reads of fragments that follow a loop less plainly than variable by variable: by a part of one, or by the counter of a short loop inside.

    for i, j in T.Parallel(64, 128): W[i, j] = unpacked(B[i, j // 2], j % 2)                  j // 2 of the loop's layout
    for i, j in T.Parallel(4, 512): ... for k in T.serial(4): x[i, j] += a[k, i] * b[k, j]    k counts registers

A fragment that is read so takes a layout under which each thread holds what it reads, copies where several threads do; the loop
inside is unrolled, so that registers keep fixed numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilec.ir.expr import Binary, Const, Expr, Var
from tilec.ir.tile import Break, Continue, For, Stmt
from tilec.ir.visit import walk_stmt
from tilec.layout.fragment import REPLICA, Digit, FragmentLayout
from tilec.record import record

MOST_STEPS = 16
"""Steps of a loop inside a parallel one up to which it is written out."""

MOST_WORDS = 64
"""Registers a thread may spend on a fragment for the sake of such reads."""


@record
class Way:
    """Per dimension of a fragment: the number of the variable that its index is made of (`inner` loops are numbered behind the
    variables of the domain), None where it is always 0; and by what that is divided."""

    dims: tuple[int | None, ...]
    divisors: tuple[int, ...]
    inner: tuple[For, ...]

    @property
    def parts(self) -> dict[int, int]:
        """By what each variable is divided."""
        return {d: k for d, k in zip(self.dims, self.divisors, strict=True) if d is not None}

    def fits(self, shape: Sequence[int], extents: Sequence[int | None]) -> bool:
        """True when the reads walk a fragment of this shape from end to end, index by index."""
        steps = [*extents, *(_steps(s) for s in self.inner)]
        each = zip(shape, self.dims, self.divisors, strict=True)
        return all(n == 1 if d is None else n * k == steps[d] for n, d, k in each)

    def widened(self, layout: FragmentLayout) -> FragmentLayout:
        """The layout of the domain with the inner loops, which each thread walks alone."""
        counts = [_steps(s) or 1 for s in self.inner]
        more = [Digit(len(layout.shape) + n, 1, c) for n, c in enumerate(counts)]
        return replace(layout, shape=(*layout.shape, *counts), regs=(*layout.regs, *more))

    def counters(self) -> tuple[Expr, ...]:
        """The values of the digits that `widened` adds."""
        return tuple(s.var for s in self.inner)


def way_of(indices: tuple[Expr, ...], variables: tuple[Var, ...], inner: tuple[For, ...]) -> Way | None:
    """How indices follow a domain and the short loops inside of it; None where in another way."""
    numbered: list[Var] = [*variables, *(s.var for s in inner)]
    dims: list[int | None] = []
    divisors: list[int] = []
    for e in indices:
        v, k = e, 1
        match e:
            case Binary("floordiv", Var() as v, Const(int(k))) if k > 1:
                pass
            case Const(0):
                dims.append(None)
                divisors.append(1)
                continue
        if not isinstance(v, Var) or v not in numbered or numbered.index(v) in dims or (k > 1 and v not in variables):
            return None
        dims.append(numbered.index(v))
        divisors.append(k)
    return Way(tuple(dims), tuple(divisors), inner)


def short_loops(body: Stmt) -> tuple[For, ...]:
    """The loops inside of a parallel one that are short enough to be written out."""
    if any(isinstance(s, Break | Continue) for s in walk_stmt(body)):
        return ()
    return tuple(s for s in walk_stmt(body) if isinstance(s, For) and s.kind in ("serial", "unroll") and not s.factor and _steps(s))


def _steps(s: For) -> int | None:
    """The steps of a short loop from 0; None for any other."""
    match s.start, s.stop, s.step:
        case Const(0), Const(int(n)), Const(1) if 0 < n <= MOST_STEPS:
            return n
        case _:
            return None


def projected(layout: FragmentLayout, way: Way, shape: tuple[int, ...], bits: int) -> FragmentLayout | None:
    """The layout under which every thread of a domain of `layout` holds what it reads; None where digits do not divide, or where that
    takes too many registers."""
    place = {d: n for n, d in enumerate(way.dims) if d is not None}
    parts = way.parts
    thread: list[Digit] = []
    regs: list[Digit] = []
    wide = way.widened(layout)
    for own, out in ((wide.thread, thread), (wide.regs, regs)):
        for g in own:
            if g.dim not in place:
                below, above = g.size, 1
            else:
                cut = _cut(g, parts[g.dim])
                if cut is None:
                    return None
                below, above = cut
            if out is thread and below > 1:
                out.append(Digit(REPLICA, 0, below))
            if above > 1:
                out.append(Digit(place[g.dim], max(g.stride // parts[g.dim], 1), above))
    found = FragmentLayout(shape, layout.threads, tuple(thread), tuple(regs))
    return found if found.registers * bits <= 32 * MOST_WORDS else None


def _cut(g: Digit, k: int) -> tuple[int, int] | None:
    """The sizes of the parts of a digit below and above place value `k`; None where no place of it is `k`."""
    if g.stride >= k:
        return (1, g.size) if g.stride % k == 0 else None
    if g.stride * g.size <= k:
        return g.size, 1
    below = k // g.stride
    return (below, g.size // below) if k % g.stride == 0 and g.size % below == 0 else None
