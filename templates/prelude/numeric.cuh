// Conversions and arithmetic with exactly the meaning of the Tile IR, where C or CUDA leave it open.
// Entries are cut at the `//@` lines; an entry's text is what lies between its line and the next one.

//@ bits_as
// The same bits read as another type of the same size.
template <typename To, typename From>
__device__ __forceinline__ To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From), "bits_as needs two types of one size");
  union { From from; To to; } both = {from};
  return both.to;
}

//@ infinity needs: bits_as
__device__ __forceinline__ float infinity() { return bits_as<float>(0x7f800000u); }

//@ infinity_f64 needs: bits_as
__device__ __forceinline__ double infinity_f64() { return bits_as<double>(0x7ff0000000000000ull); }

//@ quiet_nan needs: bits_as
__device__ __forceinline__ float quiet_nan() { return bits_as<float>(0x7fc00000u); }

//@ quiet_nan_f64 needs: bits_as
__device__ __forceinline__ double quiet_nan_f64() { return bits_as<double>(0x7ff8000000000000ull); }

//@ to_float_half needs: half_t
__device__ __forceinline__ float to_float(half_t x) {
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x.bits));
  return r;
}

//@ to_float_bfloat16 needs: bfloat16_t bits_as
__device__ __forceinline__ float to_float(bfloat16_t x) { return bits_as<float>(static_cast<unsigned>(x.bits) << 16); }

//@ to_half needs: half_t
// Round to nearest even; NaN is 0x7fff.
__device__ __forceinline__ half_t to_half(float x) {
  half_t r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r.bits) : "f"(x));
  return r;
}

//@ to_bfloat16 needs: bfloat16_t
// Round to nearest even; NaN is 0x7fff.
__device__ __forceinline__ bfloat16_t to_bfloat16(float x) {
  bfloat16_t r;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r.bits) : "f"(x));
  return r;
}

//@ pack_half2
// Two floats to packed halves, round to nearest even; `lo` goes to the lower address.
__device__ __forceinline__ unsigned pack_half2(float lo, float hi) {
  unsigned r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
}

//@ pack_bfloat162
// Two floats to packed bfloat16, round to nearest even; `lo` goes to the lower address.
__device__ __forceinline__ unsigned pack_bfloat162(float lo, float hi) {
  unsigned r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
}

//@ to_float_fp8_e4m3 needs: fp8_e4m3_t bits_as to_float_half
// Read as a half the bits are 256 times too small; 0x7f and 0xff are NaN.
__device__ __forceinline__ float to_float(fp8_e4m3_t x) {
  const unsigned size = x.bits & 0x7fu;
  if (size == 0x7fu) return bits_as<float>(0x7fffffffu);
  return to_float(half_t{static_cast<unsigned short>((x.bits & 0x80u) << 8 | size << 7)}) * 256.0f;
}

//@ to_float_fp8_e5m2 needs: fp8_e5m2_t to_float_half
__device__ __forceinline__ float to_float(fp8_e5m2_t x) { return to_float(half_t{static_cast<unsigned short>(x.bits << 8)}); }

//@ to_fp8_e4m3 needs: fp8_e4m3_t bits_as
// Round to nearest even; what is beyond 448 and infinity become the largest finite value, NaN is 0x7f.
__device__ __forceinline__ fp8_e4m3_t to_fp8_e4m3(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  unsigned short pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
  return {static_cast<unsigned char>(pair & 0xffu)};
#else
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
#endif
}

//@ pack_fp8_e4m3x2 needs: to_fp8_e4m3
// Two floats to packed fp8_e4m3, rounded like to_fp8_e4m3; `lo` goes to the lower address.
__device__ __forceinline__ unsigned short pack_fp8_e4m3x2(float lo, float hi) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  unsigned short r;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(hi), "f"(lo));
  return r;
#else
  return static_cast<unsigned short>(to_fp8_e4m3(hi).bits << 8 | to_fp8_e4m3(lo).bits);
#endif
}

//@ to_fp8_e5m2 needs: fp8_e5m2_t bits_as
// Round to nearest even; what is beyond 57344 and infinity become the largest finite value, NaN is 0x7f.
__device__ __forceinline__ fp8_e5m2_t to_fp8_e5m2(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  unsigned short pair;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
  return {static_cast<unsigned char>(pair & 0xffu)};
#else
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
#endif
}

//@ pack_fp8_e5m2x2 needs: to_fp8_e5m2
// Two floats to packed fp8_e5m2, rounded like to_fp8_e5m2; `lo` goes to the lower address.
__device__ __forceinline__ unsigned short pack_fp8_e5m2x2(float lo, float hi) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  unsigned short r;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(r) : "f"(hi), "f"(lo));
  return r;
#else
  return static_cast<unsigned short>(to_fp8_e5m2(hi).bits << 8 | to_fp8_e5m2(lo).bits);
#endif
}

//@ float_odd_f64 needs: bits_as
// To float with the last bit set when inexact (rounding to odd): a second rounding to a narrower type is then right.
__device__ __forceinline__ float float_odd(double x) {
  const float r = static_cast<float>(x);
  const double back = r;
  if (back == x || x != x) return r;
  unsigned bits = bits_as<unsigned>(r);
  if (x < 0.0 ? back < x : back > x) bits -= 1;  // it was rounded away from zero
  return bits_as<float>(bits | 1u);
}

//@ float_odd_u64
// To float with the last bit set when inexact (rounding to odd): a second rounding to a narrower type is then right.
__device__ __forceinline__ float float_odd(unsigned long long x) {
  if (x >> 24 == 0) return static_cast<float>(x);
  const int shift = 40 - __clzll(static_cast<long long>(x));
  const unsigned long long kept = x >> shift, lost = x - (kept << shift);
  return static_cast<float>((kept | (lost != 0 ? 1ull : 0ull)) << shift);
}

//@ float_odd_i64 needs: float_odd_u64
__device__ __forceinline__ float float_odd(long long x) {
  const unsigned long long bits = static_cast<unsigned long long>(x);
  return x < 0 ? -float_odd(0ull - bits) : float_odd(bits);
}

//@ to_int32
// Truncates; out of range gives the nearest end, NaN gives 0.
__device__ __forceinline__ int to_int32(float x) {
  int r;
  asm("cvt.rzi.s32.f32 %0, %1;" : "=r"(r) : "f"(x));
  return r;
}

//@ to_uint32
// Truncates; out of range gives the nearest end, NaN gives 0.
__device__ __forceinline__ unsigned to_uint32(float x) {
  unsigned r;
  asm("cvt.rzi.u32.f32 %0, %1;" : "=r"(r) : "f"(x));
  return r;
}

//@ to_int64
// Truncates; out of range gives the nearest end, NaN gives 0.
__device__ __forceinline__ long long to_int64(float x) {
  if (x != x) return 0;
  long long r;
  asm("cvt.rzi.s64.f32 %0, %1;" : "=l"(r) : "f"(x));
  return r;
}

//@ to_uint64
// Truncates; out of range gives the nearest end, NaN gives 0.
__device__ __forceinline__ unsigned long long to_uint64(float x) {
  if (x != x) return 0;
  unsigned long long r;
  asm("cvt.rzi.u64.f32 %0, %1;" : "=l"(r) : "f"(x));
  return r;
}

//@ to_int8 needs: to_int32
__device__ __forceinline__ signed char to_int8(float x) {
  const int i = to_int32(x);
  return static_cast<signed char>(i < -128 ? -128 : i > 127 ? 127 : i);
}

//@ to_int16 needs: to_int32
__device__ __forceinline__ short to_int16(float x) {
  const int i = to_int32(x);
  return static_cast<short>(i < -32768 ? -32768 : i > 32767 ? 32767 : i);
}

//@ to_uint8 needs: to_int32
__device__ __forceinline__ unsigned char to_uint8(float x) {
  const int i = to_int32(x);
  return static_cast<unsigned char>(i < 0 ? 0 : i > 255 ? 255 : i);
}

//@ to_uint16 needs: to_int32
__device__ __forceinline__ unsigned short to_uint16(float x) {
  const int i = to_int32(x);
  return static_cast<unsigned short>(i < 0 ? 0 : i > 65535 ? 65535 : i);
}

//@ to_int32_f64
// Truncates; out of range gives the nearest end, NaN gives 0.
__device__ __forceinline__ int to_int32(double x) {
  if (x != x) return 0;
  int r;
  asm("cvt.rzi.s32.f64 %0, %1;" : "=r"(r) : "d"(x));
  return r;
}

//@ to_uint32_f64
// Truncates; out of range gives the nearest end, NaN gives 0.
__device__ __forceinline__ unsigned to_uint32(double x) {
  if (x != x) return 0;
  unsigned r;
  asm("cvt.rzi.u32.f64 %0, %1;" : "=r"(r) : "d"(x));
  return r;
}

//@ to_int64_f64
// Truncates; out of range gives the nearest end, NaN gives 0.
__device__ __forceinline__ long long to_int64(double x) {
  if (x != x) return 0;
  long long r;
  asm("cvt.rzi.s64.f64 %0, %1;" : "=l"(r) : "d"(x));
  return r;
}

//@ to_uint64_f64
// Truncates; out of range gives the nearest end, NaN gives 0.
__device__ __forceinline__ unsigned long long to_uint64(double x) {
  if (x != x) return 0;
  unsigned long long r;
  asm("cvt.rzi.u64.f64 %0, %1;" : "=l"(r) : "d"(x));
  return r;
}

//@ to_int8_f64 needs: to_int32_f64
__device__ __forceinline__ signed char to_int8(double x) {
  const int i = to_int32(x);
  return static_cast<signed char>(i < -128 ? -128 : i > 127 ? 127 : i);
}

//@ to_int16_f64 needs: to_int32_f64
__device__ __forceinline__ short to_int16(double x) {
  const int i = to_int32(x);
  return static_cast<short>(i < -32768 ? -32768 : i > 32767 ? 32767 : i);
}

//@ to_uint8_f64 needs: to_int32_f64
__device__ __forceinline__ unsigned char to_uint8(double x) {
  const int i = to_int32(x);
  return static_cast<unsigned char>(i < 0 ? 0 : i > 255 ? 255 : i);
}

//@ to_uint16_f64 needs: to_int32_f64
__device__ __forceinline__ unsigned short to_uint16(double x) {
  const int i = to_int32(x);
  return static_cast<unsigned short>(i < 0 ? 0 : i > 65535 ? 65535 : i);
}

//@ wrap_add
// Integer arithmetic modulo 2^width, where the operator of C would be undefined.
template <typename T>
__device__ __forceinline__ T wrap_add(T a, T b) {
  return static_cast<T>(static_cast<unsigned long long>(a) + static_cast<unsigned long long>(b));
}

//@ wrap_sub
template <typename T>
__device__ __forceinline__ T wrap_sub(T a, T b) {
  return static_cast<T>(static_cast<unsigned long long>(a) - static_cast<unsigned long long>(b));
}

//@ wrap_mul
template <typename T>
__device__ __forceinline__ T wrap_mul(T a, T b) {
  return static_cast<T>(static_cast<unsigned long long>(a) * static_cast<unsigned long long>(b));
}

//@ step_to
// The next number of a loop, or `stop` where that is not farther away: no step leaves the type.
template <typename T>
__device__ __forceinline__ T step_to(T i, T by, T stop) {
  const unsigned long long at = static_cast<unsigned long long>(i), step = static_cast<unsigned long long>(by);
  const unsigned long long end = static_cast<unsigned long long>(stop);
  const bool more = by > T(0) ? end - at > step : at - end > 0ull - step;
  return more ? static_cast<T>(at + step) : stop;
}

//@ wrap_abs
template <typename T>
__device__ __forceinline__ T wrap_abs(T a) { return a < T(1) ? static_cast<T>(0ull - static_cast<unsigned long long>(a)) : a; }

//@ trunc_div
// Division towards zero that never traps: by 0 it gives 0, and the smallest number by -1 wraps.
template <typename T>
__device__ __forceinline__ T trunc_div(T a, T b) {
  if (b == T(0)) return T(0);
  if constexpr (T(-1) < T(1)) {
    if (b == T(-1)) return static_cast<T>(0ull - static_cast<unsigned long long>(a));
  }
  return static_cast<T>(a / b);
}

//@ trunc_mod
// The remainder of trunc_div, with the sign of a; 0 for a zero divisor.
template <typename T>
__device__ __forceinline__ T trunc_mod(T a, T b) {
  if (b == T(0)) return T(0);
  if constexpr (T(-1) < T(1)) {
    if (b == T(-1)) return T(0);
  }
  return static_cast<T>(a % b);
}

//@ floor_div needs: trunc_div trunc_mod
// Division rounded down, for any signs; 0 for a zero divisor.
template <typename T>
__device__ __forceinline__ T floor_div(T a, T b) {
  const T q = trunc_div(a, b);
  if constexpr (T(-1) < T(1)) {
    const T r = trunc_mod(a, b);
    if (r != T(0) && (r ^ b) < 0) return static_cast<T>(q - 1);
  }
  return q;
}

//@ floor_mod needs: trunc_mod
// The remainder of floor_div, with the sign of b; 0 for a zero divisor.
template <typename T>
__device__ __forceinline__ T floor_mod(T a, T b) {
  const T r = trunc_mod(a, b);
  if constexpr (T(-1) < T(1)) {
    if (r != T(0) && (r ^ b) < 0) return static_cast<T>(r + b);
  }
  return r;
}

//@ ceil_div needs: trunc_div trunc_mod
// Division rounded up, for any signs; 0 for a zero divisor.
template <typename T>
__device__ __forceinline__ T ceil_div(T a, T b) {
  const T q = trunc_div(a, b), r = trunc_mod(a, b);
  if constexpr (T(-1) < T(1)) {
    if ((r ^ b) < 0) return q;
  }
  return r != T(0) ? static_cast<T>(q + 1) : q;
}

//@ shift_left
// Shifts by a count that may be negative or too large: then nothing is left (of a right shift, the sign).
template <typename T>
__device__ __forceinline__ T shift_left(T a, int n) {
  return n < 0 || n >= static_cast<int>(sizeof(T)) * 8 ? T(0) : static_cast<T>(static_cast<unsigned long long>(a) << n);
}

//@ shift_right
template <typename T>
__device__ __forceinline__ T shift_right(T a, int n) {
  constexpr int top = static_cast<int>(sizeof(T)) * 8 - 1;
  if (n >= 0 && n <= top) return static_cast<T>(a >> n);
  if constexpr (T(-1) < T(1)) return static_cast<T>(a >> top);
  return T(0);
}

//@ shift_count
// A shift count of 64 bits as an int; all that is out of range counts as 64.
__device__ __forceinline__ int shift_count(long long n) { return n < 0 || n > 64 ? 64 : static_cast<int>(n); }

//@ min_of
template <typename T>
__device__ __forceinline__ T min_of(T a, T b) { return b < a ? b : a; }

//@ max_of
template <typename T>
__device__ __forceinline__ T max_of(T a, T b) { return a < b ? b : a; }

//@ int_pow
// a to the n, modulo 2^width; a negative n rounds towards zero, so that only 1 and -1 have non-zero powers.
template <typename T>
__device__ __forceinline__ T int_pow(T a, T n) {
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

//@ power
// x to a small integer power by multiplication: exact wherever every product is.
__device__ __forceinline__ float power(float x, int n) {
  float r = 1.0f, square = x;
  for (int left = n < 0 ? -n : n; left != 0; left >>= 1) {
    if ((left & 1) != 0) r *= square;
    square *= square;
  }
  return n < 0 ? 1.0f / r : r;
}

//@ float_floor_div
// Python's a // b on floats: rounded down, exact where the quotient is a whole number; a / 0 is an infinity or NaN.
__device__ __forceinline__ float float_floor_div(float a, float b) {
  if (b == 0.0f) return a / b;
  const float m = fmodf(a, b);
  float q = (a - m) / b;
  if (m != 0.0f && (b < 0.0f) != (m < 0.0f)) q -= 1.0f;
  if (q == 0.0f) return copysignf(0.0f, a / b);
  const float whole = floorf(q);
  return q - whole > 0.5f ? whole + 1.0f : whole;
}

//@ float_floor_mod
// Python's a % b on floats: the remainder with the sign of b; NaN for b = 0.
__device__ __forceinline__ float float_floor_mod(float a, float b) {
  const float m = fmodf(a, b);
  if (b == 0.0f) return m;
  if (m == 0.0f) return copysignf(0.0f, b);
  return (b < 0.0f) != (m < 0.0f) ? m + b : m;
}

//@ sigmoid
__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

//@ is_nan needs: bits_as
__device__ __forceinline__ bool is_nan(float x) { return (bits_as<unsigned>(x) & 0x7fffffffu) > 0x7f800000u; }

//@ is_inf needs: bits_as
__device__ __forceinline__ bool is_inf(float x) { return (bits_as<unsigned>(x) & 0x7fffffffu) == 0x7f800000u; }

//@ is_finite needs: bits_as
__device__ __forceinline__ bool is_finite(float x) { return (bits_as<unsigned>(x) & 0x7fffffffu) < 0x7f800000u; }

//@ power_f64
// x to a small integer power by multiplication: exact wherever every product is.
__device__ __forceinline__ double power(double x, int n) {
  double r = 1.0, square = x;
  for (int left = n < 0 ? -n : n; left != 0; left >>= 1) {
    if ((left & 1) != 0) r *= square;
    square *= square;
  }
  return n < 0 ? 1.0 / r : r;
}

//@ float_floor_div_f64
// Python's a // b on floats: rounded down, exact where the quotient is a whole number; a / 0 is an infinity or NaN.
__device__ __forceinline__ double float_floor_div(double a, double b) {
  if (b == 0.0) return a / b;
  const double m = fmod(a, b);
  double q = (a - m) / b;
  if (m != 0.0 && (b < 0.0) != (m < 0.0)) q -= 1.0;
  if (q == 0.0) return copysign(0.0, a / b);
  const double whole = floor(q);
  return q - whole > 0.5 ? whole + 1.0 : whole;
}

//@ float_floor_mod_f64
// Python's a % b on floats: the remainder with the sign of b; NaN for b = 0.
__device__ __forceinline__ double float_floor_mod(double a, double b) {
  const double m = fmod(a, b);
  if (b == 0.0) return m;
  if (m == 0.0) return copysign(0.0, b);
  return (b < 0.0) != (m < 0.0) ? m + b : m;
}

//@ sigmoid_f64
__device__ __forceinline__ double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }

//@ is_nan_f64 needs: bits_as
__device__ __forceinline__ bool is_nan(double x) { return (bits_as<unsigned long long>(x) & 0x7fffffffffffffffull) > 0x7ff0000000000000ull; }

//@ is_inf_f64 needs: bits_as
__device__ __forceinline__ bool is_inf(double x) { return (bits_as<unsigned long long>(x) & 0x7fffffffffffffffull) == 0x7ff0000000000000ull; }

//@ is_finite_f64 needs: bits_as
__device__ __forceinline__ bool is_finite(double x) { return (bits_as<unsigned long long>(x) & 0x7fffffffffffffffull) < 0x7ff0000000000000ull; }

//@ exp2_approx
__device__ __forceinline__ float exp2_approx(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

//@ tanh_approx
__device__ __forceinline__ float tanh_approx(float x) {
  float r;
  asm("tanh.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

//@ sigmoid_approx
__device__ __forceinline__ float sigmoid_approx(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }
