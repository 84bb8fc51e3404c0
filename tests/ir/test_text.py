"""The text form: what is printed reads back as the same."""

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.ir.random_ir import DTYPES, Maker, kernels
from tilec.diagnostics import CompileError
from tilec.ir import dtypes as dt
from tilec.ir import tile
from tilec.ir.expr import Binary, Buffer, Const, Load, Scope, Var
from tilec.ir.text import parse, parse_expr, parse_module, parse_stmt, show
from tilec.ir.verify import verify
from tilec.ir.visit import walk_expr, walk_stmt

def same_numbers(a, b):
    """Literals agree bit for bit, NaN included."""
    return math.copysign(1, a) == math.copysign(1, b) if a == b else math.isnan(a) and math.isnan(b)


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(kernels())
def test_printing_reads_back(kernel):
    verify(kernel)
    text = show(kernel)
    again = parse(text)
    verify(again)
    assert show(again) == text
    for launch, other in zip(kernel.launches, again.launches, strict=True):
        kinds = [type(s) for s in walk_stmt(launch.body) if not isinstance(s, tile.Seq)]
        assert kinds == [type(s) for s in walk_stmt(other.body) if not isinstance(s, tile.Seq)]


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_expressions_keep_their_tree(data):
    """Node for node: types, operators, literals; so no parenthesis is lost and no type guessed."""
    maker = Maker(data.draw)
    maker.vars = [Var(name, d) for name, d in (("x", dt.INT32), ("y", dt.FLOAT16), ("p", dt.BOOL), ("q", dt.FLOAT32))]
    maker.buffers = [Buffer("T", dt.FLOAT32, (Const(4, dt.INT32),), Scope.SHARED), Buffer("v", dt.INT32, (), Scope.VAR)]
    e = maker.expr(data.draw(DTYPES), 5)
    again = parse_expr(show(e), [*maker.vars, *maker.buffers])
    for one, other in zip(walk_expr(e), walk_expr(again), strict=True):
        assert type(one) is type(other) and one.dtype == other.dtype
        if isinstance(one, Const):
            assert type(one.value) is type(other.value) and same_numbers(one.value, other.value)
        elif isinstance(one, Var):
            assert one is other
        elif isinstance(one, Load):
            assert one.buffer is other.buffer
        assert getattr(one, "op", None) == getattr(other, "op", None) and getattr(one, "name", None) == getattr(other, "name", None)


def i32(name):
    return Var(name, dt.INT32)


@pytest.mark.parametrize(
    "text",
    [
        "a - (b - c)", "a - b - c", "(a + b) * c // 4", "-(a + b) % 3", "~(a ^ b) & c << 2", "-5 - -(5)", "min(a, b) + 1:int64",
        "select(a < b and not c == 0, a, b)", "not (a < b or b < c)", "a < b and (b < c or c < a)", "float16(a) * 0.5:float16",
        "bits<float32>(a)", "isnan<bool>(float32(a))", "@min(a, b)", "-inf", "nan:float16", "1e-07", "ceildiv(a, 128)",
    ],
)  # fmt: skip
def test_canonical_expressions(text):
    """These are printed as a person would write them: no parenthesis more or less."""
    if "1:int64" in text:
        text = text.replace("min(a, b)", "int64(a)")
    assert show(parse_expr(text, [i32("a"), i32("b"), i32("c")])) == text


def test_variables_of_one_name_stay_apart():
    i, j = i32("i"), i32("i")
    a = Buffer("A", dt.INT32, (Const(8, dt.INT32),) * 2, Scope.SHARED)
    text = show(tile.Store(a, (i, j), Binary("sub", j, i, dt.INT32)))
    assert text == "A[i, i.1] = i.1 - i"


def test_statements_with_given_declarations():
    a = Buffer("A", dt.FLOAT32, (Const(8, dt.INT32), Const(4, dt.INT32)), Scope.SHARED)
    x = i32("x")
    text = "if x < 8:\n  A[x, 0] = 1.0\nelse:\n  fill A = 0.0\ncopy A[x, 0 +: 4] -> A[0, 0 +: 4]"
    body = parse_stmt(text, [a, x])
    assert show(body) == text
    assert isinstance(body.body[0], tile.If) and body.body[0].then.body[0].buffer is a
    assert body.body[1].span.line == 5


def test_modules():
    text = "kernel a(C: float32[8]):\n  launch (bx) in (8):\n    C[bx] = 1.0\n\nkernel b(C: int8[4]):\n  launch (bx) in (4):\n    pass"
    module = parse_module(text + "\n# a remark\n")
    assert [k.symbol for k in module.kernels] == ["a", "b"] and show(module) == text


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("kernel k():\n  launch (bx) in (1):\n    y = 1", 3, "begins no statement"),
        ("kernel k():\n  launch (bx) in (1):\n    A[0] = 1", 3, "no buffer is called `A`"),
        ("kernel k():\n  launch (bx) in (n):\n    pass", 2, "no variable is called `n`"),
        ("kernel k(A: float33[4]):\n  launch (bx) in (1):\n    pass", 1, "`float33` is not a type"),
        ("kernel k():\n  launch (bx) in (1:\n    pass", 2, "expected `,`"),
        ("kernel k():\n  launch (bx) in (1):\n    let x: int32 = x", 3, "no variable is called `x`"),
        ("kernel k():\n  launch (bx) in (1):\n    eval ?", 3, "unexpected `?`"),
        ("kernel k():\n  launch (bx) in (1):\n    eval exp()", 3, "type of `exp\\(\\)` is not known"),
        ("", 1, "expected one kernel, found 0"),
    ],
)  # fmt: skip
def test_mistakes_name_their_line(text, line, told):
    with pytest.raises(CompileError, match=told.replace("?", "\\?")) as caught:
        parse(text)
    assert caught.value.diagnostics[0].code == "TL0902" and caught.value.diagnostics[0].span.line == line
