"""Evaluates the expressions of a manifest: grids, conditions, shapes and sizes, in Python's spelling.

The grammar is small and closed: integers, names, `+ - * // %`, `min max ceildiv`, comparisons, `and or not`, and
`x if c else y`. Its own parser, so that no text of a file is ever executed. Standard library only: a bundle for another
machine carries this file as it is.

    evaluate("ceildiv(M, 128) * 2", {"M": 130}) -> 4;  evaluate("M % 8 == 0 and A % 16 == 0", {"M": 16, "A": 48}) -> 1
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

_TOKEN = re.compile(r"\s*(?:(\d+)|([^\W\d]\w*)|(//|<=|>=|==|!=|[-+*%<>(),]))")
_COMPARE: Mapping[str, Callable[[int, int], bool]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
_KEYWORDS = frozenset(("and", "or", "not", "if", "else"))


_Tree: TypeAlias = "int | str | tuple[str, tuple[_Tree, ...]]"
"""A literal, a name, or an operation with its operands."""


class HostExprError(ValueError):
    """The text is not of the grammar, a name has no value, or a divisor is zero."""


def evaluate(text: str, env: Mapping[str, int]) -> int:
    """The value of `text` with names from `env`; a comparison gives 0 or 1. Raises HostExprError."""
    parser = _Parser(text)
    tree = parser.ternary()
    parser.expect("")
    return _value(tree, env, text)


def ceildiv(a: int, b: int) -> int:
    """The smallest integer that is not below a / b."""
    return -(-a // b)


def _tokens(text: str) -> list[str]:
    found, at, end = [], 0, len(text.rstrip())
    while at < end:
        m = _TOKEN.match(text, at)
        if m is None:
            raise HostExprError(f"cannot read `{text}` at position {at}")
        found.append(m.group(m.lastindex or 0))
        at = m.end()
    return [*found, ""]


def _value(tree: _Tree, env: Mapping[str, int], text: str) -> int:
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        if tree not in env:
            raise HostExprError(f"`{text}`: `{tree}` has no value")
        return int(env[tree])
    op, args = tree
    first = _value(args[0], env, text)
    match op:
        case "if":
            return _value(args[1] if first else args[2], env, text)
        case "and" | "or":
            return int(bool(first)) if bool(first) is (op == "or") else int(bool(_value(args[1], env, text)))
        case "not":
            return int(not first)
        case "neg":
            return -first
    rest = [_value(a, env, text) for a in args[1:]]
    return _operate(op, first, rest, text)


def _operate(op: str, a: int, rest: list[int], text: str) -> int:
    if op in ("min", "max"):
        return min(a, *rest) if op == "min" else max(a, *rest)
    b = rest[0]
    if op in _COMPARE:
        return int(_COMPARE[op](a, b))
    if op in ("//", "%", "ceildiv") and b == 0:
        raise HostExprError(f"`{text}` divides by zero")
    match op:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "//":
            return a // b
        case "%":
            return a % b
        case _:
            return ceildiv(a, b)


class _Parser:
    """Recursive descent over the tokens of one expression."""

    def __init__(self, text: str) -> None:
        self.text, self.tokens, self.at = text, _tokens(text), 0

    def take(self, *options: str) -> str:
        """The next token if it is one of `options`, else nothing."""
        token = self.tokens[self.at]
        if token and token in options:
            self.at += 1
            return token
        return ""

    def expect(self, token: str) -> None:
        """Steps over `token` (the end if it is empty) or raises HostExprError."""
        found = self.tokens[self.at]
        if found != token:
            raise HostExprError(f"`{self.text}`: expected `{token or 'the end'}` before `{found or 'the end'}`")
        self.at += token != ""

    def left(self, read: Callable[[], _Tree], *ops: str) -> _Tree:
        """Operands read by `read` with any of `ops` between them, grouped to the left."""
        tree = read()
        while op := self.take(*ops):
            tree = (op, (tree, read()))
        return tree

    def ternary(self) -> _Tree:
        """`x if c else y`, or what binds tighter."""
        tree = self.either()
        if not self.take("if"):
            return tree
        condition = self.either()
        self.expect("else")
        return ("if", (condition, tree, self.ternary()))

    def either(self) -> _Tree:
        """Operands of `or`."""
        return self.left(lambda: self.left(self.negated, "and"), "or")

    def negated(self) -> _Tree:
        """`not x`, or a comparison."""
        return ("not", (self.negated(),)) if self.take("not") else self.left(self.sum, *_COMPARE)

    def sum(self) -> _Tree:
        """Operands of `+` and `-`, each a product."""
        return self.left(lambda: self.left(self.factor, "*", "//", "%"), "+", "-")

    def factor(self) -> _Tree:
        """`-x`, or an atom."""
        return ("neg", (self.factor(),)) if self.take("-") else self.atom()

    def atom(self) -> _Tree:
        """A literal, a name, a call or something in parentheses."""
        token = self.tokens[self.at]
        self.at += 1
        if token == "(":
            tree = self.ternary()
            self.expect(")")
            return tree
        if token.isdigit():
            return int(token)
        if not token or token in _KEYWORDS or not token.isidentifier():
            raise HostExprError(f"`{self.text}`: expected a value before `{token or 'the end'}`")
        return self.call(token) if self.take("(") else token

    def call(self, name: str) -> _Tree:
        """The arguments of `name`, whose parenthesis has been read."""
        args = [self.ternary()]
        while self.take(","):
            args.append(self.ternary())
        self.expect(")")
        if (name == "ceildiv" and len(args) == 2) or (name in ("min", "max") and len(args) > 1):
            return (name, tuple(args))
        raise HostExprError(f"`{self.text}`: no function `{name}` of {len(args)} arguments")
