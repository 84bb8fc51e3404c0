"""Indices, slices, and how the two sides of a copy pair up."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.language.kit import BX, BY, SPAN, N, call, check, extents, fault, kernel_builder, refused, tensor
from tilec.diagnostics import Span
from tilec.ir.dtypes import FLOAT16, FLOAT32, INT32, INT64, UINT8
from tilec.ir.expr import Binary, Cast, Const, Expr, Load, Scope, Unary, Var
from tilec.ir.tile import Copy, Fill, Store
from tilec.language import arith, regions
from tilec.language.builder import Builder
from tilec.language.extents import constant, difference, equal, polynomial
from tilec.language.values import Ref, Slice

FULL = Slice(None, None)


def numbers(exprs: tuple[Expr, ...]) -> tuple[int | None, ...]:
    return tuple(constant(e) for e in exprs)


def last(b: Builder) -> Any:
    return b.body().body[-1]


def copied(b: Builder, src: Any, dst: Any) -> Copy:
    call(b, "copy", src, dst)
    made = last(b)
    assert isinstance(made, Copy)
    return made


# The normal form of lengths.


def value(e: Expr, table: dict[Var, int]) -> int:
    match e:
        case Const(v):
            return int(v)
        case Var():
            return table[e]
        case Unary("neg", a):
            return -value(a, table)
        case Binary("add", a, b):
            return value(a, table) + value(b, table)
        case Binary("sub", a, b):
            return value(a, table) - value(b, table)
        case Binary("mul", a, b):
            return value(a, table) * value(b, table)
        case _:
            raise AssertionError(e)


VARS = tuple(Var(n) for n in "xyz")
sums = st.recursive(
    st.sampled_from(VARS) | st.integers(-9, 9).map(lambda v: Const(v, INT32)),
    lambda inner: st.tuples(st.sampled_from(["add", "sub", "mul"]), inner, inner).map(lambda t: Binary(*t, INT32)),
    max_leaves=8,
)


@settings(max_examples=100)
@given(sums, sums, st.tuples(*(st.integers(-50, 50) for _ in VARS)))
def test_a_difference_keeps_its_value(x: Expr, y: Expr, at: tuple[int, ...]) -> None:
    table = dict(zip(VARS, at, strict=True))
    assert value(difference(x, y), table) == value(x, table) - value(y, table)
    assert equal(x, x)
    assert equal(x, y) <= (value(x, table) == value(y, table))


def test_differences_of_tiles_are_constant() -> None:
    b = kernel_builder()
    start = arith.binary(b, "mul", BX, 64)
    stop = arith.binary(b, "mul", arith.binary(b, "add", BX, 1), 64)
    assert difference(stop, start) == Const(64, INT32)
    off = Load(tensor("off", 9, dtype=INT64), (BX,))
    assert constant(difference(arith.binary(b, "add", off, 5), off)) == 5
    assert constant(difference(arith.binary(b, "add", Cast(start, INT64), 8), start)) == 8
    assert constant(difference(N, start)) is None
    assert polynomial(arith.binary(b, "mul", N, BX)) == polynomial(arith.binary(b, "mul", BX, N))


# Elements.


def test_the_number_of_indices_is_checked() -> None:
    b, s = kernel_builder(), tensor("s", 64, 32, scope=Scope.SHARED)
    place = Span("k.py", 9, 3, 9, 7)
    d = fault(lambda: regions.write(b, Ref(s, (3,), place), 0.0))
    assert (d.code, d.span) == ("TL0304", place)
    assert all(t in d.message for t in ("`s`", "2 dimensions", "1 index"))
    assert fault(lambda: regions.read(b, Ref(s, (1, 2, 3)))).code == "TL0304"
    assert d.labels[0].text == "s is 64×32"


@pytest.mark.parametrize("at", [8, -9, 2**40])
def test_a_literal_index_of_a_tile_lies_inside(at: int) -> None:
    b = kernel_builder()
    for scope in (Scope.SHARED, Scope.FRAGMENT, Scope.LOCAL):
        assert fault(lambda scope=scope: regions.read(b, Ref(tensor("s", 8, scope=scope), (at,)))).code == "TL0305"


def test_negative_literals_count_from_the_end() -> None:
    b = kernel_builder()
    assert regions.read(b, Ref(tensor("A", 8), (-1,))).indices == extents(7)
    assert regions.read(b, Ref(tensor("A", 8), (8,))).indices == extents(8)  # masked when it runs
    assert regions.read(b, Ref(tensor("A", N), (-1,))).indices == extents(-1)


def test_index_types() -> None:
    b, a = kernel_builder(), tensor("A", 8)
    assert fault(lambda: regions.read(b, Ref(a, (0.5,)))).code == "TL0306"
    assert fault(lambda: regions.read(b, Ref(a, (Var("f", FLOAT32),)))).code == "TL0306"
    assert fault(lambda: regions.read(b, Ref(a, ("x",)))).code == "TL0306"
    wide = Var("w", INT64)
    assert regions.read(b, Ref(a, (wide,))).indices == (wide,)
    inner = regions.read(b, Ref(a, (Ref(tensor("idx", 4, dtype=INT32), (BX,)),)))
    assert isinstance(inner.indices[0], Load)


def test_writes_cast_and_reject() -> None:
    b, a = kernel_builder(), tensor("A", 8, dtype=UINT8)
    x = Var("x", FLOAT32)
    regions.write(b, Ref(a, (0,)), x)
    assert last(b) == Store(a, extents(0), Cast(x, UINT8), SPAN)
    assert fault(lambda: regions.write(b, Ref(a, (0,)), 300)).code == "TL0303"
    assert fault(lambda: regions.write(b, Ref(a, (Slice(0, 4),)), 0)).code == "TL0308"
    assert fault(lambda: regions.write(b, a, 0)).code == "TL0308"
    v = call(b, "alloc_var", "int32")
    regions.write(b, v, 3)
    assert last(b).value == Const(3, INT32)


# Slices.


@pytest.mark.parametrize(("start", "stop"), [(6, 12), (8, 9), (0, 9), (-9, 2)])
def test_slices_of_tiles_lie_inside(start: int, stop: int) -> None:
    b, s = kernel_builder(), tensor("s", 8, dtype=INT32, scope=Scope.SHARED)
    place = Span("k.py", 8, 9, 8, 16)
    d = fault(lambda: call(b, "fill", Ref(s, (Slice(start, stop),), place), 7))
    assert (d.code, d.span) == ("TL0305", place)
    g = tensor("g", 64, dtype=INT32)
    assert refused(b, "copy", Ref(s, (Slice(start, stop),)), Ref(g, (0,))).code == "TL0305"


def test_other_slices() -> None:
    b, s, g = kernel_builder(), tensor("s", 8, scope=Scope.SHARED), tensor("G", 8)
    assert refused(b, "fill", Ref(s, (Slice(5, 2),)), 7).code == "TL0307"
    assert refused(b, "fill", Ref(g, (Slice(5, 2),)), 7).code == "TL0307"
    assert refused(b, "reduce_sum", Ref(s, (Slice(5, 5),)), g).code == "TL0307"
    call(b, "fill", Ref(s, (Slice(5, 5),)), 7)
    assert b.body().body == ()
    assert refused(b, "fill", Ref(s, (Slice(0, 8, 2),)), 7).code == "TL0307"
    call(b, "fill", Ref(g, (Slice(6, 12),)), 7)  # a tail: masked
    assert numbers(last(b).dst.extents) == (6,)
    call(b, "fill", Ref(s, (Slice(-3, None),)), 7)
    assert (numbers(last(b).dst.starts), numbers(last(b).dst.extents)) == ((5,), (3,))
    call(b, "fill", Ref(s, (Slice(BX, arith.binary(b, "add", BX, 4)),)), 7)
    assert numbers(last(b).dst.extents) == (4,)
    too_long = Slice(BX, arith.binary(b, "add", BX, 9))
    assert refused(b, "fill", Ref(s, (too_long,)), 7).code == "TL0305"


def test_fill_and_clear() -> None:
    b, s = kernel_builder(), call(kernel_builder(), "alloc_shared", (64,), "int8")
    call(b, "fill", s, -7)
    assert isinstance(last(b), Fill) and last(b).value.value == -7
    assert refused(b, "fill", s, 200).code == "TL0303"
    call(b, "clear", Ref(s, (3,)))
    assert isinstance(last(b), Store)
    b.in_parallel = True
    assert refused(b, "clear", s).code == "TL0205"
    assert refused(Builder(), "clear", s).code == "TL0205"


# Copies.


def test_a_start_address_takes_the_extents_of_the_other_side() -> None:
    b, a = kernel_builder(), tensor("A", N, 4096)
    s = call(b, "alloc_shared", (128, 32), "float16")
    row = arith.binary(b, "mul", BY, 128)
    c = copied(b, Ref(a, (row, 0)), s)
    assert c.src.starts == (row, Const(0, INT32)) and numbers(c.src.extents) == (128, 32)
    c = copied(b, s, Ref(a, (row, 32)))
    assert numbers(c.dst.extents) == (128, 32)
    wide = tensor("W", 2, 64, 128, 32)
    c = copied(b, Ref(wide, (BX, 3, 0, 0)), s)
    assert numbers(c.src.extents) == (1, 1, 128, 32)
    check(b, a, wide)


def test_leading_ones_are_dropped() -> None:
    b, a = kernel_builder(), tensor("A", 256, 64)
    s = call(b, "alloc_shared", (3, 64, 32), "float16")
    stage = Ref(s, (1, FULL, FULL))
    c = copied(b, Ref(a, (64, 0)), stage)
    assert numbers(c.src.extents) == (64, 32) and numbers(c.dst.extents) == (1, 64, 32) and numbers(c.dst.starts) == (1, 0, 0)
    cube = call(b, "alloc_shared", (64, 1, 32), "float16")
    c = copied(b, cube, Ref(a, (0, 0)))
    assert numbers(c.dst.extents) == (64, 32)
    c = copied(b, Ref(a, (Slice(0, 64), Slice(0, 32))), cube)
    assert numbers(c.dst.extents) == (64, 1, 32)
    check(b, a)


def test_rank_errors_of_copies() -> None:
    b, a = kernel_builder(), tensor("A", 2, 64, 32)
    s = call(b, "alloc_shared", (64, 32), "float16")
    assert numbers(copied(b, Ref(a, (BX, 0, 0)), s).src.extents) == (1, 64, 32)
    d = refused(b, "copy", Ref(a, (BX, 0)), s)
    assert d.code == "TL0304" and "`A` has 3 dimensions, 2 indices" in d.message
    assert refused(b, "copy", s, Ref(tensor("V", 64), (0,))).code == "TL0312"
    assert refused(b, "copy", s, 3).code == "TL0206"


def test_mismatching_extents_tell_both_shapes() -> None:
    b = kernel_builder()
    b.hint = "A_s"
    s = call(b, "alloc_shared", (128, 32), "float16")
    d = refused(b, "copy", Ref(tensor("A", 512, 512), (Slice(0, 128), Slice(0, 64))), s)
    assert d.code == "TL0312" and "128×64" in d.message and "128×32" in d.message
    assert [label.text for label in d.labels] == ["A is 512×512", "A_s is 128×32"]
    assert refused(b, "copy", tensor("B", 60, 61), call(b, "alloc_shared", (64, 64), "float16")).code == "TL0312"


def test_a_padded_tile() -> None:
    b, a = kernel_builder(), tensor("A", 16, 24)
    s = call(b, "alloc_shared", (16, 33), "float16")
    c = copied(b, a, Ref(s, (FULL, Slice(4, 28))))
    assert numbers(c.dst.starts) == (0, 4) and numbers(c.dst.extents) == (16, 24)
    assert refused(b, "copy", a, Ref(s, (0, 10))).code == "TL0305"  # 10 + 24 > 33
    check(b, a)


def test_run_time_lengths() -> None:
    b, g = kernel_builder(), tensor("G", N, dtype=INT32)
    s = call(b, "alloc_shared", (1024,), "int32")
    c = copied(b, Ref(g, (Slice(0, N),)), Ref(s, (Slice(0, N),)))
    assert equal(c.src.extents[0], N) and equal(c.dst.extents[0], N) and not b.notes
    c = copied(b, g, s)  # to the end of the tensor: masking cuts it
    assert numbers(c.src.extents) == (1024,) and not b.notes
    c = copied(b, s, Ref(g, (Slice(BX, None),)))
    assert numbers(c.dst.extents) == (1024,) and not b.notes
    c = copied(b, Ref(g, (Slice(0, BX),)), s)
    assert numbers(c.src.extents) == (1024,) and [n.code for n in b.notes] == ["TL0313"]
    assert refused(b, "copy", s, Ref(g, (Slice(0, BX),))).code == "TL0312"  # would write beyond the slice
    assert refused(b, "copy", Ref(g, (Slice(0, BX),)), Ref(tensor("H", N), (Slice(0, BY),))).code == "TL0312"
    check(b, g)


def test_two_elements_are_one_store() -> None:
    b, a, o = kernel_builder(), tensor("A", 8), tensor("O", 8, dtype=FLOAT32)
    b.in_parallel = True
    call(b, "copy", Ref(a, (BX,)), Ref(o, (3,)))
    assert last(b) == Store(o, extents(3), Cast(Load(a, (BX,)), FLOAT32), SPAN)


def test_odd_starts_are_fine() -> None:
    b, a, o = kernel_builder(), tensor("A", 4, 130), tensor("O", 4, 131)
    s = call(b, "alloc_shared", (128,), "float16")
    assert numbers(copied(b, Ref(a, (BX, Slice(1, 129))), s).src.extents) == (1, 128)
    assert numbers(copied(b, s, Ref(o, (BX, Slice(3, 131)))).dst.starts) == (None, 3)
    assert s.dtype == FLOAT16
    check(b, a, o)
