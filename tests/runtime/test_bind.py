"""Where arguments come from: files, -D, --arg, shapes; what does not fit is refused by name."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tilec.ir.dtypes import BFLOAT16, FLOAT16, FLOAT32, INT8, INT32
from tilec.ir.expr import Buffer, Const, Load, Scope, Var, VarKind
from tilec.ir.kernel import Kernel, Launch
from tilec.ir.tile import Seq, Store
from tilec.runtime.bind import bind, restrided, storable
from tilec.runtime.request import RunError, RunRequest

M, P = Var("M", INT32, VarKind.EXTENT), Var("P", INT32, VarKind.EXTENT)
FACTOR, COUNT = Var("factor", FLOAT32, VarKind.PARAM), Var("count", INT8, VarKind.PARAM)


def const(n: int) -> Const:
    return Const(n, INT32)


def kernel(strided: bool = False) -> Kernel:
    """X[M, 4] (read, perhaps with rows P apart) and Y[M, 4] (written), two scalars."""
    x = Buffer("X", BFLOAT16, (M, const(4)), Scope.GLOBAL, strides=(P, const(1)) if strided else None)
    y = Buffer("Y", FLOAT16, (M, const(4)), Scope.GLOBAL)
    at = (const(0), const(0))
    body = Seq((Store(y, at, Load(x, at)),))
    return Kernel("k", (x, FACTOR, y, COUNT), (M, P) if strided else (M,), (Launch((), (), (32, 1, 1), (), body),))


def request(**more: object) -> RunRequest:
    return RunRequest(**({"defines": {"M": 3, "factor": 2, "count": -5}} | more))  # type: ignore[arg-type]


def test_random_inputs_follow_the_seed_and_outputs_are_poisoned() -> None:
    one, same, other = (bind(kernel(), request(seed=s)) for s in (1, 1, 2))
    assert one.arrays["X"].dtype == ml_dtypes.bfloat16 and one.arrays["X"].shape == (3, 4)
    assert np.array_equal(one.arrays["X"], same.arrays["X"]) and not np.array_equal(one.arrays["X"], other.arrays["X"])
    assert np.isnan(one.arrays["Y"].astype(np.float32)).all()
    assert one.scalars == {"factor": 2.0, "count": -5} and one.extents == {"M": 3}


def test_files_are_cast_and_give_the_extents(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(20, dtype=np.float32).reshape(5, 4))
    np.save(tmp_path / "c.npy", np.int64(7))
    inputs = {"X": str(tmp_path / "x.npy"), "count": str(tmp_path / "c.npy")}
    bound = bind(kernel(), RunRequest(defines={"factor": 0.5}, inputs=inputs))
    assert bound.extents == {"M": 5} and bound.scalars["count"] == 7
    assert bound.arrays["X"].dtype == ml_dtypes.bfloat16 and bound.arrays["X"][4, 3] == 19
    assert bound.arrays["Y"].shape == (5, 4)


def test_arg_gives_extents() -> None:
    bound = bind(kernel(), RunRequest(defines={"factor": 1, "count": 1}, args={"X": ("bfloat16", (9, 4))}))
    assert bound.extents == {"M": 9}


def test_declared_strides_are_made() -> None:
    bound = bind(kernel(strided=True), request(defines={"M": 3, "P": 7, "factor": 1, "count": 1}))
    assert bound.arrays["X"].strides == (14, 2) and bound.copy().arrays["X"].strides == (14, 2)
    assert np.array_equal(bound.copy().arrays["X"], bound.arrays["X"])


@pytest.mark.parametrize(("change", "words"), [
    ({"defines": {"factor": 1, "count": 1}}, "M"), ({"defines": {"M": 3, "count": 1}}, "factor"), ({"defines": {"M": -1, "factor": 1, "count": 1}}, "negative"),
    ({"defines": {"M": 2.5, "factor": 1, "count": 1}}, "integer"), ({"defines": {"M": 3, "factor": "x", "count": 1}}, "factor"),
    ({"outputs": {"Z": "z.npy"}}, "`Z`"), ({"outputs": {"M": "m.npy"}}, "no tensor"), ({"inputs": {"X": "/nonexistent.npy"}}, "No such file"),
])  # fmt: skip
def test_what_is_missing_or_wrong_is_named(change: dict[str, object], words: str) -> None:
    with pytest.raises(RunError, match=words):
        bind(kernel(), request(**change))


@pytest.mark.parametrize("content", ["text", "shape", "objects", "names"])
def test_files_that_do_not_fit(tmp_path: Path, content: str) -> None:
    file = tmp_path / "x.npy"
    if content == "text":
        file.write_text("not an array")
    else:
        np.save(file, {"shape": np.zeros(3), "objects": np.array([object()]), "names": np.array([["a"]])}[content], allow_pickle=True)
    with pytest.raises(RunError, match="X"):
        bind(kernel(), request(inputs={"X": str(file)}))


def test_contradicting_extents_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((5, 4), np.float32))
    np.save(tmp_path / "y.npy", np.zeros((6, 4), np.float32))
    with pytest.raises(RunError, match=r"5|6"):
        bind(kernel(), RunRequest(defines={"factor": 1, "count": 1}, inputs={"X": str(tmp_path / "x.npy"), "Y": str(tmp_path / "y.npy")}))


def test_narrow_floats_travel_as_float32() -> None:
    values = np.array([1.5, -2.0], ml_dtypes.bfloat16)
    assert storable(values, BFLOAT16).dtype == np.float32 and np.array_equal(storable(values, BFLOAT16), [1.5, -2.0])
    assert storable(np.float16([1]), FLOAT16).dtype == np.float16
    assert storable(np.zeros((), np.float32), FLOAT32).shape == ()


def test_restriding_keeps_values_and_fills_gaps() -> None:
    a = np.arange(6, dtype=np.int32).reshape(2, 3)
    b = restrided(a, (20, 4))
    assert np.array_equal(a, b) and b.strides == (20, 4) and (b.base[12:20] == 0xFF).all()
