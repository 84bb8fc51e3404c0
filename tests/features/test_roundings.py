"""Casts without saturation, and rounding away from zero."""

from __future__ import annotations

from fractions import Fraction

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


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_operations_with_a_rounding_of_their_own(dtype: str) -> None:
    modes = ("rn", "rz", "ru", "rd")
    binary = [(f"ieee_{op}", "x, y") for op in ("add", "sub", "mul", "fdiv")]
    calls = [*binary, ("ieee_fmaf", "x, y, z"), ("ieee_fsqrt", "T.abs(x)"), ("ieee_frcp", "y")]
    lines = "\n".join(
        f"        R[{m}, {n}, i] = T.{name}({args}, rounding_mode='{mode}')"
        for m, mode in enumerate(modes)
        for n, (name, args) in enumerate(calls)
    )
    text = f"""
@T.prim_func
def k(X: T.Tensor((128,), "{dtype}"), Y: T.Tensor((128,), "{dtype}"), Z: T.Tensor((128,), "{dtype}"), R: T.Tensor((4, 7, 128), "{dtype}")):
    with T.Kernel(1, threads=128):
        i = T.get_thread_binding()
        x, y, z = X[i], Y[i], Z[i]
{lines}
"""
    rng = np.random.default_rng()
    x, y, z = ((rng.standard_normal(128) * 10.0 ** rng.integers(-12, 12, 128)).astype(dtype) for _ in range(3))
    z[:64] = -(x * y)[:64]
    want = np.stack([np.stack([_fractions(op, mode, x, y, z) for op in "+-*/fsr"]) for mode in modes]).astype(dtype)
    check(text, {"X": x, "Y": y, "Z": z, "R": poison((4, 7, 128), dtype)}, {"R": want})


def _fractions(op: str, mode: str, *values: np.ndarray) -> list[float]:
    """The true results as fractions, rounded by hand; roots are compared by their squares."""
    kind = values[0].dtype.type
    out = []
    for numbers in zip(*values, strict=True):
        x, y, z = (Fraction(float(v)) for v in numbers)
        if op == "s":
            near = np.sqrt(kind(abs(numbers[0])))
            off = abs(x) - Fraction(float(near)) ** 2
        else:
            true = {"+": x + y, "-": x - y, "*": x * y, "/": x / y, "f": x * y + z, "r": 1 / y}[op]
            near = kind(float(true)) if kind is np.float64 else _nearest32(true)
            off = true - Fraction(float(near))
        up = mode == "ru" or (mode == "rz" and near < 0)
        down = mode == "rd" or (mode == "rz" and near > 0)
        out.append(np.nextafter(near, kind(np.inf)) if up and off > 0 else np.nextafter(near, kind(-np.inf)) if down and off < 0 else near)
    return out


def _nearest32(true: Fraction) -> np.float32:
    """The float32 nearest to a fraction, ties to even."""
    guess = np.float32(float(true))
    around = (guess, np.nextafter(guess, np.float32(np.inf)), np.nextafter(guess, np.float32(-np.inf)))
    return min(around, key=lambda v: (abs(Fraction(float(v)) - true), int(v.view(np.uint32)) & 1))
