"""What a recognised problem must give, in float64, and how far a result is from it. Works for NumPy and CuPy alike (`xp`).

    settle(xp, problem, read, limit) -> Verdict(problem, error=2.1e-4, fault="")

A product is compared whole, some rows at a time; attention in the first and the last heads and one between. Attention is tried
with and without a causal mask: what agrees decides which of the two the kernel computes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from tilec.record import record
from tilec.runtime.bench.problems import Attention, Problem, Product

Read: TypeAlias = Callable[[str], Any]
"""Gives a tensor by name as a float64 array of the library in use."""
CHUNK_ELEMENTS = 1 << 26
_ELEMENT = 100.0


@record
class Verdict:
    """The problem as it is now known, the relative error of the result, and why it is wrong (empty if it is right)."""

    problem: Problem
    error: float
    fault: str = ""


@dataclass(slots=True)
class _Distance:
    """Relative error in the Frobenius norm, collected piece by piece; `special` counts NaN and infinities that do not agree."""

    squares: float = 0.0
    norm: float = 0.0
    special: int = 0
    outlying: float = 0.0

    def add(self, xp: Any, got: Any, want: Any) -> None:
        """Takes in one piece."""
        fine = xp.isfinite(got) & xp.isfinite(want)
        self.special += int((~fine & ~((got == want) | (xp.isnan(got) & xp.isnan(want)))).sum())
        difference = xp.where(fine, xp.abs(got - want), 0.0)
        size = xp.where(fine, xp.abs(want), 0.0)
        self.squares += float((difference**2).sum())
        self.norm += float((size**2).sum())
        rms = math.sqrt(float((size**2).mean())) if size.size else 0.0
        if difference.size and rms:
            self.outlying = max(self.outlying, float((difference / xp.maximum(size, rms)).max()))

    @property
    def error(self) -> float:
        """Relative to what is wanted; infinite where special values disagree."""
        return math.inf if self.special else math.sqrt(self.squares / self.norm) if self.norm else math.sqrt(self.squares)

    def fault(self, name: str, limit: float) -> str:
        """Why this is too far; empty if it is not."""
        if self.special:
            return f"{name} has {self.special} NaN or infinite elements where float64 has none, or lacks them"
        if self.error > limit:
            return f"{name} is off by a relative error of {self.error:.2e}; {limit:.2e} is allowed"
        if limit and self.outlying > _ELEMENT * limit:
            return f"one element of {name} is off by {self.outlying:.2e} of its size or the root mean square"
        return ""


def settle(xp: Any, problem: Problem, read: Read, limit: float) -> Verdict:
    """Compares what the kernel left in its output with float64. `limit` is the relative error that is allowed."""
    tries = [problem] if isinstance(problem, Product) else [problem, replace(problem, causal=True)]
    verdicts = []
    for p in tries:
        verdicts.append(_verdict(xp, p, read, limit))
        if not verdicts[-1].fault:
            return verdicts[-1]
    return min(verdicts, key=lambda v: v.error)


def _verdict(xp: Any, problem: Problem, read: Read, limit: float) -> Verdict:
    distance = _Distance()
    name = problem.c if isinstance(problem, Product) else problem.o
    pieces = product_pieces(problem, read) if isinstance(problem, Product) else attention_pieces(xp, problem, read)
    for got, want in pieces:
        distance.add(xp, got, want)
    return Verdict(problem, distance.error, distance.fault(name, limit))


def product_pieces(p: Product, read: Read) -> Iterator[tuple[Any, Any]]:
    """Pairs (got, want) of some rows of every matrix."""
    a, b, c = (t.reshape(p.batch, *t.shape[-2:]) for t in map(read, (p.a, p.b, p.c)))
    rows = max(1, CHUNK_ELEMENTS // max(1, p.n, p.k))
    for i in range(p.batch):
        left, right = (a[i].T if p.trans_a else a[i]), (b[i].T if p.trans_b else b[i])
        for start in range(0, p.m, rows):
            yield c[i][start : start + rows], left[start : start + rows] @ right


def attention_pieces(xp: Any, p: Attention, read: Read) -> Iterator[tuple[Any, Any]]:
    """Pairs (got, want) of a few heads."""
    q, k, v, o = (xp.moveaxis(read(n), p.axis, -2) for n in (p.q, p.k, p.v, p.o))
    group = q.shape[_without(p)] // max(1, k.shape[_without(p)])
    for place in _places(q.shape[:-2]):
        shared = tuple(x // group if d == _without(p) else x for d, x in enumerate(place))
        scores = q[place] @ k[shared].T / math.sqrt(p.dim)
        if p.causal:
            visible = xp.arange(p.q_length)[:, None] >= xp.arange(p.k_length)[None, :]
            scores = xp.where(visible, scores, -math.inf)
        weights = xp.exp(scores - scores.max(axis=-1, keepdims=True))
        yield o[place], (weights @ v[shared]) / weights.sum(axis=-1, keepdims=True)


def _without(p: Attention) -> int:
    """The dimension of the heads once that of the sequence is out of the way."""
    return p.head - (p.axis < p.head)


def _places(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The first and the last entry of a box, and one between."""
    ends = tuple(n - 1 for n in shape)
    return list(dict.fromkeys([tuple(0 for _ in shape), tuple(n // 2 for n in ends), ends]))
