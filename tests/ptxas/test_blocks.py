"""What the assembler does on its own: registers given up for blocks that nobody needs, waits and fences put between products."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.spill_cases import cases
from tests.compiling import compile_text
from tests.hopper.by_hand import Hand, difference, emulate
from tests.hopper.kernels import Gemm
from tests.ptxas.kit import StandIn, at, bodies, codes
from tests.ptxas.test_gate import clean
from tests.toolchain import needs_gxx, needs_nvcc
from tilec import emulator, ptxas

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
DECODE = {"heads": 32, "kv_heads": 8, "seq": 8192, "dim": 128, "splits": 8, "block_n": 128, "block_h": 16, "threads": 128}
CHUNKS = {"heads": 8, "seq": 4096, "dim": 128, "chunk": 64, "block_k": 64, "block_v": 32, "threads": 256}
CHUNKED = {"heads": 4, "seq": 1024, "dim": 64, "chunk": 64, "block_k": 32, "block_v": 32, "threads": 64}
SCAN = {"seq": 4096, "heads": 64, "groups": 1, "dim": 64, "dstate": 64, "chunk": 256, "block_m": 64, "block_n": 64, "block_k": 32}
VOUCHED: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "one block by its shared memory": ("attention/decode.py", "", DECODE, "sm_80"),
    "an operand in registers is made in front of the fence": ("linear_attention/mamba2.py", "chunk_scan", {**SCAN, "threads": 128}, "sm_90a"),
}


def sample(name: str, kernel: str, defines: dict[str, Any], arch: str, **options: Any) -> Any:
    """The compilation of one kernel of a sample."""
    kernels = {"kernels": (kernel,)} if kernel else {}
    return compile_text((SAMPLES / name).read_text(), defines, arch, **kernels, **options)


@needs_nvcc
@pytest.mark.parametrize("name", VOUCHED)
def test_nothing_is_asked_for(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path))
    compiled = sample(*VOUCHED[name], ptxas="never")
    assert all(not v.rung and v.strain <= 0 for v in bodies(compiled).values())
    clean(compiled.cu, VOUCHED[name][3])


@needs_nvcc
def test_many_products_have_one_block_to_reach() -> None:
    """Told of no number, the assembler spills 4 bytes of these four products so that three blocks fit."""
    compiled = sample("linear_attention/chunked.py", "", CHUNKED, "sm_80", ptxas="never")
    (body,) = bodies(compiled).values()
    assert body.strain <= 0 and not body.open and not body.rung and body.least == 1
    clean(compiled.cu, "sm_80")
    left = ptxas.hear(compiled.cu.replace("__launch_bounds__(64, 1)", "__launch_bounds__(64)"), ("sm_80",))
    assert isinstance(left, ptxas.Report) and left.bodies["linear_attention"].stores, "it shows nothing"


@pytest.mark.parametrize("m, n, acc, asked", [(128, 256, "float32", False), (256, 192, "float16", True), (128, 128, "float16", False)])
def test_tiles_that_leave_little_are_asked_about_although_they_fit(m: int, n: int, acc: str, asked: bool) -> None:
    first = at(Gemm(bm=m, bn=n, stages=2, acc=acc).source(), {}, "sm_80")
    body = bodies(first)["gemm"]
    assert body.open is asked and body.strain <= 0


def test_products_of_elements_one_by_one_have_no_number_of_blocks_to_reach() -> None:
    text = Gemm(bm=64, bn=64, stages=2, trans_b=True).source().replace("threads=256", "threads=128")
    first = at(text, {}, "sm_80")
    general = bodies(first)["gemm__general"]
    assert general.least == 1 and "__launch_bounds__(128, 1)\ngemm__general(" in first.cu


WITH_MMA = """
def spilled(name, text):
    body = text.split(name + "(", 1)[1] if name + "(" in text else ""
    return 100 if name.endswith("__general") and "mma_m16n8k16" in body.split("\\n}\\n")[0] else 0
"""


def test_a_body_written_by_hand_keeps_its_products(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The body for rows that start anywhere has mma.sync at first, which takes more registers than the author gives."""
    nvcc = StandIn(tmp_path, monkeypatch, WITH_MMA)
    compiled = sample("by_hand/attention.py", "", {"S": 2048}, "sm_90a", ptxas="always")
    general = compiled.cu.split("\nattention__general(", 1)[1].split("\n}\n")[0]
    assert nvcc.calls == 2 and not codes(compiled)
    assert "wgmma_m64" in general and "mma_m16n8k16" not in general and "tma_load" not in general
    assert bodies(compiled)["attention__general"].when is None and not bodies(compiled)["attention__general"].tensor_maps


@needs_gxx
def test_and_is_right_for_tensors_off_16_bytes() -> None:
    kernel = Hand()
    compiled, values = at(kernel.source(), {("by hand", "gemm__general"): 1}), kernel.inputs()
    general = compiled.cu.split("\ngemm__general(", 1)[1].split("\n}\n")[0]
    assert "wgmma_m64" in general and general.count("fence_proxy_async();") == 2, "warp groups see what threads copy behind a fence"
    outcome, got = emulate(compiled.cu, "gemm", values, emulator.Mode("random", "real", 9, alignment=2))
    assert outcome.ok and difference(got["C"], kernel.wanted(values)) < 1e-3, outcome.message


ROWS = {"M": 64, "N": 16384, "threads": 512, "dtype": "float32"}
RULE = """
def spilled(name, text): return {spilled} if ", 2)" in text else 0
def registers(name, text): return 64 if ", 2)" in text else {registers}
"""


@pytest.mark.parametrize(
    ("registers", "spilled", "calls", "more"), [(70, 0, 2, True), (76, 0, 2, True), (70, 8, 2, False), (77, 0, 1, False), (64, 0, 1, False)]
)
def test_one_block_more_where_few_registers_are_in_its_way(
    registers: int, spilled: int, calls: int, more: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of 16384 by 512 threads: 64 registers each let two blocks run at once, and loads of one hide behind sums of the other."""
    nvcc = StandIn(tmp_path, monkeypatch, RULE.format(spilled=spilled, registers=registers))
    compiled = sample("rows/rms_norm.py", "", ROWS, "sm_90")
    (asked,) = [line for line in compiled.plans[0].asked if line.startswith("rms_norm")]
    assert nvcc.calls == calls and ("; 2 blocks at a time: clean with 64" in asked) is more and not codes(compiled)
    assert bodies(compiled)["rms_norm"].least == (2 if more else 0) and (f"__launch_bounds__(512{', 2' if more else ''})\n" in compiled.cu)
    again = sample("rows/rms_norm.py", "", ROWS, "sm_90")
    assert again.cu == compiled.cu and nvcc.calls == calls


def test_nobody_is_asked_about_one_block_more_of_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """64 threads with 37 (so 40) registers each: 25 blocks, and 26 are 4 % more, for which nobody waits."""
    nvcc = StandIn(tmp_path, monkeypatch, "def spilled(name, text): return 0\ndef registers(name, text): return 37")
    compiled = sample("rows/rms_norm.py", "", {"M": 8192, "N": 4096, "threads": 64}, "sm_90")
    assert nvcc.calls == 1 and not any(v.least for v in bodies(compiled).values())


def test_bodies_with_products_and_numbers_of_blocks_stay_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvcc = StandIn(tmp_path, monkeypatch, "def spilled(name, text): return 0\ndef registers(name, text): return 130")
    tile = Gemm(bm=128, bn=256, stages=2, trans_b=True).source()
    before = {name: v.least for name, v in bodies(compile_text(tile, arch="sm_80", ptxas="never")).items()}
    after = compile_text(tile, arch="sm_80", ptxas="always")
    assert {name: v.least for name, v in bodies(after).items()} == before and nvcc.calls == 1


@needs_nvcc
def test_rows_in_registers_get_two_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path))
    compiled = sample("rows/layer_norm.py", "", {"M": 8192, "N": 16384, "threads": 512}, "sm_90")
    asked = " ".join(compiled.plans[0].asked)
    assert "first choice: clean with 64" in asked or "2 blocks at a time: clean" in asked
    clean(compiled.cu, "sm_90")


COPY = """import tilelang.language as T
@T.prim_func
def narrowed(X: T.Tensor(({n}, 64), "float32"), Y: T.Tensor(({n}, 64), "float16")):
    with T.Kernel({n} // 64, threads={threads}) as b:
        T.copy(X[b * 64 : b * 64 + 64, :], Y[b * 64 : b * 64 + 64, :])
"""


@pytest.mark.parametrize(("threads", "blocks"), [(128, 8), (256, 0)])
def test_copies_leave_room_for_their_loads(threads: int, blocks: int) -> None:
    """8 rounds of 4 floats by 128 threads: the assembler makes do with 32 registers, so that 16 blocks fit, and may spill one."""
    (body,) = bodies(at(COPY.format(n=512, threads=threads), {}, "sm_90a")).values()
    assert body.least == blocks and not body.open and body.strain <= 0


@needs_nvcc
@pytest.mark.parametrize("name", ["swapped 64x128 int8 t256", "gelu 2x2048 int8 t64", "gelu 4x1024 int8 t128"])
def test_tiles_of_bytes_leave_room_for_each_of_them(name: str) -> None:
    """For as many blocks as it likes the assembler spills 4 to 16 bytes of one of the bodies."""
    c = cases()[f"tile {name} anywhere"]
    compiled = compile_text(c.text, arch=c.arch, ptxas="never")
    assert all(v.least and not v.doubtful for v in bodies(compiled).values())
    clean(compiled.cu, c.arch)


@needs_nvcc
def test_copies_by_hand_leave_room_for_all_blocks_that_shared_memory_holds() -> None:
    """115 KB: one block, which the assembler does not know; for five it spills 24 bytes."""
    compiled = sample("by_hand/pipeline_elementwise.py", "", {"M": 256, "N": 256}, "sm_80", ptxas="never")
    (body,) = bodies(compiled).values()
    assert body.least == 1 and not body.open
    clean(compiled.cu, "sm_80")
