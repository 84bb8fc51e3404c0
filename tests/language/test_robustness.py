"""Whatever is passed to a primitive or an operator, the answer is a value or a CompileError, never another exception."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.language.kit import BX, N, kernel_builder, tensor
from tilec.diagnostics import CompileError
from tilec.ir.dtypes import ALL, BOOL, FLOAT16, FLOAT32, INT8, INT32, INT64, UINT64
from tilec.ir.expr import BINARY_OPS, Const, Scope, Var
from tilec.language import arith, regions
from tilec.language.bind import State, parameters
from tilec.language.catalogue import entries, modules
from tilec.language.values import Ref, Slice

S = tensor("s", 8, 16, dtype=FLOAT16, scope=Scope.SHARED)
F = tensor("f", 16, dtype=FLOAT32, scope=Scope.FRAGMENT)
G = tensor("g", N, 16, dtype=INT32)
V = tensor("v", dtype=INT32, scope=Scope.VAR)
numbers = st.sampled_from(
    [0, 1, -1, 2, 7, 128, 2**31, -(2**63), 2**64, 10**400, True, False, 0.0, -0.0, 0.5, 1e300, math.inf, -math.inf, math.nan]
)
variables = st.sampled_from([BX, N, *(Var("x", d) for d in ALL)])
TYPED = ((1, INT32), (-1, INT64), (0, INT8), (2**64 - 1, UINT64), (0.5, FLOAT32), (math.inf, FLOAT16), (True, BOOL))
literals = st.sampled_from([Const(v, d) for v, d in TYPED])
items = (
    numbers
    | variables
    | st.builds(Slice, st.none() | numbers | variables, st.none() | numbers | variables, st.none() | st.just(1))
    | st.just(...)
)
references = st.builds(Ref, st.sampled_from([S, F, G, V]), st.lists(items, max_size=3).map(tuple))
hosts = st.sampled_from(
    [None, "float16", "int8", "text", "", (), (4, 8), [8], {}, {G: 1}, {S: 2}, FLOAT16, INT32, Slice(0, 4), S, F, G, V, ...]
)
anything = numbers | variables | literals | references | hosts
NAMES = sorted({e.name for _, e in entries() if e.state is not State.REFUSED})
FUNCTIONS = {e.name: e.fn for _, e in entries()}


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=10, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(data=st.data())
def test_primitives_answer_or_refuse(name: str, data: st.DataObject) -> None:
    names, only, required = parameters(FUNCTIONS[name])
    args = data.draw(st.lists(anything, min_size=required, max_size=max(required, min(len(names), 3)) + (not names)))
    rest = names[len(args) :] + only
    kwargs = data.draw(st.dictionaries(st.sampled_from(rest), anything, max_size=2)) if rest else {}
    try:
        modules()["tilelang.language"].members[name].call(kernel_builder(), tuple(args), kwargs)
    except CompileError as caught:
        assert all(d.message and d.code.startswith("TL0") for d in caught.diagnostics)


def attempt(run: Any) -> None:
    with suppress(CompileError):
        run()


@settings(max_examples=200, deadline=None)
@given(anything, anything, st.sampled_from(BINARY_OPS), st.sampled_from(["eq", "lt", "ge"]), st.sampled_from(ALL))
def test_operators_answer_or_refuse(x: Any, y: Any, op: str, comparison: str, dtype: Any) -> None:
    b = kernel_builder()
    attempt(lambda: arith.binary(b, op, x, y))
    attempt(lambda: arith.compare(b, comparison, x, y))
    attempt(lambda: arith.logical(b, "and", x, y))
    attempt(lambda: arith.select(b, Var("c", BOOL), x, y))
    for unary in ("neg", "not", "invert"):
        attempt(lambda unary=unary: arith.unary(b, unary, x))
    attempt(lambda: arith.cast(b, x, dtype))
    attempt(lambda: arith.truth(b, x))
    attempt(lambda: regions.region(b, x))


@settings(max_examples=200, deadline=None)
@given(references, anything)
def test_writes_answer_or_refuse(target: Ref, value: Any) -> None:
    attempt(lambda: regions.write(kernel_builder(), target, value))
