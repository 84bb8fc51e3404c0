"""The candidates of a search: the configurations of an autotune decorator, or the product of `--space` options.

    product(["block_M=64,128", "threads=128"]) -> [{"block_M": 64, "threads": 128}, {"block_M": 128, "threads": 128}]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tilec.ir.kernel import Kernel
from tilec.options import OptionError, literal
from tilec.runtime.bench.request import points, sweep

Candidate = Mapping[str, Any]


def product(spaces: Sequence[str]) -> list[dict[str, Any]]:
    """Every combination, the first option outermost. An option may hold several NAME=VALUES, apart by blanks. Raises OptionError."""
    return points([sweep(part, "--space") for text in spaces for part in text.split()], "--space")


def configurations(kernel: Kernel, fixed: Iterable[str]) -> list[dict[str, Any]]:
    """The configurations that the author wrote, without the names that `-D` fixes; each different one once."""
    names = set(fixed)
    found = [{n: literal(v, f"configuration {n}") for n, v in c if n not in names} for c in kernel.configs]
    out = list({repr(sorted(c.items())): c for c in found if c}.values())
    if not out:
        raise OptionError(
            f"{kernel.symbol} has no @tilelang.autotune configurations that can be read: give --space block_M=64,128 block_N=64,128"
        )
    return out


def text(candidate: Candidate) -> str:
    """`block_M=128 threads=256`"""
    return " ".join(f"{n}={v}" for n, v in candidate.items())
