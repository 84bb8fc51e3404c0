"""How much work a kernel is: floating-point operations of its GEMMs and bytes of its tensors, as host expressions."""

from __future__ import annotations

from tilec.analysis.teams import Teams, by_hand
from tilec.ir.dtypes import INT64, Kind
from tilec.ir.expr import Binary, Buffer, Call, Cast, Compare, Const, Expr, Logical, Select, Var
from tilec.ir.kernel import Kernel
from tilec.ir.tile import For, Gemm, If, Parallel, Seq, Stmt, While
from tilec.ir.visit import walk_expr
from tilec.plan.domains import cast


def _times(a: Expr, b: Expr) -> Expr:
    if isinstance(a, Const) and isinstance(b, Const):
        return Const(int(a.value) * int(b.value), INT64)
    if isinstance(a, Const) and a.value == 1:
        return cast(b, INT64)
    if isinstance(b, Const) and b.value == 1:
        return cast(a, INT64)
    return Binary("mul", cast(a, INT64), cast(b, INT64), INT64)


def _plus(a: Expr, b: Expr) -> Expr:
    if isinstance(a, Const) and a.value == 0:
        return b
    if isinstance(b, Const) and b.value == 0:
        return a
    if isinstance(a, Const) and isinstance(b, Const):
        return Const(int(a.value) + int(b.value), INT64)
    return Binary("add", a, b, INT64)


def _product(parts: tuple[Expr, ...]) -> Expr:
    out: Expr = Const(1, INT64)
    for p in parts:
        out = _times(out, p)
    return out


def _in_body(s: Stmt, host: frozenset[Var], teams: Teams | None = None) -> Expr | None:
    """Operations of one run of `s`; None when they depend on the device."""
    match s:
        case Gemm():
            k = s.b.extents[-1 if s.trans_b else -2]
            return _product((Const(2, INT64), *s.c.extents[-2:], k))
        case Seq(body):
            total: Expr = Const(0, INT64)
            for child in body:
                one = _in_body(child, host, teams)
                if one is None:
                    return None
                total = _plus(total, one)
            return total
        case For():
            inside = _in_body(s.body, host, teams)
            if inside is None or (isinstance(inside, Const) and inside.value == 0):
                return inside
            start, step = s.start, s.step
            plain = isinstance(start, Const) and start.value == 0 and isinstance(step, Const) and step.value == 1
            if not (plain and _on_host(s.stop, host)):
                return None
            return _times(inside, s.stop)
        case If(cond, then, orelse) if teams is not None and teams.takers(cond, teams.block) is not None:
            sides = _in_body(then, host, teams), _in_body(orelse, host, teams)  # each is done by the threads that take it
            return None if sides[0] is None or sides[1] is None else _plus(sides[0], sides[1])
        case If() | While() | Parallel():
            return None if _has_gemm(s) else Const(0, INT64)
        case _:
            return Const(0, INT64)


def _on_host(e: Expr, host: frozenset[Var]) -> bool:
    """True when the host can compute `e`: the grammar of the manifest's expressions."""

    def can(x: Expr) -> bool:
        match x:
            case Var():
                return x in host
            case Binary(op):
                return op in ("add", "sub", "mul", "floordiv", "mod", "min", "max")
            case Call(name):
                return name in ("min", "max", "ceildiv")
            case Const() | Cast() | Compare() | Logical() | Select():
                return True
            case _:
                return False

    return all(can(x) and x.dtype.kind is not Kind.FLOAT for x in walk_expr(e))


def _has_gemm(s: Stmt) -> bool:
    from tilec.ir.visit import walk_stmt

    return any(isinstance(x, Gemm) for x in walk_stmt(s))


def count_flop(kernel: Kernel) -> Expr | None:
    """Operations of all GEMMs, tails counted as whole tiles; None when they cannot be told beforehand."""
    host = frozenset(p for p in (*kernel.params, *kernel.extents) if isinstance(p, Var))
    total: Expr = Const(0, INT64)
    for launch in kernel.launches:
        one = _in_body(launch.body, host, Teams.of(launch) if by_hand(launch.body) else None)
        if one is None:
            return None
        if one != Const(0, INT64):
            total = _plus(total, _times(one, _product(launch.grid)))
    return total


def count_bytes(kernel: Kernel, read: frozenset[Buffer], written: frozenset[Buffer]) -> Expr:
    """Bytes of the tensors, each counted once as read and once as written."""
    total: Expr = Const(0, INT64)
    for b in kernel.params:
        if isinstance(b, Buffer):
            times = (b in read) + (b in written)
            total = _plus(total, _product((Const(times * b.dtype.bytes, INT64), *b.shape)))
    return total


