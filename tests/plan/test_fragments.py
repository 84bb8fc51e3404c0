"""Register layouts: every element lives somewhere, and a register number found by algebra is the one the table names."""

from __future__ import annotations

import random
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilec.ir.dtypes import INT32
from tilec.ir.expr import Const
from tilec.layout.atoms import accumulator
from tilec.layout.fragment import Digit, FragmentLayout, normal, same_map
from tilec.plan.access import constant_register, copies_guard, layout_values, register_index
from tilec.plan.fragments import embed, project, spread_evenly
from tilec.plan.plan import THREAD
from tests.plan.values import value

SHAPES = [(1,), (7,), (229,), (4096,), (3, 5), (16, 8), (64, 64), (128, 32), (6, 10), (1, 48), (96, 3), (2, 3, 5), (4, 16, 8)]
THREADS = [1, 32, 64, 96, 100, 128, 256]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("itemsize", [1, 2, 4, 8])
def test_spread_evenly_holds_every_element(shape: tuple[int, ...], threads: int, itemsize: int) -> None:
    layout = spread_evenly(shape, threads, itemsize)
    held: dict[tuple[int, ...], set[int]] = {}
    for thread, _, index in layout.table():
        held.setdefault(index, set()).add(thread)
    assert set(held) == set(product(*map(range, shape)))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("threads", THREADS)
def test_values_are_the_table(shape: tuple[int, ...], threads: int) -> None:
    layout = spread_evenly(shape, threads, 2)
    r = random.Random(f"{shape} {threads}")
    for _ in range(20):
        thread, register = r.randrange(threads), r.randrange(layout.registers)
        digits, left = [], register
        for g in layout.regs:
            digits.append(left % g.size)
            left //= g.size
        exprs = layout_values(layout, THREAD, [Const(d, INT32) for d in digits])
        assert tuple(value(e, {THREAD: thread}) for e in exprs) == layout.index(thread, register)


@pytest.mark.parametrize("shape", [(16, 8), (64, 64), (6, 10), (96, 3)])
@pytest.mark.parametrize("dims", [(0,), (1,), (1, 0), (0, 1)])
def test_projection_agrees_with_its_domain(shape: tuple[int, int], dims: tuple[int, ...]) -> None:
    """A fragment indexed by some variables of a domain finds its element in the very thread that runs the iteration."""
    domain = spread_evenly(shape, 128, 4)
    fragment = project(domain, dims, tuple(shape[d] for d in dims))
    _agree(fragment, dims, domain)


@pytest.mark.parametrize("extents", [(64, 64), (64, 5), (5, 64), (3, 200)])
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("threads", [64, 96, 128])
@pytest.mark.parametrize("wide", [1, 8])
def test_embedding_agrees_with_its_fragment(extents: tuple[int, int], dim: int, threads: int, wide: int) -> None:
    fragment = spread_evenly((extents[dim],), threads, 4)
    domain = embed(fragment, (dim,), extents, wide)
    assert {index for _, _, index in domain.table()} == set(product(*map(range, extents)))
    _agree(fragment, (dim,), domain)


def _agree(fragment: FragmentLayout, dims: tuple[int, ...], domain: FragmentLayout) -> None:
    owner = {(thread, register): index for thread, register, index in fragment.table()}
    for thread, register, index in domain.table():
        digits, left = [], register
        for g in domain.regs:
            digits.append(Const(left % g.size, INT32))
            left //= g.size
        found = register_index(fragment, dims, domain, digits)
        assert found is not None
        assert owner[thread, value(found, {})] == tuple(index[d] for d in dims)


@pytest.mark.parametrize("narrow, wide", [(8, 128), (16, 128), (32, 64)])
def test_rows_of_tiles_of_different_widths_are_one_thing(narrow: int, wide: int) -> None:
    """The row vector of a tile whose row digits are joined (one column of mma tiles a warp) serves a tile where they are apart."""
    vector = accumulator(64, narrow, (1, narrow // 8), 32 * narrow // 8).without(1, False)
    _agree(vector, (0,), accumulator(64, wide, (1, narrow // 8), 32 * narrow // 8))


@settings(deadline=None, max_examples=40)
@given(st.lists(st.sampled_from([2, 2, 3, 4]), min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_digits_in_parts_are_the_same_register(sizes: list[int], r: random.Random) -> None:
    """However the digits of one map are joined, cut and ordered among the registers, the element is found."""

    def spelled() -> FragmentLayout:
        digits, stride = [], 1
        for n in sizes:
            digits.append(Digit(0, stride, n))
            stride *= n
        joined = [digits[0]]
        for d in digits[1:]:
            last = joined[-1]
            if r.random() < 0.5:
                joined[-1] = Digit(0, last.stride, last.size * d.size)
            else:
                joined.append(d)
        r.shuffle(joined)
        return FragmentLayout((stride,), 32, (), tuple(joined))

    _agree(spelled(), (0,), spelled())


def test_another_threads_element_is_not_a_register() -> None:
    domain = spread_evenly((64, 64), 128, 4)
    fragment = accumulator(64, 64, (2, 2), 128)
    assert register_index(fragment, (0, 1), domain, [Const(0, INT32)] * len(domain.regs)) is None


@pytest.mark.parametrize("shape,dim", [((64, 64), 0), ((64, 64), 1), ((6, 10), 0), ((16, 8), 1)])
def test_reduced_layout_keeps_lines_in_their_threads(shape: tuple[int, int], dim: int) -> None:
    layout = spread_evenly(shape, 128, 4)
    for keep in (False, True):
        reduced = layout.without(dim, keep)
        threads: dict[int, set[int]] = {}
        for thread, _, index in layout.table():
            threads.setdefault(index[1 - dim], set()).add(thread)
        held: dict[int, set[int]] = {}
        for thread, _, index in reduced.table():
            held.setdefault(index[1 - dim] if keep else index[0], set()).add(thread)
        assert all(threads[line] <= held[line] for line in threads)


def test_constant_register() -> None:
    layout = FragmentLayout((5,), 32, (), spread_evenly((5,), 1, 4).regs)
    assert [constant_register(layout, [i]) for i in range(5)] == [r for i in range(5) for _, r, at in layout.table() if _ == 0 and at == (i,)]
    assert constant_register(spread_evenly((64,), 32, 4), [3]) is None


@pytest.mark.parametrize("threads", [32, 96, 128, 256])
def test_copies_guard_picks_one_owner(threads: int) -> None:
    layout = spread_evenly((8, 4), threads, 4).without(1, False)
    guard = copies_guard(layout, THREAD)
    owners: dict[tuple[int, ...], int] = {}
    for thread, _register, index in layout.table():
        if guard is None or value(guard, {THREAD: thread}):
            assert index not in owners, "two threads would store this element"
            owners[index] = thread
    assert set(owners) == {(i,) for i in range(8)}


def test_normal_joins_what_continues() -> None:
    layout = spread_evenly((64, 64), 128, 4)
    assert same_map(layout, FragmentLayout(layout.shape, layout.threads, normal(layout.thread), normal(layout.regs)))
