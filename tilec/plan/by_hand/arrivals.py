"""Arrivals for others, where threads do the work: every thread arrives for itself.

    empty = T.alloc_barrier([2])                      empty = T.alloc_barrier([256])
    if k > 0 and T.shuffle_elect(128):          ->    if k > 0:
        T.barrier_arrive(empty[k % 2])                    T.barrier_arrive(empty[k % 2])

On Hopper one thread arrives for the products that its warp group has queued and waited for. In a portable body the threads read the
tiles themselves, and an arrival of each tells what is over without a word from the others; compute-sanitizer's racecheck follows
no other order. The count is multiplied alike, so phases end when they did: all come here as often as the one did.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilec.analysis.teams import Teams
from tilec.ir.dtypes import INT32
from tilec.ir.expr import Buffer, Const, Expr, Load, Logical
from tilec.ir.tile import Break, BulkCopy, Continue, If, Mbarrier, Stmt, While
from tilec.ir.visit import flat, map_stmt, storage, walk_expr, walk_stmt
from tilec.plan.by_hand.checks import by_thread, walk_takers
from tilec.record import record

MOST_ARRIVALS = (1 << 20) - 1


@record
class _Elected:
    """An arrival by one of each `group` threads that come to its branch; `left` is what else the branch asks, None for nothing."""

    group: int
    left: Expr | None


def arrive_each(body: Stmt, teams: Teams) -> Stmt:
    """`body`, in which all threads arrive at the barriers at which one of several does, where all of them come to that branch."""
    if any(isinstance(s, Break | Continue | While) for s in walk_stmt(body)):
        return body  # threads may come there at different times
    found = {id(s): e for s, takers in walk_takers(body, teams, list(range(teams.block.count))) if (e := _elected(s, takers, teams))}
    groups = _groups(body, found)
    if not groups:
        return body

    def visit(s: Stmt) -> Stmt:
        if isinstance(s, Mbarrier) and s.kind == "init" and s.buffer in groups and isinstance(s.value, Const):
            return replace(s, value=Const(int(s.value.value) * groups[s.buffer], INT32))
        if isinstance(s, If) and id(s) in found and all(a.buffer in groups for a in _arrivals(s.then)):
            left = found[id(s)].left
            return s.then if left is None else replace(s, cond=left)
        return map_stmt(s, lambda e: e, visit) if any(isinstance(x, Mbarrier) for x in walk_stmt(s)) else s

    return visit(body)


def _elected(s: Stmt, takers: list[int] | None, teams: Teams) -> _Elected | None:
    """What an `if` is when it holds nothing but arrivals, by one thread of each group of those that come to it."""
    if not isinstance(s, If) or not takers or flat(s.orelse) or not _arrivals(s.then):
        return None
    if any(by_thread(a.index, teams) or any(isinstance(x, Load) for x in walk_expr(a.index)) for a in _arrivals(s.then)):
        return None
    chosen, left = set(takers), []
    for part in _conjuncts(s.cond):
        taken = teams.takers(part, teams.block)
        if taken is not None:
            chosen &= set(taken)
        elif by_thread(part, teams) or any(isinstance(x, Load) for x in walk_expr(part)):
            return None
        else:
            left.append(part)
    group = _group(takers, chosen)
    if group < 2:
        return None
    cond = None
    for part in left:
        cond = part if cond is None else Logical("and", cond, part)
    return _Elected(group, cond)


def _group(takers: list[int], chosen: set[int]) -> int:
    """How many threads each of `chosen` stands for, where every run of so many has one of them; 0 otherwise."""
    if not chosen or len(takers) % len(chosen):
        return 0
    n = len(takers) // len(chosen)
    return n if all(len(chosen.intersection(takers[i : i + n])) == 1 for i in range(0, len(takers), n)) else 0


def _groups(body: Stmt, found: dict[int, _Elected]) -> dict[Buffer, int]:
    """The barriers at which nobody else arrives, with the threads that one arrival stands for."""
    inside = {id(a): found[id(s)].group for s in walk_stmt(body) if id(s) in found and isinstance(s, If) for a in _arrivals(s.then)}
    sizes: dict[Buffer, set[int]] = {}
    counts: dict[Buffer, int] = {}
    for s in walk_stmt(body):
        match s:
            case Mbarrier("init", buffer, _, Const(value)):
                counts[buffer] = max(counts.get(buffer, 0), int(value))
            case Mbarrier("wait"):
                pass
            case Mbarrier(kind, buffer):
                sizes.setdefault(storage(buffer), set()).add(inside.get(id(s), 1) if kind == "arrive" and buffer.peer is None else 1)
            case BulkCopy(dst=dst, barrier=barrier) if barrier is not None and dst.buffer.peer is not None:
                sizes.setdefault(barrier, set()).add(1)
    groups = {b: next(iter(n)) for b, n in sizes.items() if len(n) == 1 and 1 not in n}
    groups = {b: n for b, n in groups.items() if counts.get(b, MOST_ARRIVALS) * n <= MOST_ARRIVALS}
    branches = [{a.buffer for a in _arrivals(s.then)} for s in walk_stmt(body) if id(s) in found and isinstance(s, If)]
    while kept := {b for touched in branches if not touched <= groups.keys() for b in touched & groups.keys()}:
        groups = {b: n for b, n in groups.items() if b not in kept}  # a branch is changed for all its barriers, or for none
    return groups


def _arrivals(s: Stmt) -> list[Mbarrier]:
    """The arrivals that a branch holds; none when it holds anything else."""
    found = flat(s)
    arrivals = [x for x in found if isinstance(x, Mbarrier) and x.kind == "arrive" and x.buffer.peer is None]
    return arrivals if len(arrivals) == len(found) else []


def _conjuncts(e: Expr) -> Iterator[Expr]:
    if isinstance(e, Logical) and e.op == "and":
        yield from _conjuncts(e.a)
        yield from _conjuncts(e.b)
    else:
        yield e
