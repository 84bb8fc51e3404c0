"""Facts about the machines that code is written for, as data: one file a machine.

    lookup("sm_86").shared_per_block_max -> 101376;  lookup("sm_12") -> None
"""

from __future__ import annotations

from tilec.targets.model import Target
from tilec.targets.sm80 import SM80
from tilec.targets.sm86 import SM86
from tilec.targets.sm89 import SM89
from tilec.targets.sm90 import SM90, SM90A

ALL = (SM80, SM86, SM89, SM90, SM90A)
"""Every known target, oldest first."""


def lookup(name: str) -> Target | None:
    """The target with this name, or None."""
    return next((t for t in ALL if t.name == name), None)


__all__ = ["ALL", "SM80", "SM86", "SM89", "SM90", "SM90A", "Target", "lookup"]
