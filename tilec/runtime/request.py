"""What `tilec run` and `tilec bench` are asked for, as values.

    pairs("--in", ["A=a.npy"]) -> {"A": "a.npy"}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

from tilec.record import record
from tilec.options import OptionError

Shapes = Mapping[str, tuple[str, tuple[int | str, ...]]]


@record
class RunRequest:
    """Where the arguments of a run come from and where results go.

    `defines` (`-D`) and `args` (`--arg`) give scalars and extents; `inputs` and `outputs` are .npy files by parameter name.
    `mode` is empty for the usual runs on the CPU, or words such as `eager,real`.
    """

    defines: Mapping[str, Any] = field(default_factory=dict)
    args: Shapes = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0
    mode: str = ""
    timeout_s: int = 60
    check: bool = True


class RunError(Exception):
    """The run did not end as it should, or cannot begin; the text says why. Exit code 1."""


class MissingError(Exception):
    """Something that the machine lacks: a compiler, CuPy, a GPU. Exit code 3."""


def pairs(option: str, texts: Iterable[str]) -> dict[str, str]:
    """`NAME=FILE` texts as a dictionary. Raises OptionError."""
    out = {}
    for text in texts:
        name, equals, file = text.partition("=")
        if not equals or not name.isidentifier() or not file:
            raise OptionError(f"{option} {text}: expected NAME=FILE.npy")
        out[name] = file
    return out
