"""The CUDA text of producers that bring operands whose rows start anywhere; see `plan.hopper.gemm_lines`.

    line_producers(writer, s, places, steps, facts) -> "registers_give<72>(); ... cp_async_16(A_s_words + ...) ... word_in_ring(...) ..."
"""

from __future__ import annotations

from tilec.analysis.facts import Facts
from tilec.analysis.proofs import prove
from tilec.analysis.simplify import simplify
from tilec.emit.hopper.writer import Writer, exchange_of
from tilec.emit.render import render
from tilec.ir.dtypes import INT32, INT64
from tilec.ir.expr import Binary, Const, Expr, Var, VarKind
from tilec.plan.access import compare, row_strides
from tilec.plan.domains import cast
from tilec.plan.hopper.gemm_lines import OCTET, line_bytes, line_count, row_of
from tilec.plan.hopper.plan import Operand
from tilec.plan.plan import WarpSpecialized
from tilec.record import record

ENTRIES = ("fetch_words", "anew", "cp_async_commit", "cp_async_wait", "fence_proxy_async")
"""Prelude entries of such producers."""

BATCHES = {40: 8, 80: 16, 88: 16, 96: 16}
"""Words that a thread reads before it writes them, so that it waits for shared memory once for all, by the registers of a producer."""

ROUNDS = 4
"""Octets of lines of a warp that are one group of copies."""

LEAD = 2
"""Steps that copies run ahead: as many as there are versions, each refilled as soon as it is read."""

ROW, COLUMN, OWN = (Var(n, INT32, VarKind.LOOP) for n in ("row", "column", "own"))


@record
class _Numbers:
    """What the template says of all operands."""

    warps: int
    give: int
    first: int
    lead: int
    pending: int
    stages: int


@record
class _Lines:
    """What it says of one: where its words and its tile lie, in how many `parts` of so many `rounds` it comes; how words are moved
    (`first` to `exchange`); how they are fetched: where `whole` holds (`mine` is a lane's first line, `along` how far a later one is
    from there), and everywhere (`row` to `end`)."""

    comment: str
    tile: str
    words: str
    tensor: str
    ring: bool
    parts: int
    rounds: int
    lines: int
    ragged: bool
    pitch: int
    span: int
    align: int
    stage: int
    first: str
    own: str
    more: str
    number: str
    together: int
    batch: int
    inner: str
    round: str
    word: str
    exchange: str
    fetches: int
    mine_line: str
    whole: str
    mine: str
    along: str
    row: str
    rows: str
    column: str
    source: str
    end: str
    limit: str


def line_producers(writer: Writer, s: WarpSpecialized, places: str, steps: str, facts: Facts) -> str:
    """What the warp groups behind the consumers do."""
    c, spell = s.schedule, writer.spell
    assert c.lines is not None
    warps = 4 * c.lines.producers
    beyond = Binary("add", s.stop, Const(s.step, INT32), INT32)  # a ring's last step needs the words behind it: copies go one step further
    inner = facts.with_loop(s.var, s.start, beyond, Const(s.step, INT32))
    tiles = zip((s.a, s.b), (c.lines.a, c.lines.b), s.spans[1:3], strict=True)
    texts = [_Text(writer, o, spell.buffer(words), words.rank == 2, warps, BATCHES[c.give], inner) for o, words, _ in tiles]
    operands = [t.lines(writer.comment(span)) for t, span in zip(texts, s.spans[1:3], strict=True)]
    rings = [o.ring for o in operands]
    wanted = {"word_in_ring": any(rings), "cp_async_16": any(rings), "word_at": not all(rings), "fetch_line": not all(rings)}
    for entry in (*ENTRIES, *(e for e, needed in wanted.items() if needed)):
        spell.need(entry)
    step, ahead = Var("step", INT32, VarKind.LOOP), Var("ahead", INT32, VarKind.LOOP)
    with spell.meaning({step: "step", ahead: "ahead"}):
        fetched, moved = (_counter(writer, s, v, facts) for v in (ahead, step))
    numbers = _Numbers(warps, c.give, 128 * c.consumers, LEAD, sum(o.parts for o in operands) - 1, c.stages)
    return render(
        "pipeline/line_producers.cu.jinja", p=numbers, operands=operands, places=places, steps=steps, fetched=fetched, moved=moved,
        loop_comment=writer.comment(s.spans[0]),
    )  # fmt: skip


def _counter(writer: Writer, s: WarpSpecialized, step: Var, facts: Facts) -> str:
    """The declaration of the author's loop variable for a step."""
    value = simplify(Binary("add", s.start, Binary("mul", step, Const(s.step, INT32), INT32), INT32), facts)
    return f"const int {writer.spell.var(s.var)} = {writer.spell.expr(value, facts)};"


@record
class _Text:
    """Writes what the template says of an operand; `facts` hold for a step."""

    writer: Writer
    o: Operand
    words: str
    ring: bool
    warps: int
    most: int
    facts: Facts

    def lines(self, comment: str) -> _Lines:
        """All of it."""
        o, spell = self.o, self.writer.spell
        tensor, item, lines, across = o.map.tensor, o.tile.dtype.bytes, line_count(o), self._across()
        octets, boxes = OCTET * self.warps, len(o.boxes) > 1
        all_rounds, together = -(-lines // octets), 128 // o.span
        rounds = next(n for n in range(ROUNDS, 0, -1) if all_rounds % n == 0)
        parts = all_rounds // rounds
        batch = next(n for n in (8, 4, 2, 1) if (n * rounds <= self.most or n == 1) and OCTET // together % n == 0)
        align, at, strides = 128 if self.ring else 16, tuple(reversed(o.at)), row_strides(tensor)
        number, own = self._number(octets, across)
        lane = (f"lane / {32 // together}",) if together > 1 else ()
        line = f"line % {across}" if boxes else "line"
        with spell.meaning({ROW: "row", COLUMN: "column"}):
            index = tuple(ROW if d == row_of(o) else COLUMN if d == tensor.rank - 1 else e for d, e in enumerate(at))
            source, end = self._place(index), self._place((*index[:-1], tensor.shape[-1]))
        limit = self._place(self._last(at))
        part = f"part * {rounds} + " if parts > 1 else ""
        fetches, mine_line = self._fetches(rounds, octets, part)
        whole, mine, along = self._whole(octets, across, align, rounds, part)
        return _Lines(
            comment, spell.buffer(o.tile), self.words, spell.buffer(tensor), self.ring, parts, rounds, lines, lines % octets != 0,
            line_bytes(o), o.span, align, o.bytes // 4, self._place(at), own, self._low(strides[row_of(o)], item), number, together, batch,
            _sum("j", f"i / {rounds}{f' * {together}' * (together > 1)}" if batch > 1 else "", *lane), f"({part}i % {rounds})",
            "lane" if together == 1 else f"lane % {32 // together}", f"({exchange_of(o.span, 'inner')})", fetches, mine_line, whole, mine,
            along, _sum(spell.expr(at[row_of(o)], self.facts), line), spell.expr(tensor.shape[row_of(o)], self.facts),
            _sum(spell.expr(at[-1], self.facts), f"line / {across} * {o.span // item}" if boxes else ""), source, end, limit,
        )  # fmt: skip

    def _across(self) -> int:
        """Lines of a tile that follow each other down the rows."""
        return self.o.map.box[len(self.o.map.box) - 1 - row_of(self.o)]

    def _number(self, octets: int, across: int) -> tuple[str, str]:
        """How many rows a line is behind the warp's first, as far as its start within a word depends on it, and what the warp's first
        line adds."""
        item = self.o.tile.dtype.bytes
        mine = f" + fetcher * 8 * {self._low(row_strides(self.o.map.tensor)[row_of(self.o)], item)}"
        if self.ring:
            period = 128 // item
            return (f"(line % {period})" if octets % period else "inner"), mine
        if OCTET * item % 16 == 0:
            return "inner", ""
        return ("inner", mine) if across % 16 == 0 and octets % 16 == 0 else (f"((line + fetcher * 8) % {across})", "")

    def _fetches(self, rounds: int, octets: int, part: str) -> tuple[int, str]:
        """Rounds of a lane's copies, and the line of one: eight lanes share a line of a ring, four another."""
        if self.ring:
            return 2 * rounds, f"({part}i / 2) * {octets} + fetcher * 8 + i % 2 * 4 + lane / 8"
        return rounds, f"({part}i) * {octets} + fetcher * 8 + lane / 4"

    def _whole(self, octets: int, across: int, align: int, rounds: int, part: str) -> tuple[str, str, str]:
        """The condition that a tile lies inside of its tensor, with the words in front of its first line; where a lane's first line is
        then, and how many bytes behind it the i-th. Nothing where lines of a lane are not evenly apart."""
        o, spell, facts = self.o, self.writer.spell, self.facts
        if across % octets:
            return "", "", ""
        tensor, at, item = o.map.tensor, tuple(reversed(o.at)), o.tile.dtype.bytes
        tests = []
        # In front of the last row there is memory of the tensor behind each line for its last word.
        for d, n in ((row_of(o), across if self.ring else across + 1), (tensor.rank - 1, len(o.boxes) * o.span // item)):
            extent = tensor.shape[d]
            wide = extent.dtype if extent.dtype.bits >= INT32.bits else INT32
            test = compare("le", at[d], Binary("sub", cast(extent, wide), Const(n, wide), wide))
            if prove(test, facts) is not True:
                tests.append(spell.writer(facts).operand(simplify(test, facts), 8))
        first = self._place(at).removeprefix(spell.buffer(tensor)).removeprefix(" + ") or "0"
        mine = tuple(Binary("add", cast(e, INT32), OWN, INT32) if d == row_of(o) else e for d, e in enumerate(at))
        with spell.meaning({OWN: f"(fetcher * 8 + lane / {8 if self.ring else 4})"}):
            place = self._place(mine, facts.with_range(OWN, 0, octets - 1))
        more = f"({spell.expr(cast(row_strides(tensor)[row_of(o)], INT64), facts)} * {item})"
        if self.ring:
            return " && ".join([*tests, f"{first} >= {align // item}"]), place, f"(({part}i / 2) * {octets} + i % 2 * 4) * {more}"
        ith = f"({part}i) * {octets}"
        further = _sum(f"{ith} % {across} * {more}", f"{ith} / {across} * {o.span}" if len(o.boxes) > 1 else "")
        return " && ".join([*tests, f"{first} >= {align // item}"]), place, further

    def _last(self, at: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """The index behind the last element of the rows that a tile may lie in."""
        o, shape = self.o, self.o.map.tensor.shape
        row = cast(shape[row_of(o)], INT32) if shape[row_of(o)].dtype.bits < INT32.bits else shape[row_of(o)]
        last = Binary("sub", row, Const(1, row.dtype), row.dtype)
        return tuple(last if d == row_of(o) else shape[-1] if d == len(shape) - 1 else e for d, e in enumerate(at))

    def _place(self, index: tuple[Expr, ...], facts: Facts | None = None) -> str:
        """A pointer to an element."""
        tensor = self.o.map.tensor
        writer = self.writer.spell.writer(self.facts if facts is None else facts)
        offset = writer.offset(list(zip(index, row_strides(tensor), strict=True)), True)
        name = self.writer.spell.buffer(tensor)
        return name if offset == "0" else f"{name} + ({offset})"

    def _low(self, stride: Expr, item: int) -> str:
        """A stride in bytes, as far as 32 bits go: only its last bits matter."""
        if isinstance(stride, Const):
            return f"{int(stride.value) * item % 128}u"
        return f"static_cast<unsigned>({self.writer.spell.expr(stride, self.facts)})" + (f" * {item}" if item > 1 else "")


def _sum(*texts: str) -> str:
    return " + ".join(t for t in texts if t not in ("", "0")) or "0"
