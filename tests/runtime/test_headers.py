"""Headers that an author's CUDA includes, under NVRTC: the standard ones, CUDA's own, and those that nobody has."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compiling import compile_text
from tests.features.kit import HEAD
from tests.toolchain import needs_nvcc, needs_nvrtc, nvcc_compile
from tilec.runtime import cubin, headers
from tilec.runtime.request import MissingError

TOOLKIT = Path("/usr/local/cuda/include")
needs_toolkit = pytest.mark.skipif(not (TOOLKIT / "cuda_fp16.h").is_file(), reason="no CUDA toolkit on this machine")
KERNEL = 'extern "C" __global__ void k(float* x) { *x = 1.0f; }\n'
CUDA = ("cuda_runtime.h", "cuda_fp16.h", "cuda_bf16.h", "cuda_fp8.h", "cuda/std/cstdint", "cuda/std/limits", "cuda/std/type_traits",
        "cuda/std/utility", "cuda/barrier", "mma.h", "cooperative_groups.h", "cuda_pipeline.h")  # fmt: skip

FACTS = """
#include <cstdint>
#include <cstddef>
#include <cfloat>
#include <climits>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>
#include <algorithm>
#include <stdint.h>
#include <float.h>
#include <math.h>
static_assert(sizeof(int8_t) == 1 && sizeof(uint16_t) == 2 && sizeof(std::int32_t) == 4 && sizeof(std::uint64_t) == 8, "");
static_assert(sizeof(uintptr_t) == sizeof(void*) && sizeof(std::ptrdiff_t) == 8 && sizeof(std::size_t) == 8 && sizeof(intmax_t) == 8, "");
static_assert(INT8_MIN == -128 && UINT16_MAX == 65535 && INT32_MIN + INT32_MAX == -1 && UINT32_MAX + 1 == 0, "");
static_assert(INT64_MIN < 0 && INT64_MAX == 9223372036854775807 && UINT64_MAX == 18446744073709551615u && UINT64_C(1) << 63 > 0, "");
static_assert(CHAR_BIT == 8 && SHRT_MIN == -32768 && INT_MIN < 0 && UINT_MAX == 4294967295u && LLONG_MAX == INT64_MAX && LONG_MIN < 0, "");
static_assert(FLT_MAX > 3.4028e38f && FLT_MAX == 3.402823466e38f && FLT_MIN < 1.1755e-38f && FLT_MANT_DIG == 24 && 1.0f + FLT_EPSILON > 1.0f, "");
static_assert(DBL_MAX > 1.797e308 && DBL_EPSILON == 1.0 / (1ull << 52) && DBL_DIG == 15 && FLT_TRUE_MIN > 0 && DBL_MIN_EXP == -1021, "");
static_assert(M_PI > 3.141592653589 && M_PI < 3.14159265359 && M_SQRT2 * M_SQRT2 > 1.9999999 && M_LN2 * M_LOG2E > 0.99999999, "");
using f = std::numeric_limits<float>;
using u = std::numeric_limits<std::uint16_t>;
static_assert(f::max() == FLT_MAX && f::lowest() == -FLT_MAX && f::infinity() > FLT_MAX && f::digits == 24 && f::min() == FLT_MIN, "");
static_assert(f::quiet_NaN() != f::quiet_NaN() && f::has_infinity && !f::is_integer && std::numeric_limits<double>::infinity() > 1e308, "");
static_assert(u::max() == 65535 && u::lowest() == 0 && u::is_integer && !u::is_signed && std::numeric_limits<long long>::min() < 0, "");
static_assert(std::is_same<std::remove_cv_t<const volatile int>, int>::value && std::is_same_v<std::remove_reference_t<int&&>, int>, "");
static_assert(std::is_same_v<std::decay_t<const int[3]>, const int*> && std::is_same_v<std::decay_t<const float&>, float>, "");
static_assert(std::is_same_v<std::conditional_t<true, int, float>, int> && std::is_same_v<std::make_unsigned_t<short>, unsigned short>, "");
static_assert(std::is_integral_v<const unsigned char> && !std::is_integral_v<float> && std::is_floating_point<double>::value, "");
static_assert(std::is_signed_v<int> && std::is_unsigned_v<unsigned long> && !std::is_signed_v<bool> && std::is_arithmetic_v<char>, "");
static_assert(std::is_pointer_v<int* const> && !std::is_pointer_v<int> && std::is_const_v<const int> && std::is_reference_v<int&>, "");
static_assert(std::is_trivially_copyable_v<int> && std::true_type::value && !std::is_void_v<int> && std::is_void_v<void>, "");
enum class E : short { a };
struct Base {};
struct Derived : Base { int x, y; };
static_assert(std::is_enum_v<E> && std::is_same_v<std::underlying_type_t<E>, short> && std::is_base_of_v<Base, Derived>, "");
static_assert(offsetof(Derived, y) == 4 && std::is_empty_v<Base> && std::is_class_v<Derived> && std::is_array_v<int[2]>, "");
template <class T, std::enable_if_t<std::is_integral_v<T>, int> = 0> __host__ __device__ constexpr int pick(T) { return 1; }
template <class T, std::enable_if_t<std::is_floating_point_v<T>, int> = 0> __host__ __device__ constexpr int pick(T) { return 2; }
template <class T> using sum_t = decltype(std::declval<T>() + std::declval<T>());
static_assert(std::is_same_v<sum_t<short>, int> && sizeof(std::void_t<int>*) == 8, "");
static_assert(std::is_same_v<std::make_index_sequence<3>, std::index_sequence<0, 1, 2>>, "");
static_assert(std::min(3, 2) == 2 && std::max(3, 2) == 3 && std::clamp(7, 0, 5) == 5 && std::clamp(-7, 0, 5) == 0, "");
extern "C" __global__ void k(float* x, std::int64_t n) {
  float a = x[0], b = x[1];
#ifdef __CUDACC_RTC__
  std::swap(a, b);  // the host's, under nvcc
#endif
  const std::pair<int, float> both{1, a};
  x[0] = std::sqrt(a) + std::fma(a, b, 1.0f) + fabsf(b) + std::max(a, std::min(b, both.second)) + std::move(b);
  if (std::isnan(a) || n == INT64_C(3)) x[1] = INFINITY;
}
"""


@pytest.fixture(autouse=True)
def only_nvrtc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(cubin, "find_nvcc", lambda: "")


@needs_nvrtc
def test_the_standard_headers_say_what_they_say_under_nvcc(tmp_path: Path) -> None:
    assert cubin.compile_cubin(FACTS, "sm_80").startswith(b"\x7fELF")
    with pytest.raises(cubin.BuildError, match=r"static assertion|static_assert"):
        cubin.compile_cubin(FACTS.replace("UINT16_MAX == 65535", "UINT16_MAX == 65534"), "sm_80")


@needs_nvcc
def test_the_facts_are_those_of_the_real_standard_library(tmp_path: Path) -> None:
    nvcc_compile(FACTS, "sm_80", tmp_path, "--expt-relaxed-constexpr", "-diag-suppress=177")


@needs_nvrtc
@pytest.mark.parametrize("turn", [1, -1])
def test_all_of_them_at_once_in_either_order(turn: int) -> None:
    names = [*headers.BUILT_IN, *(CUDA if (TOOLKIT / "cccl").is_dir() else ())][::turn]
    text = "".join(f"#include <{n}>\n" for n in names) + KERNEL
    assert cubin.compile_cubin(text, "sm_80").startswith(b"\x7fELF")


@needs_nvrtc
@pytest.mark.parametrize("name", ["algorithm", "cmath", "cstddef", "cstdint", "cstring", "limits", "utility"])
def test_each_alone(name: str) -> None:
    assert cubin.compile_cubin(f'#include "{name}"\n{KERNEL}', "sm_80")


@needs_nvrtc
def test_without_cudas_headers_the_error_names_the_header_and_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headers, "_installations", lambda: iter(()))
    assert cubin.compile_cubin(f"#include <stdint.h>\n#include <cuda_runtime.h>\n{KERNEL}", "sm_80")
    cases = {
        "cuda_fp16.h": "nvidia-cuda-runtime", "cuda/std/cstdint": "nvidia-cuda-cccl", "curand_kernel.h": "nvidia-curand",
        "mma.h": "nvidia-cuda", "mine.h": "put its text",
    }  # fmt: skip
    for name, advice in cases.items():
        with pytest.raises(cubin.BuildError, match=rf"<{name}> is not found(.|\n)*{advice}"):
            cubin.compile_cubin(f"#include <{name}>\n{KERNEL}", "sm_80")


@needs_nvrtc
@needs_nvcc
@needs_toolkit
def test_what_nvrtc_does_not_take_goes_to_nvcc(monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"#include <vector>\n#include <cstdio>\n{KERNEL}static int on_the_host() {{ return std::vector<int>{{1}}[0]; }}\n"
    with pytest.raises(cubin.BuildError, match="<vector> is not found"):
        cubin.compile_cubin(text, "sm_80")
    monkeypatch.undo()
    assert cubin.find_nvcc() and cubin.compile_cubin(text, "sm_80").startswith(b"\x7fELF")
    with pytest.raises(cubin.BuildError, match="nvcc refuses"):
        cubin.compile_cubin(f"{text}nonsense", "sm_80")
    with pytest.raises(cubin.BuildError, match=r"<mine.h> is not found(.|\n)*nvcc has no such file(.|\n)*put its text"):
        cubin.compile_cubin(f"#include <mine.h>\n{KERNEL}", "sm_80")
    with pytest.raises(cubin.BuildError, match="NVRTC refuses"):
        cubin.compile_cubin("nonsense", "sm_80")


def test_the_installation_that_has_all_headers_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    part, whole = tmp_path / "part" / "include", tmp_path / "whole" / "include"
    for folder, names in ((part, ["cuda_fp16.h"]), (whole, ["cuda_fp16.h", "cccl/cuda/std/cstdint"])):
        for n in names:
            (folder / n).parent.mkdir(parents=True, exist_ok=True)
            (folder / n).write_text("")
    monkeypatch.setattr(headers, "_installations", lambda: iter([[part], [whole]]))
    assert headers.folders(("cuda_fp16.h", "stdint.h")) == (part, whole, whole / "cccl")
    assert headers.folders(("cuda_fp16.h", "cuda/std/cstdint")) == (whole, whole / "cccl", part)
    assert headers.folders(("nowhere.h",)) == (part, whole, whole / "cccl")


@pytest.mark.parametrize("variable", ["CUDA_HOME", "CUDA_PATH"])
def test_the_folder_that_the_user_names_comes_first(variable: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "include").mkdir()
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.setenv(variable, str(tmp_path))
    assert headers.folders(())[:1] == (tmp_path / "include",) or not any(headers.folders(()))


SOURCE = HEAD + '''SRC = r"""
#include <stdint.h>
#include <cfloat>
#include <type_traits>
#ifndef PLAIN
#include <cuda_fp16.h>
#include <cuda/std/cstdint>
__device__ float half_of(float x) { return __half2float(__float2half(0.5f)) * x; }
#endif
__device__ float clipped(int32_t x) { static_assert(std::is_same<int32_t, int>::value, ""); return x < 0 ? -FLT_MAX : FLT_MAX; }
"""

@T.prim_func
def big(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        T.import_source(SRC)
        for i in T.Parallel(64):
            B[i] = T.call_extern("float32", "clipped", A[i])
'''


@needs_nvrtc
def test_a_kernel_whose_author_includes_headers_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    text = compile_text(SOURCE).cu
    assert headers.includes(text)[:3] == ("stdint.h", "cfloat", "type_traits")
    assert cubin.cubin(text if (TOOLKIT / "cccl").is_dir() else text.replace("#ifndef PLAIN", "#if 0"), "sm_80").startswith(b"\x7fELF")


def test_a_file_of_tilecs_own_asks_for_no_header(monkeypatch: pytest.MonkeyPatch) -> None:
    """The usual file costs no look-up of folders."""
    plain = HEAD + SOURCE[SOURCE.index("@T.prim_func") :].replace("        T.import_source(SRC)\n", "")
    text = compile_text(plain.replace('T.call_extern("float32", "clipped", A[i])', "A[i]")).cu
    assert "#include" in text and headers.includes(text) == ()
    monkeypatch.setattr(cubin, "nvrtc", lambda: None)
    with pytest.raises(MissingError):
        cubin.compile_cubin(text, "sm_80")
