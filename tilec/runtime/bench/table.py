"""Rows of a benchmark as a table for people, as JSON and as CSV.

    table(rows) -> ["gemm  M = 4096 ...", "            median us   spread ...", ...]
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from tilec.runtime.bench.figures import Figure, Row

_COLUMNS = ("median us", "spread", "TFLOP/s", "GB/s", "roofline", "ratio")


def table(symbol: str, machine: str, rows: Sequence[Row]) -> list[str]:
    """Lines for a terminal: a paragraph for each point."""
    lines = [f"{symbol} on {machine}"]
    width = max((len(f.name) for r in rows for f in r.figures), default=5)
    for row in rows:
        lines += ["", f"{_sizes(row.point)}{row.title}", f"  {'':{width}}  " + "  ".join(f"{c:>9}" for c in _COLUMNS)]
        lines += [f"  {f.name:{width}}  " + "  ".join(f"{c:>9}" for c in _cells(row, f)) for f in row.figures]
        lines += [f"  {row.checked}", *(f"  {r.symbol}: {r.text()}" for r in row.resources), *(f"  note: {n}" for n in row.notes)]
    return lines


def _sizes(point: Mapping[str, Any]) -> str:
    return "".join(f"{n} = {v}, " for n, v in point.items())[:-2] + (": " if point else "")


def _cells(row: Row, f: Figure) -> tuple[str, ...]:
    rate = f"{f.tflops:.1f}" if row.work.flop else "-"
    part = f"{f.roofline:.0%}" if f.roofline else "-"
    ratio = f"{row.ratio(f):.3f}" if f is not row.figures[0] else ""
    return f"{f.median * 1e6:.2f}", f"{f.spread:.1%}", rate, f"{f.gb_per_s:.0f}", part, ratio


def as_json(symbol: str, arch: str, machine: Mapping[str, Any], rows: Sequence[Row]) -> str:
    """One object: the kernel and what it was written for, the machine, and a list of rows."""
    return json.dumps({"kernel": symbol, "arch": arch, "machine": dict(machine), "rows": [r.data() for r in rows]})


def as_csv(rows: Sequence[Row]) -> list[str]:
    """One line for every point and contender, the sizes in front."""
    names = list(dict.fromkeys(n for r in rows for n in r.point))
    fields = ("median_us", "spread", "launches", "tflops", "gb_per_s", "roofline", "ratio")
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*names, "contender", *fields])
    for r in rows:
        for name, found in r.data()["contenders"].items():
            writer.writerow([*(r.point.get(n, "") for n in names), name, *(f"{found[f]:.6g}" for f in fields)])
    return out.getvalue().splitlines()
