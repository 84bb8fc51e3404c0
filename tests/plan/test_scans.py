"""Running sums and maxima: every way in which a line can lie over registers, lanes, warps and passes."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
import pytest

from tests.compiling import MODES, compile_text, run_emulated, run_reference
from tests.toolchain import needs_gxx
from tilec.plan.scans import line_of, scan_layout

KERNEL = """import tilelang.language as T

@T.prim_func
def f(A: T.Tensor({shape}, "{dtype}"), B: T.Tensor({shape}, "{dtype}")):
    with T.Kernel(1, threads={threads}) as bx:
        a = T.alloc_{scope}({shape}, "{dtype}")
        T.copy(A, a)
        for step in T.serial(2):
            T.cum{op}(a, dim={dim}, reverse={reverse})
        T.copy(a, B)
"""
CASES = [
    ((16, 64), 1, 64, "float32", "shared"), ((16, 64), 0, 128, "float32", "fragment"), ((1000,), 0, 128, "int32", "fragment"),
    ((3000,), 0, 64, "int32", "shared"), ((5, 300), 1, 96, "int32", "fragment"), ((3, 40, 8), 1, 64, "int32", "shared"),
    ((2, 1030), 1, 256, "int32", "fragment"), ((100, 3), 0, 32, "int32", "shared"), ((4, 12), 1, 48, "int32", "shared"),
    ((2, 700), 0, 32, "int32", "fragment"), ((700, 2), 0, 256, "int64", "fragment"),
]  # fmt: skip


@needs_gxx
@pytest.mark.parametrize(("shape", "dim", "threads", "dtype", "scope"), CASES)
def test_scans(shape: tuple[int, ...], dim: int, threads: int, dtype: str, scope: str) -> None:
    """Sums forwards and maxima backwards, twice over, in exact numbers."""
    a = np.random.default_rng().integers(-9, 10, shape).astype(dtype)
    for op, reverse in (("sum", False), ("max", True), ("sum", True)):
        text = KERNEL.format(shape=shape, dim=dim, threads=threads, dtype=dtype, scope=scope, op=op, reverse=reverse)
        compiled = compile_text(text)
        function = np.cumsum if op == "sum" else np.maximum.accumulate
        want = np.flip(a, dim) if reverse else a
        for _ in range(2):
            want = function(want, axis=dim)
        want = np.flip(want, dim) if reverse else want
        values = {"A": a, "B": np.full_like(a, 77)}
        for got in (run_reference(compiled, values), run_emulated(compiled, values, list(MODES)[reverse])):
            assert np.array_equal(got["B"], want), (op, reverse)


@pytest.mark.parametrize("threads", [32, 96, 128, 256])
def test_layouts_hold_every_element_in_the_order_of_the_line(threads: int) -> None:
    """Each element has a thread; along a line come the run, then lanes, then warps, then passes."""
    for shape, dim in product([(64,), (7,), (1000,), (8, 32), (5, 300), (300, 5), (3, 4, 50)], range(3)):
        if dim >= len(shape) or (layout := scan_layout(shape, dim, threads, 4)) is None:
            continue
        assert len({index for _, _, index in layout.table()}) == prod(shape)
        line = line_of(layout, dim)
        assert line.run * line.lanes * line.warps * line.passes >= shape[dim]
        assert line.lanes * line.place <= 32 or line.lanes == 1
