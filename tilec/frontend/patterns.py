"""`match`: host subjects choose a case while compiling; numbers of the device are compared with literals, as an `if` chain.

    match mode:                      mode = "a"        ->  the first body
        case "a" | "b": ...          mode = A[i]       ->  not possible: only numbers are compared at run time
        case (kind, *rest): ...
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import libcst as cst

from tilec.diagnostics import Span
from tilec.frontend import hostops
from tilec.frontend.branches import branch
from tilec.frontend.builtins import is_type
from tilec.frontend.classes import class_attribute, member, parts
from tilec.frontend.expressions import compare, condition, logical, truth
from tilec.frontend.machine import Flow, Machine, is_device
from tilec.frontend.names import assigned, bind, snapshot
from tilec.frontend.values import Builtin, ClassValue, Frame, Instance
from tilec.ir.expr import Expr
from tilec.language.values import Value

Found = bool | Expr


def run_match(m: Machine, node: cst.Match, frame: Frame) -> Flow:
    """Runs the first case that fits, or records a chain of branches where that is only known at run time."""
    span = frame.source.span(node.subject)
    subject = snapshot(m, m.eval(node.subject, frame), "subject", span)
    return _cases(m, node.cases, subject, frame)


def _cases(m: Machine, cases: Sequence[cst.MatchCase], subject: Value, frame: Frame) -> Flow:
    if not cases:
        return None
    case, rest = cases[0], cases[1:]
    span = frame.source.span(case.pattern)
    found = _fits(m, case.pattern, subject, frame)
    if case.guard is not None and found is not False:
        place = frame.source.span(case.guard)
        guard = condition(m, case.guard, frame)
        found = guard if found is True else found if guard is True else truth(m, logical(m, "and", found, guard, place), place)
    if found is True:
        return m.run(case.body, frame)
    if found is False:
        return _cases(m, rest, subject, frame)
    names = assigned(case.body).union(*(assigned(c) for c in rest))
    return branch(m, found, frame, names, lambda: m.run(case.body, frame), lambda: _cases(m, rest, subject, frame), span)


def _fits(m: Machine, pattern: cst.MatchPattern, subject: Value, frame: Frame) -> Found:
    """Whether a pattern fits, binding its names; an expression where that is only known at run time."""
    span = frame.source.span(pattern)
    match pattern:
        case cst.MatchValue(value=value):
            return truth(m, compare(m, "eq", subject, m.eval(value, frame), span), span)
        case cst.MatchSingleton(value=value):
            return not is_device(subject) and hostops.identical(subject, m.eval(value, frame))
        case cst.MatchAs(pattern=inner, name=name):
            found = True if inner is None else _fits(m, inner, subject, frame)
            if name is not None and found is not False:
                bind(m, frame, name.value, subject, span)
            return found
        case cst.MatchOr(patterns=choices):
            return _any(m, [c.pattern for c in choices], subject, frame, span)
        case cst.MatchList(patterns=elements) | cst.MatchTuple(patterns=elements):
            return _sequence(m, elements, subject, frame, span)
        case cst.MatchMapping():
            return _mapping(m, pattern, subject, frame, span)
        case cst.MatchClass():
            return _class(m, pattern, subject, frame, span)
        case _:
            raise m.fail("TL0102", "this pattern is not supported", span)


def _any(m: Machine, choices: Sequence[cst.MatchPattern], subject: Value, frame: Frame, span: Span) -> Found:
    found: Found = False
    for choice in choices:
        one = _fits(m, choice, subject, frame)
        if one is True:
            return True
        found = one if found is False else found if one is False else truth(m, logical(m, "or", found, one, span), span)
    return found


def _all(m: Machine, made: Sequence[Callable[[], Found]], span: Span) -> Found:
    found: Found = True
    for make in made:
        one = make()
        if one is False:
            return False
        found = one if found is True else found if one is True else truth(m, logical(m, "and", found, one, span), span)
    return found


def _sequence(m: Machine, elements: Sequence[cst.MatchSequenceElement | cst.MatchStar], subject: Value, frame: Frame, span: Span) -> Found:
    values = parts(subject) or subject
    if not isinstance(values, (list, tuple, range)):
        return False
    stars = [k for k, e in enumerate(elements) if isinstance(e, cst.MatchStar)]
    extra = len(values) - len(elements) + len(stars)
    if extra < 0 or (extra > 0 and not stars):
        return False
    at = stars[0] if stars else len(elements)
    ends = [*values[:at], *values[at + extra :]] if stars else list(values)
    inner = [e.value for e in elements if isinstance(e, cst.MatchSequenceElement)]
    found = _all(m, [partial(_fits, m, p, v, frame) for p, v in zip(inner, ends, strict=True)], span)
    star = elements[at] if stars else None
    if found is not False and isinstance(star, cst.MatchStar) and star.name is not None:
        bind(m, frame, star.name.value, list(values[at : at + extra]), span)
    return found


def _mapping(m: Machine, pattern: cst.MatchMapping, subject: Value, frame: Frame, span: Span) -> Found:
    if not isinstance(subject, dict):
        return False
    rest = dict(subject)
    fits: list[Callable[[], Found]] = []
    for e in pattern.elements:
        key = hostops.key(m.eval(e.key, frame))
        if key not in rest:
            return False
        value = rest.pop(key)
        fits.append(partial(_fits, m, e.pattern, value, frame))
    found = _all(m, fits, span)
    if found is not False and pattern.rest is not None:
        bind(m, frame, pattern.rest.value, rest, span)
    return found


def _class(m: Machine, pattern: cst.MatchClass, subject: Value, frame: Frame, span: Span) -> Found:
    wanted = m.eval(pattern.cls, frame)
    with m.host(span):
        if is_device(subject) or not is_type(subject, wanted):
            return False
    given = [(None, e.value) for e in pattern.patterns] + [(k.key.value, k.pattern) for k in pattern.kwds]
    if isinstance(wanted, Builtin):
        if len(given) > 1 or pattern.kwds:
            raise m.fail("TL0102", f"a pattern of {wanted.name} takes one name", span)
        return all(_fits(m, p, subject, frame) for _, p in given)
    assert isinstance(wanted, ClassValue)
    names = wanted.fields if wanted.kind in ("data", "tuple") else ()
    if pattern.patterns and not names:
        names = tuple(class_attribute(m, wanted, "__match_args__", span))
    if len(pattern.patterns) > len(names):
        raise m.fail("TL0102", f"`{wanted.name}` has {len(names)} fields to match by position", span)
    fits: list[Callable[[], Found]] = []
    for k, (name, p) in enumerate(given):
        name = name or names[k]
        if not isinstance(subject, Instance) or (name not in subject.values and name not in wanted.names):
            return False
        fits.append(partial(_fits, m, p, member(m, subject, name, span), frame))
    return _all(m, fits, span)
