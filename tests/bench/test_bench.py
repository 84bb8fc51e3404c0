"""`tilec bench` from the command line's words to tables and pictures, on a machine of the tests' own."""

from __future__ import annotations

import csv
import io
import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.bench.machine import FakeMachine
from tests.cli.test_command import tilec
from tilec import cli
from tilec.driver import Options, compile_source
from tilec.options import OptionError
from tilec.runtime.bench import plot
from tilec.runtime.bench.clocks import Reading, Seen, parse
from tilec.runtime.bench.device import peaks
from tilec.runtime.bench.figures import Work, figure
from tilec.runtime.bench.oracle import settle
from tilec.runtime.bench.problems import Attention, Product, recognise
from tilec.runtime.bench.request import BenchRequest, peers, points, sweep
from tilec.runtime.bench.run import run
from tilec.runtime.progress import Progress
from tilec.runtime.report import Report
from tilec.runtime.request import RunError
from tilec.targets.sm80 import SM80

ROOT = Path(__file__).resolve().parents[2]
GEMM = ROOT / "samples" / "article_gemm.py"
PLAIN = BenchRequest()


def compiler(file: Path, **defines: Any) -> Any:
    base = Options(str(file), file.read_bytes(), SM80)

    def compile(point: Any, other: str) -> Any:
        given = {**defines, **point}
        options = replace(base, defines=given) if not other else replace(base, path=other, text=Path(other).read_bytes(), defines=given)
        return compile_source(options), given

    return compile


def bench(machine: FakeMachine, file: Path, request: BenchRequest = PLAIN, **defines: Any) -> Report:
    return run(replace(request, seconds=0.1), compiler(file, **defines), machine, Progress(io.StringIO()))


def test_sweeps_are_read() -> None:
    assert sweep("M=1024:16384:*2").values == (1024, 2048, 4096, 8192, 16384)
    assert sweep("M,N=100:300:+100") == sweep(" M , N =100,200,300")
    assert sweep("dtype=float16,bfloat16").values == ("float16", "bfloat16")
    assert sweep("s=(1,2),[3]").values == ((1, 2), [3])
    assert points([sweep("M,N=1,2"), sweep("K=7,8")]) == [{"M": m, "N": m, "K": k} for m in (1, 2) for k in (7, 8)]
    assert points([]) == [{}]


@pytest.mark.parametrize("text", ["M", "M=", "=3", "M=1:2:3", "M=8:4", "M=1:9:*1", "M=1:9:+0", "M=0:4", "M=1:999999999:+1", "M=a:b"])
def test_sweeps_that_mean_nothing(text: str) -> None:
    with pytest.raises(OptionError, match="--sweep"):
        sweep(text)


def test_points_and_peers_that_mean_nothing() -> None:
    with pytest.raises(OptionError, match="twice"):
        points([sweep("M=1,2"), sweep("N,M=3")])
    with pytest.raises(OptionError, match="points"):
        points([sweep("M=1:5000:+1"), sweep("N=1:5000:+1")])
    with pytest.raises(OptionError, match="--against"):
        peers(["mkl"])
    assert peers([]) == ("auto",) and peers(["torch:X + 1", "b.cu"]) == ("torch:X + 1", "b.cu")


def problem_of(sample: str, **defines: Any) -> Any:
    file = ROOT / "samples" / sample
    kernel = compile_source(Options(str(file), file.read_bytes(), SM80, defines=defines)).plans[0].kernel
    from tilec.runtime.bind import bind
    from tilec.runtime.request import RunRequest

    return recognise(kernel, {n: a.shape for n, a in bind(kernel, RunRequest(defines=defines)).arrays.items()})


def test_problems_are_recognised() -> None:
    article = problem_of("article_gemm.py", M=128, N=256, K=64)
    assert article == Product("A", "B", "C", 1, 128, 256, 64, False, False, "float16", "float16", "float16")
    batched = problem_of("products/gemm_batched.py", B=3, M=64, N=96, K=32)
    assert isinstance(batched, Product) and (batched.batch, batched.m, batched.n, batched.k) == (3, 64, 96, 32)
    assert batched.flop == 2 * 3 * 64 * 96 * 32
    found = problem_of("attention/forward.py", batch=2, heads=4, kv_heads=2, seq=128, dim=64)
    assert isinstance(found, Attention) and (found.q, found.k, found.v, found.o) == ("Q", "K", "V", "O")
    assert (found.axis, found.head, found.heads, found.q_length, found.dim) == (1, 2, 8, 128, 64)


@pytest.mark.parametrize("sample", ["rows/softmax.py", "gemm_bias_relu.py", "vector_add.py"])
def test_other_kernels_are_not(sample: str) -> None:
    assert problem_of(sample, M=64, N=64, K=64) is None


def attention(q: Any, k: Any, v: Any, causal: bool) -> Any:
    """Plain loops over heads of [batch, sequence, head, dim]."""
    out = np.zeros_like(q)
    for b in range(q.shape[0]):
        for h in range(q.shape[2]):
            group = h // (q.shape[2] // k.shape[2])
            for i in range(q.shape[1]):
                last = i + 1 if causal else k.shape[1]
                s = np.exp(k[b, :last, group] @ q[b, i, h] / np.sqrt(q.shape[3]))
                out[b, i, h] = (s / s.sum()) @ v[b, :last, group]
    return out


@pytest.mark.parametrize("causal", [False, True])
def test_the_oracle_tells_causal_attention_from_the_other(causal: bool) -> None:
    rng = np.random.default_rng()
    q, k, v = rng.standard_normal((2, 9, 4, 8)), rng.standard_normal((2, 9, 2, 8)), rng.standard_normal((2, 9, 2, 8))
    tensors = {"Q": q, "K": k, "V": v, "O": attention(q, k, v, causal)}
    problem = Attention("Q", "K", "V", "O", 1, 2, 8, 9, 9, 8, "float16", "float32")
    verdict = settle(np, problem, tensors.__getitem__, 1e-9)
    assert verdict.fault == "" and verdict.problem == replace(problem, causal=causal)
    tensors["O"] = tensors["O"] * 1.01
    assert "relative error" in settle(np, problem, tensors.__getitem__, 1e-3).fault
    tensors["O"][1, 8, 3, 7] = np.nan
    assert "NaN" in settle(np, problem, tensors.__getitem__, 1e-1).fault


def test_one_wrong_element_of_a_product_shows() -> None:
    rng = np.random.default_rng()
    a, b = rng.standard_normal((2, 40, 3000)), rng.standard_normal((2, 30, 40))
    problem = Product("A", "B", "C", 2, 3000, 30, 40, True, True, "float16", "float16", "float32")
    tensors = {"A": a, "B": b, "C": a.transpose(0, 2, 1) @ b.transpose(0, 2, 1)}
    assert settle(np, problem, tensors.__getitem__, 1e-9).fault == ""
    tensors["C"][1, 2999, 29] += 20
    assert "one element" in settle(np, problem, tensors.__getitem__, 1e-2).fault


def test_a_gemm_beside_cublas() -> None:
    machine = FakeMachine(seconds={"tilec": 2e-6, "cublas": 1e-6})
    text = "\n".join(bench(machine, GEMM, M=128, N=256, K=64).lines)
    assert machine.raced == [("tilec", "cublas")]
    assert "GEMM, 128 x 256 x 64, float16" in text and "(float64)" in text and "168 registers" in text
    ours, theirs = (line.split() for line in text.splitlines() if line.startswith(("  tilec", "  cublas")))
    assert float(theirs[-1]) == 0.5 and float(ours[1]) == 2.04
    assert float(ours[4 - 1]) == pytest.approx(2 * 128 * 256 * 64 / 2.04e-6 / 1e12, abs=0.06)


@pytest.mark.parametrize("file", [GEMM, ROOT / "samples" / "rows" / "softmax.py"])
def test_a_wrong_kernel_is_not_timed(file: Path) -> None:
    machine = FakeMachine(wrong=0.75)
    with pytest.raises(RunError, match="not timed, because it is wrong"):
        bench(machine, file, M=64, N=64, K=64)
    assert machine.raced == []


def test_a_kernel_without_a_peer_is_checked_by_the_reference() -> None:
    text = "\n".join(bench(FakeMachine(), ROOT / "samples" / "vector_add.py", N=3000).lines)
    assert "(the reference)" in text and "no peer by itself" in text


def test_a_reference_that_takes_too_long(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import time

    from tilec.runtime import report

    file = tmp_path / "k.py"
    file.write_text((ROOT / "samples" / "vector_add.py").read_text())
    monkeypatch.setattr(report, "reference", lambda *_: time.sleep(20))
    request = BenchRequest(check_seconds=0.2)
    with pytest.raises(RunError, match="cannot be checked at this size"):
        bench(FakeMachine(), file, request, N=3000)
    with pytest.raises(RunError, match=r"taken for GEMM, 64 x 64 x 64.*relative error"):
        bench(FakeMachine(wrong=0.75), GEMM, request, M=64, N=64, K=64)
    names = [p.name for p in compiler(file, N=3000)({}, "")[0].plans[0].kernel.params]
    right = f"torch:{names[0]} + {names[1]}"
    assert "differs from the peer" in "\n".join(bench(FakeMachine(), file, replace(request, against=(right,)), N=3000).lines)
    with pytest.raises(RunError, match="not timed"):
        bench(FakeMachine(), file, replace(request, against=(f"torch:{names[0]} * 2 + {names[1]}",)), N=3000)


def test_a_peer_that_computes_something_else() -> None:
    with pytest.raises(RunError, match="something else"):
        bench(FakeMachine(), GEMM, BenchRequest(against=("torch:2 * (A.astype('d') @ B.astype('d'))",)), M=64, N=64, K=64)


def test_another_file_as_peer(tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    other.write_text(GEMM.read_text().replace("128, 128, 32", "64, 64, 32"))
    machine = FakeMachine()
    bench(machine, GEMM, BenchRequest(against=(str(other),)), M=64, N=64, K=64)
    assert machine.raced == [("tilec", str(other))]
    other.write_text((ROOT / "samples" / "vector_add.py").read_text())
    with pytest.raises(RunError, match="its parameters are"):
        bench(machine, GEMM, BenchRequest(against=(str(other),)), M=64, N=64, K=64)


SWEEP = BenchRequest(points=tuple(points([sweep("M,N=64:256:*2")])))


def test_a_sweep_as_json_and_csv() -> None:
    data = json.loads(bench(FakeMachine(), GEMM, replace(SWEEP, output="json"), K=32).lines[0])
    assert [r["point"] for r in data["rows"]] == [{"M": n, "N": n} for n in (64, 128, 256)]
    assert [r["flop"] for r in data["rows"]] == [2 * n * n * 32 for n in (64, 128, 256)]
    assert data["machine"]["name"] == "NVIDIA H200" and data["rows"][0]["contenders"]["cublas"]["ratio"] == 1.0
    rows = list(csv.DictReader(bench(FakeMachine(), GEMM, replace(SWEEP, output="csv"), K=32).lines))
    assert [(r["M"], r["contender"]) for r in rows] == [(m, c) for m in ("64", "128", "256") for c in ("tilec", "cublas")]


def test_a_sweep_as_pictures(tmp_path: Path) -> None:
    report = bench(FakeMachine(seconds={"cublas": 2e-4}), GEMM, replace(SWEEP, svg=str(tmp_path / "s.svg"), plot=True), K=32)
    root = ET.parse(tmp_path / "s.svg").getroot()
    lines = root.findall(".//{*}polyline")
    assert len(lines) == 2 and all(len((p.get("points") or "").split()) == 3 for p in lines)
    heights = [[float(p.split(",")[1]) for p in (line.get("points") or "").split()] for line in lines]
    assert all(ours < theirs for ours, theirs in zip(*heights, strict=True))  # ours is faster, so higher up
    bars = [line for line in report.lines if "#" in line or "TFLOP/s" in line][-6:]
    assert bars[4].count("#") == pytest.approx(2 * bars[5].count("#"), abs=1)
    with pytest.raises(RunError, match="--svg"):
        bench(FakeMachine(), GEMM, replace(SWEEP, svg=str(tmp_path / "no" / "s.svg")), K=32)


def test_the_roofline() -> None:
    h200 = peaks("NVIDIA H200", 90, 132, 1980, 0)
    assert figure("x", [1.0, 1.0], Work(989_400_000_000_000, 1, "float16"), h200).roofline == pytest.approx(1)
    assert figure("x", [2.0, 2.0], Work(1, 4_800_000_000_000, "float16"), h200).roofline == pytest.approx(0.5)
    unknown = peaks("Some GPU", 80, 100, 1000, 500)
    assert unknown.half == pytest.approx(204.8) and unknown.tflops("int8") == pytest.approx(409.6) and unknown.gb_per_s == 500
    assert peaks("NVIDIA A10", 86, 72, 1000, 0).half == 125 and peaks("NVIDIA A100-PCIE-40GB", 80, 108, 1410, 0).half == 312
    assert "no roofline" in plot.svg([bench_row()], peaks("?", 10, 1, 1, 0))


def bench_row() -> Any:
    from tilec.runtime.bench.figures import Row

    work = Work(8, 8, "float16")
    return Row({}, "t", work, (figure("tilec", [1.0], work, peaks("?", 10, 1, 1, 0)),), "right")


def test_clocks_that_move_are_told() -> None:
    line = parse("1980, 310.52, 44, 0x0000000000000004\n")
    assert line == Reading(1980, 310.52, 44, 4) and parse("[N/A], 1, 2, 0x0") is None and parse("") is None
    slow = Seen((line, Reading(1365, 699, 60, 4)))  # type: ignore[arg-type]
    assert "1365 and 1980 MHz (power cap)" in slow.warning()
    assert Seen(()).warning() == "" and Seen((Reading(1980, 1, 1, 0), Reading(1950, 1, 1, 4))).warning() == ""


def test_without_a_gpu_it_says_what_is_missing(tmp_path: Path) -> None:
    done = tilec("bench", str(GEMM), "-q", "-D", "M=64", "-D", "N=64", "-D", "K=32", cwd=tmp_path)
    if "CuPy" not in done.stderr and "GPU" not in done.stderr:
        pytest.skip("this machine has a GPU")
    assert done.returncode == 3 and done.stdout == "" and "pip install" in done.stderr + "pip install"


def test_checks_only_on_the_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["bench", str(GEMM), "-q", "--device", "cpu", "--sweep", "M,N,K=32,64"]) == 0
    out = capsys.readouterr().out
    assert out.count("agrees") == 2 and "nothing was timed" in out
    assert cli.run(["bench", str(GEMM), "--device", "cpu", "--json", "--csv"]) == 2


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--completion", shell]) == 0
    assert f"_TILEC_COMPLETE={shell}_complete" in capsys.readouterr().out


def test_what_completion_completes(tmp_path: Path) -> None:
    done = tilec(cwd=tmp_path, COMP_WORDS="tilec be", COMP_CWORD="1", _TILEC_COMPLETE="bash_complete")
    assert done.stdout == "plain,bench\n"


def test_progress_is_one_line_on_a_terminal_and_rare_in_a_log() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal, log, quiet, now = Terminal(), io.StringIO(), io.StringIO(), [0.0]
    for progress in (Progress(terminal), Progress(log, clock=lambda: now[0]), Progress(quiet, quiet=True)):
        for i in range(12):
            now[0] = float(i)
            progress.tell(f"step {i}")
        progress.done()
    assert terminal.getvalue().endswith("step 11\r\x1b[K") and "\n" not in terminal.getvalue()
    assert log.getvalue().split("\n") == ["step 5", "step 10", ""] and quiet.getvalue() == ""
