"""Casts without saturation, and rounding away from zero."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.features.kit import check, poison


@pytest.mark.parametrize(("kind", "own"), [("float8_e4m3fn", ml_dtypes.float8_e4m3fn), ("float8_e5m2", ml_dtypes.float8_e5m2)])
def test_casts_to_8_bits_without_saturation(kind: str, own: type) -> None:
    text = f"""
@T.prim_func
def k(A: T.Tensor((256,), "float32"), B: T.Tensor((256,), "{kind}"), C: T.Tensor((256,), "{kind}")):
    with T.Kernel(1, threads=256):
        i = T.get_thread_binding()
        B[i] = T.cast(A[i], "{kind}", sat=False)
        C[i] = T.cast(A[i], "{kind}")
"""
    rng = np.random.default_rng(5)
    a = (rng.standard_normal(256) * 10.0 ** rng.integers(-3, 7, 256)).astype(np.float32)
    a[:12] = [448, 464, 465, 480, 57344, 61439, 61440, 65536, -465, -61440, np.inf, np.nan]
    limit = np.float32(ml_dtypes.finfo(own).max)
    values = {"A": a, "B": np.zeros(256, own), "C": np.zeros(256, own)}
    want = {"B": a.astype(own), "C": np.clip(a, -limit, limit).astype(own)}
    check(text, values, {k: v.astype(np.float64) for k, v in want.items()}, tolerance=1e-12)


def test_ties_go_away_from_zero() -> None:
    text = """
@T.prim_func
def k(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32"), C: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        i = T.get_thread_binding()
        B[i] = T.round(A[i], rounding_mode="ties-away-from-zero")
        C[i] = T.round(A[i])
"""
    rng = np.random.default_rng(6)
    a = (rng.integers(-40, 40, 64) / 2).astype(np.float32)
    a[:4] = [0.49999997, -0.49999997, 8388609.0, -0.5]
    away = np.copysign(np.floor(np.abs(a.astype(np.float64)) + 0.5), a).astype(np.float32)
    check(text, {"A": a, "B": poison((64,), np.float32), "C": poison((64,), np.float32)}, {"B": away, "C": np.rint(a)})
