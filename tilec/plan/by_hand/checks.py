"""What is wrong with the order of a kernel written by hand, as far as it shows without running it.

    128 threads arrive at a barrier that counts 1; nobody arrives; acc is read while T.wgmma_gemm still adds to it
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tilec.analysis.teams import Teams
from tilec.diagnostics import Label, Span, error
from tilec.ir.expr import Buffer, Const, Expr, Load, Scope, Var, VarKind
from tilec.ir.kernel import Launch
from tilec.ir.tile import Alloc, Barrier, BulkCopy, Control, For, Gemm, If, Mbarrier, Parallel, Stmt, While
from tilec.ir.visit import buffers_of, regions, stmt_children, storage, walk_expr, walk_stmt


def check_by_hand(launch: Launch) -> dict[int, frozenset[Buffer]]:
    """Raises an error for what cannot work. For each wait for products (by id()) the accumulators that are complete behind it."""
    teams = Teams.of(launch)
    _check_arrivals(launch.body, teams)
    _check_barriers(launch.body, teams)
    _check_stores(launch.body)
    flow = _Flow()
    flow.walk(launch.body)
    if found := [item for group in flow.groups for item in group.items()]:
        acc, span = found[-1]
        raise error("TL0509", f"nobody waits for this product into {acc.name}", span, help="T.wait_wgmma(0) before the result is used")
    return {key: frozenset(done - flow.running.get(key, set())) for key, done in flow.settled.items()}


def _check_arrivals(body: Stmt, teams: Teams) -> None:
    """Somebody arrives where somebody waits, never more threads at once than a barrier counts, and never a number that misses it."""
    counts: dict[Buffer, set[int]] = {}
    arrivals: dict[Buffer, list[tuple[int | None, Span]]] = {}
    waits: dict[Buffer, Span] = {}
    for s, takers in walk_takers(body, teams, list(range(teams.block.count))):
        if isinstance(s, BulkCopy) and s.barrier is not None and s.dst.buffer.peer is not None:
            arrivals.setdefault(s.barrier, []).append((None, s.span))
        if not isinstance(s, Mbarrier):
            continue
        if s.buffer.peer is not None:  # several blocks may arrive, or none
            arrivals.setdefault(storage(s.buffer), []).append((None, s.span))
            continue
        if s.kind == "init" and isinstance(s.value, Const):
            counts.setdefault(s.buffer, set()).add(int(s.value.value))
        elif s.kind == "wait":
            waits.setdefault(s.buffer, s.span)
        elif s.kind.startswith("arrive"):
            arrivals.setdefault(s.buffer, []).append((None if takers is None else len(takers), s.span))
    for b, span in waits.items():
        if b not in arrivals:
            text = f"nobody arrives at {b.name}: this wait never ends"
            raise error("TL0508", text, span, _made(b), help=f"T.barrier_arrive({b.name}) where what it guards is complete")
    for b, found in arrivals.items():
        known = [n for n, _ in found if n is not None]
        for n, span in found:
            if n is not None and n > max(counts[b]):
                raise error(
                    "TL0508", f"{n} threads arrive here at {b.name}, which counts {max(counts[b])}", span, _made(b),
                    help=f"count {n} arrivals, or let one thread arrive: `if T.shuffle_elect({n}):`",
                )  # fmt: skip
            if len(known) == len(found) and len(set(known)) == 1 and n and all(c % n for c in counts[b]):
                listed = " or ".join(map(str, sorted(counts[b])))
                raise error("TL0508", f"arrivals at {b.name} come {n} at a time and never make {listed}", span, _made(b))


def _made(b: Buffer) -> Label:
    return Label(b.span, f"{b.name} is made here")


def walk_takers(s: Stmt, teams: Teams, takers: list[int] | None) -> list[tuple[Stmt, list[int] | None]]:
    """Every statement with the threads that come to it; None where that is not known."""
    out: list[tuple[Stmt, list[int] | None]] = [(s, takers)]
    if isinstance(s, If):
        taken = teams.takers(s.cond, teams.block)
        yes = no = takers
        if taken is not None and takers is not None:
            chosen = set(taken)
            yes, no = [t for t in takers if t in chosen], [t for t in takers if t not in chosen]
        elif by_thread(s.cond, teams):
            yes = no = None
        return [*out, *walk_takers(s.then, teams, yes), *walk_takers(s.orelse, teams, no)]
    if isinstance(s, For | While) and any(by_thread(e, teams) for e in ((s.cond,) if isinstance(s, While) else (s.start, s.stop, s.step))):
        takers = None
    for c in stmt_children(s):
        out += walk_takers(c, teams, takers)
    return out


def by_thread(e: Expr, teams: Teams) -> bool:
    """True when an expression may differ between threads."""
    for x in walk_expr(e):
        if isinstance(x, Var) and (x.kind is VarKind.THREAD or (x in teams.lets and by_thread(teams.lets[x], teams))):
            return True
        if isinstance(x, Load) and x.buffer.scope in (Scope.LOCAL, Scope.VAR):
            return True
    return False


def _check_barriers(body: Stmt, teams: Teams) -> None:
    """T.sync_threads() of the whole block stands where the whole block comes."""
    for s, takers in walk_takers(body, teams, list(range(teams.block.count))):
        if isinstance(s, Barrier) and s.kind == "block" and takers is not None and len(takers) < teams.block.count:
            text, n = f"{len(takers)} threads come to this barrier of the whole block", len(takers)
            raise error("TL0502", text, s.span, help=f"T.sync_threads(1, {n}) waits for {n} threads")


def _check_stores(body: Stmt) -> None:
    """A queued store is closed and waited for, before its tile ends with the block."""
    stores = [s for s in walk_stmt(body) if isinstance(s, BulkCopy) and s.barrier is None]
    kinds = {s.kind for s in walk_stmt(body) if isinstance(s, Control)}
    for kind, name in (("stores_commit", "T.tma_store_arrive()"), ("stores_wait", "T.tma_store_wait()")):
        if stores and kind not in kinds:
            raise error("TL0509", f"this store is queued, and there is no {name}", stores[0].span, help=f"write {name} behind it")


@dataclass(slots=True)
class _Flow:
    """Products in flight, the oldest group first: the accumulators and register operands of each, with where it was queued."""

    groups: list[dict[Buffer, Span]] = field(default_factory=list)
    operands: list[dict[Buffer, Span]] = field(default_factory=list)
    settled: dict[int, set[Buffer]] = field(default_factory=dict)
    running: dict[int, set[Buffer]] = field(default_factory=dict)

    def walk(self, s: Stmt) -> None:
        match s:
            case Gemm():
                self.product(s)
            case Control("products_wait", n):
                old = max(0, len(self.groups) - n)
                self.settled.setdefault(id(s), set()).update(b for g in self.groups[:old] for b in g)
                self.running.setdefault(id(s), set()).update(b for g in self.groups[old:] for b in g)
                del self.groups[:old], self.operands[:old]
            case Control("products_commit"):
                self.groups.append({})
                self.operands.append({})
            case For() | While():
                self.walk(s.body)
                self.walk(s.body)
            case If():
                self.branch(s)
            case Parallel():
                for x in walk_stmt(s):
                    self.touch(x)
            case Alloc():
                pass
            case _:
                self.touch(s)
                for c in stmt_children(s):
                    self.walk(c)

    def product(self, s: Gemm) -> None:
        """A product may add to an accumulator in flight, and reads its operands."""
        if s.a.buffer.scope is Scope.FRAGMENT:
            self.refuse(s.a.buffer, s.span, self.groups)
        if s.waits:
            return
        self.groups.append({s.c.buffer: s.span})
        self.operands.append({s.a.buffer: s.span} if s.a.buffer.scope is Scope.FRAGMENT else {})
        del self.groups[:-8], self.operands[:-8]

    def branch(self, s: If) -> None:
        before = list(self.groups), list(self.operands)
        self.walk(s.then)
        after = self.groups, self.operands
        self.groups, self.operands = list(before[0]), list(before[1])
        self.walk(s.orelse)
        self.groups, self.operands = _joined(after[0], self.groups), _joined(after[1], self.operands)

    def touch(self, s: Stmt) -> None:
        for b in buffers_of(s):
            if b.scope is Scope.FRAGMENT:
                self.refuse(b, s.span, self.groups)
        for r in regions(s)[1]:
            self.refuse(r.buffer, s.span, self.operands)

    def refuse(self, b: Buffer, span: Span, groups: list[dict[Buffer, Span]]) -> None:
        for age, group in enumerate(reversed(groups)):
            if b in group:
                raise error(
                    "TL0509", f"{b.name} is used while a product that T.wgmma_gemm has queued may still run", span,
                    Label(group[b], "queued here"), help=f"T.wait_wgmma({age}) in front of it",
                )  # fmt: skip


def _joined(a: list[dict[Buffer, Span]], b: list[dict[Buffer, Span]]) -> list[dict[Buffer, Span]]:
    """What may be in flight behind either branch, the newest groups side by side."""
    count = max(len(a), len(b))
    padded: list[list[dict[Buffer, Span]]] = [[{}] * (count - len(x)) + x for x in (a, b)]
    return [{**x, **y} for x, y in zip(*padded, strict=True)]
