"""The maps of mma and ldmatrix against the PTX manual's formulas, and against one another."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from tilec.layout import atoms
from tilec.layout.fragment import FragmentLayout, same_map
from tilec.layout.shared import conflict_free

WARP = range(32)


def ptx_accumulator(lane: int, r: int) -> tuple[int, int]:
    """PTX: rows groupID and groupID + 8, columns threadID_in_group * 2 + (i & 1)."""
    return lane // 4 + (8 if r >= 2 else 0), lane % 4 * 2 + (r & 1)


def ptx_a(lane: int, i: int, bits: int) -> tuple[int, int]:
    """PTX's a fragment of m16n8k16 (16-bit), k8 (tf32), k32 (8-bit): element i of a lane."""
    g, q = divmod(lane, 4)
    per = 32 // bits
    word, part = divmod(i, per)
    return g + (8 if word in (1, 3) else 0), q * per + part + (4 * per if word >= 2 else 0)


def ptx_b(lane: int, i: int, bits: int) -> tuple[int, int]:
    """PTX's b fragment: element i of a lane as (k, n)."""
    g, q = divmod(lane, 4)
    per = 32 // bits
    word, part = divmod(i, per)
    return q * per + part + (4 * per if word else 0), g


def test_accumulator_of_one_instruction() -> None:
    layout = atoms.accumulator(16, 8, (1, 1), 32)
    assert layout.registers == 4
    for lane, r in product(WARP, range(4)):
        assert layout.index(lane, r) == ptx_accumulator(lane, r)


@pytest.mark.parametrize("bits", [8, 16, 32])
def test_operands_of_one_instruction(bits: int) -> None:
    k = 256 // bits
    a = atoms.operand_a(16, k, bits, (1, 1), 32, False)
    b = atoms.operand_b(8, k, bits, (1, 1), 32, False)
    assert (a.registers, b.registers) == (128 // bits, 64 // bits)
    for lane in WARP:
        assert [a.index(lane, i) for i in range(a.registers)] == [ptx_a(lane, i, bits) for i in range(a.registers)]
        assert [b.index(lane, i) for i in range(b.registers)] == [ptx_b(lane, i, bits) for i in range(b.registers)]


@pytest.mark.parametrize(("m", "n", "warps", "threads"), [(64, 32, (2, 2), 128), (48, 64, (1, 8), 256), (16, 104, (1, 13), 416), (32, 16, (2, 1), 128)])
def test_every_element_has_equally_many_owners(m: int, n: int, warps: tuple[int, int], threads: int) -> None:
    count = np.zeros((m, n), int)
    for _, _, index in atoms.accumulator(m, n, warps, threads).table():
        count[index] += 1
    assert count.min() == count.max() == threads // (warps[0] * warps[1] * 32)


@pytest.mark.parametrize("transposed", [False, True])
def test_tiles_repeat_the_instruction(transposed: bool) -> None:
    """Register order: within a word, rows, k-steps, then tiles along m; warps along m own bands of rows."""
    layout = atoms.operand_a(64, 48, 16, (2, 3), 192, transposed)
    for thread, mi, ki, i in product(range(192), range(2), range(3), range(8)):
        lane, warp = thread % 32, thread // 32
        row, col = ptx_a(lane, i, 16)
        row, col = row + mi * 16 + warp // 3 * 32, col + ki * 16
        assert layout.index(thread, (mi * 3 + ki) * 8 + i) == ((col, row) if transposed else (row, col))
    layout = atoms.operand_b(48, 64, 8, (2, 3), 192, transposed)
    for thread, ni, ki, i in product(range(192), range(2), range(2), range(8)):
        k, n = ptx_b(thread % 32, i, 8)
        k, n = k + ki * 32, n + ni * 8 + thread // 32 % 3 * 16
        assert layout.index(thread, (ni * 2 + ki) * 8 + i) == ((n, k) if transposed else (k, n))


@pytest.mark.parametrize(("m", "k"), [(64, 32), (128, 64), (16, 16)])
def test_an_accumulator_of_one_warp_column_is_an_operand(m: int, k: int) -> None:
    warps = (m // 16, 1)
    assert same_map(atoms.accumulator(m, k, warps, 32 * warps[0]), atoms.operand_a(m, k, 16, warps, 32 * warps[0], False))


def ldmatrix(tile: np.ndarray, places: list[tuple[int, int]], transposed: bool) -> np.ndarray:
    """What ldmatrix.x4 gives each lane, in bytes: lane 8i+j points at row j (16 bytes) of matrix i."""
    raw = tile.view(np.uint8).reshape(tile.shape[0], -1)
    size = tile.itemsize
    out = np.zeros((32, 16), np.uint8)
    for i in range(4):
        rows = np.stack([raw[r, c * size : c * size + 16] for r, c in places[8 * i : 8 * i + 8]])
        for lane in WARP:
            g, q = divmod(lane, 4)
            if transposed:
                halves = rows.reshape(8, 8, 2)
                word = np.concatenate([halves[2 * q, g], halves[2 * q + 1, g]])
            else:
                word = rows[g, 4 * q : 4 * q + 4]
            out[lane, 4 * i : 4 * i + 4] = word
    return out


@pytest.mark.parametrize("operand", ["a", "b"])
@pytest.mark.parametrize(("dtype", "k_major"), [("u2", True), ("u2", False), ("u1", True), ("u4", True)])
def test_ldmatrix_delivers_fragments(operand: str, dtype: str, k_major: bool) -> None:
    """The addresses of `ldmatrix_lanes` bring every lane the elements that the operand's layout names, in that order."""
    size = np.dtype(dtype).itemsize
    k = 32 // size
    shape = (16, k) if k_major else (k, 16)
    tile = np.random.default_rng(5).integers(0, 255, shape).astype(dtype)
    lanes = FragmentLayout(shape, 32, atoms.ldmatrix_lanes(operand, k_major, size), ())
    got = ldmatrix(tile, [(p[0], p[1]) for p in (lanes.index(lane, 0) for lane in WARP)], not k_major).view(dtype)
    if operand == "a":
        layout = atoms.operand_a(16, k, 8 * size, (1, 1), 32, not k_major)
    else:
        layout = atoms.operand_b(16, k, 8 * size, (1, 1), 32, k_major)
    want = [[tile[layout.index(lane, r)] for r in range(layout.registers)] for lane in WARP]
    assert np.array_equal(got, np.array(want, dtype))


@pytest.mark.parametrize(("columns", "dtype"), [(16, 2), (32, 2), (64, 2), (128, 2), (256, 2), (32, 1), (64, 1), (32, 4), (24, 2), (104, 2)])
@pytest.mark.parametrize("operand", ["a", "b"])
@pytest.mark.parametrize("k_major", [True, False])
def test_ldmatrix_meets_no_bank_twice(columns: int, dtype: int, operand: str, k_major: bool) -> None:
    shape = (32, columns)
    shared = conflict_free(shape, dtype)
    lanes = FragmentLayout(shape, 32, atoms.ldmatrix_lanes(operand, k_major, dtype), ())
    for matrix in range(4):
        banks = set()
        for lane in range(8 * matrix, 8 * matrix + 8):
            row, col = lanes.index(lane, 0)
            banks.add(shared.offset((row, col)) * dtype // 16 % 8)
        assert len(banks) == 8


@pytest.mark.parametrize(("m", "n", "grid", "threads"), [(7, 9, (7, 9), 100), (8, 64, (4, 32), 128), (5, 3, (2, 3), 32)])
def test_scattered_covers_the_tile(m: int, n: int, grid: tuple[int, int], threads: int) -> None:
    c = atoms.scattered(m, n, grid, threads)
    a, b = atoms.scattered_a(m, 6, grid, threads, True), atoms.scattered_b(n, 6, grid, threads, True)
    seen = np.zeros((m, n), int)
    for thread, r, (i, j) in c.table():
        seen[i, j] += 1
        mi, ni = divmod(r, -(-n // grid[1]))
        for k in range(6):
            assert a.index(thread, mi * 6 + k) == (k, i)
            assert b.index(thread, ni * 6 + k) == (j, k)
    assert seen.min() >= 1
