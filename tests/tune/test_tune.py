"""`tilec tune`: whole searches on the emulator with a clock of the tests' own, and everything that may go wrong on the way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.toolchain import needs_gxx, needs_nvcc
from tilec import cli
from tilec.driver import Options, compile_source
from tilec.options import OptionError, defines
from tilec.runtime.tune import space
from tilec.runtime.tune.job import Answer, Job, judged, run
from tilec.runtime.tune.pool import LocalPool, gpus
from tilec.runtime.tune.table import Table, key_of
from tilec.runtime.tune.worker import Worker
from tilec.targets.sm80 import SM80

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "products" / "gemm_batched.py"
SIZES = ["-D", "B=1", "-D", "M=64", "-D", "N=64", "-D", "K=32"]
QUICK, CLOCKED = "tests.tune.meters:Quick", "tests.tune.meters:Clocked"
TUNED = """import itertools
import tilelang
import tilelang.language as T

def configs():
    return [dict(zip(("block", "threads"), c)) for c in itertools.product([64, 128], [64, 4096])]

@tilelang.autotune(configs=configs())
@tilelang.jit
def scale(N, block=None, threads=None):
    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, block), threads=threads) as b:
            for i in T.Parallel(block):
                Y[b * block + i] = X[b * block + i] * 2
    return main
"""


@pytest.fixture(autouse=True)
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "k.py").write_text(SAMPLE.read_text())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tune(*args: str, meter: str = QUICK) -> int:
    return cli.run(["tune", "k.py", "-q", "--no-nvcc", "--jobs", "1", *SIZES, "--meter", meter, *args])


def rows() -> dict[tuple[int, int], dict[str, Any]]:
    data = json.loads(Path("k.tuned.json").read_text())
    return {(r["config"]["block_M"], r["config"]["block_N"]): r for r in data["rows"]}


def test_spaces() -> None:
    assert space.product(["a=1,2 b=3", "c=x,y"])[1] == {"a": 1, "b": 3, "c": "y"}
    assert len(space.product(["a=1,2 b=3", "c=x,y"])) == 4
    with pytest.raises(OptionError, match="--space"):
        space.product(["a"])


def test_the_authors_configurations() -> None:
    options = Options("k.py", TUNED.encode(), SM80, defines={"N": 1000})
    kernel = compile_source(options).module.kernels[0]
    assert space.configurations(kernel, {"N"}) == [{"block": b, "threads": t} for b in (64, 128) for t in (64, 4096)]
    assert space.configurations(kernel, {"threads"}) == [{"block": 64}, {"block": 128}]
    with pytest.raises(OptionError, match="--space"):
        space.configurations(kernel, {"block", "threads"})


@needs_gxx
def test_a_whole_search_on_the_emulator(capsys: pytest.CaptureFixture[str]) -> None:
    assert tune("--space", "block_M=32,64", "block_N=32,64", meter=CLOCKED) == 0
    out = capsys.readouterr().out
    assert "4 of 4 candidates measured" in out and rows()[64, 64]["median_us"] == pytest.approx(1000)
    assert rows()[32, 32]["status"] == "slow" or rows()[32, 32]["median_us"] == pytest.approx(65000)
    assert defines(["@k.tuned.json"]) == ({"block_M": 64, "block_N": 64}, ["k.tuned.json"])
    assert cli.run(["compile", "k.py", "-q", *SIZES, "-D", "@k.tuned.json", "-o", "again.cu"]) == 0
    assert Path("again.cu").read_bytes() == Path("k.cu").read_bytes()


@needs_gxx
def test_the_authors_configurations_on_the_emulator(capsys: pytest.CaptureFixture[str]) -> None:
    Path("k.py").write_text(TUNED)
    assert cli.run(["tune", "k.py", "-q", "--no-nvcc", "--jobs", "1", "-D", "N=200", "--device", "cpu"]) == 0
    out = capsys.readouterr().out
    assert "2 of 4 candidates measured" in out and "2 refused: TL" in out and "says nothing" not in out


def test_crashing_hanging_and_wrong_candidates(capsys: pytest.CaptureFixture[str]) -> None:
    assert tune("--space", "block_M=16,32,48,64,96,100000 block_N=32", "--timeout", "4") == 0
    found = rows()
    status = {m: found[m, 32]["status"] for m in (16, 32, 48, 64, 96, 100000)}
    assert status == {16: "hangs", 32: "crashed", 48: "wrong", 64: "measured", 96: "failed", 100000: "refused"}
    assert "signal" in found[32, 32]["reason"] and found[48, 32]["reason"] == "C differs" and "out of it" in found[96, 32]["reason"]
    assert json.loads(Path("k.tuned.json").read_text())["best"] == {"block_M": 64, "block_N": 32}
    assert "1 hangs" in capsys.readouterr().out


@needs_gxx
def test_a_wrong_candidate_that_has_no_reference(capsys: pytest.CaptureFixture[str]) -> None:
    """The author's own CUDA writes into the product: no reference knows that, so what counts is the product in float64."""
    kernel = Path(__file__).resolve().parents[2] / "benchmarks" / "kernels" / "hostile.py"
    Path("k.py").write_text(kernel.read_text())
    args = ["-D", "M=128", "-D", "N=128", "-D", "K=32", "--space", "fate=fine,wrong,illegal", "block_M=64", "--device", "cpu"]
    assert cli.run(["tune", "k.py", "-q", "--no-nvcc", "--jobs", "1", *args]) == 0
    found = {r["config"]["fate"]: r for r in json.loads(Path("k.tuned.json").read_text())["rows"]}
    assert {fate: r["status"] for fate, r in found.items()} == {"fine": "measured", "wrong": "wrong", "illegal": "refused"}
    assert "relative error" in found["wrong"]["reason"] and found["illegal"]["reason"].startswith("TL0401")


def test_no_candidate_that_works(capsys: pytest.CaptureFixture[str]) -> None:
    assert tune("--space", "block_M=100000") == 1
    assert not Path("k.cu").exists() and "no candidate" in capsys.readouterr().err


def test_a_search_is_resumed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("QUICK_LOG", "log")
    assert tune("--space", "block_M=64 block_N=32,128") == 0
    assert {line.split()[1] for line in Path("log").read_text().splitlines()} == {"32", "128"}
    Path("log").unlink()
    assert tune("--space", "block_M=64 block_N=32,64,128") == 0
    assert {line.split()[1] for line in Path("log").read_text().splitlines()} == {"64"}
    assert "2 known from before" in capsys.readouterr().out
    Path("log").unlink()
    Path("k.py").write_text(Path("k.py").read_text() + "\n# changed\n")
    assert tune("--space", "block_M=64 block_N=32") == 0
    assert Path("log").read_text().startswith("64 32")


def test_a_broken_table_is_an_empty_one() -> None:
    Path("t.json").write_text("{ broken")
    assert Table.load(Path("t.json"), "k").rows == {}
    table = Table("k")
    table.put({"a": 1}, Answer("wrong", "C differs"))
    table.save(Path("t.json"))
    assert Table.load(Path("t.json"), "k").answered({"a": 1}) and not Table.load(Path("t.json"), "other").rows


def test_a_search_that_is_killed_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first process ends in the middle: what it measured stays."""
    command = [sys.executable, "-m", "tilec", "tune", "k.py", "-q", "--no-nvcc", "--jobs", "1", *SIZES, "--meter", QUICK, "--timeout", "100"]
    space_of_both = ["--space", "block_M=64,16 block_N=32"]
    root = str(Path(__file__).resolve().parents[2])
    process = subprocess.Popen([*command, *space_of_both], env={**os.environ, "PYTHONPATH": root})
    for _ in range(600):
        try:
            process.wait(0.1)
        except subprocess.TimeoutExpired:
            if Path("k.tuned.json").exists() and rows().get((64, 32), {}).get("status") == "measured":
                break
    children = [Path("/proc") / p for f in Path(f"/proc/{process.pid}/task").glob("*/children") for p in f.read_text().split()]
    process.kill()
    process.wait()
    for _ in range(100):  # its worker sleeps over a candidate, and leaves all the same
        if not any(child.exists() for child in children):
            break
        time.sleep(0.1)
    assert children and not any(child.exists() for child in children)
    monkeypatch.setenv("QUICK_LOG", "log")
    assert tune("--space", "block_M=64,48 block_N=32") == 0
    assert Path("log").read_text().split("\n")[0].startswith("48 32") and json.loads(Path("k.tuned.json").read_text())["best"]["block_M"] == 64


def test_slow_candidates_are_left_early() -> None:
    job = Job(Options("k.py", SAMPLE.read_bytes(), SM80), {"block_M": 64, "block_N": 64}, "measure", QUICK, stop_above=1e-6)
    answer = run(job, {})
    assert answer.status == "slow" and answer.median == pytest.approx(64e-6)


def test_every_gpu_has_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert gpus(3) == [{"CUDA_VISIBLE_DEVICES": str(i)} for i in range(3)]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    assert gpus(2) == [{"CUDA_VISIBLE_DEVICES": "5"}, {"CUDA_VISIBLE_DEVICES": "7"}]
    monkeypatch.setenv("QUICK_LOG", "log")
    base = Options("k.py", SAMPLE.read_bytes(), SM80)
    jobs = [Job(base, {"block_M": 64, "block_N": n}, "measure", QUICK) for n in (16, 32, 48, 64, 80, 96)]
    best = [5e-6]
    pool = LocalPool([{"WORKER": "a"}, {"WORKER": "b"}])
    answers = {job.candidate["block_N"]: a for job, a in pool.answers(jobs, 60, lambda: best[0])}
    pool.close()
    assert {n: a.status for n, a in answers.items()} == dict.fromkeys((16, 32, 48, 64, 80, 96), "slow")
    assert {line.split()[2] for line in Path("log").read_text().splitlines()} <= {"a", "b"}


def test_a_worker_that_cannot_start_says_why() -> None:
    with Worker() as worker:
        job = Job(Options("k.py", SAMPLE.read_bytes(), SM80), {"block_M": 64, "block_N": 64}, "measure", "no_such_module:Meter")
        assert "no_such_module" in worker.ask(job, 60).reason
        assert worker.ask(Job(job.options, {"block_M": 64}, "compile", nvcc=False), 60).status == "fine"


def test_after_a_fault_a_process_of_its_own_goes_on() -> None:
    with Worker() as worker:
        base = Options("k.py", SAMPLE.read_bytes(), SM80)
        first, same, failed, other = (
            worker.ask(Job(base, {"block_M": m, "block_N": 32}, "measure", QUICK), 60) for m in (64, 64, 96, 64)
        )
        assert failed.status == "failed" and first.facts["pid"] == same.facts["pid"] != other.facts["pid"]


def test_what_ptxas_says() -> None:
    log = (
        "ptxas info    : Compiling entry function 'k' for 'sm_80'\nptxas info    : Function properties for k\n"
        "    {} bytes stack frame, {} bytes spill stores, {} bytes spill loads\nptxas info    : Used 255 registers, used 1 barriers\n"
    )
    assert judged(log.format(0, 0, 0), {}, False) == Answer("fine", facts={"registers": 255, "spilled": 0})
    assert judged(log.format(8, 16, 24), {}, False).status == "spills" and judged(log.format(8, 16, 24), {}, True).status == "fine"


@needs_nvcc
def test_nvcc_tells_registers() -> None:
    answer = run(Job(Options("k.py", SAMPLE.read_bytes(), SM80), {"block_M": 64, "block_N": 64}, "compile"), {})
    assert answer.status == "fine" and 16 < answer.facts["registers"] < 256 and answer.facts["spilled"] == 0


def test_keys_tell_searches_apart() -> None:
    base = Options("k.py", b"x", SM80)
    keys = {
        key_of(base, "gpu", {"k.py": b"x"}), key_of(base, "gpu 2", {"k.py": b"x"}), key_of(base, "gpu", {"k.py": b"y"}),
        key_of(Options("k.py", b"x", SM80, defines={"M": 1}), "gpu", {"k.py": b"x"}),
    }  # fmt: skip
    assert len(keys) == 4
    table = Table("k")
    table.put({"a": 1, "b": 2}, Answer("measured", seconds=(1.0, 2.0, 3.0)))
    assert table.answered({"b": 2, "a": 1}) and not table.answered({"a": 1})


def test_without_a_gpu_it_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("numpy")
    if subprocess.run([sys.executable, "-c", "import cupy"], capture_output=True, check=False).returncode == 0:
        pytest.skip("CuPy is here")
    assert cli.run(["tune", "k.py", *SIZES, "--space", "block_M=64"]) == 3
    assert "CuPy" in capsys.readouterr().err and not Path("k.tuned.json").exists()


def test_on_a_dask_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None, silence_logs=50) as cluster:
        assert tune("--space", "block_M=64,32 block_N=32", "--dask", cluster.scheduler_address) == 0
    assert json.loads(Path("k.tuned.json").read_text())["best"] == {"block_M": 64, "block_N": 32}
    assert {r["status"] for (m, _), r in rows().items() if m == 32} == {"crashed"}
    assert tune("--space", "block_M=64", "--dask", "nonsense://127.0.0.1") == 1
