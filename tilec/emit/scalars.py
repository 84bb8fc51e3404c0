"""Scalar statements with an idiom of their own as CUDA text: atomics, printf, traps."""

from __future__ import annotations

from tilec.analysis.facts import Facts
from tilec.emit.cliteral import ctype
from tilec.emit.memory import Spelling
from tilec.emit.prelude import atomic_entry
from tilec.emit.render import render
from tilec.ir.dtypes import DType, Kind
from tilec.ir.expr import Binary, Const, Expr, Load, Var
from tilec.ir.tile import Atomic, Print, Trap


def atomic_text(spell: Spelling, s: Atomic, facts: Facts) -> str:
    """An atomic update of one element, dropped out of range; its old value where the author wants it."""
    spell.need(atomic_entry(s.op, s.buffer.dtype.name))
    place, kind = spell.place(s.buffer, s.indices, facts), ctype(s.buffer.dtype)

    def operand(e: Expr) -> str:  # C computes narrow integers as int and widens them by itself, but functions are chosen by type
        same = not e.dtype.is_int or (e.dtype.bits >= 32 and _plain(e))
        return spell.expr(e, facts) if same else f"static_cast<{kind}>({spell.expr(e, facts)})"

    call = f"atomic_{s.op}({', '.join([f'&{place}', *map(operand, s.operands)])})"
    checks = spell.checks(s.buffer, s.indices)
    before, after = _fences(s)
    if s.result is None:
        text = f"{before}{call};{after}"
        return render("parallel/if.cu.jinja", cond=spell.tests(checks, facts), then=text, orelse="") if checks else text
    value = f"{spell.tests(checks, facts)} ? {call} : {kind}{{}}" if checks else call
    return f"{before}const {kind} {spell.var(s.result)} = {value};{after}"


def _plain(e: Expr) -> bool:
    """True for arithmetic without a cast, which C may leave out where it is nothing but a widening."""
    match e:
        case Load() | Var() | Const():
            return True
        case Binary("add" | "sub" | "mul", a, b):
            return _plain(a) and _plain(b)
        case _:
            return False


def _fences(s: Atomic) -> tuple[str, str]:
    """What stands in front of and behind an atomic of a memory order; loads acquire and stores release by themselves."""
    before = s.order in ("release", "acq_rel", "seq_cst") and s.op != "store"
    after = s.order in ("acquire", "consume", "acq_rel", "seq_cst") and s.op != "load"
    strict = s.order == "seq_cst" and s.op in ("load", "store")
    return "__threadfence();\n" if before or strict else "", "\n__threadfence();" if after or strict else ""


def c_string(text: str) -> str:
    """A C string literal; bytes beyond printable ASCII as octal escapes."""
    out = []
    for byte in text.encode():
        char = chr(byte)
        if char in '\\"?':
            out.append("\\" + char)
        elif 32 <= byte < 127:
            out.append(char)
        else:
            out.append(f"\\{byte:03o}")
    return '"' + "".join(out) + '"'


def _format(dtype: DType) -> str:
    if dtype.is_float:
        return "%g"
    if dtype.kind is Kind.UINT:
        return "%llu" if dtype.bits == 64 else "%u"
    return "%lld" if dtype.bits == 64 else "%d"


def print_text(spell: Spelling, s: Print, facts: Facts) -> str:
    """printf with a format for each argument's type."""

    def argument(e: Expr) -> str:
        return f"static_cast<double>({spell.writer(facts).as_float(e)})" if e.dtype.is_float else spell.expr(e, facts)

    form = s.message.replace("%", "%%") + (" " if s.message and s.args else "") + " ".join(_format(e.dtype) for e in s.args) + "\n"
    return f"printf({', '.join([c_string(form), *(argument(e) for e in s.args)])});"


def trap_text(spell: Spelling, s: Trap, facts: Facts) -> str:
    """A check that ends the kernel with a message when it fails."""
    stop = f"printf({c_string(s.message.replace('%', '%%') + chr(10))});\n__trap();"
    return render("parallel/if.cu.jinja", cond=f"!({spell.expr(s.cond, facts)})", then=stop, orelse="")
