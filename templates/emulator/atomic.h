// Twins of ../prelude/atomic.cuh. A block's threads take turns, so reading and writing in a row is atomic here.
#pragma once

template <typename T>
inline T add_wrapping(T a, T b) {
  if constexpr (static_cast<T>(0.5) != static_cast<T>(0))
    return a + b;
  else
    return wrap_add(a, b);
}

template <typename T, typename Function>
__device__ __forceinline__ T atomic_update(T* p, Function f) {
  T old;
  tilec_copy_unchecked(&old, p, sizeof(T));  // atomic accesses are no races
  const T next = f(old);
  tilec_copy_unchecked(p, &next, sizeof(T));
  return old;
}

template <typename T>
__device__ __forceinline__ T atomic_add(T* p, T v) {
  return atomic_update(p, [v](T old) { return add_wrapping(old, v); });
}

__device__ __forceinline__ long long atomic_add(long long* p, long long v) {
  return atomic_update(p, [v](long long old) { return wrap_add(old, v); });
}

__device__ __forceinline__ signed char atomic_add(signed char* p, signed char v) {
  return atomic_update(p, [v](signed char old) { return static_cast<signed char>(old + v); });
}

__device__ __forceinline__ unsigned char atomic_add(unsigned char* p, unsigned char v) {
  return atomic_update(p, [v](unsigned char old) { return static_cast<unsigned char>(old + v); });
}

__device__ __forceinline__ short atomic_add(short* p, short v) {
  return atomic_update(p, [v](short old) { return static_cast<short>(old + v); });
}

__device__ __forceinline__ unsigned short atomic_add(unsigned short* p, unsigned short v) {
  return atomic_update(p, [v](unsigned short old) { return static_cast<unsigned short>(old + v); });
}

__device__ __forceinline__ half_t atomic_add(half_t* p, half_t v) {
  return atomic_update(p, [v](half_t old) { return to_half(to_float(old) + to_float(v)); });
}

__device__ __forceinline__ bfloat16_t atomic_add(bfloat16_t* p, bfloat16_t v) {
  return atomic_update(p, [v](bfloat16_t old) { return to_bfloat16(to_float(old) + to_float(v)); });
}

template <typename T, int n>
inline void tilec_add_each(T* p, const vec<T, n>& v, int tilec_line) {
  static_assert(n * sizeof(T) <= 16 && (n == 2 || n == 4 || (n == 8 && sizeof(T) == 2)), "no instruction adds so many at once");
  if (reinterpret_cast<unsigned long long>(p) % (n * sizeof(T)) != 0) tilec_trap("atomic_add_vec adds off a multiple of its size", tilec_line);
  for (int e = 0; e < n; ++e) atomic_add(p + e, v.v[e]);
}

template <int n>
__device__ __forceinline__ void atomic_add_vec(float* p, const vec<float, n>& v, TILEC_SITE) {
  tilec_add_each(p, v, tilec_line);
}

template <int n>
__device__ __forceinline__ void atomic_add_vec(half_t* p, const vec<half_t, n>& v, TILEC_SITE) {
  tilec_add_each(p, v, tilec_line);
}

template <int n>
__device__ __forceinline__ void atomic_add_vec(bfloat16_t* p, const vec<bfloat16_t, n>& v, TILEC_SITE) {
  tilec_add_each(p, v, tilec_line);
}

template <typename T>
__device__ __forceinline__ T atomic_max(T* p, T v) {
  return atomic_update(p, [v](T old) { return v > old ? v : old; });
}

__device__ __forceinline__ signed char atomic_max(signed char* p, signed char v) {
  return atomic_update(p, [v](signed char old) { return v > old ? v : old; });
}

__device__ __forceinline__ unsigned char atomic_max(unsigned char* p, unsigned char v) {
  return atomic_update(p, [v](unsigned char old) { return v > old ? v : old; });
}

__device__ __forceinline__ short atomic_max(short* p, short v) {
  return atomic_update(p, [v](short old) { return v > old ? v : old; });
}

__device__ __forceinline__ unsigned short atomic_max(unsigned short* p, unsigned short v) {
  return atomic_update(p, [v](unsigned short old) { return v > old ? v : old; });
}

__device__ __forceinline__ float atomic_max(float* p, float v) {
  return atomic_update(p, [v](float old) { return fmaxf(old, v); });
}

__device__ __forceinline__ double atomic_max(double* p, double v) {
  return atomic_update(p, [v](double old) { return fmax(old, v); });
}

__device__ __forceinline__ half_t atomic_max(half_t* p, half_t v) {
  return atomic_update(p, [v](half_t old) { return to_half(fmaxf(to_float(old), to_float(v))); });
}

__device__ __forceinline__ bfloat16_t atomic_max(bfloat16_t* p, bfloat16_t v) {
  return atomic_update(p, [v](bfloat16_t old) { return to_bfloat16(fmaxf(to_float(old), to_float(v))); });
}

template <typename T>
__device__ __forceinline__ T atomic_min(T* p, T v) {
  return atomic_update(p, [v](T old) { return v < old ? v : old; });
}

__device__ __forceinline__ signed char atomic_min(signed char* p, signed char v) {
  return atomic_update(p, [v](signed char old) { return v < old ? v : old; });
}

__device__ __forceinline__ unsigned char atomic_min(unsigned char* p, unsigned char v) {
  return atomic_update(p, [v](unsigned char old) { return v < old ? v : old; });
}

__device__ __forceinline__ short atomic_min(short* p, short v) {
  return atomic_update(p, [v](short old) { return v < old ? v : old; });
}

__device__ __forceinline__ unsigned short atomic_min(unsigned short* p, unsigned short v) {
  return atomic_update(p, [v](unsigned short old) { return v < old ? v : old; });
}

__device__ __forceinline__ float atomic_min(float* p, float v) {
  return atomic_update(p, [v](float old) { return fminf(old, v); });
}

__device__ __forceinline__ double atomic_min(double* p, double v) {
  return atomic_update(p, [v](double old) { return fmin(old, v); });
}

__device__ __forceinline__ half_t atomic_min(half_t* p, half_t v) {
  return atomic_update(p, [v](half_t old) { return to_half(fminf(to_float(old), to_float(v))); });
}

__device__ __forceinline__ bfloat16_t atomic_min(bfloat16_t* p, bfloat16_t v) {
  return atomic_update(p, [v](bfloat16_t old) { return to_bfloat16(fminf(to_float(old), to_float(v))); });
}

template <typename T>
__device__ __forceinline__ T atomic_and(T* p, T v) {
  return atomic_update(p, [v](T old) { return static_cast<T>(old & v); });
}

__device__ __forceinline__ long long atomic_and(long long* p, long long v) {
  return atomic_update(p, [v](long long old) { return old & v; });
}

__device__ __forceinline__ signed char atomic_and(signed char* p, signed char v) {
  return atomic_update(p, [v](signed char old) { return static_cast<signed char>(old & v); });
}

__device__ __forceinline__ unsigned char atomic_and(unsigned char* p, unsigned char v) {
  return atomic_update(p, [v](unsigned char old) { return static_cast<unsigned char>(old & v); });
}

__device__ __forceinline__ short atomic_and(short* p, short v) {
  return atomic_update(p, [v](short old) { return static_cast<short>(old & v); });
}

__device__ __forceinline__ unsigned short atomic_and(unsigned short* p, unsigned short v) {
  return atomic_update(p, [v](unsigned short old) { return static_cast<unsigned short>(old & v); });
}

template <typename T>
__device__ __forceinline__ T atomic_or(T* p, T v) {
  return atomic_update(p, [v](T old) { return static_cast<T>(old | v); });
}

__device__ __forceinline__ long long atomic_or(long long* p, long long v) {
  return atomic_update(p, [v](long long old) { return old | v; });
}

__device__ __forceinline__ signed char atomic_or(signed char* p, signed char v) {
  return atomic_update(p, [v](signed char old) { return static_cast<signed char>(old | v); });
}

__device__ __forceinline__ unsigned char atomic_or(unsigned char* p, unsigned char v) {
  return atomic_update(p, [v](unsigned char old) { return static_cast<unsigned char>(old | v); });
}

__device__ __forceinline__ short atomic_or(short* p, short v) {
  return atomic_update(p, [v](short old) { return static_cast<short>(old | v); });
}

__device__ __forceinline__ unsigned short atomic_or(unsigned short* p, unsigned short v) {
  return atomic_update(p, [v](unsigned short old) { return static_cast<unsigned short>(old | v); });
}

template <typename T>
__device__ __forceinline__ T atomic_xor(T* p, T v) {
  return atomic_update(p, [v](T old) { return static_cast<T>(old ^ v); });
}

__device__ __forceinline__ long long atomic_xor(long long* p, long long v) {
  return atomic_update(p, [v](long long old) { return old ^ v; });
}

__device__ __forceinline__ signed char atomic_xor(signed char* p, signed char v) {
  return atomic_update(p, [v](signed char old) { return static_cast<signed char>(old ^ v); });
}

__device__ __forceinline__ unsigned char atomic_xor(unsigned char* p, unsigned char v) {
  return atomic_update(p, [v](unsigned char old) { return static_cast<unsigned char>(old ^ v); });
}

__device__ __forceinline__ short atomic_xor(short* p, short v) {
  return atomic_update(p, [v](short old) { return static_cast<short>(old ^ v); });
}

__device__ __forceinline__ unsigned short atomic_xor(unsigned short* p, unsigned short v) {
  return atomic_update(p, [v](unsigned short old) { return static_cast<unsigned short>(old ^ v); });
}

template <typename T>
__device__ __forceinline__ T atomic_exch(T* p, T v) {
  return atomic_update(p, [v](T) { return v; });
}
template <typename T>
__device__ __forceinline__ T atomic_cas(T* p, T expected, T v) {
  return atomic_update(p, [=](T old) { return __builtin_memcmp(&old, &expected, sizeof(T)) == 0 ? v : old; });
}
// A thread that polls lets the others run.
template <typename T>
__device__ __forceinline__ T atomic_load(const T* p) {
  tilec_yield();
  T v;
  tilec_copy_unchecked(&v, p, sizeof(T));
  return v;
}
template <typename T>
__device__ __forceinline__ void atomic_store(T* p, T v) {
  tilec_copy_unchecked(p, &v, sizeof(T));
}
