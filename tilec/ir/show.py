"""Prints Tile IR as text.

    kernel add[n](A: float32[n], C: float32[n]):
      launch (bx) in (ceildiv(n, 256)) threads (256, 1, 1):
        parallel i in 256:
          C[bx * 256 + i] = A[bx * 256 + i] + 1.0

`show` prints expressions, regions, statements, kernels and modules; `ir.read` reads them again. How to read the form:

- operators are Python's, typed by their left operand; a literal that is not int32, float32 or bool carries its type
  (`1:int64`, `0.5:float16`); `float16(x)` is a cast, `bits<int32>(x)` a reinterpretation, `select(c, a, b)` a choice;
- `A[i, 8 +: 16]` is a region: one row i, 16 columns from 8; a tile's bare name is the whole of it;
- two variables of one name are told apart by a suffix: `i`, `i.1`;
- views and workspaces are declared right before the statement that uses them first.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tilec.ir.dtypes import ALL, BOOL, FLOAT32, HANDLE, INT32
from tilec.ir.expr import (
    Binary,
    Buffer,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    Logical,
    Reinterpret,
    Select,
    Unary,
    Var,
)  # fmt: skip
from tilec.ir.kernel import Kernel, Launch, Module
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
from tilec.ir.visit import regions, stmt_exprs, walk_expr

DTYPES = {d.name: d for d in (*ALL, HANDLE)}
COMPARE_SYMBOLS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
BINARY_SYMBOLS = {
    "or": ("|", 5), "xor": ("^", 6), "and": ("&", 7), "shl": ("<<", 8), "shr": (">>", 8), "add": ("+", 9), "sub": ("-", 9),
    "mul": ("*", 10), "div": ("/", 10), "floordiv": ("//", 10), "mod": ("%", 10),
}  # fmt: skip
BINARY_FUNCTIONS = ("min", "max", "pow", "truncdiv", "truncmod")
WORDS = {"and", "or", "not", "true", "false", "inf", "nan"}
RESERVED_CALLS = {*BINARY_FUNCTIONS, "select", "bits", *DTYPES}
_OR, _AND, _NOT, _COMPARE, _UNARY, _ATOM = 1, 2, 3, 4, 11, 12


@dataclass(slots=True)
class Names:
    """The spelling of every variable and buffer printed so far, and which buffers have been declared."""

    spelled: dict[Var | Buffer, str] = field(default_factory=dict)
    taken: dict[str, int] = field(default_factory=dict)
    declared: set[Buffer] = field(default_factory=set)

    def of(self, thing: Var | Buffer) -> str:
        """The unique name of a variable or buffer."""
        if thing not in self.spelled:
            count = self.taken.get(thing.name, 1 if thing.name in WORDS else 0)
            self.taken[thing.name] = count + 1
            self.spelled[thing] = f"{thing.name}.{count}" if count else thing.name
        return self.spelled[thing]


def show(node: Expr | Region | Stmt | Kernel | Module, names: Names | None = None) -> str:
    """The text of a node; `names` keeps the spelling of variables the same over several calls."""
    names = names or Names()
    match node:
        case Module():
            return "\n\n".join(show(k) for k in node.kernels)
        case Kernel():
            return "\n".join(_kernel(node, names))
        case Region():
            return _region(node, names)
        case Const() | Var() | Load() | Unary() | Binary() | Compare() | Logical() | Select() | Cast() | Reinterpret() | Call():
            return _expr(node, names, 0)
        case _:
            return "\n".join(_stmt(node, names, ""))


def _list(exprs: tuple[Expr, ...], names: Names) -> str:
    return ", ".join(_expr(e, names, 0) for e in exprs)


def _expr(e: Expr, names: Names, level: int) -> str:
    """The text of `e`, in parentheses when it binds less tightly than `level`."""
    text, own = _bare(e, names)
    return f"({text})" if own < level else text


def _bare(e: Expr, names: Names) -> tuple[str, int]:
    """The text of `e` and how tightly it binds."""
    match e:
        case Const():
            return _const(e), _ATOM
        case Var():
            return names.of(e), _ATOM
        case Load(buffer, indices):
            return f"{names.of(buffer)}[{_list(indices, names)}]", _ATOM
        case Unary("not", a):
            return f"not {_expr(a, names, _NOT)}", _NOT
        case Unary(op, a):
            inner = _expr(a, names, _UNARY)
            sign = "-" if op == "neg" else "~"
            return sign + (f"({inner})" if isinstance(a, Const) else inner), _UNARY
        case Binary(op, a, b):
            if op not in BINARY_SYMBOLS:
                return f"{op}({_list((a, b), names)})", _ATOM
            symbol, own = BINARY_SYMBOLS[op]
            return f"{_expr(a, names, own)} {symbol} {_expr(b, names, own + 1)}", own
        case Compare(op, a, b):
            return f"{_expr(a, names, _COMPARE + 1)} {COMPARE_SYMBOLS[op]} {_expr(b, names, _COMPARE + 1)}", _COMPARE
        case Logical(op, a, b):
            own = _AND if op == "and" else _OR
            return f"{_expr(a, names, own)} {op} {_expr(b, names, own + 1)}", own
        case Select(cond, a, b):
            return f"select({_list((cond, a, b), names)})", _ATOM
        case Cast(a, dtype):
            return f"{dtype}({_expr(a, names, 0)})", _ATOM
        case Reinterpret(a, dtype):
            return f"bits<{dtype}>({_expr(a, names, 0)})", _ATOM
        case Call(name, args, dtype):
            if e.foreign:
                return f"{_quote(name)}<{dtype}>({_list(args, names)})", _ATOM
            mark = "@" if name in RESERVED_CALLS else ""
            kind = "" if args and args[0].dtype == dtype else f"<{dtype}>"
            return f"{mark}{name}{kind}({_list(args, names)})", _ATOM


def _const(e: Const) -> str:
    if e.dtype == BOOL:
        return "true" if e.value else "false"
    if e.dtype.is_float:
        text = repr(float(e.value))
        return text if e.dtype == FLOAT32 else f"{text}:{e.dtype}"
    return str(int(e.value)) if e.dtype == INT32 else f"{int(e.value)}:{e.dtype}"


def is_whole(r: Region) -> bool:
    """True when the region covers its buffer and says so with plain zeros and the buffer's own extents."""
    return r.extents == r.buffer.shape and all(s == Const(0, INT32) for s in r.starts)


def _region(r: Region, names: Names) -> str:
    name = names.of(r.buffer)
    if is_whole(r):
        return name
    parts = []
    for start, extent in zip(r.starts, r.extents, strict=True):
        first = _expr(start, names, 0)
        parts.append(first if extent == Const(1, INT32) else f"{first} +: {_expr(extent, names, 0)}")
    return f"{name}[{', '.join(parts)}]"


def _typed(v: Var, names: Names) -> str:
    return names.of(v) if v.dtype == INT32 else f"{names.of(v)}: {v.dtype}"


def _buffer(b: Buffer, names: Names) -> str:
    """`float16[M, K]` with what else there is to say about a buffer."""
    text = f"{b.dtype}[{_list(b.shape, names)}]"
    if b.strides is not None:
        text += f" strides ({_list(b.strides, names)})"
    if b.safe_value is not None:
        text += f" safe {_expr(b.safe_value, names, 0)}"
    if b.view_of is not None:
        text += f" of {names.of(b.view_of)}"
    if b.address is not None:
        text += f" at {_expr(b.address, names, 0)}"
    if b.peer is not None:
        text += f" peer {_expr(b.peer, names, 0)}"
    return text


def _kernel(k: Kernel, names: Names) -> list[str]:
    extents = f"[{', '.join(_typed(v, names) for v in k.extents)}]" if k.extents else ""
    params = []
    for p in k.params:
        names.of(p)
    for p in k.params:
        if isinstance(p, Buffer):
            names.declared.add(p)
        params.append(f"{names.of(p)}: {p.dtype if isinstance(p, Var) else _buffer(p, names)}")
    outputs = f" -> {', '.join(k.outputs)}" if k.outputs else ""
    lines = [f"kernel {k.symbol}{extents}({', '.join(params)}){outputs}:"]
    if k.flags:
        lines.append(f"  flags {', '.join(map(_quote, k.flags))}")
    if k.implicit:
        lines.append("  implicit")
    lines += [f"  source {_quote(text)}" for text in k.sources]
    if k.bindings:
        lines.append(f"  bind {_pairs(k.bindings)}")
    lines += [f"  config {_pairs(c)}" for c in k.configs]
    for launch in k.launches:
        lines += _launch(launch, names)
    return lines


def _pairs(pairs: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(f"{_quote(name)} = {_quote(value)}" for name, value in pairs)


def _quote(text: str) -> str:
    """A string literal on one line."""
    escapes = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    return '"' + "".join(escapes.get(c, c if c.isprintable() else f"\\u{{{ord(c):x}}}") for c in text) + '"'


def _launch(launch: Launch, names: Names) -> list[str]:
    blocks = ", ".join(_typed(v, names) for v in launch.block_vars)
    text = f"  launch ({blocks}) in ({_list(launch.grid, names)})"
    if launch.threads is not None:
        text += f" threads {launch.threads}"
    if launch.thread_vars:
        axes = (f"{'xyz'[v.axis]} = {_typed(v, names)}" for v in launch.thread_vars)
        text += f" index ({', '.join(axes)})"
    if launch.panel:
        text += f" panel {launch.panel} {launch.panel_order}"
    if launch.cluster != (1, 1, 1):
        text += f" cluster {launch.cluster}"
    if launch.min_blocks:
        text += f" fitting {launch.min_blocks}"
    text += " waits" if launch.waits else ""
    text += " releases" if launch.releases else ""
    return [text + ":", *_body(launch.body, names, "    ")]


def _body(s: Stmt, names: Names, indent: str) -> list[str]:
    return _stmt(s, names, indent) or [f"{indent}pass"]


def _declarations(s: Stmt, names: Names, indent: str) -> list[str]:
    """Lines for the views and workspaces that `s` is the first to use."""
    sources, targets = regions(s)
    used = [r.buffer for r in (*sources, *targets)]
    if isinstance(s, Store | Atomic | Alloc | Mbarrier):
        used.append(s.buffer)
    used += [x.buffer for e in stmt_exprs(s) for x in walk_expr(e) if isinstance(x, Load)]
    lines = []
    for buffer in used:
        chain = [buffer]
        while chain[-1].view_of is not None:
            chain.append(chain[-1].view_of)
        for b in reversed(chain):
            if b not in names.declared and (b.view_of is not None or b.workspace or b.address is not None):
                names.declared.add(b)
                lines.append(f"{indent}{_keyword(b)} {names.of(b)}: {b.scope.value} {_buffer(b, names)}")
    return lines


def _keyword(b: Buffer) -> str:
    return "workspace" if b.workspace else "view" if b.view_of is not None else "pointer"


def _stmt(s: Stmt, names: Names, indent: str) -> list[str]:
    """The lines of a statement."""
    if isinstance(s, Seq):
        return [line for child in s.body for line in _stmt(child, names, indent)]
    lines = _declarations(s, names, indent)
    deeper = indent + "  "
    match s:
        case For(var, start, stop, step, kind, body, stages):
            bounds = ", ".join(_expr(e, names, 0) for e in (start, stop, step))
            staged = ("" if stages is None else f" stages {stages}") + (f" factor {s.factor}" if s.factor else "")
            return [*lines, f"{indent}for {_typed(var, names)} in {kind}({bounds}){staged}:", *_body(body, names, deeper)]
        case Parallel(variables, extents, body):
            index = ", ".join(_typed(v, names) for v in variables)
            return [*lines, f"{indent}parallel {index} in {_list(extents, names)}:", *_body(body, names, deeper)]
        case While(cond, body):
            return [*lines, f"{indent}while {_expr(cond, names, 0)}:", *_body(body, names, deeper)]
        case If(cond, then, orelse):
            lines += [f"{indent}if {_expr(cond, names, 0)}:", *_body(then, names, deeper)]
            other = _stmt(orelse, names, deeper)
            return [*lines, f"{indent}else:", *other] if other else lines
        case _:
            return [*lines, indent + _simple(s, names)]


def _simple(s: Stmt, names: Names) -> str:
    """The line of a statement that contains no other."""
    match s:
        case Let(var, value):
            text = _expr(value, names, 0)  # before the name: the value cannot mean the new variable
            return f"let {names.of(var)}: {var.dtype} = {text}"
        case Store(buffer, indices, value):
            return f"{names.of(buffer)}[{_list(indices, names)}] = {_expr(value, names, 0)}"
        case Alloc(buffer):
            if buffer in names.declared:
                return f"alloc {names.of(buffer)}"
            names.declared.add(buffer)
            return f"alloc {names.of(buffer)}: {buffer.scope.value} {_buffer(buffer, names)}"
        case Atomic():
            return _atomic(s, names)
        case Barrier(kind, id, count):
            return f"barrier {kind}" + "".join(
                f" {word} {_expr(e, names, 0)}" for word, e in (("id", id), ("count", count)) if e is not None
            )
        case Mbarrier(kind, buffer, index, value):
            text = f"mbarrier {kind} {names.of(buffer)}[{_expr(index, names, 0)}]"
            return text if value is None else f"{text} by {_expr(value, names, 0)}"
        case Control(kind, value):
            return f"control {kind} {value}"
        case Trap(cond, message):
            return f"trap unless {_expr(cond, names, 0)}, {_quote(message)}"
        case Print(message, args, once):
            return ", ".join([f"print{' once' if once else ''} {_quote(message)}", *(_expr(a, names, 0) for a in args)])
        case Evaluate(value):
            return f"eval {_expr(value, names, 0)}"
        case Break():
            return "break"
        case Continue():
            return "continue"
        case _:
            return _tile(s, names)


def _atomic(s: Atomic, names: Names) -> str:
    target = f"{names.of(s.buffer)}[{_list(s.indices, names)}]"
    text = f"atomic {s.op} {target} ({_list(s.operands, names)}) {s.order}"
    return text if s.result is None else f"{text} -> {names.of(s.result)}: {s.result.dtype}"


def _tile(s: Stmt, names: Names) -> str:
    """The line of a statement about whole regions."""
    match s:
        case Copy(src, dst):
            return f"copy {_region(src, names)} -> {_region(dst, names)}"
        case BulkCopy(src, dst, barrier, index):
            text = f"bulk_copy {_region(src, names)} -> {_region(dst, names)}"
            text = text if barrier is None or index is None else f"{text} at {names.of(barrier)}[{_expr(index, names, 0)}]"
            return f"{text} mask {s.mask}" if s.mask else text
        case Fill(dst, value):
            return f"fill {_region(dst, names)} = {_expr(value, names, 0)}"
        case Gemm():
            a, b, c = (_region(r, names) for r in (s.a, s.b, s.c))
            product = f"gemm {c} += {a}{'.T' if s.trans_a else ''} @ {b}{'.T' if s.trans_b else ''} {s.policy}"
            product = product if s.waits else f"{product} queued"
            product = product if s.marks is None else f"{product} marks {_region(s.marks, names)}"
            return product if s.clear == Const(False, BOOL) else f"{product} clear {_expr(s.clear, names, 0)}"
        case Reduce():
            words = f" dim {s.dim}" + ("" if s.clear else " keep") + (" nan" if s.nan_propagate else "")
            return f"reduce {s.op} {_region(s.src, names)} -> {_region(s.dst, names)}{words}"
        case Scan():
            return f"scan {s.op} {_region(s.src, names)} -> {_region(s.dst, names)} dim {s.dim}{' reverse' if s.reverse else ''}"
        case _:
            raise TypeError(f"no text for {type(s).__name__}")

