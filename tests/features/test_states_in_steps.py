"""A chain of small products with states stored in every step: the copy engine stores them, and gates come by way of registers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiling import compile_text, run_emulated, run_reference
from tests.toolchain import needs_gxx
from tilec import emulator

KERNEL = """
import tilelang.language as T
@T.prim_func
def states(K: T.Tensor((256, 64), "float16"), U: T.Tensor((256, 32), "float16"), G: T.Tensor((256, 4), "float32"),
           H: T.Tensor((4, 64, 32), "float16"), V: T.Tensor((256, 32), "float16"), S: T.Tensor((64, 32), "float32")):
    with T.Kernel(BLOCKS, threads=128):
        k_s = T.alloc_shared((64, 64), "float16")
        u_s = T.alloc_shared((64, 32), "float16")
        v_s = T.alloc_shared((64, 32), "float16")
        h_s = T.alloc_shared((64, 32), "float16")
        g_s = T.alloc_shared((64, 32), "float32")
        h = T.alloc_fragment((64, 32), "float32")
        u = T.alloc_fragment((64, 32), "float32")
        v = T.alloc_fragment((64, 32), "float32")
        g = T.alloc_fragment((64, 32), "float32")
        T.clear(h)
        T.copy(h, h_s)
        for n in T.Pipelined(4, num_stages=STAGES):
            T.copy(h_s, H[PLACE, 0:64, 0:32])
            T.copy(K[n * 64 : n * 64 + 64, 0:64], k_s)
            T.gemm(k_s, h_s, v, clear_accum=True)
            T.copy(U[n * 64 : n * 64 + 64, 0:32], u_s)
            T.copy(u_s, u)
            for i, j in T.Parallel(64, 32):
                v[i, j] = u[i, j] - v[i, j]
            T.copy(v, v_s)
            T.copy(v_s, V[n * 64 : n * 64 + 64, 0:32])
            for i, j in T.Parallel(64, 32):
                g_s[i, j] = G[n * 64 + i, COLUMN]
            T.copy(g_s, g)
            for i, j in T.Parallel(64, 32):
                v[i, j] = v[i, j] * g[i, j]
            T.copy(v, v_s)
            T.gemm(k_s, v_s, h, transpose_A=True)
            T.copy(h, h_s)
        T.copy(h, S)
"""


def source(stages: int = 2, place: str = "n", column: str = "1", blocks: int = 1) -> str:
    return KERNEL.replace("STAGES", str(stages)).replace("PLACE", place).replace("COLUMN", column).replace("BLOCKS", str(blocks))


def given() -> dict[str, np.ndarray]:
    rng = np.random.default_rng()
    out = {"K": (rng.standard_normal((256, 64)) / 16).astype(np.float16), "U": rng.standard_normal((256, 32)).astype(np.float16)}
    out |= {"G": rng.random((256, 4)).astype(np.float32)}
    return out | {"H": np.full((4, 64, 32), np.nan, np.float16), "V": np.full((256, 32), np.nan, np.float16), "S": np.full((64, 32), np.nan, np.float32)}


def wanted(x: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same in float64, rounded where tiles are."""
    k, u, h, states, made = x["K"].astype(np.float64), x["U"].astype(np.float64), np.zeros((64, 32)), [], []
    for n in range(4):
        rows, held = slice(n * 64, n * 64 + 64), h.astype(np.float16).astype(np.float64)
        v = u[rows] - k[rows] @ held
        states, made = [*states, held], [*made, v]
        h = h + k[rows].T @ (v * x["G"][rows, 1:2]).astype(np.float16).astype(np.float64)
    return {"H": np.array(states), "V": np.concatenate(made), "S": h}


@needs_gxx
@pytest.mark.parametrize("stages", [2, 3])
def test_states_are_stored_by_the_copy_engine_and_gates_held(stages: int) -> None:
    compiled = compile_text(source(stages), None, "sm_90a")
    assert compiled.cu.count("tma_store_3d(&H_map") == compiled.cu.count("tma_store_2d(&V_map") == 1
    assert "take_g_s(n + " in compiled.cu and "put_g_s(" in compiled.cu and "cp_async" not in compiled.cu.split("__general")[0]
    values = given()
    want = wanted(values)
    for got in (run_reference(compiled, values), run_emulated(compiled, values, "lazy"), run_emulated(compiled, values, "eager")):
        for name, w in want.items():
            assert np.linalg.norm(got[name] - w) <= 2e-3 * np.linalg.norm(w), name


@pytest.mark.parametrize("stages, blocks, versions", [(2, 1, 3), (3, 1, 4), (2, 132, 3), (2, 1 << 20, 2)])
def test_blocks_that_all_run_at_once_copy_a_step_further_ahead(stages: int, blocks: int, versions: int) -> None:
    assert f"// [{versions}][64][64]" in compile_text(source(stages, blocks=blocks), None, "sm_90a").cu.split("__general")[0]


@needs_gxx
def test_the_wait_in_front_of_the_next_write_is_needed() -> None:
    compiled = compile_text(source(), None, "sm_90a")
    modes = [emulator.Mode(asynchrony="lazy", shared="apart", seed=1, races=True), emulator.Mode("random", "apart", 2, races=True)]
    assert all(emulator.build(compiled.cu).run("states_launch", given(), m, 60).ok for m in modes)
    assert compiled.cu.count("bulk_wait_read<0>();") == 2
    before, _, after = compiled.cu.rpartition("bulk_wait_read<0>();")  # V's: v_s is written again behind it
    outcome = emulator.build(before + after).run("states_launch", given(), modes[0], 60)
    assert "nothing orders two accesses" in outcome.message, outcome.message


@pytest.mark.parametrize(
    "place, column, stored, taken", [("n", "1", True, True), ("0", "1", False, True), ("n // 2", "1", False, True), ("n", "j % 4", True, False)]
)
def test_only_stores_that_move_on_and_single_elements(place: str, column: str, stored: bool, taken: bool) -> None:
    text = compile_text(source(2, place, column), None, "sm_90a").cu
    assert ("tma_store_3d(&H_map" in text, "take_g_s" in text) == (stored, taken)


def test_a_tensor_that_is_read_again_is_stored_by_the_threads() -> None:
    text = source().replace("T.copy(u_s, u)", "T.copy(u_s, u)\n            u[0, 0] = u[0, 0] + H[0, 0, 0]")
    assert "tma_store_3d(&H_map" not in compile_text(text, None, "sm_90a").cu
