"""The register and lane maps that mma.sync and ldmatrix fix, stated once as digits.

A warp-level product m16n8 spreads its tiles over lanes by g = lane / 4 and q = lane % 4. With e = elements in a 32-bit register
(1, 2 or 4) and a k-step of 8e:

    accumulator  registers (row g, columns 2q, 2q+1), then (row g + 8, the same)
    a            words (row g), (row g + 8) at k = eq .. eq+e-1, then both again at k + 4e
    b            words at k = eq .. eq+e-1 and k + 4e of column g

Tiles larger than one instruction repeat the map: fastest along n (or k), then along m, then over the warps. So an `a` operand of
16-bit elements has exactly the map of an accumulator of the same size whose columns are read as k: a fragment made from an
accumulator element by element becomes an operand without moving anything between threads.

    accumulator(32, 16, (2, 1), 64).registers is 8: each of two warps has 16x16, two m16n8 side by side
"""

from __future__ import annotations

from dataclasses import replace

from tilec.layout.fragment import REPLICA, Digit, FragmentLayout, normal

Warps = tuple[int, int]
"""Warps along m and along n; the n coordinate is the faster one in the warp number."""


def accumulator(m: int, n: int, warps: Warps, threads: int) -> FragmentLayout:
    """Where c[m][n] lives; m is a multiple of 16 x warps[0], n of 8 x warps[1]. Warps past the grid hold copies."""
    rows, cols = m // warps[0], n // warps[1]
    thread = (Digit(1, 2, 4), Digit(0, 1, 8), Digit(1, cols, warps[1]), Digit(0, rows, warps[0]))
    regs = (Digit(1, 1, 2), Digit(0, 8, 2), Digit(1, 8, cols // 8), Digit(0, 16, rows // 16))
    return FragmentLayout((m, n), threads, _small(thread), normal(regs))


def warp_group_accumulator(m: int, n: int, groups: int) -> FragmentLayout:
    """Where c[m][n] of wgmma lives: each of `groups` warp groups has m / groups rows, in parts of 64 one behind the other."""
    return warp_group_grid(m, n, (groups, 1))


def warp_group_columns(m: int, n: int, groups: int) -> FragmentLayout:
    """Where c[m][n] of wgmma lives when each of `groups` warp groups has all m rows of n / groups columns."""
    return warp_group_grid(m, n, (1, groups))


def warp_group_grid(m: int, n: int, groups: Warps) -> FragmentLayout:
    """Where c[m][n] of wgmma lives when a grid of warp groups shares it, the n coordinate the faster one; rows in parts of 64."""
    rows, cols = m // groups[0], n // groups[1]
    thread = (Digit(1, 2, 4), Digit(0, 1, 8), Digit(0, 16, 4), Digit(1, cols, groups[1]), Digit(0, rows, groups[0]))
    regs = (Digit(1, 1, 2), Digit(0, 8, 2), Digit(1, 8, cols // 8), Digit(0, 64, rows // 64))
    return FragmentLayout((m, n), 128 * groups[0] * groups[1], _small(thread), normal(regs))


def warp_group_operand(m: int, k: int, bits: int, groups: Warps) -> FragmentLayout:
    """Where an `a` operand of wgmma in registers lives: the whole tile m x k, copied along n. With 16-bit elements and all groups along
    m it has the very map of an accumulator whose columns are read as k."""
    e, rows = 32 // bits, m // groups[0]
    thread = (Digit(1, e, 4), Digit(0, 1, 8), Digit(0, 16, 4), Digit(REPLICA, 0, groups[1]), Digit(0, rows, groups[0]))
    regs = (Digit(1, 1, e), Digit(0, 8, 2), Digit(1, 4 * e, k // (4 * e)), Digit(0, 64, rows // 64))
    return FragmentLayout((m, k), 128 * groups[0] * groups[1], _small(thread), normal(regs))


def operand_a(m: int, k: int, bits: int, warps: Warps, threads: int, transposed: bool) -> FragmentLayout:
    """Where an `a` operand in registers lives: the whole tile m x k (stored k x m when `transposed`), copied along n."""
    e, rows = 32 // bits, m // warps[0]
    thread = (Digit(1, e, 4), Digit(0, 1, 8), Digit(REPLICA, 0, warps[1]), Digit(0, rows, warps[0]))
    regs = (Digit(1, 1, e), Digit(0, 8, 2), Digit(1, 4 * e, k // (4 * e)), Digit(0, 16, rows // 16))
    layout = FragmentLayout((m, k), threads, _small(thread), normal(regs))
    return swapped(layout) if transposed else layout


def operand_b(n: int, k: int, bits: int, warps: Warps, threads: int, transposed: bool) -> FragmentLayout:
    """Where a `b` operand in registers lives: the whole tile k x n (stored n x k when `transposed`), copied along m."""
    e, cols = 32 // bits, n // warps[1]
    thread = (Digit(0, e, 4), Digit(1, 1, 8), Digit(1, cols, warps[1]), Digit(REPLICA, 0, warps[0]))
    regs = (Digit(0, 1, e), Digit(0, 4 * e, k // (4 * e)), Digit(1, 8, cols // 8))
    layout = FragmentLayout((k, n), threads, _small(thread), normal(regs))
    return swapped(layout) if transposed else layout


def ldmatrix_lanes(operand: str, k_major: bool, itemsize: int) -> tuple[Digit, ...]:
    """Which row of the stored tile each lane points ldmatrix at: digits of the lane, dimension 0 the rows, 1 the columns.

    `operand` is "a" (16 rows of m) or "b" (16 columns of n). K-major tiles store k along the row; the others want .trans, which
    exists for 16-bit elements only. Words then arrive in the order of `operand_a`, or of two `operand_b` tiles of 8 columns.
    """
    chunk = 16 // itemsize
    if (operand == "a") == k_major:
        return Digit(0, 1, 16), Digit(1, chunk, 2)
    return Digit(0, 1, 8), Digit(1, chunk, 2), Digit(0, 8, 2)


def swapped(layout: FragmentLayout) -> FragmentLayout:
    """The layout of the transposed tile: both dimensions exchanged."""

    def swap(d: Digit) -> Digit:
        return d if d.dim == REPLICA else replace(d, dim=1 - d.dim)

    return FragmentLayout(layout.shape[::-1], layout.threads, tuple(map(swap, layout.thread)), tuple(map(swap, layout.regs)))


def scattered(m: int, n: int, grid: tuple[int, int], threads: int) -> FragmentLayout:
    """An accumulator without tensor cores: thread (y, x) of a `grid` has rows y, y + grid[0], ... and columns x, x + grid[1], ...

    The columns are the faster digit of the thread number. Rows and columns past the extents are padding.
    """
    thread = (Digit(1, 1, grid[1]), Digit(0, 1, grid[0]))
    regs = (Digit(1, grid[1], -(-n // grid[1])), Digit(0, grid[0], -(-m // grid[0])))
    return FragmentLayout((m, n), threads, _small(thread), regs)


def scattered_a(m: int, k: int, grid: tuple[int, int], threads: int, transposed: bool) -> FragmentLayout:
    """The `a` operand in registers that goes with `scattered`: a thread has its rows whole, k fastest."""
    thread = (Digit(REPLICA, 0, grid[1]), Digit(0, 1, grid[0]))
    layout = FragmentLayout((m, k), threads, _small(thread), (Digit(1, 1, k), Digit(0, grid[0], -(-m // grid[0]))))
    return swapped(layout) if transposed else layout


def scattered_b(n: int, k: int, grid: tuple[int, int], threads: int, transposed: bool) -> FragmentLayout:
    """The `b` operand in registers that goes with `scattered`: a thread has its columns whole, k fastest."""
    thread = (Digit(1, 1, grid[1]), Digit(REPLICA, 0, grid[0]))
    layout = FragmentLayout((k, n), threads, _small(thread), (Digit(0, 1, k), Digit(1, grid[1], -(-n // grid[1]))))
    return swapped(layout) if transposed else layout


def _small(digits: tuple[Digit, ...]) -> tuple[Digit, ...]:
    """The digits without those of one value, which say nothing."""
    return tuple(d for d in digits if d.size > 1)
