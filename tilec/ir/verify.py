"""Checks that Tile IR keeps its rules. Runs after the frontend and after every pass that makes IR, always.

    verify(kernel)      returns, or raises a CompileError with one TL0901 diagnostic for each broken rule

A broken rule is a fault of the compiler, not of the author: whatever an author can get wrong must have been told before.
One walk over the kernel; each rule stands where its node is visited.
"""

from __future__ import annotations

from tilec.diagnostics import CompileError, Diagnostic, Severity, Span
from tilec.ir.dtypes import BOOL, INT64, UINT64, DType, int_range
from tilec.ir.expr import (
    BINARY_OPS,
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
    Scope,
    Select,
    Unary,
    Var,
)  # fmt: skip
from tilec.ir.kernel import Kernel, Launch
from tilec.ir.tile import (
    CONTROLS,
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
from tilec.ir.visit import storage

_COMPARES = ("eq", "ne", "lt", "le", "gt", "ge")
_BITWISE = ("and", "or", "xor", "shl", "shr")
_ATOMICS = {"add": 1, "max": 1, "min": 1, "and": 1, "or": 1, "xor": 1, "exch": 1, "cas": 2, "load": 0, "store": 1}
_REDUCES = ("sum", "max", "min", "abssum", "absmax", "any", "all", "bitand", "bitor", "bitxor")
_LOOPS = ("serial", "unroll", "vectorized", "pipelined")
_BARRIERS = ("block", "named", "arrive", "warp", "grid", "cluster", "cluster_arrive", "cluster_arrive_relaxed", "cluster_wait")
_MBARRIERS = ("init", "arrive", "arrive_copies", "expect", "arrive_expect", "wait")
_MAX_PROBLEMS = 20


def verify(kernel: Kernel) -> None:
    """Raises a CompileError (TL0901) that lists the broken rules of `kernel`, 20 at most."""
    checker = _Checker()
    checker.kernel(kernel)
    if checker.problems:
        raise CompileError(*checker.problems)


def show(e: Expr) -> str:
    """The text of an expression for a message; the printer is not loaded unless something is wrong."""
    from tilec.ir.show import show as text

    return text(e)


def static(extents: tuple[Expr, ...]) -> tuple[int | None, ...]:
    """Extents as numbers; None for those that are only known at run time."""
    return tuple(int(e.value) if isinstance(e, Const) else None for e in extents)


class _Checker:
    """The names in scope, the loops around the statement being visited, and what is wrong so far."""

    def __init__(self) -> None:
        self.problems: list[Diagnostic] = []
        self.scope: set[Var | Buffer] = set()
        self.span = Span("<none>", 0, 0, 0, 0)
        self.loops = 0
        self.parallel = False

    def broken(self, rule: str) -> None:
        """Notes a broken rule at the statement being visited."""
        if len(self.problems) < _MAX_PROBLEMS:
            help = "this is a fault of tilec, not of the kernel; please report it"
            self.problems.append(Diagnostic(Severity.ERROR, "TL0901", f"broken Tile IR: {rule}", self.span, help=help))

    # Kernels.

    def kernel(self, k: Kernel) -> None:
        """Parameters, then each launch."""
        self.span = k.span
        names = [p.name for p in k.params]
        if len(set(names)) != len(names):
            self.broken("two parameters have one name")
        missing = [name for name in k.outputs if name not in names]
        if missing:
            self.broken(f"the outputs {', '.join(missing)} are not parameters")
        self.scope = {*k.extents, *k.params}
        for p in k.params:
            if isinstance(p, Buffer):
                if p.scope is not Scope.GLOBAL:
                    self.broken(f"the parameter `{p.name}` is not global")
                self.buffer_facts(p)
        for launch in k.launches:
            self.launch(launch)

    def launch(self, launch: Launch) -> None:
        """The grid, then the body with the indices in scope."""
        self.span = launch.span
        if not 1 <= len(launch.grid) <= 3 or len(launch.grid) != len(launch.block_vars):
            self.broken(f"{len(launch.block_vars)} block indices for a grid of {len(launch.grid)} axes")
        self.integers(launch.grid, "an extent of the grid")
        if launch.threads is not None and (len(launch.threads) != 3 or any(n < 1 for n in launch.threads)):
            self.broken(f"threads are {launch.threads}")
        if len(launch.cluster) != 3 or any(n < 1 for n in launch.cluster):
            self.broken(f"clusters are {launch.cluster}")
        self.inside(launch.body, launch.block_vars + launch.thread_vars)

    def inside(self, s: Stmt, variables: tuple[Var, ...] = ()) -> None:
        """A nested statement with more variables in scope; what it declares ends with it."""
        before = self.scope
        self.scope = before | set(variables)
        self.stmt(s)
        self.scope = before

    # Buffers and regions.

    def buffer_facts(self, b: Buffer) -> None:
        """A buffer where it is declared."""
        self.integers(b.shape, f"an extent of `{b.name}`")
        if b.strides is not None:
            self.integers(b.strides, f"a stride of `{b.name}`")
            if len(b.strides) != len(b.shape):
                self.broken(f"`{b.name}` has {len(b.shape)} dimensions and {len(b.strides)} strides")
        if b.scope is not Scope.GLOBAL and None in static(b.shape):
            self.broken(f"the {b.scope.value} buffer `{b.name}` has an extent that is not constant")
        if b.scope is Scope.VAR and b.shape:
            self.broken(f"the variable `{b.name}` has dimensions")
        if b.safe_value is not None:
            self.expr(b.safe_value)
        if b.view_of is not None:
            self.view(b, b.view_of)

    def view(self, b: Buffer, of: Buffer) -> None:
        """A view has the scope and, where known, the bytes of what it views."""
        if b.scope is not of.scope:
            self.broken(f"`{b.name}` is {b.scope.value}, but views the {of.scope.value} `{of.name}`")
        sizes = [_bytes(static(x.shape), x.dtype) for x in (b, of)]
        if None not in sizes and sizes[0] != sizes[1]:
            self.broken(f"`{b.name}` has {sizes[0]} bytes, but views `{of.name}` of {sizes[1]}")
        if b.peer is not None:
            self.integers((b.peer,), f"the block of `{b.name}`")
            if b.scope is not Scope.SHARED or not isinstance(b.peer, Var | Const) or (b.shape, b.dtype) != (of.shape, of.dtype):
                self.broken(f"`{b.name}` is no tile of another block")

    def use(self, b: Buffer) -> None:
        """A buffer where it is used: its storage must exist by now."""
        if b in self.scope:
            return
        root = storage(b)
        if root.address is not None:
            self.typed(root.address, INT64, f"the address of `{root.name}`")
        elif root not in self.scope and not root.workspace:
            self.broken(f"`{b.name}` is used before it is declared")
        if b is not root or root.workspace or root.address is not None:
            self.scope.add(b)
            self.buffer_facts(b)

    def region(self, r: Region) -> None:
        """A box: one start and one extent per dimension."""
        self.use(r.buffer)
        if len(r.starts) != r.buffer.rank or len(r.extents) != r.buffer.rank:
            rank = r.buffer.rank
            self.broken(f"a region of `{r.buffer.name}` has {len(r.starts)} starts and {len(r.extents)} extents for {rank} dimensions")
        self.integers(r.starts, f"a start in `{r.buffer.name}`")
        self.integers(r.extents, f"an extent in `{r.buffer.name}`")

    def element(self, b: Buffer, indices: tuple[Expr, ...]) -> None:
        """One element: one integer index per dimension."""
        self.use(b)
        if len(indices) != b.rank:
            self.broken(f"`{b.name}` has {b.rank} dimensions, but {len(indices)} indices")
        self.integers(indices, f"an index of `{b.name}`")

    # Expressions.

    def integers(self, exprs: tuple[Expr, ...], what: str) -> None:
        """Expressions that must be integers."""
        for e in exprs:
            self.expr(e)
            if not e.dtype.is_int:
                self.broken(f"{what} is {e.dtype}: `{show(e)}`")

    def condition(self, e: Expr) -> None:
        """An expression that must be bool."""
        self.typed(e, BOOL, "a condition")

    def typed(self, e: Expr, dtype: DType, what: str) -> None:
        """An expression that must have a certain type."""
        self.expr(e)
        if e.dtype != dtype:
            self.broken(f"{what} is {e.dtype}, not {dtype}: `{show(e)}`")

    def expr(self, e: Expr) -> None:
        """The rules of one expression and of what is below it."""
        match e:
            case Const():
                _check_const(e, self)
            case Var():
                if e not in self.scope:
                    self.broken(f"`{e.name}` is used before it is declared")
            case Load(buffer, indices):
                self.element(buffer, indices)
            case Binary(op, a, b, dtype):
                self.expr(a)
                self.expr(b)
                self.binary(e, op, a.dtype, b.dtype, dtype)
            case Compare(op, a, b):
                self.expr(a)
                self.expr(b)
                if op not in _COMPARES or a.dtype != b.dtype:
                    self.broken(f"`{op}` compares {a.dtype} with {b.dtype}: `{show(e)}`")
            case Logical(op, a, b):
                self.condition(a)
                self.condition(b)
                if op not in ("and", "or"):
                    self.broken(f"`{op}` is no logical operator")
            case Select(cond, a, b, dtype):
                self.condition(cond)
                self.typed(a, dtype, "an arm of a select")
                self.typed(b, dtype, "an arm of a select")
            case Unary(op, a, dtype):
                self.typed(a, dtype, "an operand")
                if not {"neg": dtype != BOOL, "not": dtype == BOOL, "invert": dtype.is_int}.get(op, False):
                    self.broken(f"`{op}` of {dtype}")
            case Cast(a):
                self.expr(a)
            case Reinterpret(a, dtype):
                self.expr(a)
                if a.dtype.bits != dtype.bits:
                    self.broken(f"{a.dtype} bits read as {dtype}")
            case Call(_, args):
                for a in args:
                    self.expr(a)

    def binary(self, e: Expr, op: str, a: DType, b: DType, dtype: DType) -> None:
        """Operand types of a Binary."""
        if op not in BINARY_OPS:
            self.broken(f"`{op}` is no operator")
        right = b.is_int if op in ("shl", "shr") else b == dtype
        if a != dtype or not right:
            self.broken(f"`{op}` of {a} and {b} gives {dtype}: `{show(e)}`")
        elif (op == "div" and not dtype.is_float) or (op in _BITWISE and dtype.is_float):
            self.broken(f"`{op}` of {dtype}: `{show(e)}`")

    # Statements.

    def stmt(self, s: Stmt) -> None:
        """The rules of one statement and of what is inside it."""
        if isinstance(s, Seq):
            for child in s.body:
                self.stmt(child)
            return
        self.span = s.span
        match s:
            case For() | Parallel() | While() | If():
                self.compound(s)
            case Copy() | Fill() | Gemm() | Reduce() | Scan() | BulkCopy():
                self.tile(s)
            case Let(var, value):
                self.typed(value, var.dtype, f"the value of `{var.name}`")
                self.scope.add(var)
            case Store(buffer, indices, value):
                self.element(buffer, indices)
                self.typed(value, buffer.dtype, f"what is stored to `{buffer.name}`")
            case Alloc(buffer):
                if buffer.scope is Scope.GLOBAL:
                    self.broken(f"`{buffer.name}` is global and cannot be allocated")
                self.buffer_facts(buffer)
                self.scope.add(buffer)
            case Atomic():
                self.atomic(s)
            case Break() | Continue():
                if not self.loops:
                    self.broken(f"{type(s).__name__.lower()} outside of a loop")
            case _:
                self.effect(s)

    def effect(self, s: Barrier | Mbarrier | Control | Trap | Print | Evaluate) -> None:
        """Statements that only check, wait or tell."""
        match s:
            case Barrier(kind, id, count):
                if kind not in _BARRIERS:
                    self.broken(f"no barrier is called `{kind}`")
                if self.parallel:
                    self.broken("a barrier inside a parallel loop")
                self.integers(tuple(e for e in (id, count) if e is not None), "an operand of a barrier")
            case Mbarrier(kind, buffer, index, value):
                self.element(buffer, (index,))
                alone = kind in ("arrive", "arrive_copies")
                if kind not in _MBARRIERS or (value is None) is not alone or buffer.dtype != UINT64 or self.parallel:
                    self.broken(f"`{kind}` of the barrier `{buffer.name}`")
                self.integers(() if value is None else (value,), "an operand of a barrier")
            case Control(kind, value):
                if kind not in CONTROLS or value < 0 or self.parallel:
                    self.broken(f"the control `{kind}` {value}")
            case Trap(cond):
                self.condition(cond)
            case Print(_, args):
                for a in args:
                    self.expr(a)
            case Evaluate(value):
                self.expr(value)

    def compound(self, s: For | Parallel | While | If) -> None:
        """Statements with others inside."""
        match s:
            case For(var, start, stop, step, kind):
                for e in (start, stop, step):
                    self.typed(e, var.dtype, f"a bound of the loop over `{var.name}`")
                if not var.dtype.is_int or kind not in _LOOPS or (isinstance(step, Const) and step.value == 0):
                    self.broken(f"a {kind} loop over the {var.dtype} `{var.name}` in steps of `{show(step)}`")
                self.loop(s.body, (var,))
            case While(cond, body):
                self.condition(cond)
                self.loop(body, ())
            case If(cond, then, orelse):
                self.condition(cond)
                self.inside(then)
                self.inside(orelse)
            case Parallel(variables, extents, body):
                self.integers(extents, "an extent of a parallel loop")
                if len(variables) != len(extents) or not variables or not all(v.dtype.is_int for v in variables):
                    self.broken(f"{len(variables)} parallel indices for {len(extents)} extents")
                if self.parallel:
                    self.broken("a parallel loop inside a parallel loop")
                loops, self.loops, outer, self.parallel = self.loops, 0, self.parallel, True
                self.inside(body, variables)
                self.loops, self.parallel = loops, outer

    def loop(self, body: Stmt, variables: tuple[Var, ...]) -> None:
        """The body of a loop that Break and Continue may leave."""
        self.loops += 1
        self.inside(body, variables)
        self.loops -= 1

    def atomic(self, s: Atomic) -> None:
        """An atomic: operands of the buffer's type, as many as its operation takes."""
        self.element(s.buffer, s.indices)
        if s.buffer.scope not in (Scope.GLOBAL, Scope.SHARED):
            self.broken(f"an atomic on the {s.buffer.scope.value} `{s.buffer.name}`")
        if _ATOMICS.get(s.op) != len(s.operands):
            self.broken(f"the atomic `{s.op}` with {len(s.operands)} operands")
        for e in s.operands:
            self.typed(e, s.buffer.dtype, f"an operand of an atomic on `{s.buffer.name}`")
        if s.result is not None:
            if s.result.dtype != s.buffer.dtype:
                self.broken(f"the old value of `{s.buffer.name}` as {s.result.dtype}")
            self.scope.add(s.result)

    def tile(self, s: Copy | Fill | Gemm | Reduce | Scan | BulkCopy) -> None:
        """Statements that act on whole regions."""
        if self.parallel:
            self.broken(f"a {type(s).__name__.lower()} inside a parallel loop")
        match s:
            case Copy(src, dst):
                self.region(src)
                self.region(dst)
                self.same_box(src, dst, src.extents)
            case BulkCopy(src, dst, barrier, index):
                self.region(src)
                self.region(dst)
                self.same_box(src, dst, src.extents)
                sent = src.buffer.scope is Scope.SHARED and dst.buffer.peer is not None
                load = src.buffer.scope is Scope.GLOBAL and dst.buffer.scope is Scope.SHARED
                if src.buffer.dtype != dst.buffer.dtype or (load or sent) is (barrier is None) or (s.mask and not load):
                    self.broken(f"a bulk copy of `{src.buffer.name}` to `{dst.buffer.name}`")
                if barrier is not None and index is not None:
                    self.element(barrier, (index,))
            case Fill(dst, value):
                self.region(dst)
                self.typed(value, dst.buffer.dtype, f"what fills `{dst.buffer.name}`")
            case Gemm():
                self.gemm(s)
            case Reduce(op, src, dst, dim):
                self.region(src)
                self.region(dst)
                if op not in _REDUCES or not 0 <= dim < len(src.extents):
                    self.broken(f"the reduction `{op}` along dimension {dim} of {len(src.extents)}")
                    return
                self.same_box(src, dst, src.extents[:dim] + src.extents[dim + 1 :])
            case Scan(op, src, dst, dim):
                self.region(src)
                self.region(dst)
                if op not in ("sum", "max") or not 0 <= dim < len(src.extents):
                    self.broken(f"the scan `{op}` along dimension {dim} of {len(src.extents)}")
                self.same_box(src, dst, src.extents)

    def same_box(self, src: Region, dst: Region, extents: tuple[Expr, ...]) -> None:
        """`extents` (of the source) and those of the destination agree once extents of 1 are dropped."""
        left, right = (tuple(n for n in static(e) if n != 1) for e in (extents, dst.extents))
        if not _agree(left, right):
            box = " to ".join(f"`{r.buffer.name}` ({', '.join(map(show, e))})" for r, e in ((src, extents), (dst, dst.extents)))
            self.broken(f"extents that do not agree: {box}")

    def marks(self, marks: Region, m: int | None, k: int | None) -> None:
        """A row for each row of the left operand, 4 bits for every four of its elements."""
        self.region(marks)
        dtype = marks.buffer.dtype
        if not dtype.is_int or dtype.bits > 32:
            self.broken(f"marks of {dtype}")
            return
        per = dtype.bits
        if len(marks.extents) < 2 or (m is not None and k is not None and not _agree(static(marks.extents[-2:]), (m, k // per))):
            self.broken(f"marks of `{marks.buffer.name}` for an operand of {m}x{k}")

    def gemm(self, s: Gemm) -> None:
        """M x K times K x N into M x N."""
        for r in (s.a, s.b, s.c):
            self.region(r)
            if len(r.extents) < 2 or any(n not in (1, None) for n in static(r.extents[:-2])):
                self.broken(f"`{r.buffer.name}` is not a matrix in a GEMM")
                return
        a, b, c = (static(r.extents[-2:]) for r in (s.a, s.b, s.c))
        m, k = a[::-1] if s.trans_a else a
        k2, n = b[::-1] if s.trans_b else b
        if s.marks is not None:
            k = None if k is None else 2 * k
            self.marks(s.marks, m, k)
        if not (_agree((m, n), c) and _agree((k,), (k2,))):
            self.broken(f"a GEMM of {m}x{k} and {k2}x{n} into {c[0]}x{c[1]}")
        if s.a.buffer.dtype.kind is not s.b.buffer.dtype.kind and not (s.a.buffer.dtype.is_int and s.b.buffer.dtype.is_int):
            self.broken(f"a GEMM of {s.a.buffer.dtype} and {s.b.buffer.dtype}")
        if s.a.buffer.dtype.is_float and not s.c.buffer.dtype.is_float:
            self.broken(f"a GEMM of {s.a.buffer.dtype} into {s.c.buffer.dtype}")
        if s.policy not in ("square", "full_row", "full_col"):
            self.broken(f"no warp policy is called `{s.policy}`")
        self.condition(s.clear)


def _agree(a: tuple[int | None, ...], b: tuple[int | None, ...]) -> bool:
    """Equal as far as both are known."""
    return len(a) == len(b) and all(x is None or y is None or x == y for x, y in zip(a, b, strict=True))


def _bytes(shape: tuple[int | None, ...], dtype: DType) -> int | None:
    """The size of a dense array, None when it is not known."""
    size = dtype.bytes
    for n in shape:
        if n is None:
            return None
        size *= n
    return size


def _check_const(e: Const, checker: _Checker) -> None:
    """A literal has a value of its type's family and within its range."""
    if e.dtype.is_float or e.dtype == BOOL:
        good = isinstance(e.value, float if e.dtype.is_float else bool)
    else:
        low, high = int_range(e.dtype)
        good = isinstance(e.value, int) and low <= e.value <= high
    if not good:
        checker.broken(f"a literal {e.value!r} of type {e.dtype}")
