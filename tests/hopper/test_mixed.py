"""One file for sm_80 and sm_90a: Hopper's own body beside the portable ones, the launcher choosing by what was compiled."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.compiling import compile_text, run_emulated, run_reference
from tests.hopper.kernels import Gemm, run
from tests.toolchain import needs_gxx, needs_nvcc, needs_nvrtc, nvcc_compile, nvrtc_compile
from tilec import emulator
from tilec.driver import Compiled
from tilec.emit.manifest import parse
from tilec.targets import lookup

MIXED = Gemm(bn=128, trans_b=True)


def mixed() -> Compiled:
    newer = lookup("sm_90a")
    assert newer is not None
    return MIXED.compiled("sm_80", also=(newer,))


def test_the_manifest_says_which_body_is_for_which_machine() -> None:
    (launch,) = parse(mixed().cu)["kernels"][0]["launches"]
    assert [(v["symbol"], v["arch"], bool(v["tensor_maps"])) for v in launch["variants"]] == [
        ("gemm__sm90a", "sm_90a", True), ("gemm__sm90a__pairs", "sm_90a", True), ("gemm", "sm_80", False), ("gemm__general", "sm_80", False)
    ]  # fmt: skip


@needs_gxx
@pytest.mark.parametrize("size", [(200, 128, 64), (200, 136, 72), (200, 135, 71), (300, 264, 200)], ids=str)
def test_every_body_is_right(size: tuple[int, int, int]) -> None:
    text = mixed().cu
    assert text.count("runs_here &&") == 2
    for cu in (text, text.replace("runs_here &&", "!runs_here &&")):
        outcome, error = run(cu, MIXED, size, emulator.Mode("lazy", "apart", 1))
        assert outcome.ok, outcome
        assert error < 1e-3


@needs_nvcc
def test_nvcc_takes_it_for_both(tmp_path: Path) -> None:
    nvcc_compile(mixed().cu, "sm_80", tmp_path, "-gencode", "arch=compute_90a,code=sm_90a")


@needs_nvrtc
def test_nvrtc_gives_each_machine_its_body() -> None:
    text = mixed().cu
    assert "wgmma" in nvrtc_compile(text, "sm_90a")
    older = nvrtc_compile(text, "sm_80")
    assert "wgmma" not in older and ".entry gemm__sm90a(" in older and ".maxntid 32" in older


def two_launches() -> str:
    """C = A @ B, then E = C @ D: the second reads through a map what the first has written."""

    def launch(a: str, b: str, c: str, k: str) -> str:
        lines = [
            "with T.Kernel(T.ceildiv(N, 64), T.ceildiv(M, 128), threads=128) as (bx, by):",
            '  A_s = T.alloc_shared((128, 64), "float16")', '  B_s = T.alloc_shared((64, 64), "float16")',
            '  acc = T.alloc_fragment((128, 64), "float32")', "  T.clear(acc)",
            f"  for ko in T.Pipelined(T.ceildiv({k}, 64), num_stages=3):", f"    T.copy({a}[by * 128, ko * 64], A_s)",
            f"    T.copy({b}[ko * 64, bx * 64], B_s)", "    T.gemm(A_s, B_s, acc)", f"  T.copy(acc, {c}[by * 128, bx * 64])",
        ]  # fmt: skip
        return "".join(f"  {line}\n" for line in lines)

    shapes = {"A": "M, K", "B": "K, N", "C": "M, N", "D": "N, N", "E": "M, N"}
    head = 'import tilelang.language as T\nM, N, K = T.dynamic("M"), T.dynamic("N"), T.dynamic("K")\n@T.prim_func\n'
    parameters = ", ".join(f'{name}: T.Tensor(({shape}), "float16")' for name, shape in shapes.items())
    return f"{head}def gemm({parameters}):\n{launch('A', 'B', 'C', 'K')}{launch('C', 'D', 'E', 'N')}"


@needs_gxx
@pytest.mark.parametrize("archs", [("sm_90a",), ("sm_80", "sm_90a")], ids=str)
def test_two_launches_of_one_function(archs: tuple[str, ...]) -> None:
    also = tuple(t for t in map(lookup, archs[1:]) if t is not None)
    compiled = compile_text(two_launches(), arch=archs[0], also=also)
    assert all(launch.variants[0].tensor_maps for launch in compiled.plans[0].launches)
    rng = np.random.default_rng()
    m, n, k = 200, 136, 72
    v = {name: rng.standard_normal(s).astype(np.float16) for name, s in (("A", (m, k)), ("B", (k, n)), ("D", (n, n)))}
    v |= {name: np.full((m, n), np.nan, np.float16) for name in "CE"}
    want = run_reference(compiled, {**v, "M": m, "N": n, "K": k})
    got = run_emulated(compiled, {**v, "M": m, "N": n, "K": k})
    for name in "CE":
        true = want[name].astype(np.float64)
        assert np.linalg.norm(got[name].astype(np.float64) - true) <= 1e-3 * np.linalg.norm(true)
