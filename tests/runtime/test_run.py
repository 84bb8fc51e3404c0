"""`tilec run`: agreement, disagreement, refusal, faults of the kernel, files in and out."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.toolchain import needs_gxx
from tilec import cli

KERNEL = """import tilelang.language as T
N = T.dynamic("N")

@T.prim_func
def gather(X: T.Tensor((N,), "bfloat16"), I: T.Tensor((N,), "int32"), Y: T.Tensor((N,), "float16"), s: T.float16):
    with T.Kernel(T.ceildiv(N, 128), threads=128) as bx:
        for i in T.Parallel(128):
            Y[bx * 128 + i] = T.cast(X[I[bx * 128 + i]], "float16") * s
"""
LENGTH = """import tilelang.language as T
L = T.dynamic("L")

@T.prim_func
def load(G: T.Tensor((L,), "int32"), O: T.Tensor((64,), "int32")):
    with T.Kernel(1, threads=32):
        t = T.alloc_shared((64,), "int32")
        T.fill(t, -1)
        T.copy(G[0:L], t[0:L])
        T.copy(t, O)
"""

pytestmark = needs_gxx


def tilec(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "tilec", *args], cwd=cwd, capture_output=True, text=True, check=False)


def test_given_arrays_in_results_out(tmp_path: Path) -> None:
    rng = np.random.default_rng()
    x, at = rng.integers(-50, 50, 300).astype(np.float32), rng.integers(0, 300, 300)
    (tmp_path / "k.py").write_text(KERNEL)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "i.npy", at)  # int64 here, int32 there
    np.save(tmp_path / "s.npy", np.float64(0.5))
    done = tilec("run", "k.py", "--in", "X=x.npy", "--in", "I=i.npy", "--in", "s=s.npy", "--out", "Y=y.npy", "--out", "X=x2.npy", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert np.array_equal(np.load(tmp_path / "y.npy"), (x[at] * 0.5).astype(np.float16))
    assert np.load(tmp_path / "x2.npy").dtype == np.float32 and np.array_equal(np.load(tmp_path / "x2.npy"), x)
    assert "N = 300" in done.stdout and "agrees" in done.stdout


def test_wrong_code_is_found_and_exits_with_1(tmp_path: Path) -> None:
    """The driver's output is changed between compiling and running, as a fault of a template would."""
    (tmp_path / "k.py").write_text(KERNEL)
    program = """
import sys, tilec.emit.kernel as k
right = k.Written.text
def wrong(written):
    text = right(written)
    head, body = text.split("tilec-manifest-end", 1)
    changed = body.replace("bx * 128 + i] = ", "bx * 128 + (i ^ 1)] = ", 1)
    assert changed != body
    return head + "tilec-manifest-end" + changed
k.Written.text = wrong
from tilec.__main__ import main
sys.exit(main(["run", "k.py", "-D", "N=256", "-D", "s=2"]))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "Y differs from the reference" in done.stderr and "differs" in done.stdout, done.stdout + done.stderr


def test_a_length_that_does_not_fit_is_refused_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text(LENGTH)
    assert tilec("run", "k.py", "--arg", "G=int32[64]", cwd=tmp_path).returncode == 0
    np.save(tmp_path / "g.npy", np.zeros(65, np.int32))
    done = tilec("run", "k.py", "--in", "G=g.npy", "--out", "O=o.npy", cwd=tmp_path)
    assert done.returncode == 1 and done.stderr.startswith("error: ") and not (tmp_path / "o.npy").exists()


@pytest.mark.parametrize(("args", "words"), [
    (["--in", "Q=q.npy"], "no parameter `Q`"), (["--in", "X"], "expected NAME=FILE"), (["--mode", "sideways"], "lazy"), (["--device", "tpu"], "tpu"),
    ([], "`s` has no value"),
])  # fmt: skip
def test_what_cannot_be_run_is_told(tmp_path: Path, args: list[str], words: str) -> None:
    (tmp_path / "k.py").write_text(KERNEL)
    done = tilec("run", "k.py", "-D", "N=8", *args, cwd=tmp_path)
    assert done.returncode in (1, 2) and words in done.stderr and "Traceback" not in done.stderr


def test_cuda_without_cupy_or_gpu_names_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text(KERNEL)
    hidden = "import sys; sys.modules['cupy'] = None\nfrom tilec.__main__ import main\n"
    for command in (["run", "k.py", "--device", "cuda", "-D", "N=8", "-D", "s=1"], ["bench", "k.py", "-D", "N=8", "-D", "s=1"]):
        done = subprocess.run([sys.executable, "-c", f"{hidden}sys.exit(main({command!r}))"], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 3 and "CuPy" in done.stderr


def test_one_mode_and_seed(tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text(KERNEL)
    common = ["run", "k.py", "-D", "N=200", "-D", "s=1", "--out", "Y=y.npy"]
    results = []
    for more in (["--seed", "5"], ["--seed", "5", "--mode", "random,real"], ["--seed", "6"]):
        assert tilec(*common, *more, cwd=tmp_path).returncode == 0
        results.append(np.load(tmp_path / "y.npy"))
    assert np.array_equal(results[0], results[1]) and not np.array_equal(results[0], results[2])


def test_the_manifest_of_the_output_is_whole(tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text(LENGTH)
    assert tilec("compile", "k.py", "-q", "-o", "k.cu", "--emit", "json", cwd=tmp_path).returncode == 0
    import jsonschema

    import tilec as package
    from tilec.emit.manifest import parse

    data = json.loads((tmp_path / "k.json").read_text())
    assert parse((tmp_path / "k.cu").read_text()) == data
    jsonschema.validate(data, json.loads((Path(package.__file__).parent / "manifest.schema.json").read_text()))


def test_the_authors_own_cuda_runs_without_a_reference(tmp_path: Path) -> None:
    text = """import tilelang.language as T
SRC = "__device__ float twice(float x) {{ return {body}; }}"

@T.prim_func
def k(A: T.Tensor((64,), "float32"), O: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        T.import_source(SRC)
        for i in T.Parallel(64):
            O[i] = T.call_extern("float32", "twice", A[i])
"""
    a = np.random.default_rng().standard_normal(64).astype(np.float32)
    np.save(tmp_path / "a.npy", a)
    (tmp_path / "k.py").write_text(text.format(body="2.0f * x"))
    done = tilec("run", "k.py", "--in", "A=a.npy", "--out", "O=o.npy", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "no reference" in done.stdout and np.array_equal(np.load(tmp_path / "o.npy"), 2 * a)
    (tmp_path / "k.py").write_text(text.format(body="__some_gpu_only_function(x)"))
    done = tilec("run", "k.py", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("error: the kernel holds CUDA of the author's own, which does not compile for the CPU")


@pytest.mark.parametrize("quiet", [False, True])
def test_what_takes_long_is_told_on_a_terminal(quiet: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    (tmp_path / "k.py").write_text(LENGTH)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert cli.run(["run", str(tmp_path / "k.py"), "-D", "L=64", *(["-q"] if quiet else [])]) == 0
    steps = [line for line in terminal.getvalue().replace("\x1b[K", "").split("\r") if line]
    assert steps == ([] if quiet else [*steps[:2], *(f"run {i} of 2: copies as {w} as they may be" for i, w in ((1, "late"), (2, "early")))])
    assert len(steps) == (0 if quiet else 4) and terminal.getvalue().endswith("" if quiet else "\r\x1b[K")


def test_a_sum_that_was_never_cleared_says_so(tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text(
        "import tilelang.language as T\n@T.prim_func\ndef k(O: T.Tensor((32,), 'float32')):\n    with T.Kernel(1, threads=32):\n"
        "        f = T.alloc_fragment((32,), 'float32')\n        for i in T.Parallel(32):\n            f[i] += 1\n        T.copy(f, O)\n"
    )
    done = tilec("run", "k.py", cwd=tmp_path)
    assert done.returncode == 1 and "relative error inf" in done.stdout and "nothing has written" in done.stderr, done.stdout + done.stderr
    assert "warning[TL0325]: `f` is read here before anything has written it" in done.stderr
