"""Reads of fragments that follow a loop less plainly than variable by variable: by a part of one, or by the counter of a short loop inside.

    for i, j in T.Parallel(64, 128): W[i, j] = unpacked(B[i, j // 2], j % 2)                  j // 2 of the loop's layout
    for i, j in T.Parallel(4, 512): ... for k in T.serial(4): x[i, j] += a[k, i] * b[k, j]    k counts registers
    for i, j in T.Parallel(32, 4): ... for k in T.serial(64): s[i, j] += x[i, k * 4 + j]      so does k, in steps of 4

A fragment that is read so takes a layout under which each thread holds what it reads, copies where several threads do; the loop
inside is unrolled, so that registers keep fixed numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilec.analysis.affine import affine
from tilec.ir.expr import Binary, Const, Expr, Var
from tilec.ir.tile import Break, Continue, For, Stmt
from tilec.ir.visit import walk_stmt
from tilec.layout.fragment import REPLICA, Digit, FragmentLayout
from tilec.record import record

MOST_STEPS = 16
"""Steps of a loop inside a parallel one up to which it is written out unasked."""

MOST_WRITTEN_OUT = 64
"""Steps of a loop that its author, or the compiler, wants written out, up to which its counter may count registers."""

MOST_WORDS = 64
"""Registers a thread may spend on a fragment for the sake of such reads."""


@record
class Way:
    """Per dimension of a fragment: the number of the variable that its index is made of (`inner` loops are numbered behind the
    variables of the domain), None where it is always 0; and by what that is divided.

    A dimension whose index is `k * inner + variable` counts as two here, of which the second has `cuts[dimension]` = k places; `cuts`
    is 0 for the others.
    """

    dims: tuple[int | None, ...]
    divisors: tuple[int, ...]
    inner: tuple[For, ...]
    cuts: tuple[int, ...]

    @property
    def parts(self) -> dict[int, int]:
        """By what each variable is divided."""
        return {d: k for d, k in zip(self.dims, self.divisors, strict=True) if d is not None}

    def fits(self, shape: Sequence[int], extents: Sequence[int | None]) -> bool:
        """True when the reads walk a fragment of this shape from end to end, index by index."""
        if any(k and n % k for n, k in zip(shape, self.cuts, strict=True)):
            return False
        steps = [*extents, *(_steps(s) for s in self.inner)]
        each = zip(self.cut_shape(shape), self.dims, self.divisors, strict=True)
        return all(n == 1 if d is None else n * k == steps[d] for n, d, k in each)

    def cut_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """A shape of the fragment with the dimensions cut that count as two."""
        return tuple(x for n, k in zip(shape, self.cuts, strict=True) for x in ((n // k, k) if k else (n,)))

    def cut(self, layout: FragmentLayout) -> FragmentLayout | None:
        """The layout of the fragment with its dimensions cut like that; None where one of its digits lies across a cut."""
        if not any(self.cuts):
            return layout
        place = [d + sum(map(bool, self.cuts[:d])) for d in range(len(self.cuts))]

        def parts(g: Digit) -> tuple[Digit, ...] | None:
            k = self.cuts[g.dim] if g.dim != REPLICA else 0
            if not k:
                return (g if g.dim == REPLICA else replace(g, dim=place[g.dim]),)
            sizes = _cut(g, k)
            if sizes is None:
                return None
            low, high = Digit(place[g.dim] + 1, g.stride, sizes[0]), Digit(place[g.dim], max(g.stride // k, 1), sizes[1])
            return tuple(x for x in (low, high) if x.size > 1)

        digits = [[parts(g) for g in own] for own in (layout.thread, layout.regs)]
        if any(p is None for own in digits for p in own):
            return None
        thread, regs = (tuple(x for p in own if p is not None for x in p) for own in digits)
        return FragmentLayout(self.cut_shape(layout.shape), layout.threads, thread, regs)

    def joined(self, shape: tuple[int, ...], layout: FragmentLayout) -> FragmentLayout:
        """A layout of the cut dimensions as one of the fragment of `shape`."""
        real = [(d, step) for d, k in enumerate(self.cuts) for step in ((k, 1) if k else (1,))]

        def whole(g: Digit) -> Digit:
            return g if g.dim == REPLICA else Digit(real[g.dim][0], g.stride * real[g.dim][1], g.size)

        return FragmentLayout(shape, layout.threads, tuple(map(whole, layout.thread)), tuple(map(whole, layout.regs)))

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
    cuts: list[int] = []
    for e in indices:
        made, k, cut = _made_of(e, inner)
        cuts.append(cut)
        if not made:
            dims.append(None)
            divisors.append(1)
        for v in made:
            if not isinstance(v, Var) or v not in numbered or numbered.index(v) in dims or (k > 1 and v not in variables):
                return None
            dims.append(numbered.index(v))
            divisors.append(k)
    return Way(tuple(dims), tuple(divisors), inner, tuple(cuts))


def _made_of(e: Expr, inner: tuple[For, ...]) -> tuple[tuple[Expr, ...], int, int]:
    """What an index is made of, none for 0: (v,) and k of v // k, or counter and variable with k of k * counter + variable at the end."""
    match e:
        case Const(0):
            return (), 1, 0
        case Binary("floordiv", Var() as v, Const(int(k))) if k > 1:
            return (v,), k, 0
        case Binary("add"):
            form = affine(e)
            for s in inner:
                cut = form.terms.get(s.var, 0)
                rest = [(t, n) for t, n in form.terms.items() if t is not s.var]
                if cut > 1 and form.const == 0 and len(rest) == 1 and rest[0][1] == 1:
                    return (s.var, rest[0][0]), 1, cut
    return (e,), 1, 0


def short_loops(body: Stmt) -> tuple[For, ...]:
    """The loops inside of a parallel one that are short enough to be written out."""
    if any(isinstance(s, Break | Continue) for s in walk_stmt(body)):
        return ()
    return tuple(s for s in walk_stmt(body) if isinstance(s, For) and s.kind in ("serial", "unroll") and not s.factor and _steps(s))


def counted(s: For) -> int | None:
    """The steps of a loop from 0; None for any other."""
    match s.start, s.stop, s.step:
        case Const(0), Const(int(n)), Const(1):
            return n
        case _:
            return None


def _steps(s: For) -> int | None:
    """The steps of a short loop from 0; None for any other."""
    n = counted(s)
    return n if n is not None and 0 < n <= (MOST_WRITTEN_OUT if s.kind == "unroll" else MOST_STEPS) else None


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
    found = way.joined(shape, FragmentLayout(way.cut_shape(shape), layout.threads, tuple(thread), tuple(regs)))
    return found if found.registers * bits <= 32 * MOST_WORDS else None


def followed(held: FragmentLayout, way: Way, extents: tuple[int, ...]) -> FragmentLayout | None:
    """The layout of a domain all of whose variables such a read names, under which each thread finds what it reads of a fragment that is
    `held` so; None where a counter would have to count threads."""
    cut = way.cut(held)
    named = {d for d in way.dims if d is not None}
    if cut is None or any(k > 1 for k in way.divisors) or any(n > 1 and d not in named for d, n in enumerate(extents)):
        return None

    def own(digits: Sequence[Digit]) -> list[Digit]:
        places = [(g, REPLICA if g.dim == REPLICA else way.dims[g.dim]) for g in digits]
        return [g if d == REPLICA else replace(g, dim=d) for g, d in places if d is not None]

    thread, regs = own(cut.thread), own(cut.regs)
    if any(g.dim >= len(extents) and g.size > 1 for g in thread):
        return None
    return FragmentLayout(extents, held.threads, tuple(thread), tuple(g for g in regs if g.dim < len(extents)))


def _cut(g: Digit, k: int) -> tuple[int, int] | None:
    """The sizes of the parts of a digit below and above place value `k`; None where no place of it is `k`."""
    if g.stride >= k:
        return (1, g.size) if g.stride % k == 0 else None
    if g.stride * g.size <= k:
        return g.size, 1
    below = k // g.stride
    return (below, g.size // below) if k % g.stride == 0 and g.size % below == 0 else None
