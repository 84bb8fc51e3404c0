"""String literals: prefixes, escapes, and the replacement fields of f-strings.

    f"{n:04d}-{name!r}" with n = 3, name = "x"  ->  "0003-'x'"
"""

from __future__ import annotations

import re

import libcst as cst

from tilec.diagnostics import Span
from tilec.frontend import hostops
from tilec.frontend.machine import Machine
from tilec.frontend.values import Frame


def written(m: Machine, node: cst.CSTNode, frame: Frame) -> str:
    """The value of a string literal, of several side by side, or of an f-string."""
    match node:
        case cst.SimpleString(value=token):
            return _literal(m, token, frame.source.span(node))
        case cst.ConcatenatedString(left=left, right=right):
            return written(m, left, frame) + written(m, right, frame)
        case cst.FormattedString(parts=parts):
            m.step(node, frame)
            with m.host(frame.source.span(node)):
                return str(hostops.checked("".join(_part(m, p, frame, "r" in node.prefix) for p in parts)))
        case _:
            raise m.fail("TL0102", "this kind of string is not supported", frame.source.span(node))


def _literal(m: Machine, token: str, span: Span) -> str:
    prefix = token[: min(token.find(q) for q in "\"'" if q in token)].lower()
    if "b" in prefix:
        raise m.fail("TL0102", "bytes are not supported", span)
    body = token[len(prefix) :]
    quotes = 3 if body[:3] in ('"""', "'''") else 1
    body = body[quotes:-quotes]
    return body if "\\" not in body or "r" in prefix else _unescape(body)


def _unescape(body: str) -> str:
    """The characters that a literal's escapes stand for. Python's own reader of literals does it; it runs nothing."""
    import ast
    import warnings

    quoted = re.sub(r'(\\.)|"', lambda found: found[1] or '\\"', body, flags=re.DOTALL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return str(ast.literal_eval(f'"""{quoted}"""'))
    except (ValueError, SyntaxError):
        return body


def _part(m: Machine, part: cst.BaseFormattedStringContent, frame: Frame, raw: bool) -> str:
    match part:
        case cst.FormattedStringText(value=token):
            plain = token.replace("{{", "{").replace("}}", "}")
            return plain if raw or "\\" not in plain else _unescape(plain)
        case cst.FormattedStringExpression():
            value = m.eval(part.expression, frame)
            spec = "".join(_part(m, p, frame, raw) for p in part.format_spec or ())
            if part.conversion == "r":
                value = hostops.text(value, 1)
            shown = hostops.format_value(value, spec)
            if part.equal is not None:
                shown = f"{cst.Module([]).code_for_node(part.expression)}={shown}"
            return shown
        case _:
            return ""
