"""Headers for NVRTC, which brings none: texts for the small standard ones, and the folders where CUDA's own lie.

    includes(text)  -> ("stdint.h", "cuda_fp16.h")
    folders(includes(text))  -> (Path("/usr/local/cuda/include"), Path("/usr/local/cuda/include/cccl"))
    BUILT_IN["stdint.h"]  -> "typedef int int32_t; …"

An author's CUDA text may include what it would include under nvcc. The standard library's texts hold what device code can use; NVRTC
has move, forward and initializer_list itself, and CUDA's headers take a 64-bit integer for a long long under it.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.MULTILINE)
_OWN = ("cuda_runtime.h", "cuda_runtime_api.h", "device_functions.h", "device_launch_parameters.h", "vector_functions.h", "vector_types.h")
_HOST_PART = "#ifndef __CUDACC_RTC__\n#include <cuda_runtime.h>\n#endif\n"
_NOT_FOUND = re.compile(r'(?:cannot|could not) open source file "([^"]+)"|fatal error: ([^:\n]+): No such file')
_PACKAGES = (
    ("cuda/", "nvidia-cuda-cccl"), ("cub/", "nvidia-cuda-cccl"), ("thrust/", "nvidia-cuda-cccl"), ("nv/", "nvidia-cuda-cccl"),
    ("curand", "nvidia-curand"), ("cuda", "nvidia-cuda-runtime"), ("cooperative_groups", "nvidia-cuda-runtime"),
    ("cu", "nvidia-cuda-runtime"), ("mma.h", "nvidia-cuda-crt"), ("crt/", "nvidia-cuda-crt"), ("math_constants.h", "nvidia-cuda-runtime"),
    ("sm_", "nvidia-cuda-runtime"), ("vector_", "nvidia-cuda-runtime"),
)  # fmt: skip


def includes(text: str) -> tuple[str, ...]:
    """The names that the include lines of a file give, each once; not the one that every file has for its host part."""
    return tuple(dict.fromkeys(_INCLUDE.findall(text.replace(_HOST_PART, ""))))


def built_in(found: tuple[Path, ...]) -> dict[str, str]:
    """The texts to give NVRTC beside these folders: the standard headers, and empty ones for names that stand for what it has itself."""
    return {**BUILT_IN, **{n: "" for n in _OWN if not any((f / n).is_file() for f in found)}}


def folders(names: tuple[str, ...]) -> tuple[Path, ...]:
    """Where CUDA's headers lie; the installation that has all of `names` comes first, since those of two releases may not fit."""
    sought = [n for n in names if n not in BUILT_IN and n not in _OWN]
    groups = [_with_libraries(g) for g in _installations()]
    whole = [g for g in groups if g and all(any((f / n).is_file() for f in g) for n in sought)]
    return tuple(dict.fromkeys(f for group in (*whole[:1], *groups) for f in group))


def missing(log: str, found: tuple[Path, ...] | None) -> str:
    """What to say of a compilation that failed for want of a header; empty if it failed for another reason. `found` are the folders
    that it was sought in, None for those that nvcc knows."""
    what = _NOT_FOUND.search(log)
    if not what:
        return ""
    name = what.group(1) or what.group(2)
    package = next((p for start, p in _PACKAGES if name.startswith(start)), "")
    advice = f"pip install {package}, or set CUDA_HOME to a CUDA toolkit" if package else "put its text into the CUDA source itself"
    if found is None:
        where = "nvcc has no such file"
    elif found:
        others = f" or in {len(found) - 1} other folders" if len(found) > 2 else "".join(f" or {f}" for f in found[1:])
        where = f"it is not in {found[0]}{others}"
    else:
        where = "no CUDA headers are on this machine"
    return f"the header <{name}> is not found, which the CUDA source includes: {where}\nhelp: {advice}"


def _with_libraries(group: list[Path]) -> tuple[Path, ...]:
    """The folders of an installation that are there, and those of its C++ libraries, which lie beside them since CUDA 13."""
    return tuple(f for g in group for f in (g, g / "cccl") if f.is_dir())


def _installations() -> Iterator[list[Path]]:
    """Folders of headers by installation: the one the user names, Python packages, nvcc's, the usual place, CuPy's own."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    if home:
        yield [Path(home) / "include"]
    paths = [Path(p) for p in dict.fromkeys(sys.path) if p]
    yield [f for p in paths for f in sorted(p.glob("nvidia/*/include"), reverse=True)]
    nvcc = shutil.which("nvcc")
    if nvcc:
        near = Path(nvcc).resolve().parent.parent / "include"
        yield [near] if (near / "cuda_runtime.h").is_file() else []
    yield [Path("/usr/local/cuda/include")]
    own = [p / "cupy" / "_core" / "include" / "cupy" for p in paths]
    yield [f for p in own for f in (*sorted(p.glob("_cuda/cuda-*"), reverse=True), p / "_cccl" / "libcudacxx", p / "_cccl" / "cub")]


_STDINT = """\
typedef signed char int8_t; typedef short int16_t; typedef int int32_t; typedef long long int64_t;
typedef unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned int uint32_t; typedef unsigned long long uint64_t;
typedef int8_t int_least8_t; typedef int16_t int_least16_t; typedef int32_t int_least32_t; typedef int64_t int_least64_t;
typedef uint8_t uint_least8_t; typedef uint16_t uint_least16_t; typedef uint32_t uint_least32_t; typedef uint64_t uint_least64_t;
typedef int8_t int_fast8_t; typedef int16_t int_fast16_t; typedef int32_t int_fast32_t; typedef int64_t int_fast64_t;
typedef uint8_t uint_fast8_t; typedef uint16_t uint_fast16_t; typedef uint32_t uint_fast32_t; typedef uint64_t uint_fast64_t;
typedef int64_t intptr_t; typedef uint64_t uintptr_t; typedef int64_t intmax_t; typedef uint64_t uintmax_t;
#define INT8_MIN (-128)
#define INT8_MAX 127
#define UINT8_MAX 255
#define INT16_MIN (-32768)
#define INT16_MAX 32767
#define UINT16_MAX 65535
#define INT32_MIN (-2147483647 - 1)
#define INT32_MAX 2147483647
#define UINT32_MAX 4294967295u
#define INT64_MIN (-9223372036854775807ll - 1)
#define INT64_MAX 9223372036854775807ll
#define UINT64_MAX 18446744073709551615ull
#define INTPTR_MIN INT64_MIN
#define INTPTR_MAX INT64_MAX
#define UINTPTR_MAX UINT64_MAX
#define INTMAX_MIN INT64_MIN
#define INTMAX_MAX INT64_MAX
#define UINTMAX_MAX UINT64_MAX
#define SIZE_MAX UINT64_MAX
#define PTRDIFF_MIN INT64_MIN
#define PTRDIFF_MAX INT64_MAX
#define INT8_C(x) x
#define INT16_C(x) x
#define INT32_C(x) x
#define INT64_C(x) x##ll
#define UINT8_C(x) x
#define UINT16_C(x) x
#define UINT32_C(x) x##u
#define UINT64_C(x) x##ull
#define INTMAX_C(x) x##ll
#define UINTMAX_C(x) x##ull
"""
_STDDEF = """\
typedef decltype(sizeof(0)) size_t;
typedef decltype(static_cast<char*>(nullptr) - static_cast<char*>(nullptr)) ptrdiff_t;
#define NULL 0
#define offsetof(type, member) __builtin_offsetof(type, member)
"""
_LIMITS = """\
#define CHAR_BIT 8
#define SCHAR_MIN (-128)
#define SCHAR_MAX 127
#define UCHAR_MAX 255
#define CHAR_MIN SCHAR_MIN
#define CHAR_MAX SCHAR_MAX
#define SHRT_MIN (-32768)
#define SHRT_MAX 32767
#define USHRT_MAX 65535
#define INT_MIN (-2147483647 - 1)
#define INT_MAX 2147483647
#define UINT_MAX 4294967295u
#define LONG_MIN (-9223372036854775807l - 1)
#define LONG_MAX 9223372036854775807l
#define ULONG_MAX 18446744073709551615ul
#define LLONG_MIN (-9223372036854775807ll - 1)
#define LLONG_MAX 9223372036854775807ll
#define ULLONG_MAX 18446744073709551615ull
"""
_FLOAT = """\
#define FLT_RADIX 2
#define FLT_MANT_DIG 24
#define FLT_DIG 6
#define FLT_DECIMAL_DIG 9
#define FLT_MIN_EXP (-125)
#define FLT_MAX_EXP 128
#define FLT_MIN_10_EXP (-37)
#define FLT_MAX_10_EXP 38
#define FLT_MAX 3.40282346638528859812e+38f
#define FLT_MIN 1.17549435082228750797e-38f
#define FLT_TRUE_MIN 1.40129846432481707092e-45f
#define FLT_EPSILON 1.1920928955078125e-7f
#define DBL_MANT_DIG 53
#define DBL_DIG 15
#define DBL_DECIMAL_DIG 17
#define DBL_MIN_EXP (-1021)
#define DBL_MAX_EXP 1024
#define DBL_MIN_10_EXP (-307)
#define DBL_MAX_10_EXP 308
#define DBL_MAX 1.7976931348623157e+308
#define DBL_MIN 2.2250738585072014e-308
#define DBL_TRUE_MIN 4.9406564584124654e-324
#define DBL_EPSILON 2.2204460492503131e-16
"""
_MATH = """\
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#define HUGE_VAL __longlong_as_double(0x7ff0000000000000ll)
#define HUGE_VALF INFINITY
#define M_E 2.7182818284590452354
#define M_LOG2E 1.4426950408889634074
#define M_LOG10E 0.43429448190325182765
#define M_LN2 0.69314718055994530942
#define M_LN10 2.30258509299404568402
#define M_PI 3.14159265358979323846
#define M_PI_2 1.57079632679489661923
#define M_PI_4 0.78539816339744830962
#define M_1_PI 0.31830988618379067154
#define M_2_PI 0.63661977236758134308
#define M_2_SQRTPI 1.12837916709551257390
#define M_SQRT2 1.41421356237309504880
#define M_SQRT1_2 0.70710678118654752440
"""
_TRAITS = """\
#define TILEC_TRAIT(name, ...) template <class T> inline constexpr bool name##_v = __VA_ARGS__; \\
  template <class T> struct name : bool_constant<name##_v<T>> {};
namespace std {
template <class T, T v> struct integral_constant {
  static constexpr T value = v;
  using value_type = T;
  using type = integral_constant;
  __host__ __device__ constexpr operator T() const { return v; }
  __host__ __device__ constexpr T operator()() const { return v; }
};
template <bool b> using bool_constant = integral_constant<bool, b>;
using true_type = bool_constant<true>;
using false_type = bool_constant<false>;
template <bool b, class T, class F> struct conditional { using type = T; };
template <class T, class F> struct conditional<false, T, F> { using type = F; };
template <bool b, class T, class F> using conditional_t = typename conditional<b, T, F>::type;
template <bool b, class T = void> struct enable_if {};
template <class T> struct enable_if<true, T> { using type = T; };
template <bool b, class T = void> using enable_if_t = typename enable_if<b, T>::type;
template <class...> using void_t = void;
template <class T, class U> inline constexpr bool is_same_v = false;
template <class T> inline constexpr bool is_same_v<T, T> = true;
template <class T, class U> struct is_same : bool_constant<is_same_v<T, U>> {};
template <class T> struct remove_const { using type = T; };
template <class T> struct remove_const<const T> { using type = T; };
template <class T> struct remove_volatile { using type = T; };
template <class T> struct remove_volatile<volatile T> { using type = T; };
template <class T> struct remove_cv { using type = typename remove_const<typename remove_volatile<T>::type>::type; };
template <class T> struct remove_reference { using type = T; };
template <class T> struct remove_reference<T&> { using type = T; };
template <class T> struct remove_reference<T&&> { using type = T; };
template <class T> struct remove_pointer { using type = T; };
template <class T> struct remove_pointer<T*> { using type = T; };
template <class T> struct remove_pointer<T* const> { using type = T; };
template <class T> struct remove_extent { using type = T; };
template <class T> struct remove_extent<T[]> { using type = T; };
template <class T, decltype(sizeof(0)) n> struct remove_extent<T[n]> { using type = T; };
template <class T> using remove_const_t = typename remove_const<T>::type;
template <class T> using remove_volatile_t = typename remove_volatile<T>::type;
template <class T> using remove_cv_t = typename remove_cv<T>::type;
template <class T> using remove_reference_t = typename remove_reference<T>::type;
template <class T> using remove_pointer_t = typename remove_pointer<T>::type;
template <class T> using remove_extent_t = typename remove_extent<T>::type;
template <class T> struct remove_cvref { using type = remove_cv_t<remove_reference_t<T>>; };
template <class T> using remove_cvref_t = typename remove_cvref<T>::type;
template <class T> struct add_const { using type = const T; };
template <class T> using add_const_t = const T;
template <class T> struct add_pointer { using type = remove_reference_t<T>*; };
template <class T> using add_pointer_t = typename add_pointer<T>::type;
template <class T> __host__ __device__ T&& declval() noexcept;
template <class T> inline constexpr bool is_array_v = false;
template <class T> inline constexpr bool is_array_v<T[]> = true;
template <class T, decltype(sizeof(0)) n> inline constexpr bool is_array_v<T[n]> = true;
template <class T> struct is_array : bool_constant<is_array_v<T>> {};
template <class T> struct decay {
  using bare = remove_reference_t<T>;
  using type = conditional_t<is_array_v<bare>, remove_extent_t<bare>*, remove_cv_t<bare>>;
};
template <class T> using decay_t = typename decay<T>::type;
template <class T, class... Ts> inline constexpr bool among_types_v = (is_same_v<remove_cv_t<T>, Ts> || ...);
TILEC_TRAIT(is_void, is_same_v<remove_cv_t<T>, void>)
TILEC_TRAIT(is_floating_point, among_types_v<T, float, double, long double>)
TILEC_TRAIT(is_integral, among_types_v<T, bool, char, signed char, unsigned char, wchar_t, char16_t, char32_t, short, unsigned short, int,
                                       unsigned, long, unsigned long, long long, unsigned long long>)
TILEC_TRAIT(is_arithmetic, is_integral_v<T> || is_floating_point_v<T>)
TILEC_TRAIT(is_enum, __is_enum(T))
TILEC_TRAIT(is_class, __is_class(T))
TILEC_TRAIT(is_union, __is_union(T))
TILEC_TRAIT(is_empty, __is_empty(T))
TILEC_TRAIT(is_trivially_copyable, __is_trivially_copyable(T))
TILEC_TRAIT(is_standard_layout, __is_standard_layout(T))
template <class T> inline constexpr bool is_pointer_v = !is_same_v<remove_pointer_t<remove_cv_t<T>>, remove_cv_t<T>>;
template <class T> struct is_pointer : bool_constant<is_pointer_v<T>> {};
template <class T> inline constexpr bool is_const_v = !is_same_v<remove_const_t<T>, T>;
template <class T> struct is_const : bool_constant<is_const_v<T>> {};
template <class T> inline constexpr bool is_reference_v = !is_same_v<remove_reference_t<T>, T>;
template <class T> struct is_reference : bool_constant<is_reference_v<T>> {};
template <class T, bool = is_arithmetic_v<T>> inline constexpr bool is_signed_v = T(-1) < T(0);
template <class T> inline constexpr bool is_signed_v<T, false> = false;
template <class T> struct is_signed : bool_constant<is_signed_v<T>> {};
template <class T> inline constexpr bool is_unsigned_v = is_arithmetic_v<T> && !is_signed_v<T>;
template <class T> struct is_unsigned : bool_constant<is_unsigned_v<T>> {};
template <class B, class D> inline constexpr bool is_base_of_v = __is_base_of(B, D);
template <class B, class D> struct is_base_of : bool_constant<is_base_of_v<B, D>> {};
template <int bytes, bool is_signed> struct integer_of;
template <> struct integer_of<1, true> { using type = signed char; };
template <> struct integer_of<2, true> { using type = short; };
template <> struct integer_of<4, true> { using type = int; };
template <> struct integer_of<8, true> { using type = long; };
template <> struct integer_of<1, false> { using type = unsigned char; };
template <> struct integer_of<2, false> { using type = unsigned short; };
template <> struct integer_of<4, false> { using type = unsigned; };
template <> struct integer_of<8, false> { using type = unsigned long; };
template <class T> struct make_signed : integer_of<sizeof(T), true> {};
template <class T> struct make_unsigned : integer_of<sizeof(T), false> {};
template <> struct make_signed<long long> { using type = long long; };
template <> struct make_signed<unsigned long long> { using type = long long; };
template <> struct make_unsigned<long long> { using type = unsigned long long; };
template <> struct make_unsigned<unsigned long long> { using type = unsigned long long; };
template <class T> using make_signed_t = typename make_signed<T>::type;
template <class T> using make_unsigned_t = typename make_unsigned<T>::type;
template <class T> struct underlying_type { using type = __underlying_type(T); };
template <class T> using underlying_type_t = typename underlying_type<T>::type;
}
#undef TILEC_TRAIT
"""
_UTILITY = """\
#include <type_traits>
namespace std {
template <class T> __host__ __device__ constexpr void swap(T& a, T& b) {
  T kept = move(a);
  a = move(b);
  b = move(kept);
}
template <class A, class B> struct pair { A first; B second; };
template <class T, T... n> struct integer_sequence {
  static __host__ __device__ constexpr decltype(sizeof(0)) size() { return sizeof...(n); }
};
template <decltype(sizeof(0))... n> using index_sequence = integer_sequence<decltype(sizeof(0)), n...>;
template <int left, class T, T... n> struct sequence_to : sequence_to<left - 1, T, left - 1, n...> {};
template <class T, T... n> struct sequence_to<0, T, n...> { using type = integer_sequence<T, n...>; };
template <class T, T n> using make_integer_sequence = typename sequence_to<n, T>::type;
template <decltype(sizeof(0)) n> using make_index_sequence = make_integer_sequence<decltype(sizeof(0)), n>;
}
"""
_ALGORITHM = """\
#include <utility>
namespace std {
template <class T> __host__ __device__ constexpr const T& min(const T& a, const T& b) { return b < a ? b : a; }
template <class T> __host__ __device__ constexpr const T& max(const T& a, const T& b) { return a < b ? b : a; }
template <class T> __host__ __device__ constexpr const T& clamp(const T& x, const T& low, const T& high) {
  return x < low ? low : high < x ? high : x;
}
}
"""
_NUMERIC_LIMITS = """\
#include <float.h>
#include <limits.h>
#include <math.h>
namespace std {
template <class T> struct numeric_limits { static constexpr bool is_specialized = false; };
#define TILEC_INTEGER(T, low, high, is_sign, bits) template <> struct numeric_limits<T> { \\
  static constexpr bool is_specialized = true, is_integer = true, is_signed = is_sign, has_infinity = false; \\
  static constexpr int digits = bits, radix = 2; \\
  static __host__ __device__ constexpr T min() { return low; } \\
  static __host__ __device__ constexpr T lowest() { return low; } \\
  static __host__ __device__ constexpr T max() { return high; } };
TILEC_INTEGER(bool, false, true, false, 1)
TILEC_INTEGER(char, CHAR_MIN, CHAR_MAX, true, 7)
TILEC_INTEGER(signed char, SCHAR_MIN, SCHAR_MAX, true, 7)
TILEC_INTEGER(unsigned char, 0, UCHAR_MAX, false, 8)
TILEC_INTEGER(short, SHRT_MIN, SHRT_MAX, true, 15)
TILEC_INTEGER(unsigned short, 0, USHRT_MAX, false, 16)
TILEC_INTEGER(int, INT_MIN, INT_MAX, true, 31)
TILEC_INTEGER(unsigned, 0, UINT_MAX, false, 32)
TILEC_INTEGER(long, LONG_MIN, LONG_MAX, true, 63)
TILEC_INTEGER(unsigned long, 0, ULONG_MAX, false, 64)
TILEC_INTEGER(long long, LLONG_MIN, LLONG_MAX, true, 63)
TILEC_INTEGER(unsigned long long, 0, ULLONG_MAX, false, 64)
#undef TILEC_INTEGER
#define TILEC_REAL(T, name, bits, inf, nan) template <> struct numeric_limits<T> { \\
  static constexpr bool is_specialized = true, is_integer = false, is_signed = true, has_infinity = true; \\
  static constexpr int digits = bits, radix = 2; \\
  static __host__ __device__ constexpr T min() { return name##_MIN; } \\
  static __host__ __device__ constexpr T lowest() { return -name##_MAX; } \\
  static __host__ __device__ constexpr T max() { return name##_MAX; } \\
  static __host__ __device__ constexpr T epsilon() { return name##_EPSILON; } \\
  static __host__ __device__ constexpr T denorm_min() { return name##_TRUE_MIN; } \\
  static __host__ __device__ constexpr T infinity() { return inf; } \\
  static __host__ __device__ constexpr T quiet_NaN() { return nan; } };
TILEC_REAL(float, FLT, 24, __builtin_bit_cast(float, 0x7f800000), __builtin_bit_cast(float, 0x7fc00000))
TILEC_REAL(double, DBL, 53, __builtin_bit_cast(double, 0x7ff0000000000000l),
           __builtin_bit_cast(double, 0x7ff8000000000000l))
#undef TILEC_REAL
}
"""


def _c(text: str) -> str:
    """A C header: CUDA's own headers may have defined some of the same macros, in their words."""
    return re.sub(r"^#define (\w+).*$", r"#ifndef \1\n\g<0>\n#endif", text, flags=re.MULTILINE)


def _std(header: str, names: str) -> str:
    """The C++ twin of a C header: the same names in the standard namespace too."""
    return f"#include <{header}>\nnamespace std {{ {' '.join(f'using ::{n};' for n in names.split())} }}\n"


_SIZED = " ".join(f"{u}int{k}{w}_t" for u in ("", "u") for k in ("", "_least", "_fast") for w in (8, 16, 32, 64))
_FUNCTIONS = """abs fabs sqrt cbrt exp exp2 expm1 log log2 log10 log1p pow sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh
erf erfc tgamma lgamma ceil floor trunc round rint nearbyint fmod remainder fma fmin fmax fdim hypot copysign ldexp frexp modf isnan isinf
isfinite signbit"""
_TEXTS = {
    "stdint.h": _c(_STDINT), "stddef.h": _c(_STDDEF), "limits.h": _c(_LIMITS), "float.h": _c(_FLOAT), "math.h": _c(_MATH),
    "stdbool.h": "", "stdio.h": "", "assert.h": "", "string.h": "#include <stddef.h>\n", "stdlib.h": "#include <stddef.h>\n",
    "cstdint": _std("stdint.h", f"{_SIZED} intptr_t uintptr_t intmax_t uintmax_t"),
    "cstddef": _std("stddef.h", "size_t ptrdiff_t") + "namespace std { enum class byte : unsigned char {}; }\n",
    "climits": "#include <limits.h>\n", "cfloat": "#include <float.h>\n", "cmath": _std("math.h", _FUNCTIONS),
    "cstdio": _std("stdio.h", "printf"), "cassert": "#include <assert.h>\n", "cstring": _std("string.h", "size_t memcpy memset"),
    "cstdlib": _std("stdlib.h", "size_t abs"), "type_traits": _TRAITS, "utility": _UTILITY, "algorithm": _ALGORITHM,
    "limits": _NUMERIC_LIMITS, "initializer_list": "", "new": "",
}  # fmt: skip
BUILT_IN = {name: f"#pragma once\n{text}" for name, text in _TEXTS.items()}
