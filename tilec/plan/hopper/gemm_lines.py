"""GEMMs on Hopper whose rows the copy engine cannot reach: threads bring them, from wherever they start.

    lines_of(a, b, 1, 1, ko) -> 1 producer, A_s_words [128][256] and B_s_words [2][256][144]

A tile of the ring is made of lines, `span` bytes of a row. A warp copies the 16-byte words that hold its lines, asynchronously, and
when they are there, it reads every line four bytes at a time from where it starts and writes it to where wgmma expects it. What lies out
of range arrives as zeros; nothing outside of a tensor is read.

Where the next step goes on in the same rows, 128 bytes further, the words of a row are a ring of two blocks of 128 bytes as they lie in
memory: a step needs two of them and one is new, so that all are read once and whole. Elsewhere a line has 16 bytes to spare, in two
versions.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tilec.analysis.affine import coefficient, depends_on
from tilec.analysis.facts import Facts
from tilec.analysis.proofs import prove
from tilec.ir.dtypes import INT32, UINT8
from tilec.ir.expr import Buffer, Const, Expr, Scope, Var
from tilec.layout.shared import CHUNK, SharedLayout
from tilec.plan.access import compare
from tilec.plan.domains import static_shape
from tilec.plan.hopper.plan import Lines, Operand
from tilec.plan.plan import SharedTile

VERSIONS = 2
"""Steps whose words are on their way or being moved."""

RING = 256
"""Bytes of a row's ring."""

OCTET = 8
"""Lines that a warp takes at a time."""


def registers_of(consumers: int, accumulators: int) -> tuple[int, int, int]:
    """Warp groups of producers, and the registers of a producer's and of a consumer's thread, of one or two warp groups of consumers."""
    if consumers == 1:
        return 2, 96, 232
    if accumulators <= 64:
        return 2, 96, 160
    return (1, 88, 208) if accumulators <= 128 else (1, 40, 232)


def lines_of(a: Operand, b: Operand, producers: int, var: Var, step: int) -> Lines:
    """The tiles in which words wait; the loop counts `var` in steps of `step`."""
    return Lines(producers, *(_words_of(o, var, step) for o in (a, b)))


def _words_of(o: Operand, var: Var, step: int) -> Buffer:
    goes_on = coefficient(o.at[0], var)
    ring = o.span == RING // 2 and len(o.boxes) == 1 and goes_on is not None and goes_on * step * o.tile.dtype.bytes == o.span
    ring = ring and not any(depends_on(e, (var,)) for e in o.at[1:])
    shape = (line_count(o), RING) if ring else (VERSIONS, line_count(o), line_bytes(o))
    return Buffer(f"{o.tile.name}_words", UINT8, tuple(Const(n, INT32) for n in shape), Scope.SHARED)


def line_count(o: Operand) -> int:
    """Lines of a tile."""
    return o.bytes // o.span


def line_bytes(o: Operand) -> int:
    """Bytes from a line to the next, the words around it whole."""
    return o.span + CHUNK


def words_bytes(words: Buffer) -> int:
    """Bytes of an operand's words."""
    return prod(static_shape(words))


def words_tile(words: Buffer, offset: int) -> SharedTile:
    """Where they lie."""
    shape = static_shape(words)
    return SharedTile(SharedLayout(shape, 1, shape[-1], None), offset)


def astray(o: Operand, facts: Facts) -> str:
    """Why threads cannot bring a tile: it may start in front of its tensor, or indices that are the same for all of it may lie outside."""
    tensor, walked = o.map.tensor, [d for d, n in enumerate(reversed(o.map.box)) if n > 1]
    for d, (at, extent) in enumerate(zip(reversed(o.at), tensor.shape, strict=True)):
        tests: Sequence[Expr] = (compare("ge", at, Const(0, at.dtype)), *(() if d in walked else (compare("lt", at, extent),)))
        if any(prove(t, facts) is not True for t in tests):
            return f"a tile of {tensor.name} may lie outside of it"
    return ""


def row_of(o: Operand) -> int:
    """The dimension of the tensor along which the lines of a tile follow each other."""
    box = tuple(reversed(o.map.box))
    return next((d for d in range(len(box) - 1) if box[d] > 1), len(box) - 2)
