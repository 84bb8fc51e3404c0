"""Which register layout each fragment gets.

Three strengths, strongest first: what an instruction requires (the accumulators and register operands of a GEMM), what a
statement shared with a fragment that has a layout suggests, and a free choice that spreads the tile evenly with wide rows.
Nothing here fails: where two wishes collide, the first one stands and the statement in conflict converts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from tilec.analysis.affine import coefficient
from tilec.ir.expr import Buffer, Expr, Scope, Var
from tilec.ir.tile import Alloc, Copy, Parallel, Reduce, Seq, Stmt, Store
from tilec.ir.visit import walk_stmt
from tilec.layout.fragment import REPLICA, Digit, FragmentLayout
from tilec.plan.access import register_index
from tilec.plan.domains import Access, Dims, accesses, copy_as_parallel, domain_fits, static, static_shape, whole
from tilec.plan.ways import followed, projected
from tilec.record import replace


def power_up(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << max(0, n - 1).bit_length()


def power_down(n: int) -> int:
    """The largest power of two that is at most n."""
    return 1 << (n.bit_length() - 1)


def spread_evenly(shape: Sequence[int], threads: int, itemsize: int) -> FragmentLayout:
    """A free layout: up to 16 bytes of a row a thread, neighbouring threads along the row, then along earlier dimensions."""
    total, last = prod(shape), shape[-1] if shape else 1
    vector = 16 // itemsize
    while vector > 1 and (last % vector or total // vector < threads):
        vector //= 2
    thread: list[Digit] = []
    regs: list[Digit] = [Digit(len(shape) - 1, 1, vector)] if vector > 1 else []
    left = threads
    for dim in reversed(range(len(shape))):
        step = vector if dim == len(shape) - 1 else 1
        need = -(-shape[dim] // step)
        used = min(power_up(need), left if left == threads and need >= threads else power_down(left))
        if used > 1:
            thread.append(Digit(dim, step, used))
            left //= used
        if -(-need // used) > 1:
            regs.append(Digit(dim, step * used, -(-need // used)))
    return FragmentLayout(tuple(shape), threads, tuple(thread), tuple(regs))


def spread_blocks(shape: Sequence[int], threads: int, itemsize: int) -> FragmentLayout | None:
    """A free layout for a tile that is filled or emptied across its rows: each thread holds whole blocks of 16 bytes by as many rows, so
    that memory moves by vectors on both sides. None where such blocks do not fill the tile or are too few for the threads."""
    wide = tall = 16 // itemsize
    if len(shape) != 2 or shape[1] % wide:
        return None
    while tall > 1 and (shape[0] % tall or prod(shape) // (wide * tall) < threads):
        tall //= 2
    if tall < 2:
        return None
    across, down = shape[1] // wide, shape[0] // tall
    lanes = min(power_down(across), threads)
    rows = min(power_down(down), threads // lanes)
    if across % lanes or down % rows or lanes * rows != threads:
        return None
    thread = [Digit(d, step, n) for d, step, n in ((1, wide, lanes), (0, tall, rows)) if n > 1]
    more = [Digit(d, step, n) for d, step, n in ((1, wide * lanes, across // lanes), (0, tall * rows, down // rows)) if n > 1]
    return FragmentLayout(tuple(shape), threads, tuple(thread), (Digit(1, 1, wide), Digit(0, 1, tall), *more))


def across_rows(loop: Parallel) -> int | None:
    """Which variable of a loop runs along the rows of a shared tile that the loop takes across, as `x[i, j] = tile[j, i]` does; None
    where all rows are walked by the last variable, or by none."""
    body = [s for s in walk_stmt(loop.body) if not isinstance(s, Seq)]
    if len(loop.vars) < 2 or len(body) != 1 or not isinstance(body[0], Store):
        return None
    found = list(accesses(loop.body, loop.vars))
    tiles = [a for a in found if a.buffer.scope is Scope.SHARED]
    if len(found) != 2 or len(tiles) != 1 or any(a.buffer.scope is Scope.GLOBAL for a in found) or not tiles[0].indices:
        return None
    along = [n for n, v in enumerate(loop.vars) if coefficient(tiles[0].indices[-1], v) == 1]
    return along[0] if len(along) == 1 and along[0] < len(loop.vars) - 1 else None


def turned(stmts: Sequence[Stmt]) -> set[Buffer]:
    """Fragments that some loop takes across the rows of a shared tile with elements of the same size."""
    found: set[Buffer] = set()
    for s in stmts:
        if isinstance(s, Parallel) and across_rows(s) is not None:
            fragments = [a for a in accesses(s.body, s.vars) if a.buffer.scope is Scope.FRAGMENT and a.dims == (0, 1)]
            sizes = {a.buffer.dtype.bytes for a in accesses(s.body, s.vars)}
            found |= {a.buffer for a in fragments} if len(sizes) == 1 and len(s.vars) == 2 else set()
    return found


def project(layout: FragmentLayout, dims: Dims, shape: tuple[int, ...]) -> FragmentLayout:
    """The layout of a fragment that a domain of `layout` indexes by `dims`: digits of other variables become copies."""
    place = {d: n for n, d in enumerate(dims) if d is not None}
    thread = tuple(replace(g, dim=place[g.dim]) if g.dim in place else Digit(REPLICA, 0, g.size) for g in layout.thread)
    regs = tuple(replace(g, dim=place[g.dim]) for g in layout.regs if g.dim in place)
    return FragmentLayout(shape, layout.threads, thread, regs)


def embed(layout: FragmentLayout, dims: Dims, extents: tuple[int, ...], wide: int = 1) -> FragmentLayout:
    """A layout of the domain that agrees with a fragment indexed by `dims`.

    Variables that the fragment does not know take the threads that hold copies of it, then registers; up to `wide` neighbours
    along the last variable stay in one thread where all those threads have work all the same.
    """
    missing = [d for d in range(len(extents)) if d not in dims and extents[d] > 1]
    steps = dict.fromkeys(missing, 1)
    last = len(extents) - 1
    copies = layout.threads // prod(g.size for g in layout.thread if g.dim != REPLICA)
    while wide > 1 and (last not in steps or extents[last] % wide or prod(extents[d] for d in missing) // wide < copies):
        wide //= 2
    if wide > 1:
        steps[last] = wide
    thread: list[Digit] = []
    spare = layout.threads // layout.used_threads
    for g in (*layout.thread, Digit(REPLICA, 0, spare)):
        if g.dim != REPLICA:
            thread.append(replace(g, dim=_domain_dim(dims, g.dim)))
            continue
        rest = g.size
        for d in reversed(missing):
            size = min(power_down(rest), power_up(-(-extents[d] // steps[d])))
            if size > 1 and rest % size == 0:
                thread.append(Digit(d, steps[d], size))
                steps[d] *= size
                rest //= size
        if rest > 1:
            thread.append(Digit(REPLICA, 0, rest))
    regs = [replace(g, dim=_domain_dim(dims, g.dim)) for g in layout.regs]
    inner = [Digit(last, 1, wide)] if wide > 1 else []
    inner += [Digit(d, steps[d], -(-extents[d] // steps[d])) for d in reversed(missing) if -(-extents[d] // steps[d]) > 1]
    return FragmentLayout(extents, layout.threads, tuple(thread), (*inner, *regs))


def _domain_dim(dims: Dims, buffer_dim: int) -> int:
    d = dims[buffer_dim]
    return REPLICA if d is None else d


def covers(access: Access, extents: tuple[Expr, ...]) -> bool:
    """True when every variable of the domain (of extent above 1) indexes the fragment."""
    return access.dims is not None and all(d in access.dims or static(e) == 1 for d, e in enumerate(extents))


def domain(stmt: Stmt) -> tuple[tuple[Var, ...], tuple[Expr, ...], list[Access]] | None:
    """Variables, extents and fragment accesses of a Parallel loop or a copy; None for other statements."""
    loop = copy_as_parallel(stmt) if isinstance(stmt, Copy) else stmt
    if not isinstance(loop, Parallel):
        return None
    found = [a for a in accesses(loop.body, loop.vars) if a.buffer.scope is Scope.FRAGMENT]
    return loop.vars, loop.extents, found


def row_width(stmt: Stmt) -> int:
    """How many iterations make 16 bytes of the widest row of memory that a loop or copy walks; 1 when it walks none."""
    loop = copy_as_parallel(stmt) if isinstance(stmt, Copy) else stmt
    if not isinstance(loop, Parallel) or not loop.vars:
        return 1
    return 16 // max((a.buffer.dtype.bytes for a in accesses(loop.body, loop.vars) if _is_row(a, loop.vars[-1])), default=16)


def _is_row(a: Access, last: Var) -> bool:
    """True for neighbours in memory along `last`."""
    return a.buffer.scope in (Scope.GLOBAL, Scope.SHARED) and bool(a.indices) and coefficient(a.indices[-1], last) == 1


def domain_layout(
    found: Sequence[Access], extents: tuple[Expr, ...], known: Mapping[Buffer, FragmentLayout], wide: int = 1
) -> FragmentLayout | None:
    """The layout a loop takes from its fragments: from one that every variable indexes, written ones first, else from the
    largest other; None when no fragment decides, as one that is only read at fixed places does not."""
    sizes = tuple(static(e) for e in extents)
    if any(n is None for n in sizes):
        return None
    plain = tuple(n for n in sizes if n is not None)
    usable = [a for a in found if a.buffer in known and domain_fits(a, extents)]
    full = sorted((a for a in usable if covers(a, extents)), key=lambda a: not a.writes)
    for a in full:
        assert a.dims is not None
        return embed(known[a.buffer], a.dims, plain)
    if (layout := _by_reads(found, plain, known)) is not None:
        return layout
    moving = (a for a in usable if a.writes or (a.dims is not None and any(d is not None for d in a.dims)))
    for a in sorted(moving, key=lambda a: -prod(static_shape(a.buffer))):
        assert a.dims is not None
        return embed(known[a.buffer], a.dims, plain, wide)
    return None


def _by_reads(found: Sequence[Access], extents: tuple[int, ...], known: Mapping[Buffer, FragmentLayout]) -> FragmentLayout | None:
    """The layout that a loop takes from a fragment which it reads by the counters of loops inside; None where there is none."""
    for a in found:
        if a.way is not None and a.buffer in known and a.way.fits(static_shape(a.buffer), extents):
            layout = followed(known[a.buffer], a.way, extents)
            if layout is not None:
                return layout
    return None


def propagate(stmts: Sequence[Stmt], known: dict[Buffer, FragmentLayout]) -> None:
    """Hands layouts on from statement to statement until nothing changes; results of reductions take theirs from the source."""
    results = _results(stmts)
    changed = True
    while changed:
        changed = False
        for s in stmts:
            for buffer, layout in _suggestions(s, known):
                if buffer not in known and (isinstance(s, Reduce) or buffer not in results):
                    known[buffer] = layout
                    changed = True


def _results(stmts: Sequence[Stmt]) -> set[Buffer]:
    """Fragments that a reduction of another fragment fills: the source's layout leaves them in one that is given."""
    return {
        s.dst.buffer for s in stmts
        if isinstance(s, Reduce) and whole(s.src) and whole(s.dst) and s.src.buffer.scope is s.dst.buffer.scope is Scope.FRAGMENT
    }  # fmt: skip


def _suggestions(s: Stmt, known: Mapping[Buffer, FragmentLayout]) -> list[tuple[Buffer, FragmentLayout]]:
    if isinstance(s, Reduce):
        if s.src.buffer in known and whole(s.src) and whole(s.dst) and s.dst.buffer.scope is Scope.FRAGMENT:
            keep = len(s.dst.buffer.shape) == len(s.src.buffer.shape)
            layout = known[s.src.buffer].without(s.dim, keep)
            if layout.shape == static_shape(s.dst.buffer):
                return [(s.dst.buffer, layout)]
        return []
    d = domain(s)
    if d is None:
        return []
    _, extents, found = d
    sizes = tuple(static(e) or 0 for e in extents)
    if not any(covers(a, extents) and a.buffer in known and domain_fits(a, extents) for a in found) and not _by_reads(found, sizes, known):
        return []
    layout_ = domain_layout(found, extents, known)
    if layout_ is None:
        return []
    out = [(a.buffer, project(layout_, a.dims, static_shape(a.buffer))) for a in found if a.dims is not None and domain_fits(a, extents)]
    return [*out, *_followers(found, extents, layout_)]


def _followers(found: Sequence[Access], extents: tuple[Expr, ...], layout: FragmentLayout) -> list[tuple[Buffer, FragmentLayout]]:
    """Layouts for fragments that a loop of `layout` reads by parts of its variables, or by the counters of short loops inside."""
    written = {a.buffer for a in found if a.writes}
    out: list[tuple[Buffer, FragmentLayout]] = []
    for a in found:
        shape = static_shape(a.buffer)
        if a.way is not None and a.buffer not in written and a.way.fits(shape, [static(e) for e in extents]):
            held = projected(layout, a.way, shape, a.buffer.dtype.bits)
            out += [] if held is None else [(a.buffer, held)]
    return out


def held_register(
    a: Access, held: FragmentLayout, extents: tuple[Expr, ...], loop: FragmentLayout, digits: Sequence[Expr]
) -> Expr | None:
    """The register of a fragment that is `held` so, in which a thread of `loop` finds what an access needs; None where it does not."""
    if a.dims is not None:
        return register_index(held, a.dims, loop, digits) if domain_fits(a, extents) else None
    if a.way is None or not a.way.fits(static_shape(a.buffer), [static(e) for e in extents]):
        return None
    cut = a.way.cut(held)
    return None if cut is None else register_index(cut, a.way.dims, a.way.widened(loop), (*digits, *a.way.counters()), a.way.parts)


def moved_bytes(stmts: Sequence[Stmt]) -> dict[Buffer, int]:
    """For each fragment the bytes of the widest element of memory whose rows are walked along with it, or with a fragment that it
    meets in a statement: 16 bytes of that row are what a thread should hold side by side."""
    groups: dict[Buffer, set[Buffer]] = {}
    widest: dict[Buffer, int] = {}
    for s in stmts:
        loop = copy_as_parallel(s) if isinstance(s, Copy) else s
        if not isinstance(loop, Parallel) or not loop.vars:
            continue
        found = list(accesses(loop.body, loop.vars))
        fragments = [a.buffer for a in found if a.buffer.scope is Scope.FRAGMENT and a.dims and len(loop.vars) - 1 in a.dims[-1:]]
        rows = [a.buffer.dtype.bytes for a in found if _is_row(a, loop.vars[-1])]
        together = set(fragments).union(*(groups.get(f, set()) for f in fragments))
        for f in together:
            groups[f] = together
        size = max([*rows, *(widest.get(f, 0) for f in together)], default=0)
        widest |= {f: size for f in together if size}
    return widest


def infer(
    body: Stmt, threads: int, required: Mapping[Buffer, FragmentLayout], held: Mapping[Buffer, int] | None = None
) -> dict[Buffer, FragmentLayout]:
    """A register layout for every fragment allocated in `body`; `held` tells how many threads hold one, where not all `threads` do."""
    stmts = list(walk_stmt(body))
    known = dict(required)
    fragments = [s.buffer for s in stmts if isinstance(s, Alloc) and s.buffer.scope is Scope.FRAGMENT]
    moved = moved_bytes(stmts)
    propagate(stmts, known)
    results, across = _results(stmts), turned(stmts)
    for f in sorted(fragments, key=lambda f: (f in results, -prod(static_shape(f)))):
        if f not in known:
            shape, count = static_shape(f), (held or {}).get(f, threads)
            blocks = spread_blocks(shape, count, f.dtype.bytes) if f in across else None
            known[f] = blocks or spread_evenly(shape, count, moved.get(f, f.dtype.bytes))
            propagate(stmts, known)
    return known
