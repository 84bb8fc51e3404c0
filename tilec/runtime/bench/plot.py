"""Pictures of a benchmark: a sweep and a roofline, as SVG and as text for a terminal. No plotting library.

    svg(rows, peaks) -> "<svg ...";  bars(rows) -> ["M = 1024  tilec  ######  212.4 TFLOP/s", ...]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from tilec.record import record
from tilec.runtime.bench.device import Peaks
from tilec.runtime.bench.figures import Row

_COLOURS = ("#1b6ca8", "#c8553d", "#588157", "#8d6a9f", "#7a7a7a")
_WIDTH, _HEIGHT, _LEFT, _TOP = 520, 340, 64, 36
_STYLE = "<style>text{font:12px sans-serif;fill:#222}.t{font-weight:bold}.a{stroke:#222;fill:none}.g{stroke:#ddd;fill:none}</style>"
BAR = 40


@record
class _Axis:
    """Maps values to pixels, on a logarithmic scale or from zero."""

    low: float
    high: float
    start: float
    end: float
    log: bool

    def at(self, value: float) -> float:
        """The pixel of a value."""
        low, high, v = (math.log(x) if self.log else x for x in (self.low, self.high, max(value, self.low)))
        return self.start + (self.end - self.start) * (v - low) / ((high - low) or 1.0)

    def ticks(self) -> list[float]:
        """Round values along the axis: powers of ten and half-way, or about five equal steps."""
        if self.log:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            found = [m * 10.0**e for e in range(first, last + 1) for m in (1, 3)]
            return [t for t in found if self.low * 0.999 <= t <= self.high * 1.001]
        step = 10 ** math.floor(math.log10(self.high / 5)) if self.high > 0 else 1.0
        step *= next(m for m in (1, 2, 5, 10) if self.high / (m * step) <= 6)
        return [i * step for i in range(int(self.high / step * 1.001) + 1)]


def svg(rows: Sequence[Row], peaks: Peaks) -> str:
    """One picture with the sweep at the left and the roofline at the right."""
    parts = [_sweep(rows), f'<g transform="translate({_WIDTH},0)">{_roofline(rows, peaks)}</g>']
    size = f'width="{2 * _WIDTH}" height="{_HEIGHT}" viewBox="0 0 {2 * _WIDTH} {_HEIGHT}"'
    inside = "\n".join(parts)
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n{_STYLE}<rect width="100%" height="100%" fill="#fff"/>\n{inside}\n</svg>\n'


def rate(row: Row, index: int) -> float:
    """What the vertical axis of a sweep shows: TFLOP/s, or GB/s where nothing is multiplied."""
    return row.figures[index].tflops if row.work.flop else row.figures[index].gb_per_s


def _unit(rows: Sequence[Row]) -> str:
    return "TFLOP/s" if rows[0].work.flop else "GB/s"


def _frame(title: str, x: _Axis, y: _Axis, x_name: str, labels: Sequence[tuple[float, str]]) -> list[str]:
    out = [f'<text class="t" x="{_LEFT}" y="20">{escape(title)}</text>']
    for t in y.ticks():
        out.append(f'<path class="g" d="M{x.start:.1f} {y.at(t):.1f}H{x.end:.1f}"/>')
        out.append(f'<text x="{x.start - 6:.1f}" y="{y.at(t) + 4:.1f}" text-anchor="end">{t:g}</text>')
    out += [f'<text x="{p:.1f}" y="{y.start + 16:.1f}" text-anchor="middle">{escape(name)}</text>' for p, name in labels]
    out.append(f'<path class="a" d="M{x.start:.1f} {y.end:.1f}V{y.start:.1f}H{x.end:.1f}"/>')
    return [*out, f'<text x="{x.end:.1f}" y="{y.start + 32:.1f}" text-anchor="end">{escape(x_name)}</text>']


def _sweep(rows: Sequence[Row]) -> str:
    """A line for each contender over the points in order."""
    names = list(dict.fromkeys(f.name for r in rows for f in r.figures))
    top = max(rate(r, i) for r in rows for i in range(len(r.figures)))
    x = _Axis(-0.5, len(rows) - 0.5, _LEFT, _WIDTH - 16, log=False)
    y = _Axis(0.0, top * 1.1 or 1.0, _HEIGHT - 48, _TOP, log=False)
    every = max(1, len(rows) // 8)
    labels = [(x.at(i), point_name(r)) for i, r in enumerate(rows) if i % every == 0]
    out = _frame(_unit(rows), x, y, ", ".join(rows[0].point) or "", labels)
    for n, name in enumerate(names):
        colour = _COLOURS[n % len(_COLOURS)]
        places = [(x.at(i), y.at(rate(r, k))) for i, r in enumerate(rows) for k, f in enumerate(r.figures) if f.name == name]
        out.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{" ".join(f"{a:.1f},{b:.1f}" for a, b in places)}"/>')
        out += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colour}"/>' for a, b in places]
        out.append(f'<text x="{_LEFT + 12}" y="{_TOP + 12 + 16 * n}" style="fill:{colour}">{escape(name)}</text>')
    return "\n".join(out)


def point_name(row: Row) -> str:
    """The sizes of a point, each different one once."""
    return ",".join(dict.fromkeys(str(v) for v in row.point.values()))


def _roofline(rows: Sequence[Row], peaks: Peaks) -> str:
    """Operations a byte against TFLOP/s, both logarithmic, under the roof of the machine."""
    with_work = [r for r in rows if r.work.flop and r.work.bytes]
    if not with_work or not peaks.half or not peaks.gb_per_s:
        return f'<text x="{_LEFT}" y="{_TOP}">no roofline: the operations or the peaks are unknown</text>'
    roof = peaks.tflops(with_work[0].work.dtype)
    ridge = roof * 1e12 / (peaks.gb_per_s * 1e9)
    places = [(r.work.flop / r.work.bytes, f.tflops, k) for r in with_work for k, f in enumerate(r.figures)]
    left, right = min(ridge, *(p[0] for p in places)) / 3, max(ridge, *(p[0] for p in places)) * 3
    low = min(left * peaks.gb_per_s / 1e3, *(p[1] for p in places)) / 1.5
    x, y = _Axis(left, right, _LEFT, _WIDTH - 16, log=True), _Axis(low, roof * 1.6, _HEIGHT - 48, _TOP, log=True)
    out = _frame(f"roofline, {with_work[0].work.dtype}", x, y, "operations a byte", [(x.at(t), f"{t:g}") for t in x.ticks()])
    corner = f"{x.at(ridge):.1f} {y.at(roof):.1f}"
    out.append(f'<path class="a" stroke-width="2" d="M{x.at(left):.1f} {y.at(left * peaks.gb_per_s / 1e3):.1f}L{corner}H{x.end:.1f}"/>')
    out.append(f'<text x="{x.end:.1f}" y="{y.at(roof) - 6:.1f}" text-anchor="end">{roof:.0f} TFLOP/s, {peaks.gb_per_s:.0f} GB/s</text>')
    return "\n".join([*out, *(f'<circle cx="{x.at(a):.1f}" cy="{y.at(b):.1f}" r="4" fill="{_COLOURS[k % 5]}"/>' for a, b, k in places)])


def bars(rows: Sequence[Row]) -> list[str]:
    """The sweep as bars of `#`, the longest of BAR characters."""
    top = max((rate(r, i) for r in rows for i in range(len(r.figures))), default=0.0) or 1.0
    points = [point_name(r) for r in rows]
    wide, name_wide = max(map(len, points), default=0), max((len(f.name) for r in rows for f in r.figures), default=0)
    lines = []
    for r, point in zip(rows, points, strict=True):
        for i, f in enumerate(r.figures):
            bar = "#" * round(BAR * rate(r, i) / top)
            lines.append(f"{point if i == 0 else '':>{wide}}  {f.name:{name_wide}}  {bar:{BAR}}  {rate(r, i):.1f} {_unit(rows)}")
    return lines
