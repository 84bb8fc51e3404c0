"""Cuts the blocks of a launch into several that each do a part of the rows or of the columns, where nothing in the source can tell.

    cut_blocks(launch with blocks of 192x256, 2) -> 96x256 (or 192x128, whichever leaves a thread less), twice as many blocks; else None

A dimension of a tile is cut when what lies along it belongs to the block alone: it is loaded from `index * n + ...` of a tensor, for n
entries, or computed from such row by row. A product that adds up along what is cut gives each part a share of the sum, which is fine
where nothing but atomic additions take it. Where the author's block index is meant otherwise (bounds of loops, heads), it is the number
of the new block divided; what a loop calls row i of a tile is row `i + part * n / parts` wherever it is not an index of a cut tile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from math import prod

from tilec.analysis.affine import coefficient, depends_on
from tilec.analysis.simplify import simplify
from tilec.ir.dtypes import INT32
from tilec.ir.expr import Binary, Buffer, Const, Expr, Load, Scope, Var
from tilec.ir.kernel import Launch
from tilec.ir.tile import Alloc, Atomic, Break, Continue, Copy, Fill, For, Gemm, If, Let, Parallel, Reduce, Region, Seq, Stmt, Store, While
from tilec.ir.visit import buffers_of, expr_children, map_expr, map_stmt, pointers, stmt_exprs, storage, walk_stmt
from tilec.plan.chunks import own_elements
from tilec.plan.clusters import ALONE
from tilec.plan.domains import add, paired, static, static_shape
from tilec.plan.pipelines import touched

_TILES = (Scope.SHARED, Scope.FRAGMENT)
_MOST_BLOCKS = 65535
"""Blocks along the second and the third axis of a grid."""


class _Tells(Exception):
    """Something in the source depends on the size of a block."""


def cut_blocks(launch: Launch, parts: int, unit: int = 16) -> Launch | None:
    """The launch in `parts` blocks for one, whose tiles are multiples of `unit` where they are multiplied: along the axis that leaves
    fragments the fewest words, and shared tiles the fewest bytes; None where none can be cut."""
    found = [c for c in (_cut(launch, index, n, parts, unit) for index, n in _places(launch)) if c is not None]
    return min(found, key=_size, default=None)


def first_cut(launch: Launch, ways: Iterable[tuple[int, int]]) -> Launch | None:
    """The launch cut in the first of the `ways` (parts, unit) in which it can be; None where there is none."""
    return next((x for x in (cut_blocks(launch, parts, unit) for parts, unit in ways) if x is not None), None)


def _size(launch: Launch) -> tuple[int, int]:
    """Bytes of fragments and of shared tiles."""
    tiles = [s.buffer for s in walk_stmt(launch.body) if isinstance(s, Alloc)]
    bytes_of = {scope: sum(prod(static_shape(b)) * b.dtype.bytes for b in tiles if b.scope is scope) for scope in _TILES}
    return bytes_of[Scope.FRAGMENT], bytes_of[Scope.SHARED]


def _places(launch: Launch) -> list[tuple[Var, int]]:
    """Block indices and how many entries of a tensor belong to each of their values, in order of appearance."""
    found: dict[tuple[Var, int], None] = {}
    for s in walk_stmt(launch.body):
        for index in launch.block_vars:
            for e, n in _walked(s):
                if n > 1 and coefficient(e, index) == n:
                    found[index, n] = None
    return list(found)


def _walked(s: Stmt) -> Iterator[tuple[Expr, int]]:
    """Places in tensors and how many entries a statement walks from there: the starts of copies, indices of element loops."""
    match s:
        case Copy(src, dst):
            for r in (src, dst):
                if r.buffer.scope is Scope.GLOBAL:
                    yield from ((e, static(n) or 0) for e, n in zip(r.starts, r.extents, strict=True))
        case Parallel(variables, extents):
            for e in _global_indices(s):
                yield from ((e, static(n) or 0) for v, n in zip(variables, extents, strict=True) if coefficient(e, v) == 1)


def _accesses(s: Stmt, scopes: tuple[Scope, ...]) -> Iterator[tuple[Buffer, tuple[Expr, ...]]]:
    """Elements in such memory that a statement reads or writes."""
    return ((b, indices) for x in walk_stmt(s) for b, indices in own_elements(x) if b.scope in scopes)


def _global_indices(s: Stmt) -> Iterator[Expr]:
    return (e for _, indices in _accesses(s, (Scope.GLOBAL,)) for e in indices)


def _cut(launch: Launch, index: Var, n: int, parts: int, unit: int) -> Launch | None:
    """The launch with blocks of `n / parts` entries along one index."""
    axis = launch.block_vars.index(index)
    blocks = static(launch.grid[axis])
    if n % parts or launch.cluster != ALONE or (axis and blocks is not None and blocks * parts > _MOST_BLOCKS):
        return None
    try:
        work = _Cut(launch, index, n, parts)
        work.spread()
        if any(isinstance(s, Gemm) and work.uneven(s, unit) for s in walk_stmt(launch.body)):
            return None
        body = work.statement(launch.body, frozenset())
    except _Tells:
        return None
    count = Binary("mul", launch.grid[axis], Const(parts, launch.grid[axis].dtype), launch.grid[axis].dtype)
    return replace(launch, body=body, grid=tuple(simplify(count) if a == axis else e for a, e in enumerate(launch.grid)))


@dataclass(slots=True)
class _Cut:
    """One attempt. `cuts` are the dimensions of tiles that are cut; `made` the tiles in place of the author's."""

    launch: Launch
    index: Var
    n: int
    parts: int
    cuts: dict[Buffer, set[int]] = field(default_factory=dict)
    made: dict[Buffer, Buffer] = field(default_factory=dict)
    shares: set[Buffer] = field(default_factory=set)  # accumulators that hold a share of the author's sums

    # ---- which dimensions are cut

    def spread(self) -> None:
        """Finds all dimensions that are cut because others are. Raises _Tells where one cannot be."""
        before = -1
        while before != (before := sum(map(len, self.cuts.values()))):
            for s in walk_stmt(self.launch.body):
                self.learn(s)
        if self.returns():
            raise _Tells
        self.share()
        seen = self.seen()
        for b, dims in self.cuts.items():
            if len(dims) > 1 or b.view_of is not None or any(static_shape(b)[d] != self.n for d in dims) or any(b is o for o in seen):
                raise _Tells
            self.made[b] = replace(b, shape=tuple(Const(self.n // self.parts, INT32) if d in dims else e for d, e in enumerate(b.shape)))

    def seen(self) -> list[Buffer]:
        """Tiles that are seen under another name, or by address."""
        found = [b for s in walk_stmt(self.launch.body) for e in stmt_exprs(s) for b, _ in pointers(e)]
        return found + [b.view_of for s in walk_stmt(self.launch.body) for b in buffers_of(s) if b.view_of is not None]

    def returns(self) -> bool:
        """True when a tensor is read and written: rows may depend on each other through it."""
        reads, writes = touched([self.launch.body])
        return any(b.scope is Scope.GLOBAL for b in {storage(b) for b in reads} & {storage(b) for b in writes})

    def share(self) -> None:
        """Finds the accumulators of products along what is cut. Raises _Tells where anything but such products writes to one."""
        every = list(walk_stmt(self.launch.body))
        self.shares |= {s.c.buffer for s in every if isinstance(s, Gemm) and self.sums(s)}
        for s in every:
            match s:
                case Gemm():
                    bad = (s.c.buffer in self.shares and not self.sums(s)) or bool({s.a.buffer, s.b.buffer} & self.shares)
                case Fill(dst=dst, value=value):
                    bad = dst.buffer in self.shares and not (isinstance(value, Const) and value.value == 0)
                case Store(buffer=buffer):
                    bad = buffer in self.shares
                case Copy(src=src, dst=dst) | Reduce(src=src, dst=dst):
                    bad = bool({src.buffer, dst.buffer} & self.shares)
                case _:
                    bad = False
            if bad:
                raise _Tells
        if any(b in self.cuts or b.scope is not Scope.FRAGMENT for b in self.shares):
            raise _Tells

    def mark(self, b: Buffer, dim: int) -> None:
        self.cuts.setdefault(b, set()).add(dim)

    def cut(self, b: Buffer, dim: int) -> bool:
        return dim in self.cuts.get(b, ())

    def learn(self, s: Stmt) -> None:
        """What a statement says about dimensions."""
        match s:
            case Copy(src, dst):
                for a, b in ((src, dst), (dst, src)):
                    self.tie([(d, x) for d, x in zip(paired(a), paired(b), strict=False)], a, b)
            case Gemm():
                for one, other in (*_sides(s), _depths(s)):
                    if self.cut(one[0].buffer, one[1]) or self.cut(other[0].buffer, other[1]):
                        self.mark(one[0].buffer, one[1])
                        self.mark(other[0].buffer, other[1])
            case Reduce(src=src, dst=dst, dim=dim):
                kept = [d for d in range(len(src.extents)) if d != dim]
                into = kept if len(dst.extents) == len(src.extents) else list(range(len(kept)))
                for d, e in zip(kept, into, strict=False):
                    if self.cut(src.buffer, d) or self.cut(dst.buffer, e):
                        self.mark(src.buffer, d)
                        self.mark(dst.buffer, e)
            case Parallel():
                variables = self.variables(s)
                stores = [x for x in walk_stmt(s.body) if isinstance(x, Store) and x.buffer.scope in _TILES]
                for buffer, n in ((x.buffer, n) for x in stores for n, e in enumerate(x.indices) if e in variables):
                    self.mark(buffer, n)

    def tie(self, dims: list[tuple[int, int]], a: Region, b: Region) -> None:
        """A copy: what is cut on side `a` is cut in the tile of side `b`."""
        for d, e in dims:
            whole = self.owned(a.starts[d], a.extents[d]) if a.buffer.scope is Scope.GLOBAL else self.cut(a.buffer, d)
            if whole and b.buffer.scope in _TILES:
                self.mark(b.buffer, e)

    def owned(self, start: Expr, extent: Expr) -> bool:
        """True for `index * n + ...`, n entries: what belongs to the block."""
        return coefficient(start, self.index) == self.n and static(extent) == self.n

    def variables(self, s: Parallel) -> frozenset[Var]:
        """The variables of a loop that walk what is cut."""
        found: set[Var] = set()
        for v, extent in zip(s.vars, s.extents, strict=True):
            if static(extent) != self.n:
                continue
            global_rows = any(coefficient(e, v) == 1 and coefficient(e, self.index) == self.n for e in _global_indices(s))
            if global_rows or any(self.cut(b, d) and e is v for b, indices in _accesses(s.body, _TILES) for d, e in enumerate(indices)):
                found.add(v)
        return frozenset(found)

    def uneven(self, g: Gemm, unit: int) -> bool:
        """True for a product that is cut and whose parts warps do not share evenly."""
        cut = any(self.cut(r.buffer, d) for side in (*_sides(g), _depths(g)) for r, d in side)
        return cut and self.n // self.parts % unit != 0

    # ---- the statements of a part

    def statement(self, s: Stmt, inner: frozenset[Var]) -> Stmt:
        """A statement for a part of the block; raises _Tells where its meaning would change. `inner`: variables that walk a part."""

        def expr(e: Expr) -> Expr:
            return self.expression(e, inner)

        match s:
            case Alloc(buffer):
                return replace(s, buffer=self.made.get(buffer, buffer))
            case Seq() | If() | While() | For() | Break() | Continue() | Let():
                return map_stmt(s, expr, lambda x: self.statement(x, inner))
            case Copy(src, dst):
                return self.copied(s, src, dst)
            case Fill(dst=dst):
                return replace(s, dst=self.region(dst), value=expr(s.value))
            case Gemm():
                if s.marks is not None or not s.waits:
                    raise _Tells
                return replace(s, a=self.region(s.a), b=self.region(s.b), c=self.region(s.c), clear=expr(s.clear))
            case Reduce(src=src, dst=dst):
                if self.cut(src.buffer, s.dim) or (dst.buffer.scope is Scope.GLOBAL):
                    raise _Tells
                return replace(s, src=self.region(src), dst=self.region(dst))
            case Parallel():
                return self.loop(s)
            case Store() | Atomic():
                return self.stored(s, inner)
            case _:
                raise _Tells

    def sums(self, g: Gemm) -> bool:
        """True when a product adds up along what is cut."""
        return any(self.cut(r.buffer, d) for r, d in _depths(g))

    def copied(self, s: Copy, src: Region, dst: Region) -> Stmt:
        dims = dict(zip(paired(src), paired(dst), strict=False))
        if len(paired(src)) != len(paired(dst)):
            raise _Tells
        cut = {d for d, e in dims.items() if self.cut(src.buffer, d) or self.cut(dst.buffer, e)}
        if len(cut) > 1:
            raise _Tells  # of both, a part would have its own only
        if dst.buffer.scope is Scope.GLOBAL and not any(self.owned(dst.starts[dims[d]], dst.extents[dims[d]]) for d in cut):
            raise _Tells  # all parts would write it
        return replace(s, src=self.region(src, cut), dst=self.region(dst, {dims[d] for d in cut}))

    def region(self, r: Region, cut: set[int] | None = None) -> Region:
        """A region with the entries of a part; of a tensor, dimensions in `cut`."""
        tile = r.buffer.scope in _TILES
        cut = self.cuts.get(r.buffer, set()) if tile else cut or set()
        starts, extents = list(r.starts), list(r.extents)
        for d, (start, extent) in enumerate(zip(r.starts, r.extents, strict=True)):
            if d not in cut:
                starts[d], extents[d] = self.expression(start, frozenset()), self.expression(extent, frozenset())
                continue
            if static(extent) != self.n or (tile and static(start) != 0):
                raise _Tells
            extents[d] = Const(self.n // self.parts, INT32)
            starts[d] = start if tile else self.moved(start)
        return replace(r, buffer=self.made.get(r.buffer, r.buffer), starts=tuple(starts), extents=tuple(extents))

    def moved(self, start: Expr) -> Expr:
        """Where a part of a tensor starts."""
        if coefficient(start, self.index) == self.n and (scaled := self.scaled(start)) is not None:
            return scaled
        return simplify(add(self.expression(start, frozenset()), self.offset()))

    def loop(self, s: Parallel) -> Stmt:
        variables = self.variables(s)
        if len(variables) > 1:
            raise _Tells
        body = self.statement(s.body, variables)
        sizes = tuple(
            Const(self.n // self.parts, INT32) if v in variables else self.expression(e, frozenset())
            for v, e in zip(s.vars, s.extents, strict=True)
        )
        return replace(s, extents=sizes, body=body)

    def stored(self, s: Store | Atomic, inner: frozenset[Var]) -> Stmt:
        """One element of a tensor must be one part's only, and one of a cut tile lie in the part."""
        b = s.buffer
        if isinstance(s, Atomic) and self.adds_share(s):
            if inner:
                raise _Tells
            taken = s.operands[0]
            assert isinstance(taken, Load)
            taken = replace(taken, indices=self.indices(taken.buffer, taken.indices, inner))
            return replace(s, indices=self.indices(b, s.indices, inner), operands=(taken,))
        walks = {v for v in inner if any(e is v or coefficient(e, v) == 1 for e in s.indices)}
        if (b.scope is Scope.GLOBAL and not inner) or (b.scope in (Scope.GLOBAL, *_TILES) and walks != inner):
            raise _Tells
        if b.scope in _TILES and inner and not any(self.cut(b, d) for d, e in enumerate(s.indices) if e in inner):
            raise _Tells
        indices = self.indices(b, s.indices, inner)
        if isinstance(s, Store):
            return replace(s, buffer=self.made.get(b, b), indices=indices, value=self.expression(s.value, inner))
        if b.scope is not Scope.GLOBAL:
            raise _Tells
        return replace(s, indices=indices, operands=tuple(self.expression(e, inner) for e in s.operands))

    def adds_share(self, s: Atomic) -> bool:
        """True when a share of a sum is added to a tensor."""
        value = s.operands[0] if len(s.operands) == 1 else None
        fine = s.op == "add" and s.buffer.scope is Scope.GLOBAL and s.result is None
        return fine and isinstance(value, Load) and value.buffer in self.shares

    def indices(self, b: Buffer, indices: tuple[Expr, ...], inner: frozenset[Var]) -> tuple[Expr, ...]:
        out: list[Expr] = []
        for d, e in enumerate(indices):
            if self.cut(b, d) and e not in inner:
                raise _Tells
            out.append(e if self.cut(b, d) else self.expression(e, inner))
        return tuple(out)

    # ---- expressions

    def offset(self) -> Expr:
        """Where the part at hand begins in the author's block."""
        part = Binary("mod", self.index, Const(self.parts, self.index.dtype), self.index.dtype)
        return Binary("mul", part, Const(self.n // self.parts, self.index.dtype), self.index.dtype)

    def expression(self, e: Expr, inner: frozenset[Var]) -> Expr:
        """An expression of the author's block as the part sees it."""
        if e is self.index:
            return Binary("floordiv", e, Const(self.parts, self.index.dtype), self.index.dtype)
        if isinstance(e, Var):
            return add(e, self.offset()) if e in inner else e
        if isinstance(e, Load):
            if e.buffer in self.shares:
                raise _Tells
            return replace(e, buffer=self.made.get(e.buffer, e.buffer), indices=self.indices(e.buffer, e.indices, inner))
        if e.dtype.is_int and depends_on(e, (self.index,)) and inner:
            walked = [coefficient(e, v) for v in inner]
            if None not in walked and coefficient(e, self.index) == self.n * sum(c or 0 for c in walked):
                scaled = self.scaled(e)
                if scaled is not None:
                    return scaled
        return map_expr(e, lambda c: self.expression(c, inner))

    def scaled(self, e: Expr) -> Expr | None:
        """An expression with `index * c` as the number of the new block times `c / parts`; None where the index occurs otherwise."""
        match e:
            case Binary("mul", a, Const(int(c)) as factor) | Binary("mul", Const(int(c)) as factor, a) if a is self.index:
                return replace(e, a=a, b=replace(factor, value=c // self.parts)) if c % self.parts == 0 else None
        if e is self.index or isinstance(e, Load):
            return None if depends_on(e, (self.index,)) or isinstance(e, Load) else e
        done = [self.scaled(c) for c in expr_children(e)]
        if any(x is None for x in done):
            return None
        pending = iter(done)
        return map_expr(e, lambda _: next(pending))  # type: ignore[arg-type,return-value]


def _last(r: Region, back: int) -> int:
    """The dimension of a tile that is the `back`-th from the end."""
    return len(r.extents) - back


def _sides(g: Gemm) -> tuple[tuple[tuple[Region, int], tuple[Region, int]], ...]:
    """The rows and the columns of a product: dimensions of an operand, and of the accumulator."""
    rows = (g.a, _last(g.a, 1 if g.trans_a else 2)), (g.c, _last(g.c, 2))
    columns = (g.b, _last(g.b, 2 if g.trans_b else 1)), (g.c, _last(g.c, 1))
    return rows, columns


def _depths(g: Gemm) -> tuple[tuple[Region, int], tuple[Region, int]]:
    """The dimensions of both operands along which a product adds up."""
    return (g.a, _last(g.a, 2 if g.trans_a else 1)), (g.b, _last(g.b, 1 if g.trans_b else 2))
