"""Source files as syntax trees with places. The only reader of user files; they are parsed and never run.

    load("gemm.py", b"x = 1\\n").span(node) -> Span("gemm.py", 1, 1, 1, 6)

Bytes that are not UTF-8, text that does not parse and text nested so deeply that a recursive parser would fall over are each
one error at a place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import libcst as cst
from libcst.metadata import CodeRange, MetadataWrapper, PositionProvider

from tilec.record import record
from tilec.diagnostics import CompileError, Span, error
from tilec.options import MAX_BYTES

MAX_BRACKETS = 100
MAX_CHAIN = 400
MAX_ELIFS = 1000
MAX_WORDS = 100_000
"""Names, literals, operators and brackets of a file: the parser and its places take some 50 us for each."""

_INDENT = re.compile(r"^[ \t]+", re.MULTILINE)
_TOKEN = re.compile(
    r"""(?P<string>[rRbBfFuU]{0,2}(?:\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))"""
    r"""|(?P<skip>\#[^\n]*|\\\r?\n|[ \t\f\r]+)|(?P<newline>\n)|(?P<word>\w+)|(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<sep>[,;])|(?P<op>.)""",
    re.DOTALL,
)


@record(eq=False)
class Source:
    """A parsed file: its name as the user spelled it, its tree and the place of every node.

    `fixed` is set for text that stands inside a string, such as a quoted annotation: every node then has that one place.
    """

    path: str
    tree: cst.CSTNode
    positions: Mapping[cst.CSTNode, CodeRange]
    fixed: Span | None = None

    def span(self, node: cst.CSTNode) -> Span:
        """The place of a node; the start of the file when the parser recorded none."""
        if self.fixed is not None:
            return self.fixed
        place = self.positions.get(node)
        if place is None:
            return Span(self.path, 1, 1, 1, 1)
        return Span(self.path, place.start.line, place.start.column + 1, place.end.line, place.end.column + 1)


class _Places(MetadataWrapper):
    """libcst's metadata without its walk over the tree on behalf of no visitor at all, which takes as long as parsing."""

    def visit_batched(self, visitors: Iterable[Any], *hooks: Any, **named: Any) -> cst.CSTNode:
        """As the method of the class above; nothing for no visitors."""
        found = list(visitors)
        return super().visit_batched(found, *hooks, **named) if found else self.module


def load(path: str, text: str | bytes) -> Source:
    """Parses a whole file. Raises CompileError (TL0101 syntax, TL0103 bytes, TL0110 nesting)."""
    code = decode(path, text)
    check_nesting(path, code)
    tree = _parsed(path, code)
    positions = _Places(tree, unsafe_skip_copy=True).resolve(PositionProvider)
    return Source(path, tree, positions)


def _parsed(path: str, code: str) -> cst.Module:
    """The tree of a text. Where tabs and blanks are mixed in ways that Python allows and the parser does not, tabs become blanks."""
    try:
        return cst.parse_module(code)
    except (cst.ParserSyntaxError, cst.CSTValidationError) as fault:
        found = _syntax_error(path, code, fault)
        if found.diagnostics[0].message != "syntax error" or "\t" not in code:
            raise found from None
        try:
            return cst.parse_module(_INDENT.sub(lambda m: m.group().expandtabs(8), code))
        except (cst.ParserSyntaxError, cst.CSTValidationError):
            raise found from None


def expression(text: str, place: Span) -> tuple[Source, cst.BaseExpression]:
    """Parses the text of a quoted annotation; every node of it stands at `place`."""
    check_nesting(place.file, text)
    try:
        tree = cst.parse_expression(text.strip())
    except (cst.ParserSyntaxError, cst.CSTValidationError):
        raise error("TL0101", f"the quoted annotation {text!r} is not a Python expression", place) from None
    return Source(place.file, tree, {}, place), tree


def decode(path: str, text: str | bytes) -> str:
    """The text of a file. Raises TL0103 for bytes that are not UTF-8, zero bytes and files above 4 MiB."""
    if len(text) > MAX_BYTES:
        raise error("TL0103", f"the file is larger than {MAX_BYTES >> 20} MiB", Span(path, 1, 1, 1, 1))
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8-sig")
        except UnicodeDecodeError as fault:
            before = bytes(fault.object[: fault.start])
            line, col = before.count(b"\n") + 1, fault.start - (before.rfind(b"\n") + 1) + 1
            raise error("TL0103", "the file is not UTF-8 text", Span(path, line, col, line, col + 1)) from None
    zero = text.find("\0")
    if zero >= 0:
        line = text.count("\n", 0, zero) + 1
        col = zero - text.rfind("\n", 0, zero)
        raise error("TL0103", "the file holds a zero byte: it is not Python text", Span(path, line, col, line, col + 1))
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _syntax_error(path: str, code: str, fault: cst.ParserSyntaxError | cst.CSTValidationError) -> CompileError:
    """The error for text that does not parse. Python's own parser says best where and why; it too only reads the text."""
    import ast
    import warnings

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(code)
    except SyntaxError as said:
        line, col = max(1, said.lineno or 1), max(1, said.offset or 1)
        return error("TL0101", f"syntax error: {said.msg}", Span(path, line, col, line, col + 1))
    except (ValueError, MemoryError, RecursionError):
        pass
    if isinstance(fault, cst.CSTValidationError):
        return error("TL0101", f"syntax error: {fault}", Span(path, 1, 1, 1, 1))
    return error("TL0101", "syntax error", Span(path, fault.raw_line, fault.raw_column + 1, fault.raw_line, fault.raw_column + 2))


def check_nesting(path: str, code: str) -> None:
    """Raises TL0110 before the parser sees text that is nested too deeply for it, TL0103 for text that it would take too long for."""
    for depth, line, col in _depths(code):
        place = Span(path, line, col, line, col + 1)
        if not depth:
            help = "large tables are data: pass them as tensors"
            raise error("TL0103", f"the file has more than {MAX_WORDS} names, literals and operators", place, help=help)
        raise error("TL0110", f"this code is nested too deeply ({depth})", place, help="split the expression into several statements")


def _depths(code: str) -> Iterator[tuple[str, int, int]]:
    """Places where a statement passes the limits: open brackets, links of one chain of operators, lambdas, elifs; where the file
    becomes too large, with an empty text."""
    chains, lambdas, elifs, words = [0], 0, 0, 0
    line, start = 1, 0
    for token in _TOKEN.finditer(code):
        kind, text, at = token.lastgroup, token.group(), token.start()
        match kind:
            case "newline":
                if len(chains) == 1:
                    chains, lambdas = [0], 0
                line, start = line + 1, at + 1
                continue
            case "skip" | "sep":
                if kind == "sep":
                    chains[-1] = 0
                line, start = _advance(line, start, text, at)
                continue
            case "open":
                chains[-1] += 1
                chains.append(0)
            case "close":
                if len(chains) > 1:
                    chains.pop()
            case _:
                chains[-1] += 1
                lambdas += text == "lambda"
                elifs += text == "elif"
        words += 1
        if words > MAX_WORDS:
            yield "", line, at - start + 1
        inside = _string_depth(text) if kind == "string" else 0
        if len(chains) + inside > MAX_BRACKETS:
            yield f"more than {MAX_BRACKETS} brackets", line, at - start + 1
        if chains[-1] > 2 * MAX_CHAIN or lambdas > MAX_BRACKETS or elifs > MAX_ELIFS:
            yield f"more than {MAX_CHAIN} links in one chain", line, at - start + 1
        line, start = _advance(line, start, text, at)


def _advance(line: int, start: int, text: str, at: int) -> tuple[int, int]:
    """Line number and offset of its first character, after a token."""
    breaks = text.count("\n")
    return (line + breaks, at + text.rfind("\n") + 1) if breaks else (line, start)


def _string_depth(text: str) -> int:
    """How deeply the replacement fields of an f-string are nested, at most; 0 for other strings."""
    if "f" not in text[:2].lower() or "{" not in text:
        return 0
    depth = deepest = 0
    for c in text:
        if c in "([{":
            depth += 1
            deepest = max(deepest, depth)
        elif c in ")]}":
            depth = max(0, depth - 1)
    operators = sum(c in "+-*/.~<>=|&^" for c in text)
    return max(deepest, MAX_BRACKETS if operators > MAX_CHAIN else 0)
