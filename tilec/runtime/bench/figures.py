"""From times to figures: medians, spreads, rates, fractions of the roofline.

    figure("tilec", [1.0e-4, ...], work, peaks) -> Figure(name="tilec", median=1.0e-4, tflops=..., roofline=0.74)
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from tilec.record import record
from tilec.runtime.bench.device import Peaks, Resources


@record
class Work:
    """Operations and bytes of one call, and the type that its matrices have. `flop` 0 means memory only."""

    flop: int
    bytes: int
    dtype: str


@record
class Figure:
    """One contender at one point. `median` in seconds; `spread` is the range of the middle half, relative to the median;
    `roofline` is the part of what the machine could do at most, 0 where that is unknown."""

    name: str
    median: float
    spread: float
    launches: int
    tflops: float
    gb_per_s: float
    roofline: float


@record
class Row:
    """One point of a sweep: its sizes, what is computed, every contender's figure (ours first) and what to tell besides."""

    point: Mapping[str, Any]
    title: str
    work: Work
    figures: tuple[Figure, ...]
    checked: str
    resources: tuple[Resources, ...] = ()
    clocks: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()

    def ratio(self, figure: Figure) -> float:
        """How many times as fast ours is as `figure`; 1 for ours."""
        return figure.median / self.figures[0].median

    def data(self) -> dict[str, Any]:
        """The row as JSON: a dictionary for every contender by name."""
        contenders = {
            f.name: {
                "median_us": f.median * 1e6, "spread": f.spread, "launches": f.launches, "tflops": f.tflops, "gb_per_s": f.gb_per_s,
                "roofline": f.roofline, "ratio": self.ratio(f),
            }
            for f in self.figures
        }  # fmt: skip
        return {
            "point": dict(self.point), "problem": self.title, "flop": self.work.flop, "bytes": self.work.bytes, "dtype": self.work.dtype,
            "checked": self.checked, "contenders": contenders, "resources": [dict(r.data()) for r in self.resources],
            "clocks": dict(self.clocks or {}), "notes": list(self.notes),
        }  # fmt: skip


def figure(name: str, times: Sequence[float], work: Work, peaks: Peaks) -> Figure:
    """The figure of one contender from the seconds of its launches."""
    median = statistics.median(times)
    low, _, high = statistics.quantiles(times, n=4) if len(times) > 1 else (median,) * 3
    most = peaks.attainable(work.dtype, work.flop, work.bytes)
    return Figure(name, median, (high - low) / median, len(times), work.flop / median / 1e12, work.bytes / median / 1e9, most / median)
