"""Layouts of shared tiles by the bank conflicts of the accesses they get.

Shared memory has 32 banks of 4 bytes; lanes of a warp that want different words of one bank wait for each other. Each access of
a tile is tried out for one warp under every layout that keeps 16-byte chunks whole, and the cheapest layout wins.

    tile[i, j] = A[...];  B[...] = tile[j, i]   ->  rows exchange chunks by row / 8, and neither access waits
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

from tilec.record import record
from tilec.ir.expr import Binary, Buffer, Cast, Const, Expr, Load, Scope, Unary, Var
from tilec.ir.tile import Atomic, Let, Store
from tilec.ir.visit import stmt_exprs, storage, walk_expr
from tilec.layout.fragment import FragmentLayout
from tilec.layout.shared import CHUNK, SharedLayout, Swizzle
from tilec.plan.domains import static, static_shape
from tilec.plan.plan import THREAD, Element, ElementKey, InMemory, PFor, PScalar, PSeq, PStmt, TileLoop
from tilec.plan.walk import plan_children

WARP, BANKS, WORD = 32, 32, 4
WORTH = 0.75
"""A layout replaces plain rows when its accesses take at most this part of their time."""


@record
class Use:
    """One access to a shared tile: the index of each lane of a warp, the elements each moves, and how often it happens."""

    lanes: tuple[tuple[int, ...], ...]
    width: int
    times: int


def choose_layouts(
    body: PSeq, layouts: Mapping[Buffer, SharedLayout], fixed: frozenset[Buffer], elements: Mapping[ElementKey, Element],
    threads: tuple[int, int, int], thread_vars: Sequence[Var],
) -> dict[Buffer, SharedLayout]:  # fmt: skip
    """Better layouts for tiles of `layouts` that have plain rows, are not `fixed` and have no views."""
    shared = [storage(b) for b in layouts]
    free = {b for b in layouts if storage(b) is b and shared.count(b) == 1 and b not in fixed and len(static_shape(b)) >= 2}
    found: dict[Buffer, list[Use]] = {}
    env = {THREAD: list(range(WARP))}
    for v in thread_vars:
        below = prod(threads[: v.axis])
        env[v] = [t // below % threads[v.axis] for t in range(WARP)]
    for buffer, use in _uses(body, env, 1, 1, elements, min(WARP, prod(threads))):
        if buffer in free:
            found.setdefault(buffer, []).append(use)
    out: dict[Buffer, SharedLayout] = {}
    for buffer, uses in found.items():
        plain = cost(layouts[buffer], uses)
        best = min(_candidates(buffer), key=lambda layout: cost(layout, uses), default=None)
        if best is not None and cost(best, uses) <= WORTH * plain:
            out[buffer] = best
    return out


def _candidates(b: Buffer) -> Iterator[SharedLayout]:
    """Layouts of a tile that keep its 16-byte chunks whole, plain rows apart."""
    shape, itemsize = static_shape(b), b.dtype.bytes
    row = shape[-1] * itemsize
    if row % CHUNK:
        return
    chunks, rows = row // CHUNK, prod(shape[:-1])
    if chunks & (chunks - 1):
        yield SharedLayout(shape, itemsize, (chunks + (chunks % 2 == 0)) * CHUNK // itemsize)
    elif chunks > 1:
        shift = chunks.bit_length() - 1
        while 1 << shift < rows * chunks:
            yield SharedLayout(shape, itemsize, shape[-1], Swizzle(min(chunks, 8) - 1, shift))
            shift += 1
    yield SharedLayout(shape, itemsize, shape[-1] + CHUNK // itemsize)


def cost(layout: SharedLayout, uses: Sequence[Use]) -> int:
    """Cycles of shared memory that the accesses of a warp take."""
    return sum(use.times * _cycles([layout.offset(i) * layout.itemsize for i in use.lanes], use.width * layout.itemsize) for use in uses)


def _cycles(addresses: list[int], size: int) -> int:
    """Cycles of one access: 128 bytes a phase, and as many words as the busiest bank has to give."""
    lanes = max(1, min(WARP, BANKS * WORD // max(size, WORD)))
    total = 0
    for n in range(0, len(addresses), lanes):
        words = {(a + k) // WORD for a in addresses[n : n + lanes] for k in range(0, max(size, 1), WORD)}
        banks = [w % BANKS for w in words]
        total += max(map(banks.count, banks))
    return total


def _uses(
    s: PStmt, env: dict[Var, list[int]], times: int, width: int, elements: Mapping[ElementKey, Element], lanes: int
) -> Iterator[tuple[Buffer, Use]]:
    """The accesses of a statement whose places are known for each lane; what is not known counts as 0."""
    match s:
        case TileLoop():
            env = {**env, **{v: [0] * WARP for v in s.digits}}
            rounds = s.how.registers if isinstance(s.how, FragmentLayout) else (static(s.how.rounds) or 1) * s.vector
            for v, e in zip(s.vars, s.values, strict=True):
                env[v] = _values(e, env) or [0] * WARP
            times, width = times * rounds, s.vector
        case PFor():
            env = {**env, s.var: _values(s.start, env) or [0] * WARP}
            trips = static(s.stop)
            times *= min(trips or 8, 64)
        case PScalar(leaf):
            if isinstance(leaf, Let) and leaf.var.dtype.is_int:
                env[leaf.var] = _values(leaf.value, env) or [0] * WARP
            loads = [(e.buffer, e.indices) for root in stmt_exprs(leaf) for e in walk_expr(root) if isinstance(e, Load)]
            stored = [(leaf.buffer, leaf.indices)] if isinstance(leaf, Store | Atomic) else []
            for buffer, indices in (*loads, *stored):
                index = [_values(e, env) for e in indices] if buffer.scope is Scope.SHARED else []
                known = [x[:lanes] for x in index if x is not None]
                places = tuple(i for i in zip(*known, strict=True) if _inside(buffer, i)) if len(known) == len(index) else ()
                if places:
                    element = elements.get((buffer, indices))
                    wide = isinstance(element, InMemory) and element.wide
                    yield buffer, Use(places, width if wide else 1, max(1, times // width) if wide else times)
            return
        case PSeq():
            env = dict(env)
        case _:
            pass
    for c in plan_children(s):
        yield from _uses(c, env, times, width, elements, lanes)


def _inside(b: Buffer, index: tuple[int, ...]) -> bool:
    """True for an element of the tile; lanes without one have nothing to do."""
    return all(0 <= i < n for i, n in zip(index, static_shape(b), strict=True))


def _values(e: Expr, env: Mapping[Var, list[int]]) -> list[int] | None:
    """The value of an integer expression for each lane; None when it reads memory or is of a kind that indices are not."""
    match e:
        case Const(value=v):
            return [int(v)] * WARP
        case Var():
            return env.get(e, [0] * WARP)
        case Cast(a) if a.dtype.is_int and e.dtype.is_int:
            return _values(a, env)
        case Unary("neg", a):
            inner = _values(a, env)
            return None if inner is None else [-x for x in inner]
        case Binary(op, a, b):
            left, right = _values(a, env), _values(b, env)
            if left is None or right is None:
                return None
            return [_apply(op, x, y) for x, y in zip(left, right, strict=True)]
        case _:
            return None


def _apply(op: str, x: int, y: int) -> int:
    match op:
        case "add":
            return x + y
        case "sub":
            return x - y
        case "mul":
            return x * y
        case "floordiv" | "truncdiv":
            return x // y if y else 0
        case "mod" | "truncmod":
            return x % y if y else 0
        case "xor":
            return x ^ y
        case "and":
            return x & y
        case "min":
            return min(x, y)
        case "max":
            return max(x, y)
        case "shl":
            return x << min(y, 31) if y >= 0 else 0
        case "shr":
            return x >> min(y, 31) if y >= 0 else 0
        case _:
            return 0

