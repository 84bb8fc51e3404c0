"""What is carried to a machine with a GPU loads there, where tilec is not installed."""

import subprocess
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]


def test_bundle_loads_where_tilec_is_not_installed(tmp_path: Path) -> None:
    out = tmp_path / "bundle"
    subprocess.run([sys.executable, ROOT / "benchmarks" / "make_bundle.py", out, "--rows", "1"], check=True, timeout=120)
    path = [str(out), str(Path(np.__file__).parents[1])]  # without `site`: an editable tilec is not found
    load = f"import sys; sys.path[:0] = {path!r}; import tilec.runtime.loader as m; print(m.__file__)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", load], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(out)
