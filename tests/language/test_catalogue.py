"""The names an author reaches, the nearest name, and the page made from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.language.kit import call, kernel_builder
from tilec.ir.dtypes import DType, lookup
from tilec.language.bind import State, invoke, nearest, parameters, signature
from tilec.language.builder import Builder
from tilec.language.catalogue import entries, modules, suggest
from tilec.language.reference import render
from tilec.language.values import Marker, Namespace, Primitive
from tilec.targets import SM80

ROOT = Path(__file__).resolve().parents[2]
SPINE = """
Kernel Tensor StridedTensor Buffer empty const dynamic symbolic alloc_shared alloc_fragment alloc_local alloc_var copy fill clear gemm
reduce_sum reduce_max reduce_min reduce_absmax reduce_abssum reduce_any reduce_all reduce_bitand reduce_bitor reduce_bitxor cumsum cummax
Pipelined Parallel serial unroll vectorized grid Persistent if_then_else exp exp2 exp10 log log2 log10 sqrt rsqrt sin cos tan tanh sigmoid
erf floor ceil round trunc nearbyint abs pow fma clamp min max isnan isinf isfinite infinity popcount clz floordiv floormod truncdiv
truncmod ceildiv shift_left shift_right bitwise_and bitwise_or bitwise_xor bitwise_not cast Cast reinterpret use_swizzle annotate_layout
annotate_safe_value view reshape get_thread_binding get_block_binding thread_binding sync_threads sync_warp atomic_add atomic_max atomic_min
atomic_and atomic_or atomic_xor print device_assert assume
""".split()


def test_the_spine_is_there() -> None:
    language = modules()["tilelang.language"].members
    states = {e.name: e.state for _, e in entries()}
    assert [n for n in SPINE if not isinstance(language.get(n), Primitive)] == []
    assert [n for n in SPINE if states[n] is State.REFUSED] == []


def test_modules() -> None:
    spaces = modules()
    root = spaces["tilelang"].members
    assert root["copy"] is not None and isinstance(root["jit"], Marker) and isinstance(root["language"], Namespace)
    assert root["carver"].members["arch"].members["driver"].members["get_num_sms"].call(Builder(target=SM80), (), {}) == 108
    assert root["math"].members["next_power_of_2"].call(Builder(), (65,), {}) == 128
    assert root["cdiv"].call(Builder(), (7, 2), {}) == 4
    assert root["align_up"].call(Builder(), (7, 4), {}) == 8
    assert spaces["torch"].members["half"] is lookup("float16")
    assert spaces["tvm"].members["tirx"].members["const"].call(Builder(), (3, "int8"), {}).dtype == lookup("int8")
    assert isinstance(spaces["tilec.language"].members["bool"], DType)
    assert spaces["tilelang.language"].members["dtype"].call(Builder(), ("bfloat16",), {}).bits == 16


@pytest.mark.parametrize(
    ("typo", "wanted"),
    [("cpoy", "copy"), ("alloc_frag", "alloc_fragment"), ("Pipeline", "Pipelined"), ("flaot16", "float16"), ("qqqqqq", None)],
)
def test_the_nearest_name(typo: str, wanted: str | None) -> None:
    assert suggest(modules()["tilelang.language"], typo) == wanted


def test_keywords() -> None:
    assert nearest("transposeB", ["A", "transpose_A", "transpose_B"]) == "transpose_B"
    b = kernel_builder()
    assert call(b, "alloc_shared", dtype="int8", shape=(4,)).dtype == lookup("int8")


def test_binding_reads_python_signatures() -> None:
    def fn(b: Builder, x: int, y: int = 2, *rest: int, z: int, w: str = "s", **more: int) -> tuple[object, ...]:
        return x, y, rest, z, w, more

    assert parameters(fn) == (("x", "y"), ("z", "w"), 1)  # type: ignore[arg-type]
    assert signature("f", fn) == 'f(x, y=2, *rest, z, w="s", **more)'  # type: ignore[arg-type]
    assert invoke("f", fn, Builder(), (1, 5, 6), {"z": 3, "q": 4}) == (1, 5, (6,), 3, "s", {"q": 4})  # type: ignore[arg-type]


def test_every_name_has_a_line_of_documentation() -> None:
    bare = [e.name for _, e in entries() if e.state is not State.REFUSED and not e.doc.endswith(".")]
    assert bare == []
    assert [e.name for _, e in entries() if e.state is State.REFUSED and not e.instead] == []


def test_no_name_is_declared_twice() -> None:
    names = [e.name for _, e in entries()]
    assert sorted({n for n in names if names.count(n) > 1}) == []


def test_the_page_is_up_to_date() -> None:
    page = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")
    assert page == render(), "run: python -c 'from tilec.language.reference import render; print(render(), end=\"\")' > docs/language.md"
