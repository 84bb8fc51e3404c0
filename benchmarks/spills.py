"""Sweeps several hundred kernels for spilled registers and serialised products: what leaves the compiler, and what the rules vouched for.

    python benchmarks/spills.py build/spills.jsonl                       all; goes on where an earlier run stopped
    python benchmarks/spills.py build/spills.jsonl --only attention D256 --again
    python benchmarks/spills.py build/spills.jsonl --rules               only what the rules choose where nobody can ask: 2 to 20 seconds
    python benchmarks/spills.py build/spills.jsonl --table               the tables of what is known, as Markdown

needs nvcc, no GPU. A kernel takes 5 to 60 seconds. A line a kernel goes to the file: what each body's first configuration costs by
ptxas, what the rules expected, and what is left in the end; and of every body of the text that is written without nvcc, whether the
rules vouch for it and what ptxas says. A hole is a body that the rules vouch for and ptxas does not, whatever the other bodies are.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.spill_cases import Case, cases
from tilec import ptxas
from tilec.diagnostics import CompileError
from tilec.driver import Compiled, InternalFault, Options, compile_source
from tilec.plan.ladder import LADDERS
from tilec.plan.plan import Variant
from tilec.settle import HOPELESS, array_bytes
from tilec.targets import lookup


WAITS = "C7517"
"""A wait put in front of the author's own, which costs nothing: told apart."""


def compiled(c: Case, mode: str) -> Compiled:
    """A compilation of a case, with ptxas asked or not."""
    target = lookup(c.arch)
    assert target is not None
    kernels = (c.kernel,) if c.kernel else ()
    return compile_source(Options("kernel.py", c.text.encode(), target, defines=c.defines, kernels=kernels, opt_level=c.opt, ptxas=mode))


def bodies(x: Compiled) -> list[Variant]:
    """All bodies of a compilation."""
    return [v for p in x.plans for launch in p.launches for v in launch.variants]


heard = cache(ptxas.hear)
"""What ptxas says of a text, once."""


def complaints(x: Compiled, arch: str) -> tuple[dict[str, str], dict[str, int]] | str:
    """What ptxas has against each body of a compilation, empty where nothing, and registers; why nobody knows."""
    answer = heard(x.cu, (arch,))
    if isinstance(answer, ptxas.Silence):
        return answer.reason
    found = {v.symbol: (answer.bodies[v.symbol], array_bytes(v)) for v in bodies(x)}
    clear = {s: replace(b, stack=max(0, b.stack - own)) for s, (b, own) in found.items()}
    return {s: "" if b.clean else str(b) for s, b in clear.items()}, {s: b.registers for s, b in clear.items()}


def outcome(c: Case, rules: bool) -> dict[str, Any]:
    """What is to be known of one case; with `rules`, of what is written without nvcc alone."""
    start = time.perf_counter()
    try:
        told = without_nvcc(c)
        told |= {} if rules or "silent" in told else with_nvcc(c)
        return {**told, "seconds": round(time.perf_counter() - start, 1)}
    except (CompileError, InternalFault) as fault:
        return {"refused": str(fault)[:200]}


def without_nvcc(c: Case) -> dict[str, Any]:
    """Of each body that the rules choose: its place, what they say of it, and what ptxas says."""
    chosen = compiled(c, "never")
    said = complaints(chosen, c.arch) if any(v.strain <= HOPELESS for v in bodies(chosen)) else "hopeless"
    if isinstance(said, str):
        return {"silent": said, "strain": {v.symbol: v.strain for v in bodies(chosen)}}
    bad, used = said
    return {"bodies": {
        s: {"ladder": v.ladder, "rung": v.rung, "strain": v.strain, "open": v.open, "bad": bad[s], "registers": used[s]}
        for v in bodies(chosen) for s in (v.symbol,)
    }}  # fmt: skip


def with_nvcc(c: Case) -> dict[str, Any]:
    """What is left in the end where nvcc can be asked."""
    settled = compiled(c, "auto")
    said = complaints(settled, c.arch)
    if isinstance(said, str):
        return {"silent": said, "strain": {v.symbol: v.strain for v in bodies(settled)}}
    asked = "ptxas" in settled.seconds
    left = {s: words for s, words in said[0].items() if words}
    return {
        "asked": asked, "hopeless": any(v.strain > HOPELESS for v in bodies(settled)), "left": left,
        "hole": bool(left) and not asked, "ladders": sorted({v.ladder for v in bodies(settled)}),
        "rungs": {v.symbol: LADDERS[v.ladder][v.rung].name for v in bodies(settled) if v.rung},
        "strain": {v.symbol: v.strain for v in bodies(settled)}, "registers": said[1],
        "told": [line for p in settled.plans for line in p.asked],
    }  # fmt: skip


def known(path: Path) -> dict[str, dict[str, Any]]:
    """The last line of each case in the file."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {x["case"]: x for x in map(json.loads, lines)}


def table(found: dict[str, dict[str, Any]], every: dict[str, Case]) -> str:
    """What is known, as Markdown."""
    rows: dict[tuple[str, str], Counter[str]] = {}
    for name, x in found.items():
        if name not in every:
            continue
        row = rows.setdefault((every[name].family, every[name].arch), Counter())
        row.update(["kernels"])
        if "left" not in x:
            row.update(["refused" if "refused" in x else "silent" if "silent" in x else "rules only"])
            continue
        row.update(["clean" if not x["left"] else "hopeless" if x["hopeless"] else "spills"])
        row.update([*(["asked"] if x["asked"] else []), *(["lower"] if x["rungs"] else []), *(["hole"] if x["hole"] else [])])
    columns = ("kernels", "refused", "clean", "asked", "lower", "hole", "hopeless", "spills", "silent", "rules only")
    left = [f"- {n}: {'; '.join(f'`{s}` {b}' for s, b in x['left'].items())}" for n, x in found.items() if x.get("left")]
    return "\n".join([*as_table(("family", "arch"), columns, rows), "", *left])


def as_table(names: tuple[str, str], columns: tuple[str, ...], rows: dict[tuple[str, str], Counter[str]]) -> list[str]:
    """Counts as Markdown, with their sums."""
    lines = [f"| {names[0]} | {names[1]} | {' | '.join(columns)} |", "| --- | --- |" + " ---: |" * len(columns)]
    for (a, b), row in [*sorted(rows.items()), (("all", ""), sum(rows.values(), Counter()))]:
        lines.append(f"| {a} | {b} | {' | '.join(str(row[c]) for c in columns)} |")
    return lines


def body_table(found: dict[str, dict[str, Any]]) -> str:
    """What is known of single bodies, as Markdown: where the rules vouch for them, and what ptxas has against those."""
    rows: dict[tuple[str, str], Counter[str]] = {}
    holes = []
    for name, x in found.items():
        for symbol, b in x.get("bodies", {}).items():
            row = rows.setdefault((b["ladder"] or "none", "lower" if b["rung"] else "first"), Counter())
            kind = "beyond" if b["strain"] > 0 else "open" if b["open"] else "vouched"
            row.update(["bodies", kind, *([] if not b["bad"] else [f"{kind}: waits" if b["bad"] == WAITS else f"{kind}: complaints"])])
            holes += [f"- {name}: `{symbol}` {b['bad']}, strain {b['strain']}"] if kind == "vouched" and b["bad"] not in ("", WAITS) else []
    columns = ("bodies", "vouched", "vouched: complaints", "vouched: waits", "open", "open: complaints", "beyond", "beyond: complaints")
    return "\n".join([*as_table(("ladder", "rung"), columns, rows), "", *holes])


def main() -> int:
    """Asks about all cases that the file does not have, or prints what it has."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", nargs="*", default=[], help="words that the name of a case must all contain")
    parser.add_argument("--again", action="store_true", help="also those that the file has")
    parser.add_argument("--unclean", action="store_true", help="once more those that the file has and that were not clean")
    parser.add_argument("--rules", action="store_true", help="only what is written where nvcc cannot be asked")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    every, had = cases(), known(options.file)
    if options.table:
        print(table(had, every), body_table(had), sep="\n\n")
        return 0
    os.environ.setdefault("TILEC_PTXAS_TIMEOUT", "120")
    print(f"{len(every)} kernels, {len(had)} known")
    options.file.parent.mkdir(parents=True, exist_ok=True)
    for name in sorted(every, key=lambda n: sha256(n.encode()).digest()):  # families mixed, so that a part of it tells much
        c = every[name]
        old = had.get(name)
        wanted = old is None or options.again or (options.unclean and (old.get("left") or "silent" in old))
        if not wanted or not all(w in name for w in options.only):
            continue
        x = outcome(c, options.rules)
        with options.file.open("a") as out:
            out.write(json.dumps({"case": name, **x}) + "\n")
        said = x.get("left") or x.get("refused") or x.get("silent") or "clean"
        holes = [s for s, b in x.get("bodies", {}).items() if b["strain"] <= 0 and not b["open"] and b["bad"] not in ("", WAITS)]
        print(f"{name}: {said} {x.get('rungs', '')} {f'HOLE {holes}' if holes or x.get('hole') else ''} {x.get('seconds', '')}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
