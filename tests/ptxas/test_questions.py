"""What nvcc is given to read: bodies one by one, those in doubt only, and only those about which nothing is known."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from benchmarks.spill_cases import gemm
from tests.compiling import compile_text
from tests.hopper.chains import Gradients
from tests.hopper.kernels import Gemm
from tests.ptxas.kit import TIGHT, StandIn, bodies, codes
from tilec import ptxas
from tilec.targets import lookup

SMALL = """
@T.prim_func
def scaled(X: T.Tensor((1024,), "float32"), Y: T.Tensor((1024,), "float32")):
  with T.Kernel(8, threads=128) as b:
    for i in T.Parallel(128):
      Y[b * 128 + i] = X[b * 128 + i] * FACTOR
"""
NOTED = "def spilled(name, text):\n  (here / 'seen').open('a').write(name + '\\n')\n  return 0"


def seen(folder: Path) -> list[str]:
    """The kernels that nvcc has read since the last time, in order."""
    log = folder / "seen"
    names = log.read_text().split() if log.exists() else []
    log.unlink(missing_ok=True)
    return names


def test_bodies_that_rules_vouch_for_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    StandIn(tmp_path, monkeypatch, NOTED)
    compiled = compile_text(TIGHT + SMALL.replace("FACTOR", "2.0"), ptxas="auto")
    doubtful = [s for s, v in bodies(compiled).items() if v.doubtful]
    assert sorted(seen(tmp_path)) == sorted(doubtful) and {"scaled", "gemm"} <= bodies(compiled).keys() and "scaled" not in doubtful
    compile_text(TIGHT + SMALL.replace("FACTOR", "2.0"), ptxas="always")
    assert "scaled" in seen(tmp_path)


def test_bodies_for_rare_calls_are_no_reason_to_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that stands in for Hopper's own gets the first configuration that rules vouch for."""
    StandIn(tmp_path, monkeypatch, NOTED)
    text = Gemm(bm=256, bn=192, stages=2, trans_b=True).source()
    compiled = compile_text(text, arch="sm_90a", ptxas="auto")
    general = bodies(compiled)["gemm__general"]
    assert not seen(tmp_path) and general.rung and general.strain <= 0 and not codes(compiled)
    assert compiled.cu == compile_text(text, arch="sm_90a", ptxas="never").cu
    both = compile_text(text, arch="sm_80", also=(lookup("sm_90a"),), ptxas="auto")
    assert seen(tmp_path) and "gemm__general" in bodies(both), "in a file for both it is what the older one runs"


def test_but_they_are_asked_about_where_rules_vouch_for_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    StandIn(tmp_path, monkeypatch, NOTED)
    compiled = compile_text(gemm("int8", (128, 256, 64), "two", 4, 512), arch="sm_90a", opt_level=3, ptxas="auto")
    first, *others = bodies(compiled).values()
    assert first.strain <= 0 < max(v.strain for v in others) and seen(tmp_path) and not codes(compiled)


def test_only_what_changed_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    StandIn(tmp_path, monkeypatch, NOTED)
    compile_text(TIGHT + SMALL.replace("FACTOR", "2.0"), ptxas="always")
    assert "gemm" in seen(tmp_path)
    compile_text(TIGHT + "\n\n# moved\n" + SMALL.replace("FACTOR", "3.0"), ptxas="always")
    assert {s.removesuffix("__general") for s in seen(tmp_path)} == {"scaled"}
    compile_text("# another first line\n" + TIGHT, ptxas="always")
    assert not seen(tmp_path)


@pytest.mark.parametrize("processors", [1, 2, 3, 16])
def test_bodies_are_dealt_to_processors(processors: int) -> None:
    sizes = {"a": 100, "b": 60, "c": 50, "d": 1}
    groups = ptxas._groups([(s, arch) for arch in ("sm_80", "sm_90a") for s in sizes if (s, arch) != ("d", "sm_80")], sizes, processors)
    assert sorted((s, arch) for symbols, arch in groups for s in symbols) == sorted(
        (s, arch) for arch in ("sm_80", "sm_90a") for s in sizes if (s, arch) != ("d", "sm_80")
    )
    assert len(groups) <= max(2, processors)
    if processors >= 4:
        assert max(sum(sizes[s] for s in symbols) for symbols, _ in groups) <= 111


def test_an_interruption_ends_every_nvcc(tmp_path: Path) -> None:
    """They lead sessions of their own, which a terminal's Ctrl-C does not reach."""
    nvcc = tmp_path / "nvcc"
    nvcc.write_text(f'#!/bin/sh\ncase "$*" in *--version*) echo "V1.0.0"; exit;; esac\necho $$ >> {tmp_path}/pids\nsleep 300\n')
    nvcc.chmod(0o755)
    (tmp_path / "kernel.py").write_text(TIGHT)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "TILEC_CACHE_DIR": str(tmp_path / "cache")}
    env.pop("TILEC_PTXAS", None)
    command = [sys.executable, "-m", "tilec", "compile", str(tmp_path / "kernel.py"), "--arch", "sm_80,sm_90a", "-o", str(tmp_path / "k.cu")]
    heed = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # which those who run tests in the background have shut out
    pids: list[int] = []
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, preexec_fn=heed) as running:
        for _ in range(300):
            pids = [int(x) for x in (tmp_path / "pids").read_text().split()] if (tmp_path / "pids").exists() else []
            if len(pids) >= 2:
                break
            time.sleep(0.1)
        time.sleep(1)  # for the second of them to be known to have begun
        running.send_signal(signal.SIGINT)
        try:
            running.communicate(timeout=30)
        finally:
            running.kill()
    assert len(pids) >= 2 and running.returncode == 130 and not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert not (tmp_path / "k.cu").exists()


def test_chains_that_are_known_to_spill_are_not_asked_about_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """64 keys of 128 elements by one warp group leave 24 registers, of which all that were tried spill."""
    nvcc = StandIn(tmp_path, monkeypatch, "def spilled(name, text): return 56")
    compiled = compile_text(Gradients(dim=128, bm=64, bn=64, seq=1024).source(), arch="sm_90a", ptxas="auto")
    assert nvcc.calls == 0 and not codes(compiled) and bodies(compiled)["gradients"].ladder == "portable"
