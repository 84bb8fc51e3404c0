"""Without NumPy kernels are compiled all the same; what runs them says what to install."""

import subprocess
import sys
from pathlib import Path

import pytest

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "gemm_prim_func.py"
WITHOUT_NUMPY = """
import sys
sys.modules["numpy"] = None  # which makes its import fail as that of a package that is not installed
from tilec.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


def tilec(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT_NUMPY, *args]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("command", [("run",), ("bench", "--device", "cpu"), ("tune", "--device", "cpu")], ids=lambda c: c[0])
def test_what_runs_kernels_says_what_is_missing(command: tuple[str, ...]) -> None:
    done = tilec(*command, str(SAMPLE))
    assert (done.returncode, done.stderr.splitlines()[-1]) == (3, "error: numpy is not here: pip install 'tilec[cpu]'")


def test_compiling_needs_no_numpy() -> None:
    done = tilec("compile", str(SAMPLE), "-o", "-")
    assert done.returncode == 0 and "__global__" in done.stdout
