"""Blocks cut into several: the same results as the whole block's, on the emulator and against the kernel's meaning; or no cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.compiling import compile_text, run_emulated, run_reference
from tests.hopper.attention import Attention
from tests.hopper.attention import error as attention_error
from tests.hopper.chains import Gradients
from tests.hopper.chains import error as chain_error
from tests.hopper.kernels import MODES, Gemm, run
from tests.ptxas.kit import at, bodies
from tilec.driver import Compiled
from tilec.ir.kernel import Launch
from tilec.plan.cut import cut_blocks
from tilec.plan.domains import static
from tilec.plan.ladder import LADDERS

Array = npt.NDArray[Any]
HEAD = "import tilelang.language as T\n@T.prim_func\ndef kernel("


def launch_of(text: str) -> Launch:
    """The one launch of a text."""
    return compile_text(text, ptxas="never").module.kernels[0].launches[0]


def in_parts(text: str, symbol: str, parts: int, arch: str = "sm_80") -> Compiled:
    """The compilation whose portable body is cut."""
    n = next(n for n, r in enumerate(LADDERS["portable"]) if r.cut == parts)
    compiled = at(text, {("portable", symbol): n}, arch)
    assert bodies(compiled)[symbol].rung == n
    return compiled


def rows(body: str, more: str = "", size: int = 192) -> str:
    """A kernel whose blocks have 64 rows of X; `body` goes from `x` to `y`, both 64x32 fragments."""
    return f'''{HEAD}X: T.Tensor(({size}, 32), "float32"), Y: T.Tensor(({size}, 32), "float32"){more}):
  with T.Kernel({size // 64}, threads=128) as b:
    x = T.alloc_fragment((64, 32), "float32")
    y = T.alloc_fragment((64, 32), "float32")
    T.copy(X[b * 64, 0], x)
    {body.replace(chr(10), chr(10) + "    ")}
    T.copy(y, Y[b * 64, 0])
'''


MOVED = "for i, j in T.Parallel(64, 32):\n  y[i, j] = "
ROWS = {
    "plain": (rows(MOVED + "x[i, j] * 2"), {}),
    "row numbers": (rows(MOVED + "T.if_then_else((b * 64 + i) % 3 == j % 3, x[i, j], T.cast(b * 100 + i, 'float32'))"), {}),
    "mirrored columns": (rows('s = T.alloc_shared((64, 32), "float32")\nT.copy(x, s)\n' + MOVED + "s[i, 31 - j]"), {}),
    "a table of rows": (rows(MOVED + "x[i, j] + R[i]", ', R: T.Tensor((64,), "float32")'), {"R": (64,)}),
    "a table by copy": (
        rows('r = T.alloc_shared((64,), "float32")\nT.copy(R[0], r)\n' + MOVED + "x[i, j] + r[i]", ', R: T.Tensor((64,), "float32")'), {"R": (64,)}),
    "a table elsewhere": (
        rows('r = T.alloc_shared((64,), "float32")\nT.copy(R[128 - b * 32], r)\n' + MOVED + "x[i, j] + r[i]", ', R: T.Tensor((192,), "float32")'), {"R": (192,)}),
    "sums of rows": (rows('t = T.alloc_fragment((64,), "float32")\nT.reduce_sum(x, t, dim=1)\n' + MOVED + "x[i, j] - t[i]"), {}),
    "bounds of loops": (rows("T.clear(y)\nfor k in T.serial(b + 1):\n  for i, j in T.Parallel(64, 32):\n    y[i, j] += x[i, j] * T.cast(k + i, 'float32')"), {}),
    "branches": (rows("if b == 1:\n  " + MOVED.replace("\n", "\n  ") + "x[i, j]\nelse:\n  T.fill(y, 3)"), {}),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_rows(name: str) -> None:
    text, more = ROWS[name]
    parts = 4 if list(ROWS).index(name) % 2 else 2
    whole, compiled = launch_of(text), in_parts(text, "kernel", parts)
    assert static(compiled.plans[0].launches[0].grid[0]) == (static(whole.grid[0]) or 0) * parts
    rng = np.random.default_rng()
    values: dict[str, Array] = {n: rng.standard_normal(s).astype(np.float32) for n, s in {"X": (192, 32), **more}.items()}
    values["Y"] = np.full((192, 32), np.nan, np.float32)
    assert np.allclose(run_emulated(compiled, values)["Y"], run_reference(compiled, values)["Y"], rtol=1e-5, atol=1e-5)


TELLS = {
    "rows of others": rows('s = T.alloc_shared((64, 32), "float32")\nT.copy(x, s)\n' + MOVED + "s[63 - i, j]"),
    "sums of columns": rows('t = T.alloc_fragment((32,), "float32")\nT.reduce_sum(x, t, dim=0)\n' + MOVED + "x[i, j] - t[j]"),
    "a result of the block": rows(MOVED + "x[i, j]\nfor j in T.Parallel(32): Z[b, j] = 1", ', Z: T.Tensor((3, 32), "float32")'),
    "a count of blocks": rows(MOVED + "x[i, j]\nfor j in T.Parallel(32): T.atomic_add(Z[j], 1)", ', Z: T.Tensor((32,), "float32")'),
    "one row": rows('s = T.alloc_shared((64, 32), "float32")\nT.copy(x, s)\n' + MOVED + "x[i, j] + s[0, j]"),
    "through memory": rows(MOVED + "x[i, j] + Y[b * 64 + 63 - i, j]"),
    "a barrier": rows(MOVED + "x[i, j]\nT.sync_threads()"),
    "both sides": rows(
        's = T.alloc_shared((64, 32), "float16")\nq = T.alloc_fragment((64, 64), "float32")\nT.copy(x, s)\nT.gemm(s, s, q, transpose_B=True, clear_accum=True)\n'
        + "for i, j in T.Parallel(64, 64): Z[b, i, j] = q[i, j]\n" + MOVED + "x[i, j]", ', Z: T.Tensor((3, 64, 64), "float32")'),
}  # fmt: skip


@pytest.mark.parametrize("name", TELLS)
def test_what_tells_is_left_whole(name: str) -> None:
    assert cut_blocks(launch_of(TELLS[name]), 2) is None


@pytest.mark.parametrize("epilogue, trans_a, parts", [("mirror", False, 2), ("bias", True, 3), ("shared", False, 3)])
def test_products(epilogue: str, trans_a: bool, parts: int) -> None:
    g = Gemm(bm=192, bn=96, bk=32, epilogue=epilogue, trans_a=trans_a, out="float32", sizes=(200, 104, 64))
    compiled = in_parts(g.source(), "gemm", parts)
    outcome, off = run(compiled.cu, g, (200, 104, 64), MODES[0])
    assert outcome.ok and off < 1e-3, outcome


@pytest.mark.parametrize("mask, staged, parts", [("causal", False, 2), ("tail", True, 3)])
def test_attention(mask: str, staged: bool, parts: int) -> None:
    a = Attention(dim=32, bm=96, bn=32, seq=200, mask=mask, where="after", staged=staged, lse=True, kv_heads=1)
    compiled = in_parts(a.source(), "attention", parts)
    values = a.inputs(np.random.default_rng())
    got, (out, lse) = run_emulated(compiled, values), a.exact(values)
    assert attention_error(got["O"], out) < 2e-3 and attention_error(got["L"], lse) < 1e-4


@pytest.mark.parametrize("arch, causal", [("sm_80", True), ("sm_90a", False)])
def test_shares_of_sums_go_to_atomics(arch: str, causal: bool) -> None:
    g = Gradients(dim=64, bm=64, bn=128, heads=1, seq=200, causal=causal)
    if arch == "sm_80":
        compiled = in_parts(g.source(), "gradients", 2)
    else:
        half = next(n for n, r in enumerate(LADDERS["chain"]) if r.cut > 1)
        compiled = at(g.source(), {("chain", "gradients"): half})
        assert bodies(compiled)["gradients"].threads == (256, 1, 1)
    values, want = g.inputs(np.random.default_rng())
    got = run_emulated(compiled, values)
    assert all(chain_error(got[name], exact) < 1e-3 for name, exact in want.items())


SHARES = {
    "stored": "T.copy(dq, Z[0, 0])", "squared": "for i, j in T.Parallel(32, 32): T.atomic_add(Z[i, j], dq[i, j] * dq[i, j])",
    "not zero": "T.fill(dq, 1)", "the greatest": "for i, j in T.Parallel(32, 32): T.atomic_max(Z[i, j], dq[i, j])",
    "from elsewhere": "T.copy(Z[0, 0], dq)", "multiplied": "T.copy(dq, z_s)\nT.gemm(z_s, w_s, dq)",
}  # fmt: skip


@pytest.mark.parametrize("name", ["", *SHARES])
def test_other_uses_of_shares_tell(name: str) -> None:
    body = f"""s, w_s, z_s = (T.alloc_shared((n, 32), "float16") for n in (64, 32, 32))
dq = T.alloc_fragment((32, 32), "float32")
T.copy(x, s)
T.clear(dq)
{SHARES.get(name, "")}
T.gemm(s, s, dq, transpose_A=True)
for i, j in T.Parallel(32, 32): T.atomic_add(Z[i, j], dq[i, j])
{SHARES.get(name, "")}
{MOVED}x[i, j]"""
    assert (cut_blocks(launch_of(rows(body, ', Z: T.Tensor((32, 32), "float32")')), 2) is None) is bool(name)


def test_thirds_of_blocks_go_to_warp_groups() -> None:
    text = Attention(dim=256, bm=192, bn=64, seq=512, mask="none").source()
    half = next(n for n, r in enumerate(LADDERS["portable"]) if r.cut == 2)
    whole, compiled = at(text, {}, "sm_90a"), at(text, {("portable", "attention"): half}, "sm_90a")
    assert bodies(whole)["attention"].ladder != "stream" and bodies(compiled)["attention"].ladder == "stream"


def test_the_axis_that_leaves_the_least() -> None:
    wide, tall = (launch_of(Gemm(bm=m, bn=n, bk=32, sizes=(512, 512, 64)).source()) for m, n in ((64, 256), (256, 64)))
    for launch, axis in ((wide, 0), (tall, 1)):
        found = cut_blocks(launch, 2)
        assert found is not None and [static(a) == static(b) for a, b in zip(found.grid, launch.grid, strict=True)] == [axis != 0, axis != 1]


def test_parts_that_products_do_not_share_evenly() -> None:
    launch = launch_of(Gemm(bm=48, bn=48, bk=32, sizes=(96, 96, 64)).source())
    assert cut_blocks(launch, 2) is None and cut_blocks(launch, 3) is not None
