"""Reads expressions of the text form of Tile IR; `ir.read` reads statements and kernels with it.

    Reader(lines('A[i + 1] * 2.0'), {"A": a, "i": i}).expr() -> Binary("mul", Load(a, ...), Const(2.0, FLOAT32), FLOAT32)
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NoReturn, TypeVar

from tilec.record import record
from tilec.diagnostics import CompileError, Span, error
from tilec.ir.dtypes import BOOL, FLOAT32, INT32, DType
from tilec.ir.expr import Binary, Buffer, Call, Cast, Compare, Const, Expr, Load, Logical, Reinterpret, Select, Unary, Var
from tilec.ir.show import BINARY_FUNCTIONS, BINARY_SYMBOLS, COMPARE_SYMBOLS, DTYPES

_TOKEN = re.compile(
    r"""\s+|\#.*|(?P<num>\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+)|(?P<name>[^\W\d]\w*(?:\.\d+)?)"""
    r"""|(?P<str>"(?:[^"\\]|\\.)*")|(?P<op>\+:|\+=|->|==|!=|<=|>=|<<|>>|//|\.T\b|[-+*/%&|^~<>=()\[\],:@])"""
)
_BINARY = {symbol: (op, level) for op, (symbol, level) in BINARY_SYMBOLS.items()}
_COMPARE = {symbol: op for op, symbol in COMPARE_SYMBOLS.items()}
_LOGICAL = {"or": 1, "and": 2}
_NOT, _COMPARE_LEVEL, _UNARY = 3, 4, 11
_ESCAPE = re.compile(r"\\(?:u\{([0-9a-f]+)\}|(.))")

T = TypeVar("T")


@record
class Token:
    """A piece of a line: `kind` is num, name, str, op or end."""

    kind: str
    text: str
    col: int


@record
class Line:
    """A line that is not empty: its number, indentation and tokens, the last one of kind end."""

    number: int
    indent: int
    tokens: tuple[Token, ...]


def mistake(message: str, line: int, col: int) -> CompileError:
    """The error for text that is not Tile IR; the caller raises it."""
    return error("TL0902", f"Tile IR text: {message}", Span("<ir>", line, col, line, col + 1))


def lines(text: str) -> list[Line]:
    """The lines of a text without comments and empty ones."""
    found = []
    for number, raw in enumerate(text.splitlines(), 1):
        tokens, at = [], 0
        while at < len(raw):
            match = _TOKEN.match(raw, at)
            if match is None:
                raise mistake(f"unexpected `{raw[at]}`", number, at + 1)
            if match.lastgroup is not None:
                tokens.append(Token(match.lastgroup, match.group(), at + 1))
            at = match.end()
        if tokens:
            found.append(Line(number, len(raw) - len(raw.lstrip(" ")), (*tokens, Token("end", "end of line", len(raw) + 1))))
    return found


def unquote(text: str) -> str:
    """The text of a string literal."""
    plain = {"n": "\n", "t": "\t", "r": "\r"}
    return _ESCAPE.sub(lambda m: chr(int(m[1], 16)) if m[1] else plain.get(m[2], m[2]), text[1:-1])


class Reader:
    """Reads one line's tokens at a time; `things` are the variables and buffers by their printed names."""

    def __init__(self, source: list[Line], things: dict[str, Var | Buffer]) -> None:
        self.source, self.things = source, things
        self.row = self.at = 0

    @property
    def token(self) -> Token:
        """The token to be read next."""
        return self.source[self.row].tokens[self.at]

    def peek(self, ahead: int) -> Token:
        """A later token of the line, its end at most."""
        tokens = self.source[self.row].tokens
        return tokens[min(self.at + ahead, len(tokens) - 1)]

    def fail(self, message: str) -> NoReturn:
        """Raises an error at the next token."""
        raise mistake(message, self.source[self.row].number, self.token.col)

    def next(self) -> Token:
        """Takes a token."""
        token = self.token
        if token.kind != "end":
            self.at += 1
        return token

    def accept(self, text: str) -> bool:
        """Takes the next token if it is `text` (and not a string)."""
        if self.token.text == text and self.token.kind in ("op", "name"):
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        """Takes `text` or fails."""
        if not self.accept(text):
            self.fail(f"expected `{text}`, found `{self.token.text}`")

    def take(self, kind: str) -> str:
        """Takes a token of this kind and gives its text."""
        if self.token.kind != kind:
            self.fail(f"expected a {kind}, found `{self.token.text}`")
        return self.next().text

    def number(self) -> int:
        """Takes a whole number without a type."""
        sign = -1 if self.accept("-") else 1
        text = self.take("num")
        if not text.isdigit():
            self.fail(f"expected a whole number, found `{text}`")
        return sign * int(text)

    def dtype(self) -> DType:
        """Takes the name of a type."""
        name = self.take("name")
        if name not in DTYPES:
            self.fail(f"`{name}` is not a type")
        return DTYPES[name]

    def several(self, read: Callable[[], T], opening: str, closing: str) -> tuple[T, ...]:
        """`read` repeated between brackets, separated by commas."""
        self.expect(opening)
        found: list[T] = []
        while not self.accept(closing):
            if found:
                self.expect(",")
                if self.accept(closing):
                    break
            found.append(read())
        return tuple(found)

    def buffer(self, name: str) -> Buffer:
        """The buffer of this name."""
        thing = self.things.get(name)
        if not isinstance(thing, Buffer):
            self.fail(f"no buffer is called `{name}`")
        return thing

    def expr(self, level: int = 0) -> Expr:
        """An expression whose operators all bind at least as tightly as `level`."""
        left = self._prefix()
        while True:
            word = self.token.text if self.token.kind in ("op", "name") else ""
            if word in _LOGICAL and _LOGICAL[word] >= level:
                self.next()
                left = Logical(word, left, self.expr(_LOGICAL[word] + 1))
            elif word in _COMPARE and level <= _COMPARE_LEVEL:
                self.next()
                left = Compare(_COMPARE[word], left, self.expr(_COMPARE_LEVEL + 1))
            elif word in _BINARY and _BINARY[word][1] >= level:
                self.next()
                op, own = _BINARY[word]
                left = Binary(op, left, self.expr(own + 1), left.dtype)
            else:
                return left

    def _prefix(self) -> Expr:
        if self.accept("not"):
            a = self.expr(_NOT)
            return Unary("not", a, a.dtype)
        if self.accept("~"):
            a = self.expr(_UNARY)
            return Unary("invert", a, a.dtype)
        if self.accept("-"):
            if self.token.kind == "num" or self.token.text in ("inf", "nan"):
                return self._literal(-1)
            a = self.expr(_UNARY)
            return Unary("neg", a, a.dtype)
        return self._atom()

    def _atom(self) -> Expr:
        token = self.token
        if token.kind == "num" or token.text in ("inf", "nan"):
            return self._literal(1)
        if token.text in ("true", "false"):
            self.next()
            return Const(token.text == "true", BOOL)
        if self.accept("("):
            inner = self.expr()
            self.expect(")")
            return inner
        if self.accept("@"):
            return self._call(self.take("name"))
        if token.kind == "str":
            call = self._call(unquote(self.take("str")))
            return Call(call.name, call.args, call.dtype, True)
        name = self.take("name")
        after = self.token.text
        if after == "[":
            return Load(self.buffer(name), self.several(self.expr, "[", "]"))
        if after == "(" or (after == "<" and self.peek(1).text in DTYPES and self.peek(2).text == ">" and self.peek(3).text == "("):
            return self._function(name)
        thing = self.things.get(name)
        if not isinstance(thing, Var):
            self.fail(f"no variable is called `{name}`")
        return thing

    def _literal(self, sign: int) -> Const:
        text = self.next().text
        whole = text.isdigit()
        dtype = INT32 if whole else FLOAT32
        if self.token.text == ":" and self.peek(1).text in DTYPES:
            self.next()
            dtype = self.dtype()
        value = sign * (int(text) if whole else float(text))
        return Const(value, dtype)

    def _function(self, name: str) -> Expr:
        """What follows a name that is called: the forms of the language first, then intrinsics."""
        if name in DTYPES:
            (a,) = self._arguments(1)
            return Cast(a, DTYPES[name])
        if name == "bits":
            self.expect("<")
            dtype = self.dtype()
            self.expect(">")
            (a,) = self._arguments(1)
            return Reinterpret(a, dtype)
        if name == "select":
            cond, a, b = self._arguments(3)
            return Select(cond, a, b, a.dtype)
        if name in BINARY_FUNCTIONS:
            a, b = self._arguments(2)
            return Binary(name, a, b, a.dtype)
        return self._call(name)

    def _arguments(self, count: int) -> tuple[Expr, ...]:
        args = self.several(self.expr, "(", ")")
        if len(args) != count:
            self.fail(f"expected {count} arguments, found {len(args)}")
        return args

    def _call(self, name: str) -> Call:
        dtype = None
        if self.accept("<"):
            dtype = self.dtype()
            self.expect(">")
        args = self.several(self.expr, "(", ")")
        if dtype is None and not args:
            self.fail(f"the type of `{name}()` is not known: write `{name}<type>()`")
        return Call(name, args, dtype or args[0].dtype)
