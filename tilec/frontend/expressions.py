"""Expressions: host operands are computed at once, an operand of the device makes Tile IR.

    block * 2 + 1 with block = 64   ->  129
    bx * 64 + i                     ->  Binary("add", Binary("mul", bx, 64), i)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from functools import partial

import libcst as cst

from tilec.diagnostics import Span
from tilec.frontend import hostops
from tilec.frontend.builtins import BUILTINS
from tilec.frontend.calls import check_names
from tilec.frontend.classes import parts, same, special
from tilec.frontend.enums import by_name
from tilec.frontend.machine import Machine, is_device
from tilec.frontend.names import bind, lookup, target_names
from tilec.frontend.syntax import parameters
from tilec.frontend.texts import written
from tilec.frontend.values import Builtin, ClassValue, EnumMember, Frame, Function, Instance, Iter, Super, View
from tilec.ir.dtypes import BOOL
from tilec.ir.expr import Buffer, Expr
from tilec.ir.tile import Let
from tilec.ir.visit import substitute
from tilec.language import arith, lanes, vectors
from tilec.language.host_tensors import HostTensor, combined
from tilec.language.values import Primitive, Ref, Slice, Value, Vec

BINARY = {
    cst.Add: "add", cst.Subtract: "sub", cst.Multiply: "mul", cst.Divide: "div", cst.FloorDivide: "floordiv", cst.Modulo: "mod",
    cst.Power: "pow", cst.BitAnd: "and", cst.BitOr: "or", cst.BitXor: "xor", cst.LeftShift: "shl", cst.RightShift: "shr",
}  # fmt: skip
AUGMENTED = {
    cst.AddAssign: "add", cst.SubtractAssign: "sub", cst.MultiplyAssign: "mul", cst.DivideAssign: "div",
    cst.FloorDivideAssign: "floordiv", cst.ModuloAssign: "mod", cst.PowerAssign: "pow", cst.BitAndAssign: "and",
    cst.BitOrAssign: "or", cst.BitXorAssign: "xor", cst.LeftShiftAssign: "shl", cst.RightShiftAssign: "shr",
}  # fmt: skip
_COMPARE = {
    cst.Equal: "eq", cst.NotEqual: "ne", cst.LessThan: "lt", cst.LessThanEqual: "le", cst.GreaterThan: "gt",
    cst.GreaterThanEqual: "ge", cst.In: "in", cst.NotIn: "not_in", cst.Is: "is", cst.IsNot: "is_not",
}  # fmt: skip
_UNARY = {cst.Minus: "neg", cst.Plus: "pos", cst.BitInvert: "invert"}


def evaluate(m: Machine, node: cst.CSTNode, frame: Frame) -> Value:
    """The value of an expression. Raises CompileError for Python that is not understood or not allowed."""
    m.step(node, frame)
    match node:
        case cst.Name(value=name):
            return lookup(m, frame, name, frame.source.span(node), BUILTINS)
        case cst.Integer(value=text):
            return _integer(m, text, frame.source.span(node))
        case cst.Float(value=text):
            return float(text.replace("_", ""))
        case cst.Call():
            return _call(m, node, frame)
        case cst.Attribute(value=owner, attr=attr):
            return m.attribute(m.eval(owner, frame), attr.value, frame.source.span(node))
        case cst.Subscript():
            return subscript(m, node, frame)
        case cst.BinaryOperation(left=left, operator=op, right=right):
            name = BINARY.get(type(op), "")
            return binary(m, name, m.eval(left, frame), m.eval(right, frame), frame.source.span(node))
        case cst.UnaryOperation(operator=cst.Not()):
            return condition(m, node, frame)
        case cst.UnaryOperation(operator=op, expression=operand):
            return _unary(m, op, m.eval(operand, frame), frame.source.span(node))
        case cst.Comparison():
            return _comparison(m, node, frame)
        case cst.BooleanOperation():
            return _boolean(m, node, frame)
        case cst.IfExp():
            return _ternary(m, node, frame)
        case cst.SimpleString() | cst.ConcatenatedString() | cst.FormattedString():
            return written(m, node, frame)
        case cst.Tuple(elements=elements):
            return tuple(_elements(m, elements, frame))
        case cst.List(elements=elements):
            return m.own(list(_elements(m, elements, frame)))
        case cst.Set(elements=elements):
            with m.host(frame.source.span(node)):
                return m.own({hostops.key(v) for v in _elements(m, elements, frame)})
        case cst.Dict():
            return m.own(_dict(m, node, frame))
        case cst.Lambda():
            return _lambda(m, node, frame)
        case cst.GeneratorExp() | cst.ListComp() | cst.SetComp() | cst.DictComp():
            return m.own(_comprehension(m, node, frame))
        case cst.NamedExpr(target=target, value=value):
            return _walrus(m, target, m.eval(value, frame), frame)
        case cst.Ellipsis():
            return Ellipsis
        case cst.Yield():
            text = "`yield` is only supported as a statement of its own, in a function that host code calls"
            raise m.fail("TL0102", text, frame.source.span(node))
        case _:
            text = f"this kind of expression ({type(node).__name__}) is not supported"
            raise m.fail("TL0102", text, frame.source.span(node))


def _integer(m: Machine, text: str, span: Span) -> int:
    with m.host(span):
        digits = text.replace("_", "")
        if len(digits) > hostops.MAX_BITS // 3:
            raise hostops.HostError(f"an integer literal of {len(digits)} digits is too large")
        try:
            return int(hostops.checked(int(digits, 0)))
        except ValueError:
            raise hostops.HostError(f"`{text[:40]}` is not an integer") from None


def binary(m: Machine, op: str, a: Value, b: Value, span: Span) -> Value:
    """`a op b`, on the host when both sides are host values."""
    if not op:
        raise m.fail("TL0102", "the operator `@` is not supported", span, help="use T.gemm")
    if is_device(a) or is_device(b):
        _scalar_operand(m, a, span)
        _scalar_operand(m, b, span)
        m.b.span = span
        return vectors.binary(m.b, op, a, b)
    if isinstance(a, HostTensor) or isinstance(b, HostTensor):
        return _of_tensors(m, a, b, span)
    made = _operator(m, op, a, b, span)
    if made is not NotImplemented:
        return made
    with m.host(span):
        result = hostops.binary(op, a, b)
    if isinstance(result, (list, tuple, str)):
        m.spend(len(result) if not isinstance(result, str) else len(result) // 16, span)
    return m.own(result)


def _of_tensors(m: Machine, a: Value, b: Value, span: Span) -> Value:
    """The result of an operation on tensors of the host program, of which only the size is known."""
    found = combined(a, b)
    if found is None:
        raise m.fail("TL0108", f"{hostops.kind(a)} and {hostops.kind(b)} cannot be combined", span)
    return found


_SPECIAL = {
    "add": "add", "sub": "sub", "mul": "mul", "div": "truediv", "floordiv": "floordiv", "mod": "mod", "pow": "pow", "and": "and",
    "or": "or", "xor": "xor", "shl": "lshift", "shr": "rshift", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge",
}  # fmt: skip
_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


def _operator(m: Machine, op: str, a: Value, b: Value, span: Span) -> Value:
    """`a op b` by a method of a class of the user's; NotImplemented when there is none."""
    if not isinstance(a, (Instance, EnumMember)) and not isinstance(b, (Instance, EnumMember)):
        return NotImplemented
    made = special(m, a, f"__{_SPECIAL[op]}__", (b,), span)
    if made is NotImplemented:
        mirrored = f"__{_MIRRORED[op]}__" if op in _MIRRORED else f"__r{_SPECIAL[op]}__"
        made = special(m, b, mirrored, (a,), span)
    left, right = parts(a), parts(b)
    if made is NotImplemented and (left is not None or right is not None):
        return _plain_operator(m, op, left if left is not None else a, right if right is not None else b, span)
    return made


def _plain_operator(m: Machine, op: str, a: Value, b: Value, span: Span) -> Value:
    with m.host(span):
        return hostops.compare(op, a, b) if op in _MIRRORED else hostops.binary(op, a, b)


def _scalar_operand(m: Machine, value: Value, span: Span) -> None:
    """Refuses strings, lists and the like beside a run-time value."""
    if not is_device(value) and not isinstance(value, (int, float)):
        raise m.fail("TL0301", f"{hostops.kind(value)} cannot be combined with a run-time value", span)


def _unary(m: Machine, op: cst.BaseUnaryOp, value: Value, span: Span) -> Value:
    m.b.span = span
    name = _UNARY[type(op)]
    if is_device(value):
        return vectors.unary(m.b, name, value)
    with m.host(span):
        return hostops.unary(name, value)


def truth(m: Machine, value: Value, span: Span) -> bool | Expr:
    """`bool(value)`: True or False on the host, an expression for a run-time value."""
    if is_device(value):
        if isinstance(value, Buffer) and value.rank:
            raise m.fail("TL0301", f"`{value.name}` is a whole tile and has no truth value", span, help="compare an element of it")
        m.b.span = span
        return arith.truth(m.b, value)
    if isinstance(value, (str, list, tuple, dict, set, frozenset, range)):
        return len(value) > 0
    if value is None or isinstance(value, (int, float)):
        return bool(value)
    for name in ("__bool__", "__len__"):
        told = special(m, value, name, (), span)
        if told is not NotImplemented:
            return truth(m, told, span)
    return parts(value) != ()


def compare(m: Machine, op: str, a: Value, b: Value, span: Span) -> Value:
    """`a op b` for one comparison operator."""
    if not (is_device(a) or is_device(b)) or op in ("is", "is_not"):
        told = _instances(m, op, a, b, span)
        if told is not NotImplemented:
            return told
        with m.host(span):
            return hostops.compare(op, a, b.items() if isinstance(b, View) else m.iterate(b, span) if isinstance(b, Iter) else b)
    if op in ("in", "not_in"):
        raise m.fail("TL0301", "`in` needs values that are known while compiling", span, help="write the comparisons out")
    if op in ("eq", "ne") and not all(is_device(v) or isinstance(v, (int, float)) for v in (a, b)):
        return op == "ne"
    _scalar_operand(m, a, span)
    _scalar_operand(m, b, span)
    m.b.span = span
    return vectors.compare(m.b, op, a, b)


def _instances(m: Machine, op: str, a: Value, b: Value, span: Span) -> Value:
    """A comparison with an instance of a class of the user's; NotImplemented when there is none."""
    match op:
        case "eq" | "ne":
            told = same(m, a, b, span)
            return told if op == "eq" or told is NotImplemented else not truth(m, told, span)
        case "in" | "not_in" if isinstance(b, (list, tuple)) and any(isinstance(v, Instance) for v in (a, *b)):
            return any(compare(m, "eq", a, v, span) is True for v in b) == (op == "in")
        case "in" | "not_in":
            told = special(m, b, "__contains__", (a,), span)
            values = list(m.iterate(b, span)) if told is NotImplemented and (parts(b) is not None or isinstance(b, ClassValue)) else None
            if values is not None:
                return any(compare(m, "eq", a, v, span) is True for v in values) == (op == "in")
            return told if op == "in" or told is NotImplemented else not truth(m, told, span)
        case "lt" | "le" | "gt" | "ge":
            return _operator(m, op, a, b, span)
        case _:
            return NotImplemented


def _comparison(m: Machine, node: cst.Comparison, frame: Frame) -> Value:
    span = frame.source.span(node)
    left = m.eval(node.left, frame)
    result: Value = True
    for part in node.comparisons:
        op = _COMPARE[type(part.operator)]
        if result is False:
            return False
        if result is True:
            right = m.eval(part.comparator, frame)
            result = compare(m, op, left, right, span)
        else:
            right = guarded(m, partial(m.eval, part.comparator, frame), span)
            result = logical(m, "and", result, compare(m, op, left, right, span), span)
        left = right
    return result


def logical(m: Machine, op: str, a: Value, b: Value, span: Span) -> Value:
    """`a and b` / `a or b` where `a` is a run-time value."""
    m.b.span = span
    if not is_device(b):
        b = truth(m, b, span)
    return arith.logical(m.b, op, a, b)


def _boolean(m: Machine, node: cst.BooleanOperation, frame: Frame) -> Value:
    """`a and b` / `a or b`: one of the two values, which is a logical operation where both are bool."""
    op = "and" if isinstance(node.operator, cst.And) else "or"
    span = frame.source.span(node)
    left = m.eval(node.left, frame)
    known = truth(m, left, span)
    if isinstance(known, bool):
        return left if known == (op == "or") else m.eval(node.right, frame)
    right = guarded(m, lambda: m.eval(node.right, frame), span)
    if _is_bool(m, left) and _is_bool(m, right):
        return logical(m, op, known, right, span)
    _scalar_operand(m, right, span)
    m.b.span = span
    return vectors.select(m.b, known, *((right, left) if op == "and" else (left, right)))


def _is_bool(m: Machine, value: Value) -> bool:
    return isinstance(value, bool) or (is_device(value) and not isinstance(value, Vec) and arith.as_expr(m.b, value).dtype == BOOL)


def condition(m: Machine, node: cst.BaseExpression, frame: Frame) -> bool | Expr:
    """The truth of an expression that nothing but a branch or loop looks at: True or False on the host."""
    span = frame.source.span(node)
    match node:
        case cst.BooleanOperation(left=first, operator=operator, right=second):
            op = "and" if isinstance(operator, cst.And) else "or"
            left = condition(m, first, frame)
            if isinstance(left, bool):
                return left if left == (op == "or") else condition(m, second, frame)
            return truth(m, logical(m, op, left, guarded(m, lambda: condition(m, second, frame), span), span), span)
        case cst.UnaryOperation(operator=cst.Not(), expression=operand):
            known = condition(m, operand, frame)
            m.b.span = span
            return (not known) if isinstance(known, bool) else arith.unary(m.b, "not", known)
        case _:
            return truth(m, m.eval(node, frame), span)


def _ternary(m: Machine, node: cst.IfExp, frame: Frame) -> Value:
    span = frame.source.span(node)
    cond = condition(m, node.test, frame)
    if isinstance(cond, bool):
        return m.eval(node.body if cond else node.orelse, frame)
    then = guarded(m, lambda: m.eval(node.body, frame), span)
    other = guarded(m, lambda: m.eval(node.orelse, frame), span)
    m.b.span = span
    return vectors.select(m.b, cond, then, other)


def guarded(m: Machine, make: Callable[[], Value], span: Span) -> Value:
    """A value that is only needed under a run-time condition: what computing it records must stay inside of it."""
    with m.b.block() as made, m.deeper():
        value = make()
    if not made:
        return value
    if not all(isinstance(s, Let) for s in made):
        text = "this operand has effects but is evaluated only under a run-time condition"
        raise m.fail("TL0105", text, span, help="write it as an `if` statement")
    if isinstance(value, Ref):
        value = arith.as_expr(m.b, value)
    for s in reversed(made):
        if isinstance(s, Let) and isinstance(value, Expr):
            value = substitute(value, {s.var: s.value})
    return value


def subscript(m: Machine, node: cst.Subscript, frame: Frame) -> Value:
    """`value[...]`: an element of a host container, a reference into a buffer, `T.Tensor[...]`."""
    owner = m.eval(node.value, frame)
    span = frame.source.span(node)
    if isinstance(owner, Expr):
        raise m.fail("TL0301", "a number cannot be indexed", span)
    index = items_of(m, node, frame)
    if isinstance(owner, Vec):
        owner = owner.lanes
    match owner:
        case Buffer():
            items = index if isinstance(index, tuple) else (index,)
            return Ref(owner, tuple(_item(m, i, span) for i in items), span)
        case Ref():
            items = index if isinstance(index, tuple) else (index,)
            return Ref(owner.buffer, owner.items + tuple(_item(m, i, span) for i in items), span)
        case Primitive():
            return m.call(owner, index if isinstance(index, tuple) else (index,), {}, span)
        case _:
            return m.use(host_item(m, owner, index, span), span)


def host_item(m: Machine, owner: Value, index: Value, span: Span) -> Value:
    """`owner[index]` of a host container."""
    if is_device(index):
        text = f"{hostops.kind(owner)} is indexed by a value that is only known at run time"
        raise m.fail("TL0301", text, span, help="loop over it instead, `for k, x in enumerate(...)`: such loops run while compiling")
    if isinstance(index, Slice):
        index = slice(*(_whole(m, part, span) for part in (index.start, index.stop, index.step)))
    if isinstance(owner, ClassValue) and owner.is_enum:
        return by_name(m, owner, index, span)
    told = special(m, owner, "__getitem__", (index,), span)
    if told is not NotImplemented:
        return told
    fields = parts(owner)
    with m.host(span):
        return hostops.subscript(owner if fields is None else fields, index)


def _whole(m: Machine, part: Value, span: Span) -> int | None:
    if part is None or isinstance(part, int):
        return part
    raise m.fail("TL0301", "a slice of a Python value needs bounds that are known while compiling", span)


def _item(m: Machine, item: Value, span: Span) -> Value:
    """One index of a buffer: an int, an expression, a slice or an ellipsis."""
    if isinstance(item, Slice) or item is Ellipsis:
        return item
    if isinstance(item, int):
        return int(item)
    if is_device(item):
        m.b.span = span
        return lanes.vector(m.b, item) if lanes.among(item) else arith.as_expr(m.b, item)
    raise m.fail("TL0304", f"{hostops.kind(item)} cannot be an index", span)


def items_of(m: Machine, node: cst.Subscript, frame: Frame) -> Value:
    """What stands between the brackets: one value, or a tuple of them."""
    values: list[Value] = []
    for element in node.slice:
        match element.slice:
            case cst.Index(value=value, star=star):
                inner = m.eval(value, frame)
                values.extend(m.iterate(inner, frame.source.span(value)) if star else [inner])
            case cst.Slice(lower=lower, upper=upper, step=step):
                parts = [None if p is None else _bound(m, m.eval(p, frame), frame.source.span(node)) for p in (lower, upper, step)]
                values.append(Slice(*parts))
    single = len(node.slice) == 1 and not isinstance(node.slice[0].comma, cst.Comma)
    return values[0] if single and len(values) == 1 else tuple(values)


def _bound(m: Machine, value: Value, span: Span) -> Value:
    if is_device(value):
        m.b.span = span
        return arith.as_expr(m.b, value)
    return value


def _elements(m: Machine, elements: Sequence[cst.BaseElement], frame: Frame) -> Iterator[Value]:
    for e in elements:
        if isinstance(e, cst.StarredElement):
            yield from m.iterate(m.eval(e.value, frame), frame.source.span(e))
        else:
            yield m.eval(e.value, frame)


def _dict(m: Machine, node: cst.Dict, frame: Frame) -> dict[Value, Value]:
    result: dict[Value, Value] = {}
    span = frame.source.span(node)
    with m.host(span):
        for e in node.elements:
            if isinstance(e, cst.DictElement):
                key = hostops.key(m.eval(e.key, frame))
                result[key] = m.eval(e.value, frame)
                continue
            more = m.eval(e.value, frame)
            if not isinstance(more, dict):
                raise hostops.HostError(f"`**` needs a dict, not {hostops.kind(more)}")
            result.update(more)
    return result


def _lambda(m: Machine, node: cst.Lambda, frame: Frame) -> Function:
    check_names(m, node, frame)
    defaults = {p.name.value: m.eval(p.default, frame) for p in parameters(node) if p.default is not None}
    return Function("lambda", node, closure(m, frame), defaults)


def closure(m: Machine, frame: Frame) -> Frame:
    """The scope that a function made in `frame` keeps: not that of a class body."""
    while frame.klass and frame.parent is not None:
        frame = frame.parent
    return frame


def _walrus(m: Machine, target: cst.BaseExpression, value: Value, frame: Frame) -> Value:
    for name in target_names(target):
        scope = frame
        while scope.locals is not None and name not in scope.locals and scope.parent is not None and scope.module is None:
            scope = scope.parent
        bind(m, scope, name, value, frame.source.span(target))
        return scope.names[name]
    return value


def _comprehension(m: Machine, node: cst.GeneratorExp | cst.ListComp | cst.SetComp | cst.DictComp, frame: Frame) -> Value:
    names = frozenset(name for part in _clauses(node.for_in) for name in target_names(part.target))
    inner = Frame(frame.source, parent=closure(m, frame), locals=names, dsl=frame.dsl, depth=m.depth)
    rounds = _rounds(m, node.for_in, m.stream(m.eval(node.for_in.iter, frame), frame.source.span(node.for_in.iter)), inner)
    with m.host(frame.source.span(node)):
        match node:
            case cst.ListComp(elt=elt):
                return [m.eval(elt, inner) for _ in rounds]
            case cst.SetComp(elt=elt):
                return {hostops.key(m.eval(elt, inner)) for _ in rounds}
            case cst.DictComp(key=key, value=value):
                return {hostops.key(m.eval(key, inner)): m.eval(value, inner) for _ in rounds}
            case cst.GeneratorExp(elt=elt):
                return m.lazy(m.eval(elt, inner) for _ in rounds)


def _clauses(part: cst.CompFor | None) -> Iterator[cst.CompFor]:
    while part is not None:
        yield part
        part = part.inner_for_in


def _rounds(m: Machine, part: cst.CompFor, values: Iterator[Value], frame: Frame) -> Iterator[None]:
    """One element for each time that a comprehension computes its value, with its names bound."""
    span = frame.source.span(part)
    for value in values:
        m.spend(1, span)
        unpack(m, part.target, value, frame)
        if not all(_host_truth(m, m.eval(c.test, frame), frame.source.span(c.test)) for c in part.ifs):
            continue
        inner = part.inner_for_in
        if inner is None:
            yield
        else:
            yield from _rounds(m, inner, m.stream(m.eval(inner.iter, frame), frame.source.span(inner.iter)), frame)


def _host_truth(m: Machine, value: Value, span: Span) -> bool:
    known = truth(m, value, span)
    if not isinstance(known, bool):
        raise m.fail("TL0102", "a comprehension's `if` needs a value that is known while compiling", span)
    return known


def unpack(m: Machine, target: cst.CSTNode, value: Value, frame: Frame) -> None:
    """Binds the names of a loop or comprehension target to a host value, without snapshots."""
    match target:
        case cst.Name(value=name):
            frame.names[name] = value
        case cst.Tuple(elements=elements) | cst.List(elements=elements):
            parts = spread(m, elements, value, frame.source.span(target))
            for e, part in zip(elements, parts, strict=True):
                unpack(m, e.value, part, frame)
        case _:
            raise m.fail("TL0102", "this loop target is not supported", frame.source.span(target))


def spread(m: Machine, elements: Sequence[cst.BaseElement], value: Value, span: Span) -> list[Value]:
    """The parts of `value` for the elements of a tuple target, a starred one included."""
    if is_device(value) and len(elements) == 1:
        return [value]  # `with T.Kernel(n) as (bx,)`
    parts = m.iterate(value, span)
    stars = [k for k, e in enumerate(elements) if isinstance(e, cst.StarredElement)]
    if len(stars) > 1:
        raise m.fail("TL0101", "syntax error: more than one starred name in an assignment", span)
    if stars and len(parts) >= len(elements) - 1:
        at, extra = stars[0], len(parts) - len(elements) + 1
        parts = [*parts[:at], parts[at : at + extra], *parts[at + extra :]]
    if len(parts) != len(elements):
        help_line = f"write one name for each value, {len(parts)} here; T.Kernel has one block index for each extent of its grid"
        raise m.fail("TL0108", f"{len(elements)} names for {len(parts)} value{'s' * (len(parts) != 1)}", span, help=help_line)
    return parts


def _super(m: Machine, frame: Frame, span: Span) -> Super:
    """super() in a method: what its first parameter has from behind the class that defines the method."""
    scope: Frame | None = frame
    while scope is not None and scope.method is None:
        scope = scope.parent
    if scope is None or scope.method is None:
        raise m.fail("TL0102", "super() outside of a method", span)
    cls, first = scope.method
    owner = scope.names.get(first)
    if not isinstance(owner, Instance):
        raise m.fail("TL0102", "super() needs an instance", span)
    return Super(owner, cls)


def _call(m: Machine, node: cst.Call, frame: Frame) -> Value:
    span = frame.source.span(node)
    function = m.eval(node.func, frame)
    if isinstance(function, Builtin) and function.name == "super" and not node.args:
        return _super(m, frame, span)
    args: list[Value] = []
    kwargs: dict[str, Value] = {}
    for a in node.args:
        value = m.eval(a.value, frame)
        if a.star == "*":
            args.extend(m.iterate(value, span))
            continue
        if a.star == "**":
            if not isinstance(value, dict) or not all(isinstance(k, str) for k in value):
                raise m.fail("TL0108", f"`**` needs a dict with string keys, not {hostops.kind(value)}", span)
            named = value
        elif a.keyword is not None:
            named = {a.keyword.value: value}
        else:
            args.append(value)
            continue
        if again := sorted(named.keys() & kwargs.keys()):
            raise m.fail("TL0203", f"the argument `{again[0]}` is given twice", frame.source.span(a))
        kwargs.update(named)
    return m.call(function, tuple(args), kwargs, span)
