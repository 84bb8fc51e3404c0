"""Reads the text form of Tile IR (see `ir.show` for the form).

    parse(show(kernel)) means what kernel means;  parse_stmt("A[i] = 1.0", [a, i]) -> Seq((Store(a, (i,), ...),))

Everything read is new: variables and buffers are other objects than those that were printed. Mistakes raise a
CompileError with code TL0902 that names the line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeAlias

from tilec.diagnostics import Span
from tilec.ir.dtypes import BOOL, INT32
from tilec.ir.expr import Buffer, Const, Expr, Scope, Var, VarKind
from tilec.ir.kernel import Kernel, Launch, Module, Param
from tilec.ir.read_expr import Line, Reader, lines, mistake, unquote
from tilec.ir.tile import (
    Alloc,
    Atomic,
    Barrier,
    Break,
    BulkCopy,
    Continue,
    Control,
    Copy,
    Evaluate,
    Fill,
    For,
    Gemm,
    If,
    Let,
    Mbarrier,
    Parallel,
    Print,
    Reduce,
    Region,
    Scan,
    Seq,
    Stmt,
    Store,
    Trap,
    While,
)  # fmt: skip

_Pairs: TypeAlias = "tuple[tuple[str, str], ...]"
_SUFFIX = re.compile(r"\.\d+$")
_SCOPES = {s.value: s for s in Scope}


def parse(text: str) -> Kernel:
    """The one kernel that `text` shows."""
    kernels = parse_module(text).kernels
    if len(kernels) != 1:
        raise mistake(f"expected one kernel, found {len(kernels)}", 1, 1)
    return kernels[0]


def parse_module(text: str) -> Module:
    """All kernels of a text."""
    source = lines(text)
    starts = [i for i, line in enumerate(source) if line.indent == 0]
    if source and starts[:1] != [0]:
        raise mistake("expected `kernel`", source[0].number, 1)
    ends = [*starts, len(source)][1:]
    return Module(tuple(_Statements(source[a:b], {}).kernel() for a, b in zip(starts, ends, strict=True)))


def parse_stmt(text: str, given: Iterable[Var | Buffer] = ()) -> Seq:
    """Statements that may use the variables and buffers of `given` by their names."""
    return _Statements(lines(text), {thing.name: thing for thing in given}).block(-1)


def parse_expr(text: str, given: Iterable[Var | Buffer] = ()) -> Expr:
    """An expression over the variables and buffers of `given`."""
    source = lines(text)
    if len(source) != 1:
        raise mistake("expected one line", 1, 1)
    reader = Reader(source, {thing.name: thing for thing in given})
    found = reader.expr()
    if reader.token.kind != "end":
        reader.fail(f"unexpected `{reader.token.text}`")
    return found


class _Statements(Reader):
    """Adds declarations, statements and kernels. `row` is the line being read."""

    def __init__(self, source: list[Line], things: dict[str, Var | Buffer]) -> None:
        super().__init__(source, things)
        self.axis = 0

    def span(self) -> Span:
        """The place of the line being read."""
        line = self.source[self.row]
        return Span("<ir>", line.number, line.tokens[0].col, line.number, line.tokens[-1].col)

    def end_line(self) -> None:
        """The line must end here; goes to the next one."""
        if self.token.kind != "end":
            self.fail(f"unexpected `{self.token.text}`")
        self.row, self.at = self.row + 1, 0

    # Declarations.

    def variable(self, kind: VarKind, axis: int = 0) -> Var:
        """`name` or `name: dtype`."""
        span, name = self.span(), self.take("name")
        dtype = self.dtype() if self.accept(":") else INT32
        var = Var(_SUFFIX.sub("", name), dtype, kind, axis, span)
        self.things[name] = var
        return var

    def loop_variable(self) -> Var:
        """The variable of a For or Parallel."""
        return self.variable(VarKind.LOOP)

    def declare(self, scope: Scope, name: str, workspace: bool = False) -> Buffer:
        """`dtype[shape] ...` behind a buffer's name."""
        span, dtype = self.span(), self.dtype()
        shape = self.several(self.expr, "[", "]")
        strides = self.several(self.expr, "(", ")") if self.accept("strides") else None
        safe = self.expr() if self.accept("safe") else None
        root = self.buffer(self.take("name")) if self.accept("of") else None
        address = self.expr() if self.accept("at") else None
        peer = self.expr() if self.accept("peer") else None
        buffer = Buffer(_SUFFIX.sub("", name), dtype, shape, scope, strides, root, safe, workspace, span, address, peer)
        self.things[name] = buffer
        return buffer

    def named_buffer(self, workspace: bool = False) -> Buffer:
        """`name: scope dtype[shape] ...`, or the name of a buffer that is declared already."""
        name = self.take("name")
        if not self.accept(":"):
            return self.buffer(name)
        word = self.take("name")
        if word not in _SCOPES:
            self.fail(f"`{word}` is not a memory scope")
        return self.declare(_SCOPES[word], name, workspace)

    def region(self) -> Region:
        """`A`, or `A[start +: extent, index]`."""
        span, buffer = self.span(), self.buffer(self.take("name"))
        if self.token.text != "[":
            return Region(buffer, tuple(Const(0, INT32) for _ in buffer.shape), buffer.shape, span)
        parts = self.several(self._part, "[", "]")
        return Region(buffer, tuple(p[0] for p in parts), tuple(p[1] for p in parts), span)

    def _part(self) -> tuple[Expr, Expr]:
        start = self.expr()
        return start, self.expr() if self.accept("+:") else Const(1, INT32)

    # Statements.

    def block(self, outside: int) -> Seq:
        """The statements indented more deeply than `outside`."""
        body: list[Stmt] = []
        span = self.span() if self.row < len(self.source) else Span("<ir>", 0, 0, 0, 0)
        while self.row < len(self.source) and self.source[self.row].indent > outside:
            body += self.statement()
        return Seq(tuple(body), span)

    def inside(self) -> Seq:
        """The block that a line ending in `:` opens."""
        indent = self.source[self.row].indent
        self.expect(":")
        self.end_line()
        return self.block(indent)

    def statement(self) -> list[Stmt]:
        """One statement; nothing for `pass` and for declarations of views and workspaces."""
        span, word = self.span(), self.token.text
        if self.peek(1).text == "[":
            buffer = self.buffer(self.take("name"))
            indices = self.several(self.expr, "[", "]")
            self.expect("=")
            stmt: Stmt = Store(buffer, indices, self.expr(), span)
            self.end_line()
            return [stmt]
        self.take("name")
        if word in ("for", "parallel", "while", "if"):
            return [self._compound(word, span)]
        if word in ("view", "workspace", "pointer", "pass"):
            if word != "pass":
                self.named_buffer(word == "workspace")
            self.end_line()
            return []
        stmt = self._simple(word, span)
        self.end_line()
        return [stmt]

    def _compound(self, word: str, span: Span) -> Stmt:
        if word == "for":
            return self._for(span)
        if word == "parallel":
            variables = [self.loop_variable()]
            while self.accept(","):
                variables.append(self.loop_variable())
            extents = self.several(self.expr, "in", ":")
            self.at -= 1
            return Parallel(tuple(variables), extents, self.inside(), span)
        cond = self.expr()
        if word == "while":
            return While(cond, self.inside(), span)
        indent = self.source[self.row].indent
        then = self.inside()
        orelse = Seq((), span)
        if self.row < len(self.source) and self.source[self.row].indent == indent and self.accept("else"):
            orelse = self.inside()
        return If(cond, then, orelse, span)

    def _for(self, span: Span) -> For:
        var = self.loop_variable()
        self.expect("in")
        kind = self.take("name")
        bounds = self.several(self.expr, "(", ")")
        if len(bounds) != 3:
            self.fail("a loop has a start, a stop and a step")
        stages = self.number() if self.accept("stages") else None
        factor = self.number() if self.accept("factor") else 0
        return For(var, bounds[0], bounds[1], bounds[2], kind, self.inside(), stages, span, factor)

    def _simple(self, word: str, span: Span) -> Stmt:
        match word:
            case "let":
                return self._let(span)
            case "alloc":
                return Alloc(self.named_buffer(), span)
            case "atomic":
                return self._atomic(span)
            case "barrier":
                kind = self.take("name")
                id = self.expr() if self.accept("id") else None
                return Barrier(kind, id, self.expr() if self.accept("count") else None, span)
            case "mbarrier":
                return self._mbarrier(span)
            case "control":
                return Control(self.take("name"), self.number(), span)
            case "trap":
                self.expect("unless")
                cond = self.expr()
                self.expect(",")
                return Trap(cond, unquote(self.take("str")), span)
            case "print":
                once = self.accept("once")
                message, args = unquote(self.take("str")), []
                while self.accept(","):
                    args.append(self.expr())
                return Print(message, tuple(args), once, span)
            case "eval":
                return Evaluate(self.expr(), span)
            case "break":
                return Break(span)
            case "continue":
                return Continue(span)
            case _:
                return self._tile(word, span)

    def _let(self, span: Span) -> Let:
        """The value is read before the variable becomes visible."""
        before = dict(self.things)
        name = self.token.text
        var = self.variable(VarKind.LET)
        self.things = before
        self.expect("=")
        value = self.expr()
        self.things[name] = var
        return Let(var, value, span)

    def _atomic(self, span: Span) -> Atomic:
        op = self.take("name")
        buffer = self.buffer(self.take("name"))
        indices = self.several(self.expr, "[", "]")
        operands = self.several(self.expr, "(", ")")
        order = self.take("name")
        result = self.variable(VarKind.LET) if self.accept("->") else None
        return Atomic(op, buffer, indices, operands, order, result, span)

    def _mbarrier(self, span: Span) -> Mbarrier:
        kind, (buffer, index) = self.take("name"), self._slot()
        return Mbarrier(kind, buffer, index, self.expr() if self.accept("by") else None, span)

    def _slot(self) -> tuple[Buffer, Expr]:
        """`bar[index]`."""
        buffer = self.buffer(self.take("name"))
        (index,) = self.several(self.expr, "[", "]")
        return buffer, index

    def _tile(self, word: str, span: Span) -> Stmt:
        match word:
            case "bulk_copy":
                source = self.region()
                self.expect("->")
                target = self.region()
                barrier, index = self._slot() if self.accept("at") else (None, None)
                return BulkCopy(source, target, barrier, index, span, self.number() if self.accept("mask") else 0)
            case "copy":
                src = self.region()
                self.expect("->")
                return Copy(src, self.region(), span)
            case "fill":
                dst = self.region()
                self.expect("=")
                return Fill(dst, self.expr(), span)
            case "gemm":
                return self._gemm(span)
            case "reduce" | "scan":
                op, src = self.take("name"), self.region()
                self.expect("->")
                dst = self.region()
                self.expect("dim")
                dim = self.number()
                if word == "scan":
                    return Scan(op, src, dst, dim, self.accept("reverse"), span)
                keep = self.accept("keep")
                return Reduce(op, src, dst, dim, not keep, self.accept("nan"), span)
            case _:
                raise mistake(f"`{word}` begins no statement", span.line, span.col)

    def _gemm(self, span: Span) -> Gemm:
        c = self.region()
        self.expect("+=")
        a, trans_a = self.region(), self.accept(".T")
        self.expect("@")
        b, trans_b = self.region(), self.accept(".T")
        policy = self.take("name")
        waits = not self.accept("queued")
        marks = self.region() if self.accept("marks") else None
        clear = self.expr() if self.accept("clear") else Const(False, BOOL)
        return Gemm(a, b, c, trans_a, trans_b, policy, clear, span, waits, marks)

    # Kernels.

    def kernel(self) -> Kernel:
        """A whole kernel."""
        span = self.span()
        self.expect("kernel")
        symbol = self.take("name")
        extents = self.several(lambda: self.variable(VarKind.EXTENT), "[", "]") if self.token.text == "[" else ()
        self._scalars()
        params = self.several(self._param, "(", ")")
        outputs: list[str] = []
        if self.accept("->"):
            outputs.append(self.take("name"))
            while self.accept(","):
                outputs.append(self.take("name"))
        self.expect(":")
        self.end_line()
        flags, implicit, bindings, configs, sources = self._facts()
        launches = []
        while self.row < len(self.source):
            launches.append(self._launch())
        return Kernel(symbol, params, extents, tuple(launches), tuple(outputs), bindings, flags, configs, implicit, sources, span=span)

    def _scalars(self) -> None:
        """Declares the scalar parameters first, because shapes before them may use them."""
        back, depth = self.at, 0
        while self.token.kind != "end":
            text = self.next().text
            depth += (text in "([") - (text in ")]")
            if depth == 0:
                break
            plain = depth == 1 and text in ("(", ",") and self.token.kind == "name" and self.peek(1).text == ":"
            if plain and self.peek(3).text in (",", ")"):
                self.variable(VarKind.PARAM)
        self.at = back

    def _param(self) -> Param:
        name = self.take("name")
        self.expect(":")
        if self.peek(1).text != "[":
            self.dtype()
            thing = self.things[name]
            assert isinstance(thing, Var)
            return thing
        return self.declare(Scope.GLOBAL, name)

    def _facts(self) -> tuple[tuple[str, ...], bool, _Pairs, tuple[_Pairs, ...], tuple[str, ...]]:
        """The lines before the first launch: flags, implicit, bindings, configurations, the author's CUDA."""
        flags: tuple[str, ...] = ()
        bindings: _Pairs = ()
        configs, sources, implicit = [], [], False
        while self.row < len(self.source) and self.token.text in ("flags", "implicit", "bind", "config", "source"):
            word = self.next().text
            if word == "implicit":
                implicit = True
            elif word == "source":
                sources.append(unquote(self.take("str")))
            elif word == "flags":
                flags = tuple(self._strings())
            elif word == "bind":
                bindings = self._pairs()
            else:
                configs.append(self._pairs())
            self.end_line()
        return flags, implicit, bindings, tuple(configs), tuple(sources)

    def _strings(self) -> list[str]:
        found = [unquote(self.take("str"))]
        while self.accept(","):
            found.append(unquote(self.take("str")))
        return found

    def _pairs(self) -> _Pairs:
        found = []
        while self.token.kind == "str":
            name = unquote(self.take("str"))
            self.expect("=")
            found.append((name, unquote(self.take("str"))))
            self.accept(",")
        return tuple(found)

    def _launch(self) -> Launch:
        span = self.span()
        self.expect("launch")
        self.axis = 0
        block_vars = self.several(self._block_variable, "(", ")")
        self.expect("in")
        grid = self.several(self.expr, "(", ")")
        sizes = self._counts() if self.accept("threads") else None
        thread_vars = self.several(self._thread_variable, "(", ")") if self.accept("index") else ()
        panel, order = (self.number(), self.take("name")) if self.accept("panel") else (0, "row")
        cluster = self._counts() if self.accept("cluster") else (1, 1, 1)
        least = self.number() if self.accept("fitting") else 0
        waits, releases = self.accept("waits"), self.accept("releases")
        return Launch(block_vars, grid, sizes, thread_vars, self.inside(), panel, order, span, cluster, least, waits, releases)

    def _counts(self) -> tuple[int, int, int]:
        counts = self.several(self.number, "(", ")")
        if len(counts) != 3:
            self.fail("threads, and blocks of a cluster, are counted along three axes")
        return counts[0], counts[1], counts[2]

    def _block_variable(self) -> Var:
        self.axis += 1
        return self.variable(VarKind.BLOCK, self.axis - 1)

    def _thread_variable(self) -> Var:
        word = self.take("name")
        if word not in ("x", "y", "z"):
            self.fail("a thread index lies along x, y or z")
        self.expect("=")
        return self.variable(VarKind.THREAD, "xyz".index(word))


