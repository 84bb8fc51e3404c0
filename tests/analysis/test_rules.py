"""What the analysis is expected to find out: a table of rewrites, ranges and proofs that plans rely on."""

from __future__ import annotations

import pytest

from tilec.analysis.affine import affine, coefficient, depends_on
from tilec.analysis.facts import Facts
from tilec.analysis.proofs import prove
from tilec.analysis.ranges import bounds, cannot_overflow, divisor, fits_int32
from tilec.analysis.simplify import simplify
from tilec.ir.dtypes import BOOL, FLOAT16, FLOAT32, INT8, INT32, INT64, UINT8, UINT32, UINT64, DType
from tilec.ir.expr import Binary, Buffer, Call, Cast, Compare, Const, Expr, Load, Logical, Scope, Select, Unary, Var, VarKind, const_int
from tilec.ir.kernel import Launch
from tilec.ir.tile import Seq



def ceildiv(a: Expr, n: int) -> Expr:
    return Call("ceildiv", (a, Const(n, a.dtype)), a.dtype)


M, N, K = (Var(n, INT32, VarKind.EXTENT) for n in "MNK")
bx, by = Var("bx", INT32, VarKind.BLOCK), Var("by", INT32, VarKind.BLOCK, 1)
t = Var("thread", INT32, VarKind.THREAD)
i, ko, x = Var("i"), Var("ko"), Var("x")
FACTS = (
    Facts()
    .with_index(by, ceildiv(M, 128))
    .with_index(bx, const_int(32))
    .with_range(t, 0, 127)
    .with_index(i, const_int(4))
    .with_loop(ko, const_int(0), ceildiv(K, 32), const_int(1))
    .with_divisor(K, 32)
)


def c(n: int, dtype: DType = INT32) -> Const:
    return Const(n, dtype)


def b(op: str, p: Expr, q: Expr | int) -> Binary:
    return Binary(op, p, c(q, p.dtype) if isinstance(q, int) else q, p.dtype)


def add(p: Expr, q: Expr | int) -> Binary:
    return b("add", p, q)


def mul(p: Expr, q: Expr | int) -> Binary:
    return b("mul", p, q)


def less(p: Expr, q: Expr | int) -> Compare:
    return Compare("lt", p, c(q, p.dtype) if isinstance(q, int) else q)


row = b("floordiv", t, 4)
col = mul(b("mod", t, 4), 8)
chunk = add(t, mul(i, 128))

REWRITES: list[tuple[Expr, Expr]] = [
    (add(mul(x, 1), 0), x),
    (mul(c(3), x), mul(x, 3)),
    (add(c(3), x), add(x, 3)),
    (b("sub", add(x, 5), 7), b("sub", x, 2)),
    (b("sub", add(x, by), x), by),
    (add(add(x, 2000000000), 2000000000), b("sub", x, 294967296)),
    (mul(mul(x, 4), 8), mul(x, 32)),
    (add(x, x), mul(x, 2)),
    (b("floordiv", t, 128), c(0)),
    (b("mod", t, 128), t),
    (b("floordiv", chunk, 128), i),
    (b("mod", chunk, 128), t),
    (b("mod", chunk, 32), b("mod", t, 32)),
    (b("floordiv", b("floordiv", x, 4), 8), b("floordiv", x, 32)),
    (b("mod", b("mod", x, 64), 8), b("mod", x, 8)),
    (b("mod", K, 32), c(0)),
    (mul(b("floordiv", K, 32), 32), K),
    (ceildiv(K, 32), b("floordiv", K, 32)),
    (ceildiv(c(4000), 128), c(32)),
    (Call("ceildiv", (c(-7), c(3)), INT32), c(-2)),
    (Call("ceildiv", (c(7), c(-3)), INT32), c(-2)),
    (Call("ceildiv", (c(2147483647), c(2)), INT32), c(1073741824)),
    (b("truncdiv", t, 4), b("floordiv", t, 4)),
    (b("min", t, 200), t),
    (b("max", t, 200), c(200)),
    (b("min", add(t, 1), t), t),
    (Select(less(t, 128), x, K, INT32), x),
    (Select(less(x, 3), K, K, INT32), K),
    (less(chunk, 512), Const(True, BOOL)),
    (Compare("gt", c(3), x), less(x, 3)),
    (Unary("not", less(x, 3), BOOL), Compare("ge", x, c(3))),
    (Logical("and", less(t, 128), less(x, 3)), less(x, 3)),
    (Logical("or", less(t, 1024), less(x, 3)), Const(True, BOOL)),
    (Cast(Cast(t, INT64), INT32), t),
    (Cast(c(300), UINT8), c(44, UINT8)),
    (Cast(c(3), FLOAT16), Const(3.0, FLOAT16)),
    (Cast(Const(0.1, FLOAT32), FLOAT16), Const(0.0999755859375, FLOAT16)),
    (add(c(127, INT8), 1), c(-128, INT8)),
    (add(c(2**63 - 1, UINT64), 2**63 - 1), c(2**64 - 2, UINT64)),
    (b("pow", c(-1), c(-3)), c(-1)),
    (b("and", x, -1), x),
    (b("shl", x, 0), x),
]  # fmt: skip


@pytest.mark.parametrize(("given", "wanted"), REWRITES, ids=range(len(REWRITES)))
def test_rewrites(given: Expr, wanted: Expr) -> None:
    assert simplify(given, FACTS) == wanted


def test_what_must_not_be_rewritten() -> None:
    """(x * 2) // 2 is not x when the product wraps; j % 7 has nothing to do with (32 * i + j) % 7; floats keep -0 and NaN."""
    kept = [b("floordiv", mul(x, 2), 2), b("mod", add(mul(i, 32), t), 7), b("floordiv", add(x, 32), 32)]
    f = Load(Buffer("F", FLOAT32, (c(1),), Scope.GLOBAL), (i,))
    kept += [Binary("add", f, Const(0.0, FLOAT32), FLOAT32), Binary("sub", f, f, FLOAT32), Binary("mul", f, Const(0.0, FLOAT32), FLOAT32)]
    for e in kept:
        assert simplify(e, FACTS) == e


def test_unsigned_sums_print_as_differences() -> None:
    u = Var("u", UINT32)
    assert simplify(add(add(u, 2), 2**32 - 5), FACTS) == b("sub", u, 3)


PROOFS: list[tuple[Expr, bool | None]] = [
    (less(add(mul(by, 128), row), M), None),
    (less(mul(by, 128), M), True),
    (less(add(mul(ko, 32), col), K), True),
    (less(add(mul(ko, 32), add(col, 8)), add(K, 1)), True),
    (less(add(mul(ko, 32), add(col, 9)), K), None),
    (less(ko, b("floordiv", K, 32)), True),
    (less(ko, K), True),
    (less(mul(ko, 32), K), True),
    (less(K, mul(ko, 32)), False),
    (Compare("le", mul(b("floordiv", M, 128), 128), M), True),
    (Compare("ge", mul(ceildiv(M, 128), 128), M), None),  # 128 * ceildiv(2^31 - 1, 128) wraps
    (Compare("eq", b("mod", add(mul(ko, 32), col), 8), c(0)), True),
    (Compare("eq", mul(x, 2), c(3)), None),  # x * 2 may wrap, but stays even: left open
    (Compare("ne", col, c(3)), True),
    (Compare("eq", add(x, 0), x), True),
    (less(add(x, 1), x), None),  # wraps at the largest x
    (less(add(t, 1), t), False),
    (less(mul(M, N), 0), None),
    (Logical("and", less(t, 128), Compare("ge", t, c(0))), True),
    (Unary("not", less(t, 128), BOOL), False),
    (less(b("min", x, M), add(M, 1)), None),
    (Compare("le", b("min", t, M), M), True),
    (Compare("lt", b("mod", M, 128), c(128)), True),
]


@pytest.mark.parametrize(("cond", "wanted"), PROOFS, ids=range(len(PROOFS)))
def test_proofs(cond: Expr, wanted: bool | None) -> None:
    assert prove(cond, FACTS) is wanted


def test_a_divisor_removes_the_guard() -> None:
    inside = less(add(mul(by, 128), row), M)
    assert prove(inside, FACTS) is None
    assert prove(inside, FACTS.with_divisor(M, 32)) is None
    assert prove(inside, FACTS.with_divisor(M, 128)) is True


def test_loops_with_steps_and_symbolic_ends() -> None:
    k = Var("k")
    by_step = Facts().with_loop(k, c(0), K, c(32)).with_divisor(K, 32)
    assert prove(less(add(k, 31), K), by_step) is True
    assert prove(less(add(k, 32), K), by_step) is None
    assert divisor(k, by_step) == 32
    down = Facts().with_loop(k, c(7), c(-1), c(-1))
    assert bounds(k, down) == (0, 7)
    late = Facts().with_loop(k, x, M, c(1)).with_range(x, 5)
    assert prove(Compare("ge", k, x), late) is True
    assert bounds(k, late)[0] == 5


def test_lets_are_seen_through_unless_they_read_memory() -> None:
    base = Var("base")
    facts = FACTS.with_let(base, mul(by, 128))
    assert prove(less(base, M), facts) is True
    assert divisor(base, facts) == 128
    loaded = Load(Buffer("P", INT32, (M,), Scope.GLOBAL), (i,))
    assert FACTS.with_let(base, loaded).about(base).equals is None


def test_a_bound_in_memory_may_change_after_the_loop_took_it() -> None:
    count = Load(Buffer("P", INT32, (M,), Scope.GLOBAL), (c(0),))
    k = Var("k")
    assert prove(less(k, count), Facts().with_index(k, count)) is None
    assert bounds(k, Facts().with_index(k, b("min", count, 64))) == (0, 63)


def test_assumptions() -> None:
    facts = Facts().assume(Logical("and", less(x, 10), Compare("ge", x, c(2))))
    assert bounds(x, facts) == (2, 9)
    assert divisor(x, Facts().assume(Compare("eq", b("mod", x, 8), c(0)))) == 8
    assert prove(less(x, M), Facts().assume(less(x, M))) is True
    assert bounds(x, Facts().assume(Unary("not", less(x, 4), BOOL)))[0] == 4
    assert bounds(x, Facts().assume(Compare("gt", c(4), x)))[1] == 3


def test_launch() -> None:
    launch = Launch((bx, by), (ceildiv(M, 128), c(7)), (32, 4, 1), (t,), Seq(()))
    facts = Facts().with_launch(launch)
    assert bounds(t, facts) == (0, 31)
    assert bounds(by, facts) == (0, 6)
    assert bounds(bx, facts) == (0, 16777215)
    assert bounds(t, Facts().with_launch(launch, (256, 1, 1))) == (0, 255)


def test_thirty_two_bits() -> None:
    index = add(mul(by, 128), row)
    assert cannot_overflow(index, FACTS)
    assert not fits_int32(mul(index, K), FACTS)
    assert not fits_int32(mul(M, N), FACTS)
    assert not cannot_overflow(mul(M, N), FACTS)
    small = FACTS.with_range(M, 1, 4096)
    assert fits_int32(mul(index, 4096), small)
    assert prove(Compare("ge", mul(ceildiv(M, 128), 128), M), small) is True
    assert not fits_int32(mul(add(mul(by, 128), row), 65536 * 9), small)
    assert fits_int32(Cast(mul(M, 8), INT64), small)


def test_linear_forms() -> None:
    form = affine(b("sub", add(mul(by, 128), row), 3))
    assert form.terms == {by: 128, row: 1}
    assert form.const == -3
    assert affine(b("sub", mul(K, row), mul(row, K))).terms == {}
    assert affine(mul(add(by, 1), add(K, 2))).const == 2
    assert coefficient(add(mul(by, 128), row), by) == 128
    assert coefficient(add(mul(by, 128), row), ko) == 0
    assert coefficient(mul(by, by), by) is None
    assert depends_on(row, (t,)) and not depends_on(row, (by,))
