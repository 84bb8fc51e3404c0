"""Where the elements of a register tile live: (thread, register) -> tensor index.

Each tensor dimension is cut into *digits* of a mixed radix; a digit's value is read off the thread number or off the register
number. Every mma, wgmma and ldmatrix map is of this kind (none needs an exclusive-or, which only shared memory wants), and
digits take any size, so that extents such as 48, 96 or 229 need no special case. Indices past the extent are padding: no
element lives there, and whoever walks the tile guards them.

    FragmentLayout((16, 8), 32, thread=(Digit(1, 2, 4), Digit(0, 1, 8)), regs=(Digit(1, 1, 2), Digit(0, 8, 2)))
    is the accumulator of mma m16n8: register 3 of lane 5 holds row 1 + 8, column 2 + 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod

from tilec.record import record

REPLICA = -1
"""Dimension of a thread digit that no tensor index depends on: those threads hold copies."""


@record
class Digit:
    """`size` values that contribute `stride * value` to the index along `dim` (REPLICA for copies)."""

    dim: int
    stride: int
    size: int


@record
class FragmentLayout:
    """A register tile of `shape` over `threads` threads; both digit lists run from the fastest digit to the slowest.

    The thread number is decomposed by the sizes of `thread` (what is left above the last digit holds copies too), the
    register number by the sizes of `regs`.
    """

    shape: tuple[int, ...]
    threads: int
    thread: tuple[Digit, ...]
    regs: tuple[Digit, ...]

    @property
    def registers(self) -> int:
        """Registers (elements) a thread holds."""
        return prod(d.size for d in self.regs)

    @property
    def used_threads(self) -> int:
        """Threads told apart by the digits; the rest of the block holds further copies."""
        return prod(d.size for d in self.thread)

    def padded(self, dim: int) -> int:
        """The extent that the digits of `dim` span; at least `shape[dim]`."""
        return 1 + sum(d.stride * (d.size - 1) for d in (*self.thread, *self.regs) if d.dim == dim)

    def index(self, thread: int, register: int) -> tuple[int, ...]:
        """The tensor index of a register; may lie in the padding."""
        out = [0] * len(self.shape)
        for digits, value in ((self.thread, thread), (self.regs, register)):
            for d in digits:
                if d.dim != REPLICA:
                    out[d.dim] += d.stride * (value % d.size)
                value //= d.size
        return tuple(out)

    def table(self) -> Iterator[tuple[int, int, tuple[int, ...]]]:
        """(thread, register, index) of every element of the tile, padding left out: the ground truth for tests."""
        for thread in range(self.threads):
            for register in range(self.registers):
                index = self.index(thread, register)
                if all(i < n for i, n in zip(index, self.shape, strict=True)):
                    yield thread, register, index

    def without(self, dim: int, keep: bool) -> FragmentLayout:
        """The layout of the tile reduced over `dim`: its thread digits become copies, its register digits go.

        `keep` leaves the dimension in place with extent 1.
        """

        def renumber(d: Digit) -> Digit:
            return d if keep or d.dim < dim else replace(d, dim=d.dim - 1)

        thread = tuple(Digit(REPLICA, 0, d.size) if d.dim == dim else renumber(d) for d in self.thread)
        regs = tuple(renumber(d) for d in self.regs if d.dim != dim)
        shape = tuple(1 if i == dim else n for i, n in enumerate(self.shape) if keep or i != dim)
        return FragmentLayout(shape, self.threads, thread, regs)


def thread_places(layout: FragmentLayout) -> tuple[tuple[int, Digit], ...]:
    """Each thread digit with its place value in the thread number, copies left out."""
    out: list[tuple[int, Digit]] = []
    place = 1
    for d in layout.thread:
        if d.dim != REPLICA and d.size > 1:
            out.append((place, d))
        place *= d.size
    return tuple(out)


def normal(digits: Sequence[Digit]) -> tuple[Digit, ...]:
    """The same map with digits of size 1 dropped and neighbours that continue one another joined."""
    out: list[Digit] = []
    for d in digits:
        if d.size == 1:
            continue
        last = out[-1] if out else None
        if last and last.dim == d.dim and (d.dim == REPLICA or d.stride == last.stride * last.size):
            out[-1] = replace(last, size=last.size * d.size)
        else:
            out.append(d)
    return tuple(out)


def same_map(a: FragmentLayout, b: FragmentLayout) -> bool:
    """True when both place every element in the same thread and register."""
    return a.shape == b.shape and a.threads == b.threads and normal(a.thread) == normal(b.thread) and normal(a.regs) == normal(b.regs)
