"""Which threads take a branch, and which of them therefore carry out the tile statements inside: a team.

In a kernel with barriers of its own (see `by_hand`), or with tile statements under it (see `parted`), a condition on thread
indices parts the block into teams: neighbouring threads in whole warps, or one thread. Tiles in registers belong to the team that
uses them; `separate` gives every team its own.

    Teams(threads=(256, 1, 1), ...).split(tx // 128 == 1, Team(0, 256)) -> (Team(128, 128), Team(0, 128))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod

from tilec.diagnostics import Label, error
from tilec.ir.dtypes import INT32
from tilec.ir.expr import Binary, Buffer, Cast, Compare, Const, Expr, Logical, Scope, Unary, Var, VarKind
from tilec.ir.kernel import Launch
from tilec.ir.tile import (
    Alloc, Atomic, BulkCopy, Control, Copy, Fill, Gemm, If, Let, Mbarrier, Parallel, Reduce, Scan, Seq, Stmt, Store,
)  # fmt: skip
from tilec.ir.visit import buffers_of, map_stmt, regions, replace_buffers, stmt_children, walk_expr, walk_stmt
from tilec.record import record

WARP = 32
DEFAULT_THREADS = (128, 1, 1)
_OPS: Mapping[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b, "truncdiv": lambda a, b: a // b, "truncmod": lambda a, b: a % b, "min": min, "max": max,
    "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b, "shl": lambda a, b: a << b,
    "shr": lambda a, b: a >> b, "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
}  # fmt: skip


@record
class Team:
    """Threads `first` to `first + count - 1`, by their number in the block."""

    first: int
    count: int

    @property
    def stop(self) -> int:
        """The number behind the last thread."""
        return self.first + self.count


def by_hand(body: Stmt) -> bool:
    """True for a launch whose author orders its work by barriers, queued products or the copy engine."""
    return any(
        isinstance(s, Mbarrier | BulkCopy)
        or (isinstance(s, Gemm) and not s.waits)
        or (isinstance(s, Control) and s.kind.startswith(("products", "stores")))
        for s in walk_stmt(body)
    )


def parted(launch: Launch) -> bool:
    """True for a launch whose branches on thread indices hold tile statements, and part the threads into teams that can do them.
    Conditions that depend on more than thread indices are taken to hold for all or none of a team, which the planner looks into."""
    if not any(isinstance(s, If) and any(for_tiles(x) for x in walk_stmt(s)) for s in walk_stmt(launch.body)):
        return False
    teams = Teams.of(launch)
    found = {team for s, team in _walk_parts(launch.body, teams, teams.block) if for_tiles(s)}
    return None not in found and any(t != teams.block for t in found)


def _walk_parts(s: Stmt, teams: Teams, team: Team | None) -> Iterator[tuple[Stmt, Team | None]]:
    """Every statement with the threads that come to it; None where they are no team."""
    yield s, team
    if isinstance(s, If) and team is not None and (parts := teams.split(s.cond, team)) is not None:
        yield from _walk_parts(s.then, teams, team_of(parts[0]))
        yield from _walk_parts(s.orelse, teams, team_of(parts[1]))
    elif not isinstance(s, Parallel):
        for child in stmt_children(s):
            yield from _walk_parts(child, teams, team)


def for_tiles(s: Stmt) -> bool:
    """True for a statement that threads carry out together."""
    return isinstance(s, Copy | Fill | Gemm | Reduce | Scan | Parallel | BulkCopy | Control)


@dataclass(slots=True)
class Teams:
    """The conditions on thread indices of one launch. `lets` are values that depend on the thread alone."""

    threads: tuple[int, int, int]
    lets: dict[Var, Expr] = field(default_factory=dict)
    _known: dict[Expr, tuple[int, ...] | None] = field(default_factory=dict)

    @staticmethod
    def of(launch: Launch) -> Teams:
        """The teams of a launch."""
        lets = {s.var: s.value for s in walk_stmt(launch.body) if isinstance(s, Let)}
        return Teams(launch.threads or DEFAULT_THREADS, lets)

    @property
    def block(self) -> Team:
        """All threads."""
        return Team(0, prod(self.threads))

    def takers(self, cond: Expr, team: Team) -> list[int] | None:
        """The threads of a team for which a condition holds; None when it depends on more than thread indices."""
        if cond not in self._known:
            self._known[cond] = self._values(cond)
        values = self._known[cond]
        return None if values is None else [t for t in range(team.first, team.stop) if values[t]]

    def split(self, cond: Expr, team: Team) -> tuple[list[int], list[int]] | None:
        """The threads of a team that take a branch, and those that do not; None where it does not part them."""
        taken = self.takers(cond, team)
        if taken is None or len(taken) in (0, team.count):
            return None
        left = set(taken)
        return taken, [t for t in range(team.first, team.stop) if t not in left]

    def branches(self, s: If, team: Team) -> tuple[Team | None, Team | None] | None:
        """The teams of both branches; None where the condition does not part `team`, or into no teams that could do what is
        asked of them. Raises an error where a branch asks other threads than a team for tiles."""
        parts = self.split(s.cond, team)
        if parts is None:
            return None
        found: list[Team | None] = []
        for taken, branch in zip(parts, (s.then, s.orelse), strict=True):
            asked = next((x for x in walk_stmt(branch) if for_tiles(x)), None)
            one = team_of(taken)
            if one is None and asked is not None:
                raise error(
                    "TL0507", f"{len(taken)} threads come to this statement, which takes whole warps of neighbours, or one thread",
                    getattr(asked, "span", s.span), Label(s.span, "the threads part here"),
                    help="branch on warps, such as `with T.ws(1)` or `tx < 128`",
                )  # fmt: skip
            found.append(one)
        return (found[0], found[1]) if found[0] is not None or found[1] is not None else None

    def _values(self, cond: Expr) -> tuple[int, ...] | None:
        """The value of an expression for each thread."""
        if not any(isinstance(x, Var) for x in walk_expr(cond)):
            return None
        x, y, z = self.threads
        out = []
        for at in product(range(z), range(y), range(x)):
            value = self._value(cond, at[::-1])
            if value is None:
                return None
            out.append(value)
        return tuple(out)

    def _value(self, e: Expr, at: tuple[int, ...]) -> int | None:
        match e:
            case Const(value) if not e.dtype.is_float:
                return int(value)
            case Var(kind=VarKind.THREAD):
                return at[e.axis]
            case Var() if e in self.lets:
                return self._value(self.lets[e], at)
            case Cast(a, dtype) if dtype.is_int and dtype.bits >= 32:
                return self._value(a, at)
            case Unary("not", a):
                inner = self._value(a, at)
                return None if inner is None else not inner
            case Binary(op, a, b) | Compare(op, a, b) | Logical(op, a, b):
                x, y = self._value(a, at), self._value(b, at)
                if x is None or y is None or op not in _OPS or (op in ("floordiv", "mod", "truncdiv", "truncmod") and y <= 0):
                    return None
                return int(_OPS[op](x, y))
            case _:
                return None


def team_of(threads: list[int]) -> Team | None:
    """The team that threads are: neighbours in whole warps, or one."""
    first, count = threads[0], len(threads)
    whole = first % WARP == 0 and count % WARP == 0
    return Team(first, count) if threads[-1] - first + 1 == count and (count == 1 or whole) else None


def walk_teams(s: Stmt, teams: Teams, team: Team) -> Iterator[tuple[Stmt, Team]]:
    """Every statement with the team that carries it out."""
    yield s, team
    if isinstance(s, If):
        yes, no = teams.branches(s, team) or (None, None)
        yield from walk_teams(s.then, teams, yes or team)
        yield from walk_teams(s.orelse, teams, no or team)
        return
    for child in stmt_children(s):
        yield from walk_teams(child, teams, team)


def separate(launch: Launch, ordered: bool = False) -> Launch:
    """The launch with a register tile for each team that uses one, and barriers that exist before anything else happens.

    What the whole block does with the register tiles of a team, that team does. `ordered`: tilec itself orders what teams touch, so
    that this may reach shared tiles too.
    """
    teams = Teams.of(launch)
    body = _hoisted(launch.body)
    owners = _owners(body, teams)
    copies: dict[Buffer, dict[Team, Buffer]] = {}
    for b, users in owners.items():
        inner = [t for t in users if t != teams.block]
        if not inner:
            continue
        if any(s.first < t.stop and t.first < s.stop for n, s in enumerate(inner) for t in inner[:n]):
            raise error(
                "TL0507", f"{b.name} is used by teams of threads that overlap", b.span, help="allocate a tile for each of them",
            )  # fmt: skip
        copies[b] = {t: b if len(inner) == 1 else replace(b, name=f"{b.name}_{t.first // 128}") for t in inner}
    if copies:
        body = _Separation(teams, launch.thread_vars, copies, ordered).visit(body, teams.block)
    return replace(launch, body=body)


def _hoisted(body: Stmt) -> Stmt:
    """`body` with its barriers and their beginning in front of all else."""
    front: list[Stmt] = []

    def visit(s: Stmt) -> Stmt:
        if isinstance(s, Seq):
            kept: list[Stmt] = []
            for c in s.body:
                (front if isinstance(c, Mbarrier) and c.kind == "init" else kept).append(c if isinstance(c, Mbarrier) else visit(c))
            return replace(s, body=tuple(kept))
        return map_stmt(s, lambda e: e, visit)

    rest = visit(body)
    barriers = dict.fromkeys(s.buffer for s in front if isinstance(s, Mbarrier))
    if not barriers:
        return body

    def without(s: Stmt) -> Stmt:
        if isinstance(s, Seq):
            return replace(s, body=tuple(without(c) for c in s.body if not (isinstance(c, Alloc) and c.buffer in barriers)))
        return map_stmt(s, lambda e: e, without)

    return Seq((*(Alloc(b, b.span) for b in barriers), *front, without(rest)))


def _owners(body: Stmt, teams: Teams) -> dict[Buffer, list[Team]]:
    """For each register tile the teams that use it."""
    out: dict[Buffer, list[Team]] = {}
    for s, team in walk_teams(body, teams, teams.block):
        if isinstance(s, Alloc):
            continue
        for b in buffers_of(s):
            if b.scope is Scope.FRAGMENT and team not in out.setdefault(b, []):
                out[b].append(team)
    return out


@dataclass(slots=True)
class _Separation:
    """Gives statements the register tiles of their teams."""

    teams: Teams
    thread_vars: tuple[Var, ...]
    copies: Mapping[Buffer, Mapping[Team, Buffer]]
    ordered: bool = False

    def visit(self, s: Stmt, team: Team) -> Stmt:
        match s:
            case Seq():
                return replace(s, body=tuple(x for c in s.body for x in self.statements(c, team)))
            case If():
                yes, no = self.teams.branches(s, team) or (None, None)
                return replace(s, then=self.visit(s.then, yes or team), orelse=self.visit(s.orelse, no or team))
            case _ if stmt_children(s) and not isinstance(s, Parallel):
                return map_stmt(s, lambda e: e, lambda c: self.visit(c, team))
            case _:
                parts = self.statements(s, team)
                return parts[0] if len(parts) == 1 else Seq(tuple(parts), getattr(s, "span", s.span))

    def statements(self, s: Stmt, team: Team) -> list[Stmt]:
        """A statement as the teams whose tiles it uses carry it out."""
        if isinstance(s, Seq | If) or (stmt_children(s) and not isinstance(s, Parallel)):
            return [self.visit(s, team)]
        if isinstance(s, Alloc):
            return [replace(s, buffer=b) for b in self.copies[s.buffer].values()] if s.buffer in self.copies else [s]
        used = dict.fromkeys(b for x in walk_stmt(s) for b in buffers_of(x) if b in self.copies)
        if not used:
            return [s]
        if team != self.teams.block:
            return [replace_buffers(s, {b: self.copies[b][team] for b in used})]
        groups = list(dict.fromkeys(t for b in used for t in self.copies[b]))
        for b in used:
            if any(t not in self.copies[b] for t in groups) or not self.each_may(s, len(groups)):
                raise error(
                    "TL0507", f"{b.name} lies in the registers of some threads, and this statement is one of the whole block", s.span,
                    Label(b.span, f"{b.name} is allocated here"), help="put the statement under the T.ws whose threads use the tile",
                )  # fmt: skip
        empty = Seq((), s.span)
        return [If(self.inside(t), replace_buffers(s, {b: self.copies[b][t] for b in used}), empty, s.span) for t in groups]

    def each_may(self, s: Stmt, teams: int) -> bool:
        """True where each of so many teams may carry out a statement of the block with registers of its own."""
        if not self.ordered:
            return not any(x.scope is Scope.SHARED for y in walk_stmt(s) for x in buffers_of(y))
        inside = list(walk_stmt(s))
        written = [r.buffer for x in inside for r in regions(x)[1]] + [x.buffer for x in inside if isinstance(x, Store | Atomic)]
        return teams == 1 or not any(b.scope in (Scope.SHARED, Scope.GLOBAL) for b in written)

    def inside(self, t: Team) -> Expr:
        """The condition of the threads of a team."""
        x, y, z = self.teams.threads
        number: Expr = self.thread_vars[0]
        if y > 1 or z > 1:
            number = Binary("add", number, Binary("mul", self.thread_vars[1], Const(x, INT32), INT32), INT32)
        if z > 1:
            number = Binary("add", number, Binary("mul", self.thread_vars[2], Const(x * y, INT32), INT32), INT32)
        low, high = Compare("ge", number, Const(t.first, INT32)), Compare("lt", number, Const(t.stop, INT32))
        if t.first == 0:
            return high
        return low if t.stop == self.teams.block.count else Logical("and", low, high)


__all__ = ["Team", "Teams", "by_hand", "for_tiles", "parted", "separate", "team_of", "walk_teams"]
