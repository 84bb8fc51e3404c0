"""T.Persistent: which tiles of a domain fall to one block, as ordinary loops.

Tile number t = wave * wave_size + index. Its coordinates are the digits of t in the mixed radix (groups, ..., group_size):
the last dimension is walked in groups of `group_size`, inside of which the first dimension runs.
"""

from __future__ import annotations

from collections.abc import Callable

from tilec.diagnostics import Span
from tilec.frontend.machine import Machine
from tilec.ir.dtypes import INT32
from tilec.ir.expr import Const, Expr, Var, VarKind
from tilec.ir.tile import For, If, Let, Seq
from tilec.language import arith
from tilec.language.host import ceildiv
from tilec.language.values import LoopSpec, Value


def record_persistent(
    m: Machine, spec: LoopSpec, names: tuple[str, ...], places: list[Span], span: Span, body: Callable[[list[Expr]], Seq]
) -> None:
    """Records the loop; `body` is called once with the coordinates and gives what runs for a tile inside the domain."""
    b = m.b
    b.span = spec.span
    *outer, last = spec.extents
    group = min(spec.options["group_size"], last) if isinstance(last, int) else spec.options["group_size"]
    radix = [ceildiv(b, last, group), *outer, group]
    total: Value = 1
    for r in radix:
        total = _mul(m, total, r)
    waves = arith.as_expr(b, ceildiv(b, total, spec.options["wave_size"]), INT32)
    wave = Var("wave", INT32, VarKind.LOOP, span=span)
    with b.block() as inner:
        number = arith.binary(b, "add", arith.binary(b, "mul", wave, spec.options["wave_size"]), spec.options["index"])
        digits = _digits(m, number, radix)
        coordinates = [*digits[1:-1], arith.binary(b, "add", arith.binary(b, "mul", digits[0], group), digits[-1])]
        variables: list[Expr] = []
        for name, place, value in zip(names, places, coordinates, strict=True):
            var = Var(name, value.dtype, VarKind.LET, span=place)
            variables.append(var)
            b.emit(Let(var, value, place))
        inside: Value = arith.compare(b, "lt", variables[-1], last)
        inside = arith.logical(b, "and", arith.compare(b, "lt", number, total), inside)
        b.emit(If(inside, body(variables), Seq(()), span))
    b.emit(For(wave, Const(0, INT32), waves, Const(1, INT32), "serial", Seq(tuple(inner), span), None, span))


def _digits(m: Machine, number: Expr, radix: list[Value]) -> list[Expr]:
    """The digits of `number`, most significant first."""
    digits: list[Expr] = []
    for r in reversed(radix[1:]):
        digits.append(arith.binary(m.b, "mod", number, r))
        number = arith.binary(m.b, "floordiv", number, r)
    return [number, *reversed(digits)]


def _mul(m: Machine, a: Value, b: Value) -> Value:
    return a * b if isinstance(a, int) and isinstance(b, int) else arith.binary(m.b, "mul", a, b)
