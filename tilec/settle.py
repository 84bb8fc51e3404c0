"""Chooses among the configurations of bodies that may not fit the registers: by what ptxas says, or by the planner's rules alone.

    settle(first, "auto", again) -> the first attempt itself, where the rules vouch for all of its bodies
                                 -> the one that the rules choose, where they vouch for what each launch is for
                                 -> the one whose bodies are clean, after as many questions as there were complaints

An attempt is the plans and the kernels for a choice of rungs (`plan.ladder`). Every body that complains takes its next rung; one that has
none left goes back to its best. Bodies that the rules vouch for from the start are not asked about. Those that stand in for rare calls
begin with the first rung that the rules vouch for, and are asked about where there is none, or where the rules do not vouch for the body
that they share threads with.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace
from math import prod
from pathlib import Path

from tilec import ptxas
from tilec.emit.kernel import Written
from tilec.diagnostics import Diagnostic, Severity
from tilec.plan.blocks import HAND, one_more
from tilec.plan.ladder import BLOCKS, LADDERS, SPILLS, Choice
from tilec.plan.domains import static_shape
from tilec.plan.plan import STANDS_IN, LaunchPlan, Plan, Private, Registers, Variant
from tilec.record import record
from tilec.targets import Target
from tilec.version import __version__

MODES = ("auto", "always", "never")
MOST_ATTEMPTS = 32
HOPELESS = 512
"""Registers a thread beyond what is known to fit for which no configuration makes up: nvcc takes minutes over such a body."""

NEARLY_ALL = 75
"""Hundredths of all registers above which the tiles are what is too large."""
ALIGNED = 16
"""Bytes to which arrays on the stack are rounded up at most."""

Key = tuple[str, str]


@record
class Attempt:
    """Plans for the `choice` of rungs, and the kernels made of them where somebody wants those."""

    choice: Choice
    plans: tuple[Plan, ...]
    written: Callable[[], Written]


Again = Callable[[Choice], Attempt]
"""Plans and emits once more, for another choice."""


@record
class _Search:
    """What is known so far: of each body what its rungs cost, those that go on no further, and what was asked in words."""

    costs: dict[Key, dict[int, int]] = field(default_factory=dict)
    done: set[Key] = field(default_factory=set)
    told: dict[Key, list[str]] = field(default_factory=dict)

    def note(self, v: Variant, cost: int, words: str) -> None:
        """Takes down what a body costs with its rung."""
        known = self.costs.setdefault((v.ladder, v.symbol), {})
        if v.rung not in known:
            self.told.setdefault((v.ladder, v.symbol), []).append(f"{LADDERS[v.ladder][v.rung].name}: {words}")
        known[v.rung] = cost

    def best(self, key: Key) -> int:
        """The rung that costs least, the higher one of two."""
        return min(self.costs[key], key=lambda n: (self.costs[key][n], n))


def settle(first: Attempt, mode: str, again: Again) -> Attempt:
    """The attempt to keep, with what was asked and what is left to complain about in its plans."""
    if os.environ.get("TILEC_PTXAS") == "0":
        mode = "never"
    if mode != "always" and not any(v.doubtful for v in _bodies(first.plans)):
        return first
    if mode == "never":
        return _by_rules(first, again, "")
    if mode == "auto":
        first = _vouched(first, again, dict(_stand_ins(first.plans)))
    first = _possible(first, again)
    if mode == "auto" and not any(_worth_asking(first.plans)):
        return _ruled(first, "")
    if any(v.strain > HOPELESS for v in _bodies(first.plans)):
        return _by_rules(first, again, "no configuration makes up for so many")
    asking = _Asking(again, mode == "always")
    answer = asking.of(first)
    if isinstance(answer, ptxas.Silence):
        return _by_rules(first, again, answer.reason)
    return _recalled(first, answer.version, asking) or _by_answers(first, answer, asking)


def _bodies(plans: Sequence[Plan]) -> Iterator[Variant]:
    return (v for p in plans for launch in p.launches for v in launch.variants)


def _main(launch: LaunchPlan) -> dict[str, Variant]:
    """The bodies that a launch is for, by symbol; the one behind them takes tensors that lie anywhere."""
    found = {v.symbol: v for v in launch.variants}
    return {s: v for s, v in found.items() if not s.endswith(STANDS_IN)} or found


def _stand_ins(plans: Sequence[Plan]) -> Iterator[tuple[str, bool]]:
    """The symbols of bodies behind those, for which the rules may choose, and whether they may choose other threads too."""
    for launch in (launch for p in plans for launch in p.launches):
        main = _main(launch)
        for v in (v for v in launch.variants if v.symbol not in main):
            beside = [m for m in main.values() if m.ladder == v.ladder]
            if not any(m.doubtful for m in beside):
                yield v.symbol, not beside


def _worth_asking(plans: Sequence[Plan]) -> Iterator[Variant]:
    """The bodies that may spill, and those in doubt that a launch is for."""
    for launch in (launch for p in plans for launch in p.launches):
        main = _main(launch)
        yield from (v for v in launch.variants if v.strain > 0 or (v.open and v.symbol in main))


def _possible(first: Attempt, again: Again) -> Attempt:
    """The first attempt whose bodies are worth a question: nvcc takes minutes over those that are far from fitting, and some are known to
    spill."""
    now = first
    for _ in range(MOST_ATTEMPTS):
        far = {(v.ladder, v.symbol): v.below for v in _bodies(now.plans) if v.strain > SPILLS.get(v.ladder, HOPELESS)}
        if not far:
            return now
        if not all(far.values()):
            return first
        now = again({**now.choice, **far})
    return first


# ---- with ptxas


@record
class _Asking:
    """How further attempts are made, and whether `all` bodies are asked about or those that are worth it."""

    again: Again
    all: bool

    def of(self, attempt: Attempt, symbols: Collection[str] = ()) -> ptxas.Report | ptxas.Silence:
        """What ptxas says of the bodies of an attempt, of `symbols` in any case."""
        chosen = {v.symbol for v in _worth_asking(attempt.plans)} | set(symbols)
        bodies = ((p, v) for p in attempt.plans for v in _bodies([p]) if self.all or v.symbol in chosen)
        wanted = {v.symbol: (v, self._archs(p, v)) for p, v in bodies}
        answer = ptxas.ask(lambda symbols: attempt.written().about(symbols), {s: archs for s, (_, archs) in wanted.items()})
        if isinstance(answer, ptxas.Silence):
            return answer
        return replace(answer, bodies={s: replace(b, stack=max(0, b.stack - array_bytes(wanted[s][0]))) for s, b in answer.bodies.items()})

    @staticmethod
    def _archs(p: Plan, v: Variant) -> tuple[str, ...]:
        """The architectures that a body is compiled for."""
        return (v.arch,) if v.arch else tuple(dict.fromkeys([p.target.name, *(w.arch for w in _bodies([p]) if w.arch)]))


def array_bytes(v: Variant) -> int:
    """Bytes of stack that a body may have because its author wants arrays of each thread, whose elements are found as it runs."""
    arrays = [b for b, place in v.placements.items() if isinstance(place, Private) and b.shape]
    return sum(-(-prod(static_shape(b)) * b.dtype.bytes // ALIGNED) * ALIGNED for b in arrays)


def _by_answers(first: Attempt, answer: ptxas.Report, asking: _Asking) -> Attempt:
    """Asks about attempt after attempt until one is clean, or all rungs were tried."""
    search, now = _Search(), first
    tried: list[tuple[int, Attempt, Mapping[str, ptxas.Body]]] = []
    for _ in range(MOST_ATTEMPTS):
        heard = [(v, answer.bodies[v.symbol]) for v in _bodies(now.plans) if v.symbol in answer.bodies]
        bad = [v for v, body in heard if not body.clean]
        for v, body in heard:
            search.note(v, body.cost, str(body))
        tried.append((sum(body.cost for _, body in heard), now, answer.bodies))
        choice = _lower(now, bad, search)
        if choice == now.choice:
            break
        now = asking.again(choice)
        found = asking.of(now, {symbol for _, symbol in search.told})
        if isinstance(found, ptxas.Silence):
            break
        answer = found
    cost, best, bodies = min(tried, key=lambda t: t[0])
    best, bodies = _fuller(best, bodies, search, asking)
    if best is not first:
        rungs = [[ladder, symbol, n] for (ladder, symbol), n in best.choice.items()]
        told = [[*key, *words] for key, words in search.told.items()]
        ptxas.keep(_walk_entry(first, answer.version, asking), {"choice": rungs, "told": told, "cost": cost})
    return _finished(best, bodies, search.told, answer.version)


def _fuller(
    best: Attempt, bodies: Mapping[str, ptxas.Body], search: _Search, asking: _Asking
) -> tuple[Attempt, Mapping[str, ptxas.Body]]:
    """The attempt with one block more at once of those bodies that can do with the registers it leaves, and what ptxas says of it."""
    wanted = _worth_more(best, bodies)
    more = {v.symbol: ((BLOCKS, v.symbol), count) for v, count, _, _ in wanted}
    if not more:
        return best, bodies
    tried = asking.again({**best.choice, **dict(more.values())})
    answer = asking.of(tried, more)
    if isinstance(answer, ptxas.Silence):
        return best, bodies
    kept: dict[str, ptxas.Body] = {}
    for v, count, threads, target in wanted:
        body = answer.bodies[v.symbol]
        search.told[v.ladder, v.symbol].append(f"{count} blocks at a time: {body}")
        if body.clean and target.blocks_that_fit(threads, body.registers, v.shared_bytes) >= count:
            kept[v.symbol] = body
    if not kept:
        return best, bodies
    return (tried if len(kept) == len(more) else asking.again({**best.choice, **dict(more[s] for s in kept)})), {**bodies, **kept}


def _worth_more(now: Attempt, bodies: Mapping[str, ptxas.Body]) -> list[tuple[Variant, int, int, Target]]:
    """Bodies for which one block more at once is worth a question: how many that makes, their threads, their machine."""
    out = []
    for p in now.plans:
        for v, threads in ((v, prod(v.threads or launch.threads)) for launch in p.launches for v in launch.variants):
            body = bodies.get(v.symbol)
            if body and body.clean and (count := one_more(v, threads, body.registers, p.target)):
                out.append((v, count, threads, p.target))
    return out


def _lower(now: Attempt, bad: Sequence[Variant], search: _Search) -> Choice:
    """The choice with the next rung for each body that complains; its best one where none is left."""
    choice, below = dict(now.choice), _below(now, bad)
    for v in bad:
        key = (v.ladder, v.symbol)
        if key in search.done:
            continue
        if below[v.symbol]:
            choice[key] = below[v.symbol]
        else:
            search.done.add(key)
            choice[key] = search.best(key)
            _reclaim(v, choice, search)
    return {k: n for k, n in choice.items() if n}


def _below(now: Attempt, bad: Sequence[Variant]) -> dict[str, int]:
    """The next rung of each body that complains. Portable bodies of one launch have the same threads: where all of them complain they go
    down together, so that none is measured with the threads of another's rung."""
    out = {v.symbol: v.below for v in bad}
    for launch in (launch for p in now.plans for launch in p.launches):
        both = [v for v in launch.variants if v.ladder == "portable"]
        if len(both) > 1 and all(v.symbol in out for v in both):
            out |= dict.fromkeys((v.symbol for v in both), min((v.below for v in both if v.below), default=0))
    return out


def _reclaim(v: Variant, choice: dict[Key, int], search: _Search) -> None:
    """A portable body that spills, whatever is tried, gives way to Hopper's own that it stands in for, at its best."""
    symbol = v.symbol.removesuffix(STANDS_IN)
    for key in [k for k, n in choice.items() if v.ladder == "portable" and k[1] == symbol and LADDERS[k[0]][n].portable]:
        search.done.add(key)
        choice[key] = search.best(key)


def _finished(best: Attempt, bodies: Mapping[str, ptxas.Body], told: Mapping[Key, Sequence[str]], version: str) -> Attempt:
    """The attempt with what was asked, and a warning for each body that is not clean."""
    plans = []
    for p in best.plans:
        symbols = {v.symbol for v in _bodies([p])}
        lines = [f"nvcc {version} was asked"]
        lines += [f"{symbol}  {'; '.join(words)}" for (_, symbol), words in told.items() if symbol in symbols]
        launches = [replace(g, variants=tuple(_warned(v, g, bodies.get(v.symbol), p) for v in g.variants)) for g in p.launches]
        plans.append(replace(p, launches=tuple(launches), asked=tuple(lines)))
    return replace(best, plans=tuple(plans))


def _warned(v: Variant, launch: LaunchPlan, body: ptxas.Body | None, p: Plan) -> Variant:
    """The body with a warning, unless ptxas has nothing to complain about or was not asked."""
    if body is None or body.clean:
        return v
    there, held = 4 * p.target.registers_per_sm, _held(v, launch)
    advice = _advice(v, launch, p)
    text = f"the body {v.symbol} is not free of spilled registers or waits: {body}, {body.registers} registers a thread"
    if v.ladder == HAND:  # whose teams hold different tiles, in registers that the author deals out
        advice = "more registers for those threads (T.set_max_nreg), or smaller tiles, are the author's to give"
    else:
        text += f"; its register tiles take {-(-held >> 10)} of the {there >> 10} KB that a block may have"
    return replace(v, remarks=(*v.remarks, Diagnostic(Severity.WARNING, "TL0511", text, launch.launch.span, help=advice)))


def _held(v: Variant, launch: LaunchPlan) -> int:
    """Bytes of the register tiles of a block, what lies in shared memory of them included."""
    tiles = [place.layout.registers * b.dtype.bytes for b, place in v.placements.items() if isinstance(place, Registers)]
    return sum(tiles) * prod(v.threads or launch.threads)


def _advice(v: Variant, launch: LaunchPlan, p: Plan) -> str:
    """What its author may do about a body whose tiles registers do not hold."""
    held, there = _held(v, launch), 4 * p.target.registers_per_sm
    if held > there + p.target.shared_per_block_max:
        return "no block holds so much: bring the rows in pieces, one after another, as samples/rows/softmax_streamed.py does"
    if held > there * NEARLY_ALL // 100:
        return "halve the rows or the columns of a block"
    many = prod(v.threads or launch.threads) >= 256
    return "a smaller tile holds fewer registers" if many else "a smaller tile, or more threads, take fewer registers each"


def _walk_entry(first: Attempt, version: str, asking: _Asking) -> Path:
    """Where the outcome lies that this way of asking ends with for the first kernels."""
    text = first.written().about([v.symbol for v in _bodies(first.plans)])
    archs = dict.fromkeys([*(p.target.name for p in first.plans), *(v.arch for v in _bodies(first.plans))])
    return ptxas.entry_of(f"{__version__} {asking.all} {LADDERS!r}\n{text}", tuple(archs), version)


def _recalled(first: Attempt, version: str, asking: _Asking) -> Attempt | None:
    """The outcome of the same questions at an earlier time; None where it was never asked or something of it is lost."""
    known = ptxas.recall(_walk_entry(first, version, asking))
    try:
        choice = {(str(ladder), str(symbol)): int(n) for ladder, symbol, n in (known or {})["choice"]}
        told = {(str(t[0]), str(t[1])): [str(x) for x in t[2:]] for t in (known or {})["told"]}
        found, cost = asking.again(choice), int((known or {})["cost"])
    except (KeyError, TypeError, ValueError, IndexError):
        return None
    answer = asking.of(found, {symbol for _, symbol in told})
    if isinstance(answer, ptxas.Silence) or sum(body.cost for body in answer.bodies.values()) > cost:
        return None  # another planner's outcome, under the same name
    return _finished(found, answer.bodies, told, version)


# ---- without


def _by_rules(first: Attempt, again: Again, reason: str) -> Attempt:
    """The attempt of which the rules vouch for all bodies, as far as there is one, with what they say of it."""
    return _ruled(_vouched(first, again, {v.symbol: True for v in _bodies(first.plans)}), reason)


def _vouched(first: Attempt, again: Again, symbols: Mapping[str, bool]) -> Attempt:
    """The first rung that the rules vouch for of each of these bodies, one with other threads only where True; where they vouch for none,
    the one that is least beyond them."""
    search, now = _Search(), first
    for _ in range(MOST_ATTEMPTS):
        choice = dict(now.choice)
        for v in (v for v in _bodies(now.plans) if v.symbol in symbols):
            key = (v.ladder, v.symbol)
            search.note(v, max(0, v.strain), "")
            if v.strain <= 0 or key in search.done:
                continue
            if v.below and not LADDERS[v.ladder][v.below].portable and (symbols[v.symbol] or not _regroups(v)):
                choice[key] = v.sure or v.below
            else:
                search.done.add(key)
                choice[key] = search.best(key)
        choice = {k: n for k, n in choice.items() if n}
        if choice == now.choice:
            break
        now = again(choice)
    return now


def _regroups(v: Variant) -> bool:
    """True where the next rung changes the threads of a body, or its blocks, which are those of other bodies as well."""
    rung = LADDERS[v.ladder][v.sure or v.below]
    return bool(rung.threads) or rung.cut != v.configuration.cut


def _ruled(now: Attempt, reason: str) -> Attempt:
    """The attempt with what the rules say of its bodies."""
    plans = []
    for p in now.plans:
        far = [(v, launch) for launch in p.launches for v in launch.variants if v.strain > 0]
        fallen = [v for v in _bodies([p]) if v.rung]
        why = reason or "ptxas is not asked"
        lines = [f"{why}: rules decide"] + [f"{v.symbol}  {LADDERS[v.ladder][v.rung].name}" for v in fallen]
        remarks = [_unvouched(v, launch, p, why) for v, launch in far]
        plans.append(replace(p, asked=tuple(lines) if far or fallen else (), notes=(*p.notes, *remarks)))
    return replace(now, plans=tuple(plans))


def _unvouched(v: Variant, launch: LaunchPlan, p: Plan, why: str) -> Diagnostic:
    """A remark on a body that the rules do not vouch for; a warning where it is sure to spill."""
    text, place = f"it is expected to take {v.strain} registers a thread more than is known to fit", p.kernel.span
    if v.strain > HOPELESS:
        return Diagnostic(Severity.WARNING, "TL0511", f"{v.symbol} spills: {text}", place, help=_advice(v, launch, p))
    advice = "--ptxas auto with nvcc on the PATH finds out"
    return Diagnostic(Severity.REMARK, "TL0512", f"{v.symbol} may spill: {text}, and {why}", place, help=advice)
