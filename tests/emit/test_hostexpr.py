"""Host expressions: the manifest's text and the launcher's C++ must give the same numbers as Python does."""

import itertools
import random
import subprocess
from pathlib import Path

import pytest

from tilec.diagnostics import CompileError
from tilec.emit.hosteval import HostExprError, evaluate
from tilec.emit.hostexpr import HELPERS, CxxWriter, manifest_text
from tilec.ir.dtypes import FLOAT32, INT32, INT64, UINT32
from tilec.ir.expr import Binary, Buffer, Call, Compare, Const, Expr, Load, Logical, Scope, Select, Unary, Var, VarKind

M = Var("M", INT32, VarKind.EXTENT)
N = Var("N", INT32, VarKind.EXTENT)
L = Var("L", INT64, VarKind.EXTENT)
P = Var("p", INT32, VarKind.PARAM)
U = Var("u", UINT32, VarKind.PARAM)
VARS = (M, N, L, P, U)


def c(value: int) -> Const:
    return Const(value, INT64)


def op(name: str, a: Expr, b: Expr) -> Expr:
    return Binary(name, a, b, INT64)


def ceildiv(a: Expr, b: Expr) -> Expr:
    return Call("ceildiv", (a, b), INT64)


TABLE: list[Expr] = [
    ceildiv(M, c(128)),
    op("mul", ceildiv(M, c(128)), ceildiv(N, c(64))),
    op("mul", op("mul", M, N), c(2)),
    op("sub", M, op("sub", N, P)),
    op("floordiv", op("sub", M, N), c(3)),
    op("mod", op("sub", P, M), c(7)),
    op("floordiv", M, op("add", N, c(1))),
    op("mod", L, op("add", M, c(1))),
    op("min", op("add", M, U), op("max", P, L)),
    Unary("neg", op("add", M, N), INT64),
    op("sub", U, c(5)),
    op("shl", M, c(4)),
    op("shr", op("sub", M, N), c(2)),
    ceildiv(op("sub", M, N), c(-3)),
    ceildiv(P, c(-7)),
    Compare("eq", op("mod", M, c(8)), c(0)),
    Logical("and", Compare("lt", M, N), Logical("or", Compare("ge", P, c(0)), Compare("ne", L, c(1)))),
    Unary("not", Compare("le", M, P), INT32),
    Select(Compare("lt", M, N), op("add", M, N), op("mul", P, c(3)), INT64),
    op("mul", Select(Compare("lt", M, N), M, N, INT64), Select(Compare("gt", P, c(0)), P, c(1), INT64)),
    op("mul", op("mul", op("mul", M, N), L), c(1000)),
    op("add", op("mul", L, c(4)), op("mul", L, c(4))),
]

SMALL = [dict(zip("MNLpu", v, strict=True)) for v in itertools.product((0, 1, 31, 128), (0, 5, 130), (0, 1, 1 << 40), (-9, 0, 64), (0, 3))]
LARGE = [{"M": 2**31 - 1, "N": 2**31 - 1, "L": 2**62, "p": p, "u": 2**32 - 1} for p in (-(2**31), -1, 2**31 - 1)]


def python_value(e: Expr, env: dict[str, int]) -> int:
    """An evaluator that is written apart from the code under test: big integers, Python's own operators."""
    match e:
        case Const(value):
            return int(value)
        case Var(name):
            return env[name]
        case Unary(o, a):
            return -python_value(a, env) if o == "neg" else int(not python_value(a, env))
        case Call("ceildiv", (a, b)):
            return -((-python_value(a, env)) // python_value(b, env))
        case Select(k, a, b):
            return python_value(a if python_value(k, env) else b, env)
        case Logical(o, a, b):
            x, y = bool(python_value(a, env)), bool(python_value(b, env))
            return int((x and y) if o == "and" else (x or y))
        case Binary(o, a, b) | Compare(o, a, b):
            x, y = python_value(a, env), python_value(b, env)
            return int(
                {"add": lambda: x + y, "sub": lambda: x - y, "mul": lambda: x * y, "floordiv": lambda: x // y, "mod": lambda: x % y,
                 "min": lambda: min(x, y), "max": lambda: max(x, y), "shl": lambda: x << y, "shr": lambda: x >> y, "eq": lambda: x == y,
                 "ne": lambda: x != y, "lt": lambda: x < y, "le": lambda: x <= y, "gt": lambda: x > y, "ge": lambda: x >= y}[o]()
            )  # fmt: skip
    raise AssertionError(e)


@pytest.mark.parametrize("e", TABLE, ids=manifest_text)
def test_the_text_of_the_manifest_means_what_the_expression_means(e: Expr) -> None:
    text = manifest_text(e)
    for env in (*SMALL, *LARGE):
        assert evaluate(text, env) == python_value(e, env), env


def test_cxx_agrees_and_saturates(tmp_path: Path, require_tool) -> None:
    """All expressions in one program, compiled with signed overflow trapped; sizes beyond 2^63 stay at the end of the range."""
    gxx = require_tool("g++")
    functions = []
    for i, e in enumerate(TABLE):
        writer = CxxWriter(lambda v: v.name)
        text = writer.write(e).text
        lambdas = "".join(f"  const auto {h} = {HELPERS[h]};\n" for h in sorted(writer.helpers))
        functions.append(f"long long f{i}(int M, int N, long long L, int p, unsigned u) {{\n{lambdas}  return {text};\n}}\n")
    calls = "".join(f'    std::printf("%lld\\n", f{i}(M, N, L, p, u));\n' for i in range(len(TABLE)))
    main = (
        "int main() {\n  long long M, N, L, p, u;\n"
        '  while (std::scanf("%lld %lld %lld %lld %lld", &M, &N, &L, &p, &u) == 5) {\n' + calls + "  }\n}\n"
    )
    (tmp_path / "t.cpp").write_text("#include <cstdio>\n" + "".join(functions) + main)
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-fsanitize=signed-integer-overflow"]
    trap = ["-fno-sanitize-recover=all"]
    subprocess.run([gxx, *flags, *trap, "t.cpp", "-o", "t"], cwd=tmp_path, check=True)
    envs = [*SMALL, *LARGE]
    feed = "\n".join(" ".join(str(env[n]) for n in "MNLpu") for env in envs)
    out = subprocess.run([tmp_path / "t"], input=feed, capture_output=True, text=True, check=True).stdout.split()
    assert len(out) == len(envs) * len(TABLE)
    results = iter(map(int, out))
    for env in envs:
        for e in TABLE:
            want = python_value(e, env)
            got = next(results)
            if abs(want) < 2**63 - 2**40:
                assert got == want, (manifest_text(e), env)
            else:
                assert abs(got) >= 2**62 and (got < 0) == (want < 0), (manifest_text(e), env)


def test_addresses_are_tested_for_alignment() -> None:
    address = Var("A", INT64, VarKind.PARAM)
    writer = CxxWriter(lambda v: v.name, {"A": "A_"})
    both = Logical("and", Compare("eq", op("mod", address, c(16)), c(0)), Compare("eq", op("mod", M, c(8)), c(0)))
    assert writer.condition(both) == "aligned(A_, 16) && M % 8 == 0"
    assert manifest_text(both) == "A % 16 == 0 and M % 8 == 0"


def test_what_no_host_can_compute_is_an_error() -> None:
    tensor = Buffer("T", INT32, (c(4),), Scope.GLOBAL)
    for e in (Load(tensor, (c(0),)), Call("exp", (M,), FLOAT32), Const(1.5, FLOAT32)):
        with pytest.raises(CompileError, match="TL0405"):
            manifest_text(e)
        with pytest.raises(CompileError, match="TL0405"):
            CxxWriter(lambda v: v.name).write(e)


@pytest.mark.parametrize("text", ["", "1 +", "M)", "(M", "M N", "f(1)", "ceildiv(1)", "__import__('os')", "1 if 2", "M // 0", "K", "1.5", "a.b", "M = 1"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(HostExprError):
        evaluate(text, {"M": 4, "N": 3})


def test_only_the_taken_side_counts() -> None:
    assert evaluate("1 if M == 0 else 8 // M", {"M": 0}) == 1
    assert evaluate("M == 0 or 8 // M > 1", {"M": 0}) == 1
    assert evaluate("M != 0 and 8 // M > 1", {"M": 0}) == 0


def test_deep_parentheses_are_read_once() -> None:
    assert evaluate("(" * 60 + "M" + ")" * 60, {"M": 3}) == 3


def test_random_trees_survive_the_trip_through_text() -> None:
    rng = random.Random(7)

    def tree(depth: int) -> Expr:
        if depth == 0:
            return rng.choice([M, N, P, c(rng.randrange(1, 9)), c(-rng.randrange(1, 9))])
        name = rng.choice(["add", "sub", "mul", "min", "max", "floordiv", "mod"])
        right = c(rng.choice([-5, 3, 8])) if name in ("floordiv", "mod") else tree(depth - 1)
        return op(name, tree(depth - 1), right)

    env = {"M": 37, "N": 5, "p": -11}
    for _ in range(200):
        e = tree(3)
        assert evaluate(manifest_text(e), env) == python_value(e, env), manifest_text(e)
