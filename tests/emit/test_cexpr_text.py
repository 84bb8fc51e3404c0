"""How expressions read: plain operators where the facts allow them, few parentheses, 64 bits where they are needed."""

from __future__ import annotations

import pytest

from tilec.analysis.facts import Facts
from tilec.emit.cexpr import PRIMARY, CWriter
from tilec.ir.dtypes import BFLOAT16, BOOL, FLOAT8_E4M3, FLOAT16, FLOAT32, FLOAT64, INT8, INT32, INT64, UINT8, UINT32, DType
from tilec.ir.expr import Binary, Buffer, Call, Cast, Compare, Const, Expr, Load, Logical, Scope, Select, Unary, Var, VarKind, const_int

M, K = (Var(n, INT32, VarKind.EXTENT) for n in "MK")
by = Var("by", INT32, VarKind.BLOCK)
row, col, i = Var("row"), Var("col"), Var("i")
n64 = Var("n", INT64)
x = Var("x")  # nothing is known about it
FACTS = Facts().with_index(by, Call("ceildiv", (M, const_int(128)), INT32)).with_range(row, 0, 127).with_range(col, 0, 63).with_index(i, const_int(4))


def c(n: int, dtype: DType = INT32) -> Const:
    return Const(n, dtype)


def b(op: str, p: Expr, q: Expr | int) -> Binary:
    return Binary(op, p, c(q, p.dtype) if isinstance(q, int) else q, p.dtype)


def less(p: Expr, n: int) -> Compare:
    return Compare("lt", p, c(n, p.dtype))


def load(name: str, dtype: DType) -> Load:
    return Load(Buffer(name, dtype, (K,), Scope.GLOBAL), (i,))


def writer(needed: set[str] | None = None, fast_math: bool = False) -> CWriter:
    found = set() if needed is None else needed
    return CWriter(lambda v: v.name, lambda a: (f"{a.buffer.name}[i]", PRIMARY), found.add, FACTS, fast_math)


f, h, d, q = load("f", FLOAT32), load("h", FLOAT16), load("d", FLOAT64), load("q", FLOAT8_E4M3)
tile_row = b("add", b("mul", by, 128), row)
TEXTS: list[tuple[Expr, str]] = [
    (tile_row, "by * 128 + row"),
    (b("mul", tile_row, 1), "(by * 128 + row) * 1"),
    (b("floordiv", row, 4), "row / 4"),
    (b("mul", b("mod", row, 4), 8), "row % 4 * 8"),
    (b("floordiv", row, col), "floor_div<int>(row, col)"),
    (b("floordiv", row, b("add", col, 1)), "row / (col + 1)"),
    (b("floordiv", x, 4), "floor_div<int>(x, 4)"),
    (b("truncdiv", x, 4), "x / 4"),
    (b("sub", row, b("sub", col, 1)), "row - (col - 1)"),
    (b("add", row, c(-3)), "row - 3"),
    (b("sub", row, c(-3)), "row + 3"),
    (Unary("neg", Unary("neg", row, INT32), INT32), "-(-row)"),
    (b("mul", row, Unary("neg", col, INT32)), "row * -col"),
    (b("add", x, 1), "wrap_add<int>(x, 1)"),
    (b("add", n64, 1), "wrap_add<long long>(n, 1)"),
    (b("min", row, col), "min(row, col)"),
    (b("max", n64, 5), "max_of<long long>(n, 5LL)"),
    (Compare("lt", n64, c(5, INT64)), "n < 5"),
    (Compare("lt", n64, c(5_000_000_000, INT64)), "n < 5000000000LL"),
    (b("xor", b("floordiv", col, 8), b("mod", row, 8)), "(col / 8) ^ (row % 8)"),
    (b("and", b("add", row, 1), 7), "(row + 1) & 7"),
    (b("shl", b("add", row, 1), 2), "(row + 1) << 2"),
    (b("shr", x, 3), "x >> 3"),
    (b("shl", x, 3), "shift_left<int>(x, 3)"),
    (Call("ceildiv", (row, c(32)), INT32), "(row + 31) / 32"),
    (Call("ceildiv", (x, c(32)), INT32), "ceil_div<int>(x, 32)"),
    (Logical("and", Compare("lt", tile_row, M), Compare("lt", col, K)), "by * 128 + row < M && col < K"),
    (Logical("or", Logical("and", less(row, 3), less(col, 3)), less(i, 1)), "(row < 3 && col < 3) || i < 1"),
    (Logical("and", Logical("and", less(row, 3), less(col, 3)), less(i, 1)), "row < 3 && col < 3 && i < 1"),
    (Logical("and", less(row, 3), Logical("and", less(col, 3), less(i, 1))), "row < 3 && col < 3 && i < 1"),
    (Logical("and", Logical("or", less(row, 3), less(col, 3)), less(i, 1)), "(row < 3 || col < 3) && i < 1"),
    (Unary("not", Compare("lt", row, c(3)), BOOL), "!(row < 3)"),
    (Select(Compare("lt", row, M), f, Const(0.0, FLOAT32), FLOAT32), "row < M ? f[i] : 0.0f"),
    (b("add", Select(Compare("lt", row, M), row, c(0), INT32), 1), "(row < M ? row : 0) + 1"),
    (Cast(row, INT64), "(long long)row"),
    (b("mul", Cast(tile_row, INT64), Cast(K, INT64)), "(long long)(by * 128 + row) * (long long)K"),
    (Cast(load("u", UINT8), INT32), "u[i]"),
    (Cast(load("u", UINT8), UINT32), "(unsigned)u[i]"),
    (b("add", load("s", INT8), load("s", INT8)), "(signed char)(s[i] + s[i])"),
    (Binary("sub", f, Const(-1.5, FLOAT32), FLOAT32), "f[i] + 1.5f"),
    (Binary("div", f, Binary("mul", f, f, FLOAT32), FLOAT32), "f[i] / (f[i] * f[i])"),
    (Binary("add", f, Binary("add", f, f, FLOAT32), FLOAT32), "f[i] + (f[i] + f[i])"),
    (Call("exp2", (f,), FLOAT32), "exp2f(f[i])"),
    (Call("exp2", (d,), FLOAT64), "exp2(d[i])"),
    (Call("round", (f,), FLOAT32), "rintf(f[i])"),
    (Binary("add", h, h, FLOAT16), "to_half(to_float(h[i]) + to_float(h[i]))"),
    (Binary("add", Cast(h, FLOAT32), f, FLOAT32), "to_float(h[i]) + f[i]"),
    (Cast(Binary("mul", f, Const(0.1, FLOAT32), FLOAT32), BFLOAT16), "to_bfloat16(f[i] * 0.1f)"),
    (Binary("max", h, Unary("neg", h, FLOAT16), FLOAT16), "to_half(fmaxf(to_float(h[i]), -to_float(h[i])))"),
    (Cast(q, FLOAT16), "to_half(to_float(q[i]))"),
    (Cast(d, FLOAT16), "to_half(float_odd(d[i]))"),
    (Cast(f, BOOL), "f[i] != 0.0f"),
    (Cast(row, FLOAT16), "to_half((float)row)"),
    (Binary("pow", f, Const(3.0, FLOAT32), FLOAT32), "power(f[i], 3)"),
    (Call("isnan", (h,), BOOL), "is_nan(to_float(h[i]))"),
    (Call("popcount", (load("s", INT8),), INT32), "__popc((unsigned char)s[i])"),
    (Const(0.1, FLOAT32), "0.1f"),
    (Const(1e-40, FLOAT32), "1e-40f"),
    (Const(3.4028234663852886e38, FLOAT32), "3.4028235e38f"),
    (Const(16777217.0, FLOAT32), "16777216.0f"),
    (Const(-0.0, FLOAT32), "-0.0f"),
    (Const(0.1, FLOAT64), "0.1"),
    (Const(1e300, FLOAT64), "1e300"),
    (Const(1 / 3, FLOAT64), "0.3333333333333333"),
    (Const(0.0999755859375, FLOAT16), "to_half(0.1f)"),
    (Const(float("-inf"), FLOAT32), "-infinity()"),
    (Const(float("nan"), FLOAT64), "quiet_nan_f64()"),
    (c(-(2**31)), "(-2147483647 - 1)"),
    (c(-(2**63), INT64), "(-9223372036854775807LL - 1)"),
    (c(7, UINT32), "7u"),
    (Const(True, BOOL), "true"),
]  # fmt: skip


@pytest.mark.parametrize(("e", "wanted"), TEXTS, ids=[text for _, text in TEXTS])
def test_text(e: Expr, wanted: str) -> None:
    assert writer().expr(e) == wanted


def test_offsets() -> None:
    w = writer()
    assert w.offset([(tile_row, K), (col, 1)], wide=True) == "(long long)(by * 128 + row) * K + col"
    assert w.offset([(by, 65536), (row, 512), (col, 1)], wide=True) == "(long long)by * 65536 + row * 512 + col"
    assert w.offset([(by, K), (row, K), (col, 1)], wide=True) == "(long long)by * K + (long long)row * K + col"
    assert w.offset([(tile_row, 4096), (col, 1)], wide=False) == "(by * 128 + row) * 4096 + col"
    assert w.offset([(c(0), K), (col, 1)], wide=True) == "col"  # a pointer takes an index of any width
    assert w.offset([(n64, K), (col, 1)], wide=True) == "n * K + col"
    assert w.offset([(c(0), K), (c(0), 1)], wide=True) == "0"
    assert w.offset([(row, 64), (b("sub", col, 1), 1)], wide=False) == "row * 64 + (col - 1)"


def test_needs_name_the_entries() -> None:
    needed: set[str] = set()
    w = writer(needed)
    w.expr(Binary("add", h, h, FLOAT16))
    assert needed == {"to_half", "to_float_half"}
    needed.clear()
    w.expr(Cast(d, INT8))
    w.expr(Binary("mod", d, d, FLOAT64))
    w.expr(Call("sigmoid", (d,), FLOAT64))
    w.expr(b("mul", x, x))
    assert needed == {"to_int8_f64", "float_floor_mod_f64", "sigmoid_f64", "wrap_mul"}


def test_fast_math_only_on_request() -> None:
    table = [
        (Call("exp", (f,), FLOAT32), "expf(f[i])", "__expf(f[i])"),
        (Call("tanh", (f,), FLOAT32), "tanhf(f[i])", "tanh_approx(f[i])"),
        (Binary("div", f, f, FLOAT32), "f[i] / f[i]", "__fdividef(f[i], f[i])"),
        (Call("exp", (d,), FLOAT64), "exp(d[i])", "exp(d[i])"),
        (Binary("pow", f, f, FLOAT32), "powf(f[i], f[i])", "__powf(f[i], f[i])"),
    ]
    for e, exact, fast in table:
        assert writer().expr(e) == exact
        assert writer(fast_math=True).expr(e) == fast


def test_operands_are_parenthesised_on_demand() -> None:
    w = writer()
    assert w.operand(tile_row) == "(by * 128 + row)"
    assert w.operand(row) == "row"
    assert w.condition(Logical("and", Compare("lt", row, c(128)), Compare("lt", x, c(3)))) == "x < 3"
    assert w.as_float(Binary("max", h, h, FLOAT16)) == "fmaxf(to_float(h[i]), to_float(h[i]))"
