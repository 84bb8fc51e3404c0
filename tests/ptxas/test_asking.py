"""Who is asked, how often, and what happens when there is no answer: with stand-ins for nvcc."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from tests.compiling import compile_text
from tests.hopper.kernels import Gemm
from tests.ptxas.kit import DOUBTFUL, TIGHT, StandIn, bodies, codes
from tests.samples.cases import CASES
from tests.samples.kit import SAMPLES
from tests.toolchain import needs_nvcc
from tilec import cli, driver, ptxas
from tilec.emit.explain import explain_text
from tilec.plan.ladder import LADDERS

UNTIL_ROLLED = "def spilled(name, text): return 0 if '#pragma unroll 1\\n        for (int kk' in text else 8"
ALWAYS = "def spilled(name, text): return 100 - 10 * text.count('steps one by one') - text.count('\\\\n')  % 1"


def rungs(compiled: object) -> dict[str, str]:
    """The rung of each body that has not the first one."""
    return {s: LADDERS[v.ladder][v.rung].name for s, v in bodies(compiled).items() if v.rung}  # type: ignore[arg-type]


def test_bodies_that_complain_go_down_until_they_are_clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvcc = StandIn(tmp_path, monkeypatch, UNTIL_ROLLED)
    compiled = compile_text(TIGHT, ptxas="auto")
    assert set(rungs(compiled).values()) == {"steps one by one"} and nvcc.calls == 4 and not codes(compiled)
    told = explain_text(compiled.plans[0])
    assert "nvcc 99.0.1 was asked" in told and "first choice: 8 bytes spilled; spelled plainly: 8 bytes spilled; loads late: 8 bytes spilled; steps one by one: clean" in told
    assert "//   registers  gemm: steps one by one" in compiled.cu


def test_the_second_time_nobody_is_asked_and_the_outcome_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvcc = StandIn(tmp_path, monkeypatch, UNTIL_ROLLED)
    first = compile_text(TIGHT)
    asked = nvcc.calls
    second = compile_text(TIGHT)
    assert nvcc.calls == asked and second.cu == first.cu
    assert explain_text(second.plans[0]) == explain_text(first.plans[0])


def test_only_the_body_that_complains_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = Gemm(bm=256, bn=192, trans_b=True, epilogue="bias").source()
    StandIn(tmp_path, monkeypatch, "def spilled(name, text): return 4 if name == 'gemm' and 'grid_exists' not in text else 0")
    assert rungs(compile_text(text, arch="sm_90a")) == {"gemm": "loads of results in parts", "gemm__general": "half blocks"}  # by rules


def test_bodies_of_one_launch_that_complain_go_down_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have the same threads: each alone would be measured with those of the other's rung."""
    rule = "def spilled(name, text): return 0 if 'launch_bounds__(512' in text else 8 if name == 'gemm' else 9"
    StandIn(tmp_path, monkeypatch, rule)
    compiled = compile_text(Gemm(bm=256, bn=192, stages=2, trans_b=True).source(), arch="sm_80")
    assert len({v.rung for v in bodies(compiled).values()}) == 1 and len(bodies(compiled)) == 2 and not codes(compiled)
    assert compiled.plans[0].launches[0].threads[0] == 512
    ladder = LADDERS["portable"]
    words = {s: {r.name: r.threads for r in ladder if f"; {r.name}: " in line} for line in compiled.plans[0].asked for s in (line.split()[0],)}
    assert {n for r, n in words["gemm"].items() if n} == {n for r, n in words["gemm__general"].items() if n}


def test_rules_go_straight_to_what_they_vouch_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan takes as long as all else: none is made of rungs that are known not to fit."""
    plans: list[int] = []
    monkeypatch.setattr(driver, "plan_module", lambda *args, real=driver.plan_module: plans.append(1) or real(*args))
    text = (SAMPLES / "attention" / "forward.py").read_text()
    compiled = compile_text(text, {"batch": 4, "heads": 16, "kv_heads": 16, "seq": 4096, "dim": 128, "block_m": 128, "threads": 128}, "sm_80", ptxas="never")
    (body,) = bodies(compiled).values()
    assert body.rung > 3 and body.strain <= 0 and len(plans) == 2


def test_where_nothing_helps_the_least_spills_stay_and_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rule = "def spilled(name, text): return 40 if '#pragma unroll 1\\n        for (int kk' in text and 'acc[192]' in text else 80"
    StandIn(tmp_path, monkeypatch, rule)
    compiled = compile_text(TIGHT)
    assert set(rungs(compiled).values()) == {"steps one by one"}
    warnings = [d for d in compiled.diagnostics if d.code == "TL0511"]
    assert warnings and all("40 bytes spilled" in d.message and d.help for d in warnings)
    assert compile_text(TIGHT).cu == compiled.cu


def test_a_portable_body_that_spills_gives_way_to_hoppers_own_at_its_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = Gemm(bm=256, bn=192, trans_b=True, epilogue="bias").source()
    StandIn(tmp_path, monkeypatch, "def spilled(name, text): return 0 if 'general' in name else 4 if 'wgmma' in text else 400")
    compiled = compile_text(text, arch="sm_90a")
    assert bodies(compiled)["gemm"].tensor_maps and "TL0511" in codes(compiled)


@pytest.mark.parametrize("script", ["exit 3", "kill -9 $$", "echo nothing of interest", "echo 'ptxas fatal : out of memory' >&2; exit 255"])
def test_an_nvcc_that_fails_is_as_good_as_none(script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvcc = StandIn(tmp_path, monkeypatch)
    by_rules = compile_text(TIGHT, ptxas="never")
    nvcc.script(f'#!/bin/sh\ncase "$*" in *--version*) echo "release 1.0, V1.0.0"; exit;; esac\n{script}\n')
    compiled = compile_text(TIGHT)
    assert compiled.cu == by_rules.cu and not list(tmp_path.glob("cache/ptxas/*"))
    assert any("rules decide" in line for line in compiled.plans[0].asked)


def test_an_nvcc_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvcc = StandIn(tmp_path, monkeypatch)
    by_rules = compile_text(TIGHT, ptxas="never")
    nvcc.script(f'#!/bin/sh\ncase "$*" in *--version*) echo "V1.0.0"; exit;; esac\nsleep 300 &\necho $! > {tmp_path}/child\nwait\n')
    monkeypatch.setenv("TILEC_PTXAS_TIMEOUT", "1")
    start = time.monotonic()
    compiled = compile_text(TIGHT)
    assert time.monotonic() - start < 20 and compiled.cu == by_rules.cu
    assert any("no answer within 1 s" in line for line in compiled.plans[0].asked)
    child = int((tmp_path / "child").read_text())
    for _ in range(50):
        if not _runs(child):
            break
        time.sleep(0.1)
    assert not _runs(child)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] != "Z"
    except OSError:
        return False


def test_without_nvcc_rules_decide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    compiled = compile_text(TIGHT)
    assert compiled.cu == compile_text(TIGHT, ptxas="never").cu
    assert rungs(compiled) and any("nvcc is not here: rules decide" in line for line in compiled.plans[0].asked)


def test_the_environment_and_the_option_keep_nvcc_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvcc = StandIn(tmp_path, monkeypatch)
    compile_text(TIGHT, ptxas="never")
    monkeypatch.setenv("TILEC_PTXAS", "0")
    compile_text(TIGHT, ptxas="always")
    assert nvcc.calls == 0


def test_always_asks_about_kernels_that_the_rules_vouch_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvcc = StandIn(tmp_path, monkeypatch)
    text = DOUBTFUL.replace("256", "64")
    compile_text(text)
    assert nvcc.calls == 0
    assert any("was asked" in line for line in compile_text(text, ptxas="always").plans[0].asked) and nvcc.calls == 1


DAMAGE = ["", "{", "[]", '{"bodies": 3}', '{"bodies": {"gemm": [1]}}', '{"choice": [["x"]], "told": 0, "bodies": {}}']


@pytest.mark.parametrize("damage", DAMAGE)
def test_broken_entries_are_asked_again(damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvcc = StandIn(tmp_path, monkeypatch, UNTIL_ROLLED)
    first = compile_text(TIGHT)
    asked = nvcc.calls
    for entry in (tmp_path / "cache" / "ptxas").iterdir():
        entry.write_text(damage)
    assert compile_text(TIGHT).cu == first.cu and nvcc.calls > asked
    assert all(json.loads(e.read_text()) for e in (tmp_path / "cache" / "ptxas").glob("*.json"))


def test_an_outcome_that_is_worse_than_it_was_is_looked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    StandIn(tmp_path, monkeypatch, UNTIL_ROLLED)
    first = compile_text(TIGHT)
    for entry in (tmp_path / "cache" / "ptxas").iterdir():
        known = json.loads(entry.read_text())
        if "choice" in known:
            entry.write_text(json.dumps({**known, "choice": [[ladder, symbol, 3] for ladder, symbol, _ in known["choice"]]}))
    assert compile_text(TIGHT).cu == first.cu


def test_another_nvcc_is_asked_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvcc = StandIn(tmp_path, monkeypatch, UNTIL_ROLLED)
    compile_text(TIGHT)
    asked = nvcc.calls
    nvcc.script((tmp_path / "nvcc").read_text().replace("V99.0.1", "V99.0.2"))
    compile_text(TIGHT)
    assert nvcc.calls == 2 * asked


def test_the_cache_is_bounded_and_needs_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(ptxas, "MOST_ENTRIES", 8)
    for n in range(30):
        entry = ptxas.entry_of(str(n), ("sm_80",), "1")
        ptxas.keep(entry, {"n": n})
        os.utime(entry, (n, n))
    left = {ptxas.recall(e)["n"] for e in (tmp_path / "ptxas").iterdir()}  # type: ignore[index]
    assert len(left) <= 8 and 29 in left and 0 not in left
    monkeypatch.setenv("TILEC_CACHE_DIR", "/dev/null/nowhere")
    ptxas.keep(ptxas.entry_of("x", (), "1"), {"n": 1})


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_rules_vouch_for_every_sample(arch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hardly any is asked about: whose rows are an operand in registers, and Hopper's own way by hand on a machine without it."""
    nvcc = StandIn(tmp_path, monkeypatch, "def spilled(name, text): return 0\ndef registers(name, text): return 24")
    found = {name: compile_text((SAMPLES / f"{name}.py").read_text(), CASES[name].defines, arch, ptxas="auto") for name in CASES}
    every = {name: bodies(x).values() for name, x in found.items()}
    assert {name for name, x in every.items() if any(v.strain > 0 for v in x)} == set()
    asked = {name for name, x in found.items() if any("was asked" in line for p in x.plans for line in p.asked)}
    assert asked == ({"by_hand/gemm_warp_specialized"} if arch == "sm_80" else set()) and nvcc.calls == len(asked)


@pytest.mark.parametrize("m, n", [(64, 64), (64, 128), (128, 64), (128, 128), (128, 256), (256, 128)])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int8", "float8_e4m3"])
def test_and_for_usual_tiles(m: int, n: int, dtype: str) -> None:
    acc, out = ("int32", "int32") if dtype == "int8" else ("float32", "float32")
    g = Gemm(m, n, 32 if dtype == "float32" else 64, 3, dtype, out, acc, trans_b=True)
    for arch in ("sm_90a", "sm_80") if not dtype.startswith("float8") else ("sm_90a",):
        assert all(v.strain <= 0 for v in bodies(g.compiled(arch)).values())


@pytest.mark.parametrize("bn, asked", [(192, True), (64, False)])
def test_what_is_loaded_beside_16_bit_results_takes_whole_registers(bn: int, asked: bool) -> None:
    """ptxas spills 188 bytes where each of 192 results of a thread has a float of a bias beside it, though the results fill 96."""
    g = Gemm(256, bn, 32, acc="float16", trans_b=True, epilogue="bias")
    body = bodies(g.compiled(ptxas="never"))["gemm"]
    assert (body.strain > 0 or body.rung > 0) is asked  # in doubt, or already another configuration, which the rules vouch for


def test_the_command_line_asks_as_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvcc = StandIn(tmp_path, monkeypatch, UNTIL_ROLLED)
    monkeypatch.chdir(tmp_path)
    Path("k.py").write_text(TIGHT)
    assert cli.run(["compile", "k.py", "-q", "--ptxas", "never", "-o", "never.cu"]) == 0 and nvcc.calls == 0
    assert cli.run(["compile", "k.py", "-q", "-MMD", "-o", "auto.cu"]) == 0 and nvcc.calls == 4
    assert Path("auto.d").read_text().split() == ["auto.cu:", "\\", "k.py"]
    assert "registers  gemm: steps one by one" in Path("auto.cu").read_text()
    assert cli.run(["compile", "k.py", "-q", "--ptxas", "sometimes"]) == 2
    assert cli.run(["compile", "k.py", "-q", "-Werror", "-o", "strict.cu"]) == 0
    (tmp_path / "rule.py").write_text("def spilled(name, text): return 8")
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path / "other"))
    assert cli.run(["compile", "k.py", "-q", "-Werror", "-o", "failed.cu"]) == 1 and not Path("failed.cu").exists()


def test_the_same_bytes_whoever_asks_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    StandIn(tmp_path, monkeypatch, UNTIL_ROLLED)
    texts = []
    for cache in ("one", "two", "one"):
        monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path / cache))
        texts.append(compile_text(TIGHT, arch="sm_90a").cu)
    assert len(set(texts)) == 1


HOPELESS = """
import tilelang.language as T

@T.prim_func
def add(A: T.Tensor((512, 512), "float32"), B: T.Tensor((512, 512), "float32")):
    with T.Kernel(1, threads=128):
        tile = T.alloc_fragment((512, 512), "float32")
        T.copy(A, tile)
        for i, j in T.Parallel(512, 512):
            tile[i, j] += 1.0
        T.copy(tile, B)
"""


def test_a_tile_that_no_configuration_holds_is_told_without_asking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvcc = StandIn(tmp_path, monkeypatch)
    compiled = compile_text(HOPELESS)
    assert nvcc.calls == 0
    assert any(d.code == "TL0511" and "registers a thread more" in d.message for d in compiled.diagnostics)


def test_a_tile_far_beyond_the_author_s_threads_takes_more_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvcc = StandIn(tmp_path, monkeypatch)
    compiled = compile_text(HOPELESS.replace("512, 512", "64, 512").replace("threads=128", "threads=32"))
    assert nvcc.calls == 1 and not codes(compiled) and compiled.plans[0].launches[0].threads[0] == 256


def test_a_warning_says_how_much_there_is_and_one_thing_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    StandIn(tmp_path, monkeypatch, "def spilled(name, text): return 8")
    (told,) = (d for d in compile_text(TIGHT).diagnostics if d.code == "TL0511")
    assert "its register tiles take 192 of the 256 KB" in told.message and told.help == "a smaller tile holds fewer registers"
    large = compile_text(TIGHT.replace("192", "248"))
    assert [d.help for d in large.diagnostics if d.code == "TL0511"] == ["halve the rows or the columns of a block"]


@needs_nvcc
def test_an_array_of_the_author_s_own_is_no_spill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path))
    path = SAMPLES / "attention" / "block_sparse.py"
    compiled = compile_text(path.read_text(), {"seq": 4096, "heads": 8, "dim": 64}, "sm_90a", ptxas="always")
    (body,) = bodies(compiled).values()
    answer = ptxas.hear(compiled.cu, ("sm_90a",))
    assert isinstance(answer, ptxas.Report) and answer.bodies[body.symbol].stack == 64
    assert not body.rung and not codes(compiled)
