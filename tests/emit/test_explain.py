"""`tilec explain`: the numbers it tells are those of the plan, and its bank conflicts are those of the layout."""

from pathlib import Path

import pytest

from tests.compiling import compile_text
from tilec.emit.explain import explain_text, ldmatrix_conflicts
from tilec.layout.shared import SharedLayout, conflict_free, dense

SAMPLES = Path(__file__).resolve().parents[2] / "samples"


def explained(name: str, **defines: int) -> str:
    compiled = compile_text((SAMPLES / name).read_text(), defines)
    assert len(compiled.plans) == 1
    return explain_text(compiled.plans[0])


def test_a_gemm_with_fixed_sizes() -> None:
    text = explained("gemm_prim_func.py")  # 256 x 384 x 192, tiles 128 x 128 x 32, 3 stages
    assert "grid (3, 2, 1) = 6 blocks, 128 threads" in text
    assert "A_s  128x32 f16, 3 versions, 24 KB" in text and "48 KB of 163 KB" in text and "acc  128x128 f32, 128 elements a thread" in text
    assert f"{2 * 256 * 384 * 192 / 1e6:.1f} MFLOP, {2 * (256 * 192 + 192 * 384 + 256 * 384) / 1e3:.1f} kB at least" in text
    source = (SAMPLES / "gemm_prim_func.py").read_text().splitlines()
    told = {int(line.split()[1]) for line in text.splitlines() if line.startswith("line ")}
    assert {source[n - 1].split("(")[0].strip() for n in told} >= {"T.clear", "T.copy", "T.gemm", "for ko in T.Pipelined"}


def test_run_time_sizes_stay_names_and_variants_tell_their_condition() -> None:
    text = explained("article_gemm.py")
    assert "grid (ceildiv(N, 128), ceildiv(M, 128), 1), " in text and "blocks fit on an SM" in text
    assert "% 16 == 0" in text and "__general  when nothing before it fits" in text and "zeros unless" in text


def test_a_kernel_without_tiles() -> None:
    text = explained("vector_add.py")
    assert "shelf      nothing" in text and "C  N f32  written" in text


@pytest.mark.parametrize(("layout", "conflicts"), [
    (dense((128, 32), 2), 3),                 # rows of 64 bytes: 8 rows meet 2 groups of banks
    (dense((64, 64), 2), 7),                  # rows of 128 bytes: all 8 rows meet the same banks
    (dense((64, 8), 2), 0),                   # rows of 16 bytes lie one behind the other
    (SharedLayout((64, 64), 2, 72), 0),       # a pitch of an odd number of chunks
    (conflict_free((128, 32), 2), 0), (conflict_free((32, 128), 2), 0), (conflict_free((64, 32), 4), 0), (conflict_free((64, 40), 2), 0),
    (dense((4, 32), 2), None), (dense((64, 33), 2), None), (dense((64,), 2), None),
])  # fmt: skip
def test_bank_conflicts(layout: SharedLayout, conflicts: int | None) -> None:
    assert ldmatrix_conflicts(layout) == conflicts


def test_copies_are_told_as_copies_and_no_products_as_nothing() -> None:
    source = """import tilelang.language as T
N = T.dynamic("N")
@T.prim_func
def k(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32")):
    with T.Kernel(T.ceildiv(N, 128), threads=32) as b:
        s = T.alloc_shared((130,), "float32")
        T.copy(X[b * 128 - 1], s)
        for i in T.Parallel(128):
            Y[b * 128 + i] = s[i] + s[i + 2]
"""
    compiled = compile_text(source)
    text = explain_text(compiled.plans[0])
    assert "copy X -> s  by running number" in text and "loop (i) writes Y" in text, text
    assert "FLOP" not in text and "4 * N + 4 * N bytes at least" in text and '"flop": "0"' in compiled.cu, text
