"""Tile loops and asynchronous copies as CUDA text.

A tile loop runs over register digits or over rounds of chunks. Where several elements go together, memory is moved by vectors
in front of and behind a small unrolled loop over the elements of the chunk.

    for i in T.Parallel(1024): Y[i] = X[i] * 2
 -> vec<float, 4> X_v = load_vec<4>(...); for (e ...) Y_v.v[e] = X_v.v[e] * 2.0f; store_vec(...)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from tilec.record import record
from tilec.analysis.facts import Facts
from tilec.analysis.ranges import bounds
from tilec.emit.cliteral import ctype
from tilec.emit.gemm_operands import lines
from tilec.emit.memory import Spelling, conjuncts
from tilec.emit.render import render
from tilec.emit.unused import mentions, without_unused
from tilec.ir.dtypes import INT32
from tilec.ir.expr import Buffer, Call, Const, Expr, Load, Scope, Var
from tilec.ir.tile import Atomic, Let, Print, Store
from tilec.ir.visit import stmt_exprs, substitute, walk_expr
from tilec.layout.fragment import FragmentLayout
from tilec.plan.domains import static
from tilec.plan.plan import AsyncCopy, ElementKey, InMemory, Leaf, PFor, PIf, PScalar, PSeq, PStmt, PWhile, Spread, TileLoop


class Statements(Protocol):
    """Writes the statements inside a loop."""

    def sequence(self, seq: PSeq, facts: Facts) -> str:
        """Statements in order, unused declarations left out."""

    def statement(self, s: PStmt, facts: Facts) -> str:
        """One statement."""


@record
class Level:
    """One `for` of a nest: `count` is C text."""

    var: str
    count: str
    unroll: bool
    alone: bool = False


@record
class LoopWriter:
    """Writes the loops of one kernel body; `inner` writes what they contain."""

    spell: Spelling
    inner: Statements
    threads: int

    # ---- nests -----------------------------------------------------------------------------------------------------

    def tile_loop(self, s: TileLoop, facts: Facts) -> str:
        """A loop over the registers or chunks of a tile."""
        spell = self.spell
        levels, digits = self.levels(s.how, s.digits, s.vector, s.unroll, facts)
        levels = [replace(level, alone=True) for level in levels] if s.alone else levels
        known = self.within(s.how, s.digits, facts)
        with spell.meaning(digits):
            values = self.values(s.vars, s.values, s.body, s.guard, known)
            inside = known
            for n, (v, e) in enumerate(zip(s.vars, s.values, strict=True)):
                top, spare = _top(e, known), s.vector - 1 if v is s.vars[-1] else 0
                inside = inside.with_range(v, 0, None if top is None else top + spare, below=s.extents[n] if s.extents else None)
            guard = "" if s.guard is None else spell.expr(s.guard, known)
            once = "" if s.once is None else spell.expr(s.once, facts)
        if s.vector > 1:
            body = self.by_vectors(s, s.body, digits, inside, once)
        else:
            with spell.meaning(digits):
                body = self.inner.sequence(_once(s.body, s.once), inside)
        if not s.parted or not levels:
            return nest(levels, values, guard, body)
        spell.need("grid_exists")
        *around, split = levels[: max(1, len(levels) - 1)]
        inner = nest(levels[len(around) + 1 :], values, guard, body)
        part = render("parallel/part.cu.jinja", var=split.var, count=split.count, size=s.parted, body=inner)
        return nest(around, [], "", part) if around else part

    def levels(
        self, how: FragmentLayout | Spread, digits: tuple[Var, ...], vector: int, unroll: bool, facts: Facts
    ) -> tuple[list[Level], dict[Var, str]]:
        """The nest, slowest loop first, and the text of each digit at the first element of a chunk."""
        spell = self.spell
        if isinstance(how, Spread):
            if not digits:
                return [], {}
            count = static(how.rounds)
            full = unroll and count is not None
            return [Level(spell.var(digits[0]), spell.expr(how.rounds, facts), full)], {}
        levels: list[Level] = []
        texts: dict[Var, str] = {}
        for n, (v, g) in enumerate(zip(digits, how.regs, strict=True)):
            step = vector if n == 0 else 1
            count = g.size // step
            if count == 1:
                texts[v] = "0"
                continue
            name = spell.var(v)
            levels.append(Level(name, str(count), True))
            if step > 1:
                texts[v] = f"({name} * {step})"
        return levels[::-1], texts

    def within(self, how: FragmentLayout | Spread, digits: tuple[Var, ...], facts: Facts) -> Facts:
        """Facts inside the nest."""
        if isinstance(how, Spread):
            for v in digits:
                facts = facts.with_loop(v, Const(0, INT32), how.rounds, Const(1, INT32))
            return facts
        for v, g in zip(digits, how.regs, strict=True):
            facts = facts.with_range(v, 0, g.size - 1)
        return facts

    def values(
        self, variables: tuple[Var, ...], values: tuple[Expr, ...], body: PSeq | None, guard: Expr | None, facts: Facts
    ) -> list[str]:
        """`name = value` for every variable of the domain that something mentions."""
        used = set() if body is None else _mentioned(body)
        if guard is not None:
            used |= {x for x in walk_expr(guard) if isinstance(x, Var)}
        out: list[str] = []
        for v, e in zip(variables, values, strict=True):
            if body is None or v in used:
                zeros = {x: Const(0, INT32) for x in walk_expr(e) if isinstance(x, Var) and self.spell.renamed.get(x) == "0"}
                out.append(f"{self.spell.var(v)} = {self.spell.expr(substitute(e, zeros), facts)}")
        return out

    # ---- vectors ---------------------------------------------------------------------------------------------------

    def by_vectors(self, s: TileLoop, body: PSeq, digits: dict[Var, str], facts: Facts, once: str) -> str:
        """The elements of a chunk: wide loads, one small loop, wide stores; what is the same for all of them in front.

        `facts` are those of each element.
        """
        spell = self.spell
        lead: list[tuple[str, str | None]] = []
        rest = list(body.body)
        while rest and isinstance(rest[0], PScalar) and rest[0].together:
            leaf = rest.pop(0)
            with spell.meaning(digits):
                lead.append((self.inner.statement(leaf, self.first(s, facts)), self.declared(leaf)))
            facts = _after(leaf, facts)
        match rest:
            case [PIf(cond=cond, then=then, together=True)]:
                with spell.meaning(digits):
                    test = spell.expr(cond, self.first(s, facts))
                with spell.having(conjuncts(cond)):
                    inside = self.by_vectors(s, then, digits, facts.assume(cond), once)
                text = render("parallel/if.cu.jinja", cond=test, then=inside, orelse="")
            case _:
                text = self.elements(s, rest, digits, facts, once)
        return "\n".join(without_unused([*lead, (text, None)]))

    def declared(self, s: PStmt) -> str | None:
        """The C name that a Let brings into being; None for other statements."""
        if not isinstance(s, PScalar) or not isinstance(s.stmt, Let):
            return None
        foreign = any(isinstance(x, Call) and x.foreign for x in walk_expr(s.stmt.value))
        return None if foreign else self.spell.var(s.stmt.var)

    def first(self, s: TileLoop, facts: Facts) -> Facts:
        """Facts at the first element of a chunk."""
        return facts.with_range(s.vars[-1], divisor=s.vector)

    def elements(self, s: TileLoop, body: Sequence[PStmt], digits: dict[Var, str], facts: Facts, once: str) -> str:
        """Statements done for each element of a chunk, under the bounds checks without which none of them has an effect."""
        spell = self.spell
        stores = [x.stmt for x in body if isinstance(x, PScalar) and isinstance(x.stmt, Store | Atomic)]
        common = () if any(isinstance(x, PIf | PFor) for x in body) else self.common_checks(stores)
        if common:
            with spell.meaning(digits):
                cond = spell.tests(common, self.first(s, facts))
            with spell.having(common):
                return render("parallel/if.cu.jinja", cond=cond, then=self.chunk(s, body, digits, facts, once), orelse="")
        return self.chunk(s, body, digits, facts, once)

    def common_checks(self, stores: list[Store | Atomic]) -> tuple[Expr, ...]:
        """The checks without which none of the stores happens."""
        found = [self.spell.checks(x.buffer, x.indices) for x in stores]
        if not found:
            return ()
        if not all(self.is_wide(x.buffer, x.indices) for x in stores):
            return ()
        return tuple(c for c in found[0] if all(c in other for other in found))

    def chunk(self, s: TileLoop, body: Sequence[PStmt], digits: dict[Var, str], facts: Facts, once: str) -> str:
        """What happens to one chunk."""
        spell = self.spell
        before: list[str] = []
        after: list[str] = []
        each: list[tuple[str, str | None]] = []
        element = spell.names.fresh("e")
        saved = dict(spell.vectors)
        leaves = [x.stmt for x in body if isinstance(x, PScalar)]
        first = self.first(s, facts)
        for leaf in leaves:
            first = first.with_let(leaf.var, leaf.value) if isinstance(leaf, Let) else first
        with spell.meaning(digits):
            for key in self.wide_loads(leaves):
                before.append(self.load_vector(key, s.vector, element, first))
        only = leaves[0] if len(body) == 1 and leaves else None
        if isinstance(only, Store) and _plain_copy(only, spell):
            value = only.value
            assert isinstance(value, Load)
            name = spell.vectors[value.buffer, value.indices].removesuffix(f".v[{element}]")
            with spell.meaning(digits):
                after.append(self.store_vector((only.buffer, only.indices), s.vector, name, first, once))
        else:
            moved = self.element_meaning(s, digits, element)
            # Numbers that also stand in front of the loop, for its first element, go by another name for each of them.
            placed = [leaf.var for leaf in leaves if isinstance(leaf, Let) and leaf.var in spell.variables]
            moved |= {var: spell.names.fresh(var.name) for var in placed}
            for x in body:
                if isinstance(x, PScalar) and isinstance(x.stmt, Store):
                    text = self.element_store(x.stmt, s.vector, element, moved, (digits, first), facts, before, after, once)
                    each.append((lines(spell.mark(x.stmt.span), text), None))
                elif isinstance(x, PScalar) and isinstance(x.stmt, Atomic) and self.is_wide(x.stmt.buffer, x.stmt.indices):
                    text = self.element_add(x.stmt, s.vector, element, moved, (digits, first), facts, before, after, once)
                    each.append((lines(spell.mark(x.stmt.span), text), None))
                else:
                    with spell.meaning(moved):
                        (alone,) = _once(PSeq((x,)), s.once).body
                        each.append((self.inner.statement(alone, facts), self.declared(x)))
                facts = _after(x, facts)
        spell.vectors = saved
        inside = "\n".join(without_unused(each))
        return render("parallel/elements.cu.jinja", before=before, element=element, count=s.vector, each=inside, after=after)

    def wide_loads(self, leaves: Iterable[Leaf]) -> list[ElementKey]:
        """The reads that are done by whole vectors, each once, in order."""
        found: dict[ElementKey, None] = {}
        for s in leaves:
            for root in stmt_exprs(s):
                for e in walk_expr(root):
                    if isinstance(e, Load) and self.is_wide(e.buffer, e.indices):
                        found.setdefault((e.buffer, e.indices))
        return list(found)

    def is_wide(self, b: Buffer, indices: tuple[Expr, ...]) -> bool:
        """True when the plan moves whole vectors here."""
        element = self.spell.variant.elements.get((b, indices))
        return isinstance(element, InMemory) and element.wide

    def element_meaning(self, s: TileLoop, digits: dict[Var, str], element: str) -> dict[Var, str]:
        """The texts of the last variable and of the fastest digit for one element of a chunk."""
        texts = dict(digits)
        last = s.vars[-1]
        texts[last] = element if static(s.values[-1]) == 0 else f"({self.spell.var(last)} + {element})"
        if isinstance(s.how, FragmentLayout) and s.digits:
            first = digits.get(s.digits[0], "0").strip("()")
            texts[s.digits[0]] = element if first == "0" else f"({first} + {element})"
        return texts

    def load_vector(self, key: ElementKey, count: int, element: str, facts: Facts) -> str:
        """Declares a vector and loads it; zeros or safe values where it is out of range."""
        spell = self.spell
        b, indices = key
        spell.need("load_vec")
        name = spell.names.fresh(f"{b.name}_v")
        kind = ctype(b.dtype)
        value = f"load_vec<{count}>({spell.address(b, indices, facts)})"
        checks = spell.checks(b, indices)
        spell.vectors[key] = f"{name}.v[{element}]"
        if not checks:
            return f"const vec<{kind}, {count}> {name} = {value};"
        if b.safe_value is None:
            return f"const vec<{kind}, {count}> {name} = {spell.tests(checks, facts)} ? {value} : vec<{kind}, {count}>{{}};"
        rest = ", ".join([spell.safe(b, facts)] * count)
        return f"const vec<{kind}, {count}> {name} = {spell.tests(checks, facts)} ? {value} : vec<{kind}, {count}>{{{{{rest}}}}};"

    def element_store(
        self, s: Store, count: int, element: str, moved: dict[Var, str], whole: tuple[dict[Var, str], Facts], facts: Facts,
        before: list[str], after: list[str], once: str,
    ) -> str:  # fmt: skip
        """The assignment of one element; wide ones collect in a vector that is stored behind the loop.

        `moved` and `facts` are the meaning of variables and what is known of them for the element, `whole` for the chunk.
        """
        spell = self.spell
        digits, first = whole
        if self.is_wide(s.buffer, s.indices):
            name = spell.names.fresh(f"{s.buffer.name}_v")
            before.append(f"vec<{ctype(s.buffer.dtype)}, {count}> {name};")
            with spell.meaning(digits):
                after.append(self.store_vector((s.buffer, s.indices), count, name, first, once))
            with spell.meaning(moved):
                return f"{name}.v[{element}] = {spell.expr(s.value, facts)};"
        with spell.meaning(moved):
            text = f"{spell.place(s.buffer, s.indices, facts)} = {spell.expr(s.value, facts)};"
            tests = spell.tests(spell.checks(s.buffer, s.indices), facts)
        if s.buffer.scope in (Scope.GLOBAL, Scope.SHARED):
            tests = " && ".join(t for t in (once, tests) if t)
        return render("parallel/if.cu.jinja", cond=tests, then=text, orelse="") if tests else text

    def element_add(
        self, s: Atomic, count: int, element: str, moved: dict[Var, str], whole: tuple[dict[Var, str], Facts], facts: Facts,
        before: list[str], after: list[str], once: str,
    ) -> str:  # fmt: skip
        """What an atomic addition adds to one element: all of it collects in a vector, which is added behind the loop."""
        spell = self.spell
        digits, first = whole
        name = spell.names.fresh(f"{s.buffer.name}_v")
        before.append(f"vec<{ctype(s.buffer.dtype)}, {count}> {name};")
        spell.need(f"atomic_add_vec_{s.buffer.dtype.name}")
        with spell.meaning(digits):
            text = f"atomic_add_vec({spell.address(s.buffer, s.indices, first)}, {name});"
            tests = " && ".join(t for t in (once, spell.tests(spell.checks(s.buffer, s.indices), first)) if t)
        after.append(render("parallel/if.cu.jinja", cond=tests, then=text, orelse="") if tests else text)
        with spell.meaning(moved):
            return f"{name}.v[{element}] = {spell.expr(s.operands[0], facts)};"

    def store_vector(self, key: ElementKey, count: int, name: str, facts: Facts, once: str) -> str:
        """Stores a vector where it is in range."""
        spell = self.spell
        spell.need("store_vec")
        text = f"store_vec({spell.address(*key, facts)}, {name});"
        tests = " && ".join(t for t in (once, spell.tests(spell.checks(*key), facts)) if t)
        return render("parallel/if.cu.jinja", cond=tests, then=text, orelse="") if tests else text

    # ---- asynchronous copies ---------------------------------------------------------------------------------------

    def async_copy(self, s: AsyncCopy, facts: Facts) -> str:
        """Chunks by cp.async."""
        spell = self.spell
        levels, _ = self.levels(s.how, s.digits, 1, True, facts)
        known = self.within(s.how, s.digits, facts)
        values = self.values(s.vars, s.values, None, None, known)
        inside = _of_chunks(s, known)
        size = s.chunk * s.src.dtype.bytes
        function = f"cp_async_{size}"
        spell.need(f"{function}_zfill" if s.valid is not None else function)
        valid = "" if s.valid is None else spell.expr(s.valid, inside)
        body = render(
            "copy/cp_async.cu.jinja", function=function, dst=spell.address(s.dst, s.dst_index, inside),
            src=spell.address(s.src, s.src_index, inside), valid=valid,
        )  # fmt: skip
        guard = "" if s.guard is None else spell.expr(s.guard, known)
        return nest(levels, values, guard, body)

    def held_copy(self, s: AsyncCopy, held: str, put: bool, facts: Facts) -> str:
        """The loads of a copy by way of the registers `held`, or its stores."""
        spell = self.spell
        with spell.scope():
            levels, _ = self.levels(s.how, s.digits, 1, True, facts)
            known = self.within(s.how, s.digits, facts)
            values = self.values(s.vars, s.values, None, None, known)
            inside = _of_chunks(s, known)
            one = f"{held}[{spell.var(s.digits[0]) if s.digits else 0}]"
            if put:
                spell.need("store_vec")
                same = ", ".join([one] * s.chunk)
                body = f"store_vec({spell.address(s.dst, s.dst_index, inside)}, vec<{ctype(s.src.dtype)}, {s.chunk}>{{{{{same}}}}});"
            else:
                body = f"{one} = {spell.expr(Load(s.src, s.src_index), inside)};"
            return nest(levels, values, "", body)


def nest(levels: list[Level], values: list[str], guard: str, body: str) -> str:
    """Loops around `body`, with those of `values` (`name = text`) that it or the guard mentions."""
    used = [v for v in values if mentions(f"{guard};\n{body}", v.partition(" = ")[0])]
    return render("parallel/loop.cu.jinja", loops=levels, values=used, guard=guard, body=body)


def _plain_copy(s: Store, spell: Spelling) -> bool:
    """True when a store only moves a vector that was loaded as it is."""
    element = spell.variant.elements.get((s.buffer, s.indices))
    wide = isinstance(element, InMemory) and element.wide
    return wide and isinstance(s.value, Load) and (s.value.buffer, s.value.indices) in spell.vectors


def _after(s: PStmt, facts: Facts) -> Facts:
    """Facts behind a statement."""
    return facts.with_let(s.stmt.var, s.stmt.value) if isinstance(s, PScalar) and isinstance(s.stmt, Let) else facts


def _of_chunks(s: AsyncCopy, facts: Facts) -> Facts:
    """Facts with the ranges of a copy's variables, the last of which counts whole chunks."""
    inside = facts
    for v, e in zip(s.vars, s.values, strict=True):
        inside = inside.with_range(v, 0, _top(e, facts), divisor=s.chunk if v is s.vars[-1] else 1)
    return inside


def _top(e: Expr, facts: Facts) -> int | None:
    return bounds(e, facts)[1]


def _mentioned(s: PStmt) -> set[Var]:
    """Every variable that planned statements mention."""
    out: set[Var] = set()

    def see(*exprs: Expr | None) -> None:
        for e in exprs:
            if e is not None:
                out.update(x for x in walk_expr(e) if isinstance(x, Var))

    match s:
        case PSeq(body):
            for c in body:
                out |= _mentioned(c)
        case PScalar(leaf):
            see(*stmt_exprs(leaf))
        case PIf(cond, then, orelse):
            see(cond)
            out |= _mentioned(then) | _mentioned(orelse)
        case PFor():
            see(s.start, s.stop, s.step)
            out |= _mentioned(s.body)
        case PWhile(cond, body):
            see(cond)
            out |= _mentioned(body)
        case TileLoop():
            see(*s.values, s.guard)
            out |= _mentioned(s.body)
        case _:
            pass
    return out


def _once(body: PSeq, once: Expr | None) -> PSeq:
    """A loop body whose effects outside of registers are restricted to one of the threads that hold copies."""
    if once is None:
        return body

    def visit(s: PStmt) -> PStmt:
        match s:
            case PSeq(parts):
                return PSeq(tuple(map(visit, parts)))
            case PScalar(Store(buffer)) if buffer.scope in (Scope.GLOBAL, Scope.SHARED):
                return PIf(once, PSeq((s,)), PSeq(()))
            case PScalar(Atomic() | Print()):
                return PIf(once, PSeq((s,)), PSeq(()))
            case PIf(cond, then, orelse, span):
                return PIf(cond, _once(then, once), _once(orelse, once), span)
            case PFor():
                return PFor(s.var, s.start, s.stop, s.step, _once(s.body, once), s.unroll, s.span)
            case PWhile(cond, inside, span):
                return PWhile(cond, _once(inside, once), span)
            case TileLoop():
                return replace(s, once=once, body=s.body if s.vector > 1 else _once(s.body, once))
            case _:
                return s

    out = visit(body)
    assert isinstance(out, PSeq)
    return out


