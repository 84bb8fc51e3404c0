"""The generated CUDA on the emulator, the NumPy meaning of the Tile IR and float64 give one answer for the whole table."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.compiling import compile_text, run_emulated, run_reference
from tests.gemm.variants import GemmVariant, defines, source, table
from tests.toolchain import needs_gxx
from tilec.ir.dtypes import DType, lookup
from tilec.reference.compare import compare, tolerance
from tilec.reference.inputs import poisoned

TABLE = table()


def dtype(name: str) -> DType:
    found = lookup(name)
    assert found is not None
    return found


def inputs(v: GemmVariant, seed: int) -> dict[str, Any]:
    """Fresh random operands, a poisoned result, and the sizes that the row's launcher takes."""
    rng = np.random.default_rng(seed)

    def fresh(shape: tuple[int, int]) -> Any:
        if v.dtype == "int8":
            return rng.integers(-128, 128, shape).astype(np.int8)
        if v.exact_inputs:
            return rng.integers(-64, 65, shape).astype(v.dtype)
        return rng.standard_normal(shape).astype(ml_dtypes.bfloat16 if v.dtype == "bfloat16" else v.dtype)

    m, n, k = v.size
    sizes = {"M": m, "N": n, "K": k} if v.dynamic else {}
    return {"A": fresh(v.a_shape), "B": fresh(v.b_shape), "C": poisoned(dtype(v.result), (m, n)), **sizes}


def limit(v: GemmVariant) -> float:
    return tolerance(dtype(v.result), max(1, v.size[2]), dtype(v.dtype), dtype(v.accumulator))


def test_the_table_covers_what_it_promises() -> None:
    assert len(set(TABLE)) >= 150 and len({v.name for v in TABLE}) == len(TABLE)
    assert {v.form for v in TABLE} == {"prim_func", "factory", "lazy", "eager", "implicit"}
    assert {(v.trans_a, v.trans_b) for v in TABLE} == {(a, b) for a in (False, True) for b in (False, True)}
    assert {v.stages for v in TABLE} == set(range(5)) and {v.threads for v in TABLE} == {64, 128, 256}


@needs_gxx
@pytest.mark.parametrize("row", range(len(TABLE)), ids=[v.name for v in TABLE])
def test_variant(row: int) -> None:
    v = TABLE[row]
    compiled = compile_text(source(v), defines(v))
    values = inputs(v, seed=row)
    a, b = (np.asarray(values[n], np.float64) for n in "AB")
    exact = (a.T if v.trans_a else a) @ (b.T if v.trans_b else b)
    result = dtype(v.result)
    assert compare(run_reference(compiled, values)["C"], exact, result, limit=limit(v)) is None
    for mode in ("lazy", "eager"):
        assert compare(run_emulated(compiled, values, mode)["C"], exact, result, limit=limit(v)) is None
