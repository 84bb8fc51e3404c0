"""What every test may use: tools that are skipped when absent, and required when TILEC_REQUIRE_TOOLCHAIN=1."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Lets the programs that tests start keep their bytecode, in a place of its own where the checkout shall have none.

    Without it each of some hundred processes compiles all modules of tilec anew, which takes three times as long as what it is for.
    """
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
        os.environ["PYTHONPYCACHEPREFIX"] = str(config.rootpath / ".pytest_cache" / "bytecode")


@pytest.fixture(autouse=True)
def python_itself_stays_whole() -> Iterator[None]:
    """Fails the test that wrote into the objects Python keeps one of: the bytes of length 1, which C code can reach by mistake."""
    yield
    damaged = [n for n in range(256) if ord(bytes([n])) != n]
    assert not damaged, f"the test changed Python's own bytes objects {[hex(n) for n in damaged]}"


def missing(what: str) -> None:
    """Skips the test for want of `what`; fails it where the toolchain is required."""
    if os.environ.get("TILEC_REQUIRE_TOOLCHAIN") == "1":
        pytest.fail(f"{what} is required (TILEC_REQUIRE_TOOLCHAIN=1) and is not here")
    pytest.skip(f"{what} is not here")


@pytest.fixture(scope="session")
def require_tool() -> Callable[[str], str]:
    """`require_tool("nvcc")` gives its path, or ends the test."""

    def find(name: str) -> str:
        path = shutil.which(name)
        if path is None:
            missing(name)
        return path or ""

    return find
