"""The wheel: pure Python, templates and schema inside, installs into a fresh environment elsewhere and compiles a sample there."""

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return next(out.glob("*.whl"))


def test_what_is_inside(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = archive.read(next(n for n in names if n.endswith("METADATA"))).decode()
    templates = {str(p.relative_to(ROOT)) for p in (ROOT / "templates").rglob("*") if p.is_file() and "__pycache__" not in p.parts}
    assert {f"tilec/{t}" for t in templates} <= names
    assert {"tilec/manifest.schema.json", "tilec/py.typed", "tilec/cli.py", "tilec/make/tilec.mk", "tilec/cmake/tilecConfig.cmake"} <= names
    assert not [n for n in names if "__pycache__" in n or n.startswith(("tests", "samples", "benchmarks"))]
    needs = [line for line in metadata.splitlines() if line.startswith("Requires-Dist") and "extra ==" not in line]
    assert sorted(n.split()[1].split(">")[0] for n in needs) == ["click", "jinja2", "libcst"]


def test_it_compiles_a_sample_in_a_fresh_environment(wheel: Path, tmp_path: Path) -> None:
    """The environment sees this one's dependencies, by a .pth file, but tilec only from the wheel."""
    room = tmp_path / "env"
    venv.create(room, with_pip=False)
    site = next((room / "lib").glob("python*/site-packages"))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    dependencies = tmp_path / "dependencies"
    dependencies.mkdir()
    for name in ("click", "jinja2", "libcst", "markupsafe", "yaml", "typing_extensions.py", "_yaml"):
        found = [Path(p) / name for p in sys.path if p.endswith("site-packages") and (Path(p) / name).exists()]
        if found:
            (dependencies / name).symlink_to(found[0])
    (site / "dependencies.pth").write_text(f"{dependencies}\n")
    (tmp_path / "k.py").write_text((ROOT / "samples" / "gemm_prim_func.py").read_text())
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    python = [str(room / "bin" / "python"), "-I", "-m", "tilec"]
    done = subprocess.run([*python, "compile", "k.py", "-o", "k.cu"], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "__global__" in (tmp_path / "k.cu").read_text()
    where = subprocess.run([python[0], "-I", "-c", "import tilec; print(tilec.__file__)"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert str(room) in where.stdout
