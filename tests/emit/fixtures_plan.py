"""Plans without a body, for what looks only at a kernel's outside: launcher, header, manifest."""

from __future__ import annotations

from dataclasses import replace

from tilec.analysis.facts import Facts
from tilec.diagnostics import Span
from tilec.ir.dtypes import FLOAT16, FLOAT32, INT32, INT64, DType
from tilec.ir.expr import Binary, Buffer, Call, Compare, Const, Expr, Logical, Scope, Var, VarKind
from tilec.ir.kernel import Kernel, Launch
from tilec.ir.tile import Seq
from tilec.plan.plan import HostCheck, LaunchPlan, Plan, PSeq, Variant
from tilec.targets import lookup

SPAN = Span("gemm.py", 6, 1, 6, 10)
TARGET = lookup("sm_80")
assert TARGET is not None

M, N, K = (Var(n, INT32, VarKind.EXTENT) for n in "MNK")


def c(value: int) -> Const:
    return Const(value, INT32)


def tensor(name: str, *shape: Expr, dtype: DType = FLOAT16) -> Buffer:
    return Buffer(name, dtype, shape, Scope.GLOBAL, span=SPAN)


def ceildiv(a: Expr, b: int) -> Expr:
    return Call("ceildiv", (a, c(b)), INT32)


def multiple(name_or_var: str | Var, n: int) -> Expr:
    var = Var(name_or_var, INT64, VarKind.PARAM) if isinstance(name_or_var, str) else name_or_var
    return Compare("eq", Binary("mod", var, Const(n, var.dtype), var.dtype), Const(0, var.dtype))


def both(*conditions: Expr) -> Expr:
    out = conditions[0]
    for e in conditions[1:]:
        out = Logical("and", out, e)
    return out


def variant(symbol: str, when: Expr | None, shared: int) -> Variant:
    return Variant(symbol=symbol, when=when, facts=Facts(), body=PSeq(()), placements={}, elements={}, shared_bytes=shared, registers=32)


def launch(grid: tuple[Expr, Expr, Expr], *variants: Variant, threads: int = 128) -> LaunchPlan:
    author = Launch((), (), None, (), Seq(()), span=SPAN)
    return LaunchPlan(author, grid, (threads, 1, 1), variants)


def gemm_plan() -> Plan:
    """An aligned and a general variant, run-time M, N, K, more than 48 KB of shared memory in one of them."""
    a, b, out = tensor("A", M, K), tensor("B", K, N), tensor("C", M, N, dtype=FLOAT32)
    kernel = Kernel("matmul", (a, b, out), (M, N, K), (), span=SPAN)
    aligned = both(multiple("A", 16), multiple("B", 16), multiple(K, 8), multiple(N, 8))
    grid = launch((ceildiv(N, 128), ceildiv(M, 64), c(1)), variant("matmul", aligned, 65536), variant("matmul__general", None, 16384))
    return Plan(
        kernel=kernel, symbol="matmul", target=TARGET, launches=(grid,), read=frozenset((a, b)), written=frozenset((out,)),
        flop=Binary("mul", Binary("mul", Binary("mul", c(2), M, INT64), N, INT64), K, INT64), checks=(HostCheck(Compare("le", K, c(4096)), "K is at most 4096"),),
    )  # fmt: skip


def odd_plan() -> Plan:
    """Two launches, a workspace, scalars of several types, and names that C++ reserves."""
    x = tensor("float", M, dtype=FLOAT32)
    flag, scale, n = Var("new", lookup_dtype("bool"), VarKind.PARAM), Var("h", FLOAT16, VarKind.PARAM), Var("n", INT64, VarKind.PARAM)
    kernel = Kernel("double", (flag, x, scale, n), (M,), (), span=SPAN)
    first = launch((Binary("floordiv", M, n, INT64), c(1), c(1)), variant("double_kernel", None, 0), threads=32)
    second = launch((Binary("sub", M, c(3), INT32), c(2), c(1)), variant("double_kernel__1", None, 0), threads=64)
    base = gemm_plan()
    return replace(
        base, kernel=kernel, symbol="double_kernel", launches=(first, second), read=frozenset(), written=frozenset((x,)),
        workspace=Binary("mul", M, c(4), INT64), checks=(),
    )  # fmt: skip


def lookup_dtype(name: str) -> DType:
    from tilec.ir.dtypes import lookup as find

    found = find(name)
    assert found is not None
    return found
