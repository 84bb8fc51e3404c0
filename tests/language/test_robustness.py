"""Whatever is passed to a primitive or an operator, the answer is a value or a CompileError, never another exception."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.language.kit import BX, N, call, check, kernel_builder, tensor
from tilec.diagnostics import CompileError
from tilec.ir.dtypes import ALL, BOOL, FLOAT16, FLOAT32, INT8, INT32, INT64, UINT64, DType
from tilec.ir.expr import BINARY_OPS, Const, Scope, Var, VarKind
from tilec.ir.kernel import Kernel, Launch
from tilec.language import arith, regions
from tilec.language.bind import State, parameters
from tilec.language.builder import Builder
from tilec.language.catalogue import entries, modules
from tilec.language.constants import convert
from tilec.language.values import Ref, Slice
from tilec.reference import np_dtype, run

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


def attempt(act: Any) -> None:
    with suppress(CompileError):
        act()


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


SCALARS = tuple(Var(f"p{d.name}", d, VarKind.PARAM) for d in ALL)
EXACT = ("abs", "floor", "ceil", "round", "isnan", "max", "min", "clamp", "if_then_else", "pow", "ceildiv", "popcount", "clz", "cast")
ARITIES = {"max": 2, "min": 2, "pow": 2, "ceildiv": 2, "clamp": 3, "if_then_else": 3}
leaves = st.sampled_from([*SCALARS, 0, 1, -3, 200, 2**31, True, 0.5, -0.0, math.inf])
recipes = st.recursive(
    leaves,
    lambda inner: (
        st.tuples(st.just("binary"), st.sampled_from(BINARY_OPS), inner, inner)
        | st.tuples(st.just("compare"), st.sampled_from(["eq", "ne", "lt", "ge"]), inner, inner)
        | st.tuples(st.just("logical"), st.sampled_from(["and", "or"]), inner, inner)
        | st.tuples(st.just("unary"), st.sampled_from(["neg", "not", "invert"]), inner)
        | st.tuples(st.just("call"), st.sampled_from(EXACT), inner, inner, inner, st.sampled_from(ALL))
    ),
    max_leaves=6,
)


def build(b: Builder, recipe: Any, known: dict[Var, Const]) -> Any:
    """The expression of a recipe, made through the language alone, with the variables in `known` replaced by literals."""
    if not isinstance(recipe, tuple):
        return known.get(recipe, recipe) if isinstance(recipe, Var) else recipe
    kind, name, *parts = recipe
    operands = [build(b, part, known) for part in parts if not isinstance(part, DType)]
    if kind == "call":
        dtype = parts[-1]
        return call(b, name, operands[0], dtype) if name == "cast" else call(b, name, *operands[: ARITIES.get(name, 1)])
    return getattr(arith, kind)(b, name, arith.as_expr(b, operands[0]), *operands[1:])


@settings(max_examples=150, deadline=None)
@given(recipes, st.sampled_from(ALL))
def test_whatever_the_language_builds_the_verifier_accepts(recipe: Any, dtype: DType) -> None:
    b = kernel_builder()
    target = tensor("O", 4, dtype=dtype)
    attempt(lambda: regions.write(b, Ref(target, (0,)), build(b, recipe, {})))
    check(b, target, *SCALARS)


@settings(max_examples=200, deadline=None)
@given(recipes, st.lists(numbers, min_size=len(ALL), max_size=len(ALL)))
def test_folding_gives_what_the_reference_computes(recipe: Any, values: list[Any]) -> None:
    b = kernel_builder()
    known = {v: Const(convert(x, v.dtype), v.dtype) for v, x in zip(SCALARS, values, strict=True)}
    try:
        device, folded = arith.as_expr(b, build(b, recipe, {})), arith.as_expr(b, build(b, recipe, known))
    except CompileError:
        return  # a division by zero or the like that only literals show
    assert device.dtype == folded.dtype
    outputs = tuple(tensor(name, 1, dtype=device.dtype) for name in ("got", "wanted"))
    for target, value in zip(outputs, (device, folded), strict=True):
        regions.write(b, Ref(target, (0,)), value)
    launch = Launch((BX,), (Const(1, INT32),), (1, 1, 1), (), b.body())
    arrays = {o.name: np.zeros(1, np_dtype(o.dtype)) for o in outputs}
    run(Kernel("k", (*outputs, *SCALARS), (), (launch,)), arrays, {v.name: c.value for v, c in known.items()})
    got, wanted = (float(arrays[o.name].astype(np.float64)[0]) for o in outputs)
    assert got == wanted or (math.isnan(got) and math.isnan(wanted))
