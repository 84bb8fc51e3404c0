"""How much work a function does, as a number that is the same on every machine: calls(lambda: verify(kernel)) -> 12840."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def calls(work: Callable[[], Any]) -> int:
    """How many Python functions and generators are entered while `work` runs."""
    count = 0

    def tell(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(tell)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count
