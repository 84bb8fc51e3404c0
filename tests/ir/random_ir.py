"""Random well-formed Tile IR, for property tests.

    @given(kernels())
    def test(kernel): ...
"""

from dataclasses import replace

from hypothesis import strategies as st

from tilec.ir import dtypes as dt
from tilec.ir import expr as ex
from tilec.ir import tile
from tilec.ir.expr import Binary, Buffer, Call, Cast, Compare, Const, Load, Logical, Reinterpret, Scope, Select, Unary, Var, VarKind
from tilec.ir.kernel import Kernel, Launch

LETTERS = st.characters(exclude_categories=("Cs",))  # named, since the default asks for a table that runs side by side write
NAMES = st.sampled_from(["i", "j", "x", "A", "min", "float32", "inf", "not", "for", "copy", "let", "größe", "_t0"])
DTYPES = st.sampled_from(dt.ALL)
INTS = st.sampled_from([d for d in dt.ALL if d.is_int])


@st.composite
def consts(draw, d):
    if d == dt.BOOL:
        return Const(draw(st.booleans()), d)
    if d.is_int:
        low, high = dt.int_range(d)
        return Const(draw(st.integers(max(low, -2), min(high, 8)) | st.integers(low, high)), d)
    return Const(draw(st.floats()), d)


class Maker:
    """Builds well-formed random IR from hypothesis' choices, keeping track of what is in scope."""

    def __init__(self, draw, known=False):
        self.draw, self.known = draw, known
        self.vars, self.buffers, self.parallel, self.loops = [], [], False, 0

    def pick(self, *options):
        return self.draw(st.sampled_from(options))

    def var(self, kind, d=None):
        return Var(self.draw(NAMES), d or self.draw(DTYPES), kind)

    def expr(self, d, depth=3):
        fitting = [v for v in self.vars if v.dtype == d]
        choices = ["const"] + ["var"] * 2 * bool(fitting)
        if depth:
            choices += ["load"] * any(b.dtype == d for b in self.buffers) + ["unary", "cast", "select", "call", "bits"]
            choices += ["logical", "compare"] if d == dt.BOOL else ["binary"] * 4
        match self.pick(*choices):
            case "const":
                return self.draw(consts(d))
            case "var":
                return self.pick(*fitting)
            case "load":
                buffer = self.pick(*[b for b in self.buffers if b.dtype == d])
                return Load(buffer, self.indices(buffer, depth - 1))
            case "unary":
                op = self.pick(*(["not"] if d == dt.BOOL else ["neg", "invert"] if d.is_int else ["neg"]))
                return Unary(op, self.expr(d, depth - 1), d)
            case "cast":
                return Cast(self.expr(self.draw(DTYPES), depth - 1), d)
            case "bits":
                same = [x for x in dt.ALL if x.bits == d.bits]
                return Reinterpret(self.expr(self.pick(*same), depth - 1), d)
            case "select":
                return Select(self.expr(dt.BOOL, depth - 1), self.expr(d, depth - 1), self.expr(d, depth - 1), d)
            case "call" if self.known:
                name, of = ("isnan", dt.FLOAT16) if d == dt.BOOL else ("exp" if d.is_float else "abs", d)
                return Call(name, (self.expr(of, depth - 1),), d)
            case "call":
                args = [self.expr(self.draw(DTYPES), depth - 1) for _ in range(self.draw(st.integers(0, 2)))]
                return Call(self.pick("exp", "fma", "min", "select", "bits", "float32", "my_function"), tuple(args), d)
            case "logical":
                return Logical(self.pick("and", "or"), self.expr(d, depth - 1), self.expr(d, depth - 1))
            case "compare":
                of = self.draw(DTYPES)
                return Compare(self.pick("eq", "ne", "lt", "le", "gt", "ge"), self.expr(of, depth - 1), self.expr(of, depth - 1))
            case _:
                ops = [o for o in ex.BINARY_OPS if (o != "div") if d.is_int or o not in ("and", "or", "xor", "shl", "shr")]
                op = self.pick(*ops, *(["div"] if d.is_float else []))
                right = self.draw(INTS) if op in ("shl", "shr") else d
                return Binary(op, self.expr(d, depth - 1), self.expr(right, depth - 1), d)

    def indices(self, buffer, depth=1):
        return tuple(self.expr(self.pick(dt.INT32, dt.INT64), depth) for _ in buffer.shape)

    def region(self, buffer, whole=None):
        zero = tuple(Const(0, dt.INT32) for _ in buffer.shape)
        if whole or (whole is None and self.draw(st.booleans())):
            return tile.Region(buffer, zero, buffer.shape)
        ones = tuple(Const(1, dt.INT32) for _ in zero)
        return tile.Region(buffer, self.indices(buffer), self.pick(buffer.shape, ones))

    def buffer(self, scope, rank):
        shape = tuple(Const(n, dt.INT32) for n in self.draw(st.lists(st.integers(1, 9), min_size=rank, max_size=rank)))
        return Buffer(self.draw(NAMES), self.draw(DTYPES), shape, scope)

    def block(self, depth):
        seen = len(self.vars), len(self.buffers)
        body = [self.stmt(depth) for _ in range(self.draw(st.integers(0, 3)))]
        del self.vars[seen[0] :], self.buffers[seen[1] :]
        return tile.Seq(tuple(body))

    def stmt(self, depth):
        kinds = ["let", "store", "alloc", "view", "workspace", "trap", "print", "eval", "atomic"]
        kinds += [] if self.parallel else ["copy", "fill", "gemm", "reduce", "scan", "barrier"]
        kinds += ["leave"] * bool(self.loops) + (["for", "while", "if"] + ["parallel"] * (not self.parallel)) * bool(depth)
        return getattr(self, "make_" + self.pick(*kinds))(depth)

    def make_let(self, depth):
        value = self.expr(self.draw(DTYPES))
        self.vars.append(self.var(VarKind.LET, value.dtype))
        return tile.Let(self.vars[-1], value)

    def make_store(self, depth):
        buffer = self.pick(*self.buffers)
        return tile.Store(buffer, self.indices(buffer), self.expr(buffer.dtype))

    def make_alloc(self, depth):
        scope = self.pick(Scope.SHARED, Scope.FRAGMENT, Scope.LOCAL, Scope.VAR)
        self.buffers.append(self.buffer(scope, 0 if scope is Scope.VAR else 2))
        return tile.Alloc(self.buffers[-1])

    def make_view(self, depth):
        of = self.pick(*self.buffers)
        view = Buffer(self.draw(NAMES), of.dtype, (*of.shape, Const(1, dt.INT32)), of.scope, view_of=of)
        self.buffers += [view] * (of.scope is not Scope.VAR)
        return tile.Evaluate(Load(view, self.indices(view))) if of.scope is not Scope.VAR else tile.Seq(())

    def make_workspace(self, depth):
        buffer = self.buffer(Scope.GLOBAL, 1)
        work = Buffer(buffer.name, buffer.dtype, buffer.shape, Scope.GLOBAL, workspace=True)
        self.buffers.append(work)
        return tile.Store(work, self.indices(work), self.expr(work.dtype))

    def make_trap(self, depth):
        return tile.Trap(self.expr(dt.BOOL), self.draw(st.text(LETTERS, max_size=8)))

    def make_print(self, depth):
        args = tuple(self.expr(self.draw(DTYPES)) for _ in range(self.draw(st.integers(0, 2))))
        return tile.Print(self.draw(st.text(LETTERS, max_size=8)), args, self.draw(st.booleans()))

    def make_eval(self, depth):
        return tile.Evaluate(self.expr(self.draw(DTYPES)))

    def make_atomic(self, depth):
        fitting = [b for b in self.buffers if b.scope in (Scope.GLOBAL, Scope.SHARED)]
        buffer = self.pick(*fitting)
        op, count = self.pick(("add", 1), ("cas", 2), ("load", 0))
        operands = tuple(self.expr(buffer.dtype) for _ in range(count))
        indices = self.indices(buffer)
        result = self.var(VarKind.LET, buffer.dtype) if self.draw(st.booleans()) else None
        self.vars += [result] if result else []
        return tile.Atomic(op, buffer, indices, operands, self.pick("relaxed", "acq_rel"), result)

    def make_copy(self, depth):
        buffer = self.pick(*self.buffers)
        return tile.Copy(self.region(buffer, True), self.region(buffer, True))

    def make_fill(self, depth):
        buffer = self.pick(*self.buffers)
        return tile.Fill(self.region(buffer), self.expr(buffer.dtype))

    def make_gemm(self, depth):
        tiles = [self.tile(dt.FLOAT16, 8, 8), self.tile(dt.FLOAT16, 8, 8), self.tile(dt.FLOAT32, 8, 8)]
        a, b, c = (self.region(t, True) for t in tiles)
        flags = self.draw(st.booleans()), self.draw(st.booleans())
        gemm = tile.Gemm(a, b, c, *flags, self.pick("square", "full_row"), self.expr(dt.BOOL))
        if self.draw(st.booleans()):
            kept, marks = self.tile(dt.FLOAT16, 8, 8), self.tile(dt.UINT8, 8, 2)
            wide = self.tile(dt.FLOAT16, 16, 8)
            tiles += [kept, marks, wide]
            gemm = replace(gemm, a=self.region(kept, True), b=self.region(wide, True), marks=self.region(marks, True), trans_a=False, trans_b=False)
        return tile.Seq((*map(tile.Alloc, tiles), gemm))

    def tile(self, d, *shape):
        return Buffer(self.draw(NAMES), d, tuple(Const(n, dt.INT32) for n in shape), Scope.SHARED)

    def make_reduce(self, depth):
        d = self.draw(DTYPES)
        src, dst = self.tile(d, 4, 8), self.tile(d, 4)
        options = self.draw(st.booleans()), self.draw(st.booleans())
        step = tile.Reduce(self.pick("sum", "absmax"), self.region(src, True), self.region(dst, True), 1, *options)
        return tile.Seq((tile.Alloc(src), tile.Alloc(dst), step))

    def make_scan(self, depth):
        t = self.tile(self.draw(DTYPES), 4, 8)
        step = tile.Scan("sum", self.region(t, True), self.region(t, True), 0, self.draw(st.booleans()))
        return tile.Seq((tile.Alloc(t), step))

    def make_barrier(self, depth):
        if self.draw(st.booleans()):
            return tile.Barrier(self.pick("block", "warp", "grid"))
        return tile.Barrier("named", self.expr(dt.INT32), self.expr(dt.INT32) if self.draw(st.booleans()) else None)

    def make_leave(self, depth):
        return self.pick(tile.Break(), tile.Continue())

    def make_for(self, depth):
        var = self.var(VarKind.LOOP, self.pick(dt.INT32, dt.INT64))
        start, stop = (self.expr(var.dtype) for _ in range(2))
        kind = self.pick("serial", "unroll", "vectorized", "pipelined")
        stages = self.pick(None, 0, 3) if kind == "pipelined" else None
        return tile.For(var, start, stop, Const(self.pick(1, -2), var.dtype), kind, self.within([var], depth, 1), stages)

    def make_while(self, depth):
        return tile.While(self.expr(dt.BOOL), self.within([], depth, 1))

    def make_if(self, depth):
        return tile.If(self.expr(dt.BOOL), self.within([], depth, 0), self.within([], depth, 0))

    def make_parallel(self, depth):
        variables = [self.var(VarKind.LOOP, dt.INT32) for _ in range(self.pick(1, 2))]
        extents = tuple(self.expr(dt.INT32) for _ in variables)
        loops, self.loops, self.parallel = self.loops, 0, True
        body = self.within(variables, depth, 0)
        self.loops, self.parallel = loops, False
        return tile.Parallel(tuple(variables), extents, body)

    def within(self, variables, depth, loops):
        self.vars += variables
        self.loops += loops
        body = self.block(depth - 1)
        self.loops -= loops
        for v in variables:
            self.vars.remove(v)
        return body


@st.composite
def kernels(draw, known=False):
    """A kernel that `verify` accepts; with `known`, one that calls nothing but intrinsics."""
    maker = Maker(draw, known)
    m, n = Var("M", dt.INT32, VarKind.EXTENT), Var("n", dt.INT64, VarKind.EXTENT)
    scalar = Var("alpha", draw(DTYPES), VarKind.PARAM)
    size = Var("size", dt.INT32, VarKind.PARAM)
    a = Buffer("A", draw(DTYPES), (m, Binary("mul", Const(2, dt.INT32), size, dt.INT32)), Scope.GLOBAL)
    b = Buffer("B", dt.FLOAT16, (n,), Scope.GLOBAL, strides=(n,), safe_value=draw(consts(dt.FLOAT16)))
    maker.vars += [m, n, scalar, size]
    maker.buffers += [a, b]
    launches = []
    for _ in range(draw(st.integers(1, 2))):
        blocks = tuple(Var(draw(NAMES), dt.INT32, VarKind.BLOCK, axis) for axis in range(draw(st.integers(1, 3))))
        threads = tuple(Var(draw(NAMES), dt.INT32, VarKind.THREAD, axis) for axis in draw(st.sampled_from([(), (0,), (2, 0)])))
        grid = tuple(maker.expr(dt.INT32, 1) for _ in blocks)
        body = maker.within([*blocks, *threads], 3, 0)
        panel = draw(st.sampled_from([0, 8]))
        sizes, order = draw(st.sampled_from([None, (128, 1, 1)])), "column" if panel else "row"
        cluster = draw(st.sampled_from([(1, 1, 1), (2, 1, 1)]))
        launches.append(Launch(blocks, grid, sizes, threads, body, panel, order, cluster=cluster, min_blocks=draw(st.sampled_from([0, 2])), waits=draw(st.booleans())))
    texts = st.text(LETTERS, max_size=6)
    return Kernel(
        "k", (a, scalar, b, size), (m, n), tuple(launches), draw(st.sampled_from([(), ("A",), ("A", "B")])),
        tuple(draw(st.lists(st.tuples(texts, texts), max_size=2))), tuple(draw(st.lists(texts, max_size=2))),
        tuple(tuple(c) for c in draw(st.lists(st.lists(st.tuples(texts, texts), min_size=1, max_size=2), max_size=2))), draw(st.booleans()),
    )  # fmt: skip
