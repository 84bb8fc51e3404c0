"""How expressions move inside a chunk: `width` neighbours along one variable, the first of them at a multiple of `width`.

    slope(k % C, j, 8, facts) with k = 32 * step + j and 8 dividing C  ->  1: the eight lie side by side
    slope(k // C, j, 8, facts)                                         ->  0: the same for all eight
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from tilec.record import record
from tilec.analysis.facts import Facts
from tilec.analysis.ranges import divisor
from tilec.ir.expr import Binary, Buffer, Call, Cast, Compare, Const, Expr, Load, Scope, Unary, Var
from tilec.ir.tile import Atomic, For, If, Let, Seq, Stmt, Store
from tilec.ir.visit import expr_children, flat, stmt_exprs, storage, walk_expr, walk_stmt


@record
class Chunk:
    """`width` neighbours along `var`; `facts` hold at the first of them, `opaque` are variables that may differ from one to another."""

    var: Var
    width: int
    facts: Facts
    opaque: frozenset[Var] = frozenset()


def slope(e: Expr, at: Chunk) -> int | None:
    """What `e` grows by from each element of a chunk to the next; None when it does not grow evenly."""
    match e:
        case Const():
            return 0
        case Var():
            return _variable(e, at)
        case Binary(op, a, b):
            return _binary(op, slope(a, at), slope(b, at), a, b, at)
        case Unary("neg", a):
            inner = slope(a, at)
            return None if inner is None else -inner
        case Cast(a) if a.dtype.is_int and e.dtype.is_int:
            return slope(a, at)
        case _:
            return 0 if same(e, at) else None


def _variable(v: Var, at: Chunk) -> int | None:
    if v is at.var:
        return 1
    value = at.facts.about(v).equals
    if value is not None and v in at.opaque:
        return slope(value, at)
    return None if v in at.opaque else 0


def _binary(op: str, a: int | None, b: int | None, x: Expr, y: Expr, at: Chunk) -> int | None:
    if a is None or b is None:
        return None
    match op:
        case "add":
            return a + b
        case "sub":
            return a - b
        case "mul" if b == 0 and isinstance(y, Const):
            return a * int(y.value)
        case "mul" if a == 0 and isinstance(x, Const):
            return b * int(x.value)
        case "mod" | "floordiv" if (a, b) == (1, 0) and divisor(x, at.facts) % at.width == 0 and divisor(y, at.facts) % at.width == 0:
            return 1 if op == "mod" else 0
        case _:
            return 0 if a == b == 0 else None


def same(e: Expr, at: Chunk) -> bool:
    """True when `e` has one value for all elements of a chunk; memory that it reads must not change meanwhile."""
    match e:
        case Const():
            return True
        case Var() | Binary() | Unary("neg") if e.dtype.is_int:
            return slope(e, at) == 0
        case Compare(op, a, b) if a.dtype.is_int:
            return _same_compare(op, a, b, at)
        case Load(buffer) if buffer.scope is Scope.FRAGMENT:
            return False
        case Var():
            return e not in at.opaque
        case _:
            return all(same(c, at) for c in expr_children(e))


def _same_compare(op: str, a: Expr, b: Expr, at: Chunk) -> bool:
    """x < n and x >= n come out alike for a whole chunk when they start at and compare with multiples of its width."""
    left, right = slope(a, at), slope(b, at)
    if left is None or right is None:
        return False
    if left == right:
        return left == 0
    whole = divisor(a, at.facts) % at.width == 0 and divisor(b, at.facts) % at.width == 0
    return whole and ((left, right, op) in ((1, 0, "lt"), (1, 0, "ge"), (0, 1, "gt"), (0, 1, "le")))


@record
class Nest:
    """A loop body as chunks see it: `lead`, once a chunk; then `cond` and the nest under it, or `each`, element by element.

    Numbers in `lead` that are not the same for all elements are those of the first one, for accesses of whole chunks; they stand
    in `each` again. `facts` are those of an element behind `lead`.
    """

    lead: tuple[Let, ...]
    cond: If | None
    under: Nest | None
    each: tuple[Stmt, ...]
    facts: Facts


def nest(body: Sequence[Stmt], at: Chunk, facts: Facts, carried: tuple[Let, ...] = ()) -> Nest:
    """Cuts a body. `facts` are those in front of it for one element, `at.facts` those for the first element of a chunk.

    `carried` are names from further out that differ from element to element.
    """
    lead: list[Let] = []
    moving: list[Stmt] = list(carried)
    rest = list(body)
    while rest and isinstance(rest[0], Let):
        s = rest.pop(0)
        assert isinstance(s, Let)
        steady = _steady(s.value, at, body)
        if steady or _is_place(s):
            lead.append(s)
        if not steady:
            moving.append(s)
        facts = facts.with_let(s.var, s.value)
        at = Chunk(at.var, at.width, at.facts.with_let(s.var, s.value), at.opaque - {s.var} if steady else at.opaque)
    if len(rest) == 1 and isinstance(rest[0], If) and not flat(rest[0].orelse) and _steady(rest[0].cond, at, body):
        s = rest[0]
        deeper = Chunk(at.var, at.width, at.facts.assume(s.cond), at.opaque)
        names = tuple(x for x in moving if isinstance(x, Let))
        return Nest(tuple(lead), s, nest(flat(s.then), deeper, facts.assume(s.cond), names), (), facts)
    return Nest(tuple(lead), None, None, (*moving, *rest), facts)


def _is_place(s: Let) -> bool:
    """True for a number that an index may be made of: it costs nothing to compute it twice."""
    return s.var.dtype.is_int and not any(isinstance(e, Load) for e in walk_expr(s.value))


def _steady(e: Expr, at: Chunk, body: Sequence[Stmt]) -> bool:
    written = {storage(s.buffer) for top in body for s in walk_stmt(top) if isinstance(s, Store | Atomic)}
    return same(e, at) and not any(isinstance(x, Load) and storage(x.buffer) in written for x in walk_expr(e))


def bound_inside(body: Iterable[Stmt]) -> frozenset[Var]:
    """The names that a loop body binds: they may differ from element to element."""
    return frozenset(s.var for top in body for s in walk_stmt(top) if isinstance(s, Let | For))


def can_go_together(body: Sequence[Stmt], adds: Callable[[Stmt], bool]) -> bool:
    """True when a body is made of statements that can be run for a chunk of elements: no effect but stores, and atomics that `adds`
    knows to have an instruction for chunks."""
    return all((isinstance(s, Store | Let | If | Seq | For) or adds(s)) and not _foreign(s) for top in body for s in walk_stmt(top))


def _foreign(s: Stmt) -> bool:
    """True when a statement calls a function of the author's own."""
    return any(isinstance(e, Call) and e.foreign for root in stmt_exprs(s) for e in walk_expr(root))


def own_accesses(nested: Nest) -> list[tuple[Stmt, Facts]]:
    """The statements of `nested` whose memory accesses may move a whole chunk, with the facts in front of each."""
    if nested.under is not None:
        return own_accesses(nested.under)
    out: list[tuple[Stmt, Facts]] = []
    facts = nested.facts
    for s in nested.each:
        if isinstance(s, Let | Store | Atomic):
            out.append((s, facts))
        if isinstance(s, Let):
            facts = facts.with_let(s.var, s.value)
    return out


def own_elements(s: Stmt) -> Iterator[tuple[Buffer, tuple[Expr, ...]]]:
    """The element accesses of one scalar statement."""
    for root in stmt_exprs(s):
        for e in walk_expr(root):
            if isinstance(e, Load):
                yield e.buffer, e.indices
    if isinstance(s, Store | Atomic):
        yield s.buffer, s.indices


def apart(body: Sequence[Stmt]) -> bool:
    """True when elements can be run side by side: nothing read from memory is stored by the same body, unless it is the very
    element, read in front of the store."""
    stores = [s for top in body for s in walk_stmt(top) if isinstance(s, Store)]
    before: set[tuple[object, tuple[Expr, ...]]] = set()
    own = {(s.buffer, s.indices) for s in stores}
    written = {storage(s.buffer) for s in stores}
    for s in (x for top in body for x in walk_stmt(top)):
        for root in stmt_exprs(s):
            for e in walk_expr(root):
                if not isinstance(e, Load) or storage(e.buffer) not in written:
                    continue
                key = (e.buffer, e.indices)
                if key not in own or (key in before and e.buffer.scope in (Scope.GLOBAL, Scope.SHARED)):
                    return False
        if isinstance(s, Store):
            before.add((s.buffer, s.indices))
    return True
