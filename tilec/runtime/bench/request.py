"""What `tilec bench` is asked for, as values: sweeps, peers, and how to print.

    sweep("M=1024:4096:*2") -> Sweep(names=("M",), values=(1024, 2048, 4096))
    points([sweep("M,N=128,256"), sweep("K=64")]) -> [{"M": 128, "N": 128, "K": 64}, {"M": 256, "N": 256, "K": 64}]
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from tilec.record import record
from tilec.options import OptionError, literal

MOST_POINTS = 10_000
_PEERS = ("auto", "none", "cublas", "torch", "cudnn")


@record
class Sweep:
    """Names that take the same value together, and the values in order."""

    names: tuple[str, ...]
    values: tuple[Any, ...]


@record
class BenchRequest:
    """One `tilec bench`: how often and beside what to measure, and how to tell it.

    `against` is auto, none, cublas, torch, cudnn, torch:EXPR, or a .cu or .py file. `seconds` is the time for measuring one
    point. `mode` is flush or rotate. `output` is table, json or csv. `svg` is a file name or empty.
    """

    points: tuple[Mapping[str, Any], ...] = ({},)
    against: tuple[str, ...] = ("auto",)
    seconds: float = 2.0
    mode: str = "flush"
    seed: int = 0
    args: Mapping[str, tuple[str, tuple[int | str, ...]]] = field(default_factory=dict)
    check_seconds: float = 120.0
    output: str = "table"
    svg: str = ""
    plot: bool = False


def sweep(text: str, option: str = "--sweep") -> Sweep:
    """`NAME[,NAME]=VALUES`, values as A:B (doubling), A:B:*F, A:B:+S or a comma list. Raises OptionError, which names `option`."""
    names, equals, values = text.partition("=")
    found = tuple(n.strip() for n in names.split(","))
    if not equals or not values.strip() or not all(n.isidentifier() for n in found):
        raise OptionError(f"{option} {text}: expected NAME=FROM:TO:*FACTOR, NAME=FROM:TO:+STEP or NAME=VALUE,VALUE")
    if ":" in values:
        return Sweep(found, _range(values, f"{option} {text}"))
    return Sweep(found, tuple(literal(v.strip(), f"{option} {names}") for v in _parts(values)))


def _parts(text: str) -> list[str]:
    """The entries of a comma list; commas inside brackets do not count."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "([{") - (c in ")]}")
        if c == "," and not depth:
            parts.append(text[start:i])
            start = i + 1
    return [*parts, text[start:]]


def _range(text: str, whole: str) -> tuple[int, ...]:
    first, last, *rest = (p.strip() for p in text.split(":"))
    step = rest[0] if rest else "*2"
    fine = len(rest) < 2 and first.isdecimal() and last.isdecimal() and step[:1] in ("*", "+") and step[1:].isdecimal()
    if not fine or int(first) < 1 or int(step[1:]) < (2 if step[0] == "*" else 1):
        raise OptionError(f"{whole}: expected FROM:TO:*FACTOR or FROM:TO:+STEP with whole numbers, such as 1024:16384:*2")
    values = [int(first)]
    while len(values) <= MOST_POINTS:
        following = values[-1] * int(step[1:]) if step[0] == "*" else values[-1] + int(step[1:])
        if following > int(last):
            return tuple(values) if values[0] <= int(last) else _empty(whole)
        values.append(following)
    raise OptionError(f"{whole}: more than {MOST_POINTS} values")


def _empty(whole: str) -> tuple[int, ...]:
    raise OptionError(f"{whole}: no value lies in this range")


def points(sweeps: Sequence[Sweep], option: str = "--sweep") -> list[dict[str, Any]]:
    """The product of all sweeps, the first one outermost; one empty point without sweeps. Raises OptionError."""
    names = [n for s in sweeps for n in s.names]
    if twice := {n for n in names if names.count(n) > 1}:
        raise OptionError(f"{option}: `{min(twice)}` is given twice")
    out = [
        {name: value for s, value in zip(sweeps, choice, strict=True) for name in s.names}
        for choice in itertools.islice(itertools.product(*(s.values for s in sweeps)), MOST_POINTS + 1)
    ]
    if len(out) > MOST_POINTS:
        raise OptionError(f"{option}: more than {MOST_POINTS} points")
    return out


def peers(texts: Iterable[str]) -> tuple[str, ...]:
    """The `--against` options as they are; `auto` without any. Raises OptionError for a word that is none."""
    found = tuple(texts) or ("auto",)
    for text in found:
        if text not in _PEERS and not text.startswith("torch:") and not text.endswith((".cu", ".py")):
            raise OptionError(f"--against {text}: expected cublas, cudnn, torch, torch:EXPR, none, or a .cu or .py file")
    return found
