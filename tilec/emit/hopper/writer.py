"""What the writers of Hopper's three kinds of kernel have in common: how they reach the rest of the file, and loads of boxes.

    writer.boxes(a, "A_s + stage * 8192", facts) -> [BoxLoad("A_s + stage * 8192", "ko * 64, by * 128")]
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from tilec.analysis.facts import Facts
from tilec.diagnostics import Span
from tilec.emit.memory import Spelling
from tilec.emit.render import render
from tilec.ir.dtypes import INT32
from tilec.ir.expr import Binary, Const, Expr, Var
from tilec.ir.visit import substitute
from tilec.plan.hopper.plan import Operand
from tilec.plan.plan import PSeq
from tilec.record import record


class Write(Protocol):
    """Gives the text of planned statements, without declarations that neither they nor the text `behind` them mention."""

    def __call__(self, seq: PSeq, facts: Facts, behind: str = "") -> str: ...


ENTRIES = (
    "tensor_map", "shared_tile", "warp_group_index", "registers_give", "registers_take", "mbarrier_init", "mbarrier_init_fence",
    "mbarrier_arrive", "mbarrier_wait", "wgmma_descriptor", "wgmma_fence", "wgmma_commit", "wgmma_wait",
)  # fmt: skip
"""Prelude entries that every such kernel uses."""


@record
class BoxLoad:
    """One load: where to, and its coordinates."""

    dst: str
    at: str


@record
class ProductCall:
    """One product: the call's name, accumulator, left operand (a descriptor or words in registers), the other, whether it adds."""

    name: str
    d: str
    a: str
    b: str
    accumulate: str


@record
class Writer:
    """Writes one kernel. `write` gives the text of planned statements, `tile_lines` the declarations of shared tiles."""

    spell: Spelling
    comment: Callable[[Span], str]
    write: Write
    tile_lines: Callable[[str], list[str]]

    def need(self, *entries: str, stores: bool, loads: bool = True, maps: bool = True) -> None:
        """Asks for what every such kernel uses of the prelude and for these entries; `stores`: the copy engine writes results; `loads`: it
        brings operands; `maps`: it does anything."""
        own = [entry for entry, used in (("bulk_wait_read", stores), ("mbarrier_expect", loads), ("tma_prefetch", maps)) if used]
        for entry in (*ENTRIES, *entries, *own):
            self.spell.need(entry)

    def boxes(self, o: Operand, version: str, facts: Facts, shift: Mapping[Var, Expr] | None = None) -> list[BoxLoad]:
        """The boxes of a tile, whose version at hand lies at `version`; with `shift`, of another step."""
        out = []
        for box in o.boxes:
            first = o.at[0] if not box.shift else Binary("add", o.at[0], Const(box.shift, INT32), INT32)
            at = ", ".join(self.spell.expr(substitute(e, dict(shift)) if shift else e, facts) for e in (first, *o.at[1:]))
            out.append(BoxLoad(f"{version} + {box.offset}" if box.offset else version, at))
        return out

    def loads_of(self, o: Operand, boxes: Sequence[BoxLoad], map_name: str, barrier: str, span: Span) -> str:
        """The statements that load the boxes of a tile and report to `barrier`."""
        load = f"tma_load_{len(o.at)}d{'_multicast' if o.halved else ''}"
        self.spell.need(load)
        text = render("copy/tma_load.cu.jinja", comment=self.comment(span), boxes=boxes, load=load, map=map_name, barrier=barrier)
        return text.lstrip("\n")


def exchange_of(span: int, row: str = "row") -> str:
    """What the copy engine's swizzle over `span` bytes adds, by exclusive or, to the number of a chunk in a row."""
    return {128: f"{row} % 8", 64: f"{row} / 2 % 4", 32: f"{row} / 4 % 2"}[span]


def factor(text: str) -> str:
    """C text that may stand in a product: in brackets unless it is one word."""
    return text if re.fullmatch(r"\w+", text) else f"({text})"
