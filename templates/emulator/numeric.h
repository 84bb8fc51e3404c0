// The host twins of prelude/types.cuh and prelude/numeric.cuh, and the functions that CUDA declares by itself.
// Portable C++ without a standard header: equal signatures, equal results bit for bit (mathematical functions to a few ulp).
// Don't include <math.h> or <cmath> in the same translation unit: fminf and the like are spelled out here.
#pragma once

extern "C" {
float expf(float) noexcept;
double exp(double) noexcept;
float exp2f(float) noexcept;
double exp2(double) noexcept;
float exp10f(float) noexcept;
double exp10(double) noexcept;
float logf(float) noexcept;
double log(double) noexcept;
float log2f(float) noexcept;
double log2(double) noexcept;
float log10f(float) noexcept;
double log10(double) noexcept;
float log1pf(float) noexcept;
double log1p(double) noexcept;
float expm1f(float) noexcept;
double expm1(double) noexcept;
float sqrtf(float) noexcept;
double sqrt(double) noexcept;
float cbrtf(float) noexcept;
double cbrt(double) noexcept;
float sinf(float) noexcept;
double sin(double) noexcept;
float cosf(float) noexcept;
double cos(double) noexcept;
float tanf(float) noexcept;
double tan(double) noexcept;
float asinf(float) noexcept;
double asin(double) noexcept;
float acosf(float) noexcept;
double acos(double) noexcept;
float atanf(float) noexcept;
double atan(double) noexcept;
float sinhf(float) noexcept;
double sinh(double) noexcept;
float coshf(float) noexcept;
double cosh(double) noexcept;
float tanhf(float) noexcept;
double tanh(double) noexcept;
float asinhf(float) noexcept;
double asinh(double) noexcept;
float acoshf(float) noexcept;
double acosh(double) noexcept;
float atanhf(float) noexcept;
double atanh(double) noexcept;
float erff(float) noexcept;
double erf(double) noexcept;
float erfcf(float) noexcept;
double erfc(double) noexcept;
float floorf(float) noexcept;
double floor(double) noexcept;
float ceilf(float) noexcept;
double ceil(double) noexcept;
float truncf(float) noexcept;
double trunc(double) noexcept;
float rintf(float) noexcept;
double rint(double) noexcept;
float fabsf(float) noexcept;
double fabs(double) noexcept;
float lgammaf(float) noexcept;
double lgamma(double) noexcept;
float tgammaf(float) noexcept;
double tgamma(double) noexcept;
float powf(float, float) noexcept;
double pow(double, double) noexcept;
float atan2f(float, float) noexcept;
double atan2(double, double) noexcept;
float fmodf(float, float) noexcept;
double fmod(double, double) noexcept;
float hypotf(float, float) noexcept;
double hypot(double, double) noexcept;
float copysignf(float, float) noexcept;
double copysign(double, double) noexcept;
float nextafterf(float, float) noexcept;
double nextafter(double, double) noexcept;
float fmaf(float, float, float) noexcept;
double fma(double, double, double) noexcept;
float ldexpf(float, int) noexcept;
double ldexp(double, int) noexcept;
}

// Operations with a rounding of their own; `mode`: 1 to zero, 2 up, 3 down. (runtime/roundings.cpp)
float tilec_rounded(char op, int mode, float a, float b, float c) noexcept;
double tilec_rounded(char op, int mode, double a, double b, double c) noexcept;
#define TILEC_ROUNDED(mode, number)                                                                      \
  inline float __fadd_##mode(float a, float b) { return tilec_rounded('+', number, a, b, 0.0f); }        \
  inline float __fsub_##mode(float a, float b) { return tilec_rounded('-', number, a, b, 0.0f); }        \
  inline float __fmul_##mode(float a, float b) { return tilec_rounded('*', number, a, b, 0.0f); }        \
  inline float __fdiv_##mode(float a, float b) { return tilec_rounded('/', number, a, b, 0.0f); }        \
  inline float __fsqrt_##mode(float a) { return tilec_rounded('s', number, a, 0.0f, 0.0f); }             \
  inline double __dadd_##mode(double a, double b) { return tilec_rounded('+', number, a, b, 0.0); }      \
  inline double __dsub_##mode(double a, double b) { return tilec_rounded('-', number, a, b, 0.0); }      \
  inline double __dmul_##mode(double a, double b) { return tilec_rounded('*', number, a, b, 0.0); }      \
  inline double __ddiv_##mode(double a, double b) { return tilec_rounded('/', number, a, b, 0.0); }      \
  inline double __dsqrt_##mode(double a) { return tilec_rounded('s', number, a, 0.0, 0.0); }
TILEC_ROUNDED(rz, 1)
TILEC_ROUNDED(ru, 2)
TILEC_ROUNDED(rd, 3)
#undef TILEC_ROUNDED
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __dsqrt_rn(double a) { return sqrt(a); }
inline float __fmaf_rz(float a, float b, float c) { return tilec_rounded('f', 1, a, b, c); }
inline float __fmaf_ru(float a, float b, float c) { return tilec_rounded('f', 2, a, b, c); }
inline float __fmaf_rd(float a, float b, float c) { return tilec_rounded('f', 3, a, b, c); }
inline double __fma_rz(double a, double b, double c) { return tilec_rounded('f', 1, a, b, c); }
inline double __fma_ru(double a, double b, double c) { return tilec_rounded('f', 2, a, b, c); }
inline double __fma_rd(double a, double b, double c) { return tilec_rounded('f', 3, a, b, c); }

// max.f32 and min.f32: NaN is dropped, and -0 is less than +0.
inline float fmaxf(float a, float b) {
  if (a != a) return b;
  if (b != b) return a;
  if (a == b) return __builtin_signbit(a) ? b : a;
  return a < b ? b : a;
}
inline float fminf(float a, float b) {
  if (a != a) return b;
  if (b != b) return a;
  if (a == b) return __builtin_signbit(a) ? a : b;
  return b < a ? b : a;
}
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double fmax(double a, double b) {
  if (a != a) return b;
  if (b != b) return a;
  if (a == b) return __builtin_signbit(a) ? b : a;
  return a < b ? b : a;
}
inline double fmin(double a, double b) {
  if (a != a) return b;
  if (b != b) return a;
  if (a == b) return __builtin_signbit(a) ? a : b;
  return b < a ? b : a;
}
inline double rsqrt(double x) { return 1.0 / sqrt(x); }

inline float __expf(float x) { return expf(x); }
inline float __exp10f(float x) { return exp10f(x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __log10f(float x) { return log10f(x); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __tanf(float x) { return tanf(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __fdividef(float x, float y) { return x / y; }

inline int min(int a, int b) { return b < a ? b : a; }
inline int max(int a, int b) { return a < b ? b : a; }
inline unsigned min(unsigned a, unsigned b) { return b < a ? b : a; }
inline unsigned max(unsigned a, unsigned b) { return a < b ? b : a; }
inline long long min(long long a, long long b) { return b < a ? b : a; }
inline long long max(long long a, long long b) { return a < b ? b : a; }
inline unsigned long long min(unsigned long long a, unsigned long long b) { return b < a ? b : a; }
inline unsigned long long max(unsigned long long a, unsigned long long b) { return a < b ? b : a; }

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }

struct half_t { unsigned short bits; };
struct bfloat16_t { unsigned short bits; };
struct fp8_e4m3_t { unsigned char bits; };
struct fp8_e5m2_t { unsigned char bits; };

// A pointer that becomes one to whatever the author's function takes.
struct foreign_pointer {
  const void* p;
  template <typename T>
  operator T*() const { return static_cast<T*>(const_cast<void*>(p)); }
};

// The same bits read as another type of the same size.
template <typename To, typename From>
inline To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From), "bits_as needs two types of one size");
  union { From from; To to; } both = {from};
  return both.to;
}

inline float infinity() { return bits_as<float>(0x7f800000u); }

inline double infinity_f64() { return bits_as<double>(0x7ff0000000000000ull); }

inline float quiet_nan() { return bits_as<float>(0x7fc00000u); }

inline double quiet_nan_f64() { return bits_as<double>(0x7ff8000000000000ull); }

inline float to_float(half_t x) {
  const unsigned sign = static_cast<unsigned>(x.bits & 0x8000u) << 16, size = x.bits & 0x7fffu;
  if (size > 0x7c00u) return bits_as<float>(0x7fffffffu);
  if (size == 0x7c00u) return bits_as<float>(sign | 0x7f800000u);
  if (size < 0x0400u) {
    const float r = static_cast<float>(size) * 5.9604644775390625e-8f;  // 2^-24
    return sign != 0 ? -r : r;
  }
  return bits_as<float>(sign | ((size << 13) + 0x38000000u));
}

inline float to_float(bfloat16_t x) { return bits_as<float>(static_cast<unsigned>(x.bits) << 16); }

// Round to nearest even; NaN is 0x7fff.
inline half_t to_half(float x) {
  const unsigned bits = bits_as<unsigned>(x), size = bits & 0x7fffffffu;
  const unsigned short sign = static_cast<unsigned short>((bits >> 16) & 0x8000u);
  if (size > 0x7f800000u) return {0x7fff};
  if (size >= 0x477ff000u) return {static_cast<unsigned short>(sign | 0x7c00u)};  // 65520 and more
  if (size < 0x38800000u) {
    // Below 2^-14: adding 0.5 leaves the multiples of 2^-24 in the low bits.
    const unsigned steps = bits_as<unsigned>(bits_as<float>(size) + 0.5f) - 0x3f000000u;
    return {static_cast<unsigned short>(sign | steps)};
  }
  const unsigned rounded = size + 0x0fffu + ((size >> 13) & 1u);
  return {static_cast<unsigned short>(sign | ((rounded >> 13) - 0x1c000u))};
}

// Round to nearest even; NaN is 0x7fff.
inline bfloat16_t to_bfloat16(float x) {
  const unsigned bits = bits_as<unsigned>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {0x7fff};
  return {static_cast<unsigned short>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

// Two floats to packed halves, round to nearest even; `lo` goes to the lower address.
inline unsigned pack_half2(float lo, float hi) {
  return static_cast<unsigned>(to_half(hi).bits) << 16 | to_half(lo).bits;
}

// Two floats to packed bfloat16, round to nearest even; `lo` goes to the lower address.
inline unsigned pack_bfloat162(float lo, float hi) {
  return static_cast<unsigned>(to_bfloat16(hi).bits) << 16 | to_bfloat16(lo).bits;
}

// Read as a half the bits are 256 times too small; 0x7f and 0xff are NaN.
inline float to_float(fp8_e4m3_t x) {
  const unsigned size = x.bits & 0x7fu;
  if (size == 0x7fu) return bits_as<float>(0x7fffffffu);
  return to_float(half_t{static_cast<unsigned short>((x.bits & 0x80u) << 8 | size << 7)}) * 256.0f;
}

inline float to_float(fp8_e5m2_t x) { return to_float(half_t{static_cast<unsigned short>(x.bits << 8)}); }

// Round to nearest even; what is beyond 448 and infinity become the largest finite value, NaN is 0x7f.
inline fp8_e4m3_t to_fp8_e4m3(float x) {
  const unsigned bits = bits_as<unsigned>(x), size = bits & 0x7fffffffu, sign = (bits >> 24) & 0x80u;
  if (size > 0x7f800000u) return {0x7f};
  if (size >= 0x43e00000u) return {static_cast<unsigned char>(sign | 0x7eu)};
  if (size < 0x3c800000u) {
    // Subnormal: adding 16384.0f leaves the multiples of the smallest step in the low bits.
    const unsigned steps = bits_as<unsigned>(bits_as<float>(size) + 16384.0f) - 0x46800000u;
    return {static_cast<unsigned char>(sign | steps)};
  }
  const unsigned rounded = size + 0x7ffffu + ((size >> 20) & 1u);
  return {static_cast<unsigned char>(sign | ((rounded >> 20) - 0x3c0u))};
}

// Two floats to packed fp8_e4m3, rounded like to_fp8_e4m3; `lo` goes to the lower address.
inline unsigned short pack_fp8_e4m3x2(float lo, float hi) {
  return static_cast<unsigned short>(to_fp8_e4m3(hi).bits << 8 | to_fp8_e4m3(lo).bits);
}

// Round to nearest even; what is beyond 57344 and infinity become the largest finite value, NaN is 0x7f.
inline fp8_e5m2_t to_fp8_e5m2(float x) {
  const unsigned bits = bits_as<unsigned>(x), size = bits & 0x7fffffffu, sign = (bits >> 24) & 0x80u;
  if (size > 0x7f800000u) return {0x7f};
  if (size >= 0x47600000u) return {static_cast<unsigned char>(sign | 0x7bu)};
  if (size < 0x38800000u) {
    // Subnormal: adding 128.0f leaves the multiples of the smallest step in the low bits.
    const unsigned steps = bits_as<unsigned>(bits_as<float>(size) + 128.0f) - 0x43000000u;
    return {static_cast<unsigned char>(sign | steps)};
  }
  const unsigned rounded = size + 0xfffffu + ((size >> 21) & 1u);
  return {static_cast<unsigned char>(sign | ((rounded >> 21) - 0x1c0u))};
}

// Two floats to packed fp8_e5m2, rounded like to_fp8_e5m2; `lo` goes to the lower address.
inline unsigned short pack_fp8_e5m2x2(float lo, float hi) {
  return static_cast<unsigned short>(to_fp8_e5m2(hi).bits << 8 | to_fp8_e5m2(lo).bits);
}

// To float with the last bit set when inexact (rounding to odd): a second rounding to a narrower type is then right.
inline float float_odd(double x) {
  const float r = static_cast<float>(x);
  const double back = r;
  if (back == x || x != x) return r;
  unsigned bits = bits_as<unsigned>(r);
  if (x < 0.0 ? back < x : back > x) bits -= 1;  // it was rounded away from zero
  return bits_as<float>(bits | 1u);
}

// To float with the last bit set when inexact (rounding to odd): a second rounding to a narrower type is then right.
inline float float_odd(unsigned long long x) {
  if (x >> 24 == 0) return static_cast<float>(x);
  const int shift = 40 - __clzll(static_cast<long long>(x));
  const unsigned long long kept = x >> shift, lost = x - (kept << shift);
  return static_cast<float>((kept | (lost != 0 ? 1ull : 0ull)) << shift);
}

inline float float_odd(long long x) {
  const unsigned long long bits = static_cast<unsigned long long>(x);
  return x < 0 ? -float_odd(0ull - bits) : float_odd(bits);
}

// Truncates; out of range gives the nearest end, NaN gives 0.
inline int to_int32(float x) {
  if (x != x) return 0;
  if (x >= 2147483648.0f) return 2147483647;
  if (x <= -2147483648.0f) return (-2147483647 - 1);
  return static_cast<int>(x);
}

// Truncates; out of range gives the nearest end, NaN gives 0.
inline unsigned to_uint32(float x) {
  if (x != x) return 0;
  if (x >= 4294967296.0f) return 4294967295u;
  if (x <= -1.0f) return 0u;
  return static_cast<unsigned>(x);
}

// Truncates; out of range gives the nearest end, NaN gives 0.
inline long long to_int64(float x) {
  if (x != x) return 0;
  if (x >= 9223372036854775808.0f) return 9223372036854775807LL;
  if (x <= -9223372036854775808.0f) return (-9223372036854775807LL - 1);
  return static_cast<long long>(x);
}

// Truncates; out of range gives the nearest end, NaN gives 0.
inline unsigned long long to_uint64(float x) {
  if (x != x) return 0;
  if (x >= 18446744073709551616.0f) return 18446744073709551615ull;
  if (x <= -1.0f) return 0ull;
  return static_cast<unsigned long long>(x);
}

inline signed char to_int8(float x) {
  const int i = to_int32(x);
  return static_cast<signed char>(i < -128 ? -128 : i > 127 ? 127 : i);
}

inline short to_int16(float x) {
  const int i = to_int32(x);
  return static_cast<short>(i < -32768 ? -32768 : i > 32767 ? 32767 : i);
}

inline unsigned char to_uint8(float x) {
  const int i = to_int32(x);
  return static_cast<unsigned char>(i < 0 ? 0 : i > 255 ? 255 : i);
}

inline unsigned short to_uint16(float x) {
  const int i = to_int32(x);
  return static_cast<unsigned short>(i < 0 ? 0 : i > 65535 ? 65535 : i);
}

// Truncates; out of range gives the nearest end, NaN gives 0.
inline int to_int32(double x) {
  if (x != x) return 0;
  if (x >= 2147483648.0) return 2147483647;
  if (x <= -2147483648.0) return (-2147483647 - 1);
  return static_cast<int>(x);
}

// Truncates; out of range gives the nearest end, NaN gives 0.
inline unsigned to_uint32(double x) {
  if (x != x) return 0;
  if (x >= 4294967296.0) return 4294967295u;
  if (x <= -1.0) return 0u;
  return static_cast<unsigned>(x);
}

// Truncates; out of range gives the nearest end, NaN gives 0.
inline long long to_int64(double x) {
  if (x != x) return 0;
  if (x >= 9223372036854775808.0) return 9223372036854775807LL;
  if (x <= -9223372036854775808.0) return (-9223372036854775807LL - 1);
  return static_cast<long long>(x);
}

// Truncates; out of range gives the nearest end, NaN gives 0.
inline unsigned long long to_uint64(double x) {
  if (x != x) return 0;
  if (x >= 18446744073709551616.0) return 18446744073709551615ull;
  if (x <= -1.0) return 0ull;
  return static_cast<unsigned long long>(x);
}

inline signed char to_int8(double x) {
  const int i = to_int32(x);
  return static_cast<signed char>(i < -128 ? -128 : i > 127 ? 127 : i);
}

inline short to_int16(double x) {
  const int i = to_int32(x);
  return static_cast<short>(i < -32768 ? -32768 : i > 32767 ? 32767 : i);
}

inline unsigned char to_uint8(double x) {
  const int i = to_int32(x);
  return static_cast<unsigned char>(i < 0 ? 0 : i > 255 ? 255 : i);
}

inline unsigned short to_uint16(double x) {
  const int i = to_int32(x);
  return static_cast<unsigned short>(i < 0 ? 0 : i > 65535 ? 65535 : i);
}

// Integer arithmetic modulo 2^width, where the operator of C would be undefined.
template <typename T>
inline T wrap_add(T a, T b) {
  return static_cast<T>(static_cast<unsigned long long>(a) + static_cast<unsigned long long>(b));
}

template <typename T>
inline T wrap_sub(T a, T b) {
  return static_cast<T>(static_cast<unsigned long long>(a) - static_cast<unsigned long long>(b));
}

template <typename T>
inline T wrap_mul(T a, T b) {
  return static_cast<T>(static_cast<unsigned long long>(a) * static_cast<unsigned long long>(b));
}

// The next number of a loop, or `stop` where that is not farther away: no step leaves the type.
template <typename T>
inline T step_to(T i, T by, T stop) {
  const unsigned long long at = static_cast<unsigned long long>(i), step = static_cast<unsigned long long>(by);
  const unsigned long long end = static_cast<unsigned long long>(stop);
  const bool more = by > T(0) ? end - at > step : at - end > 0ull - step;
  return more ? static_cast<T>(at + step) : stop;
}

template <typename T>
inline T wrap_abs(T a) { return a < T(1) ? static_cast<T>(0ull - static_cast<unsigned long long>(a)) : a; }

// Division towards zero that never traps: by 0 it gives 0, and the smallest number by -1 wraps.
template <typename T>
inline T trunc_div(T a, T b) {
  if (b == T(0)) return T(0);
  if constexpr (T(-1) < T(1)) {
    if (b == T(-1)) return static_cast<T>(0ull - static_cast<unsigned long long>(a));
  }
  return static_cast<T>(a / b);
}

// The remainder of trunc_div, with the sign of a; 0 for a zero divisor.
template <typename T>
inline T trunc_mod(T a, T b) {
  if (b == T(0)) return T(0);
  if constexpr (T(-1) < T(1)) {
    if (b == T(-1)) return T(0);
  }
  return static_cast<T>(a % b);
}

// Division rounded down, for any signs; 0 for a zero divisor.
template <typename T>
inline T floor_div(T a, T b) {
  const T q = trunc_div(a, b);
  if constexpr (T(-1) < T(1)) {
    const T r = trunc_mod(a, b);
    if (r != T(0) && (r ^ b) < 0) return static_cast<T>(q - 1);
  }
  return q;
}

// The remainder of floor_div, with the sign of b; 0 for a zero divisor.
template <typename T>
inline T floor_mod(T a, T b) {
  const T r = trunc_mod(a, b);
  if constexpr (T(-1) < T(1)) {
    if (r != T(0) && (r ^ b) < 0) return static_cast<T>(r + b);
  }
  return r;
}

// Division rounded up, for any signs; 0 for a zero divisor.
template <typename T>
inline T ceil_div(T a, T b) {
  const T q = trunc_div(a, b), r = trunc_mod(a, b);
  if constexpr (T(-1) < T(1)) {
    if ((r ^ b) < 0) return q;
  }
  return r != T(0) ? static_cast<T>(q + 1) : q;
}

// Shifts by a count that may be negative or too large: then nothing is left (of a right shift, the sign).
template <typename T>
inline T shift_left(T a, int n) {
  return n < 0 || n >= static_cast<int>(sizeof(T)) * 8 ? T(0) : static_cast<T>(static_cast<unsigned long long>(a) << n);
}

template <typename T>
inline T shift_right(T a, int n) {
  constexpr int top = static_cast<int>(sizeof(T)) * 8 - 1;
  if (n >= 0 && n <= top) return static_cast<T>(a >> n);
  if constexpr (T(-1) < T(1)) return static_cast<T>(a >> top);
  return T(0);
}

// A shift count of 64 bits as an int; all that is out of range counts as 64.
inline int shift_count(long long n) { return n < 0 || n > 64 ? 64 : static_cast<int>(n); }

template <typename T>
inline T min_of(T a, T b) { return b < a ? b : a; }

template <typename T>
inline T max_of(T a, T b) { return a < b ? b : a; }

// a to the n, modulo 2^width; a negative n rounds towards zero, so that only 1 and -1 have non-zero powers.
template <typename T>
inline T int_pow(T a, T n) {
  if (n < T(1) && n != T(0)) {
    if (a == T(1)) return T(1);
    return a == T(-1) ? static_cast<T>((n & 1) != 0 ? -1 : 1) : T(0);
  }
  unsigned long long power = 1, square = static_cast<unsigned long long>(a);
  for (; n != T(0); n = static_cast<T>(n >> 1)) {
    if ((n & 1) != 0) power *= square;
    square *= square;
  }
  return static_cast<T>(power);
}

// x to a small integer power by multiplication: exact wherever every product is.
inline float power(float x, int n) {
  float r = 1.0f, square = x;
  for (int left = n < 0 ? -n : n; left != 0; left >>= 1) {
    if ((left & 1) != 0) r *= square;
    square *= square;
  }
  return n < 0 ? 1.0f / r : r;
}

// Python's a // b on floats: rounded down, exact where the quotient is a whole number; a / 0 is an infinity or NaN.
inline float float_floor_div(float a, float b) {
  if (b == 0.0f) return a / b;
  const float m = fmodf(a, b);
  float q = (a - m) / b;
  if (m != 0.0f && (b < 0.0f) != (m < 0.0f)) q -= 1.0f;
  if (q == 0.0f) return copysignf(0.0f, a / b);
  const float whole = floorf(q);
  return q - whole > 0.5f ? whole + 1.0f : whole;
}

// Python's a % b on floats: the remainder with the sign of b; NaN for b = 0.
inline float float_floor_mod(float a, float b) {
  const float m = fmodf(a, b);
  if (b == 0.0f) return m;
  if (m == 0.0f) return copysignf(0.0f, b);
  return (b < 0.0f) != (m < 0.0f) ? m + b : m;
}

inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

inline bool is_nan(float x) { return (bits_as<unsigned>(x) & 0x7fffffffu) > 0x7f800000u; }

inline bool is_inf(float x) { return (bits_as<unsigned>(x) & 0x7fffffffu) == 0x7f800000u; }

inline bool is_finite(float x) { return (bits_as<unsigned>(x) & 0x7fffffffu) < 0x7f800000u; }

// x to a small integer power by multiplication: exact wherever every product is.
inline double power(double x, int n) {
  double r = 1.0, square = x;
  for (int left = n < 0 ? -n : n; left != 0; left >>= 1) {
    if ((left & 1) != 0) r *= square;
    square *= square;
  }
  return n < 0 ? 1.0 / r : r;
}

// Python's a // b on floats: rounded down, exact where the quotient is a whole number; a / 0 is an infinity or NaN.
inline double float_floor_div(double a, double b) {
  if (b == 0.0) return a / b;
  const double m = fmod(a, b);
  double q = (a - m) / b;
  if (m != 0.0 && (b < 0.0) != (m < 0.0)) q -= 1.0;
  if (q == 0.0) return copysign(0.0, a / b);
  const double whole = floor(q);
  return q - whole > 0.5 ? whole + 1.0 : whole;
}

// Python's a % b on floats: the remainder with the sign of b; NaN for b = 0.
inline double float_floor_mod(double a, double b) {
  const double m = fmod(a, b);
  if (b == 0.0) return m;
  if (m == 0.0) return copysign(0.0, b);
  return (b < 0.0) != (m < 0.0) ? m + b : m;
}

inline double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }

inline bool is_nan(double x) { return (bits_as<unsigned long long>(x) & 0x7fffffffffffffffull) > 0x7ff0000000000000ull; }

inline bool is_inf(double x) { return (bits_as<unsigned long long>(x) & 0x7fffffffffffffffull) == 0x7ff0000000000000ull; }

inline bool is_finite(double x) { return (bits_as<unsigned long long>(x) & 0x7fffffffffffffffull) < 0x7ff0000000000000ull; }

inline float exp2_approx(float x) { return exp2f(x); }

inline float tanh_approx(float x) { return tanhf(x); }

inline float sigmoid_approx(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }
