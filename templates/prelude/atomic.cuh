// Atomic operations on global and shared memory. Each returns the value before it.
// What CUDA has natively is one call; the rest is a compare-and-swap loop. `max` and `min` drop NaN.
// Entries are cut at the `//@` lines; an entry's text is what lies between its line and the next one.

//@ atomic_update needs: bits_as
// Replaces *p by f(*p) in one step, by compare-and-swap on the aligned word that holds it.
template <typename T, typename Function>
__device__ __forceinline__ T atomic_update(T* p, Function f) {
  if constexpr (sizeof(T) == 8) {
    unsigned long long* const word = reinterpret_cast<unsigned long long*>(p);
    unsigned long long seen = *word, before;
    do {
      before = seen;
      seen = atomicCAS(word, before, bits_as<unsigned long long>(f(bits_as<T>(before))));
    } while (seen != before);
    return bits_as<T>(before);
  } else if constexpr (sizeof(T) == 4) {
    unsigned* const word = reinterpret_cast<unsigned*>(p);
    unsigned seen = *word, before;
    do {
      before = seen;
      seen = atomicCAS(word, before, bits_as<unsigned>(f(bits_as<T>(before))));
    } while (seen != before);
    return bits_as<T>(before);
  } else if constexpr (sizeof(T) == 2) {
    unsigned short* const word = reinterpret_cast<unsigned short*>(p);
    unsigned short seen = *word, before;
    do {
      before = seen;
      seen = atomicCAS(word, before, bits_as<unsigned short>(f(bits_as<T>(before))));
    } while (seen != before);
    return bits_as<T>(before);
  } else {
    const unsigned long long address = reinterpret_cast<unsigned long long>(p);
    unsigned* const word = reinterpret_cast<unsigned*>(address & ~3ull);
    const unsigned shift = static_cast<unsigned>(address & 3) * 8;
    unsigned seen = *word, before;
    do {
      before = seen;
      const T next = f(bits_as<T>(static_cast<unsigned char>(before >> shift)));
      seen = atomicCAS(word, before, (before & ~(255u << shift)) | static_cast<unsigned>(bits_as<unsigned char>(next)) << shift);
    } while (seen != before);
    return bits_as<T>(static_cast<unsigned char>(before >> shift));
  }
}

//@ atomic_add
// *p += v; T is one of int, unsigned, unsigned long long, float and double.
template <typename T>
__device__ __forceinline__ T atomic_add(T* p, T v) {
  return atomicAdd(p, v);
}

//@ atomic_add_int64
// *p += v.
__device__ __forceinline__ long long atomic_add(long long* p, long long v) {
  return static_cast<long long>(
      atomicAdd(reinterpret_cast<unsigned long long*>(p), static_cast<unsigned long long>(v)));
}

//@ atomic_add_int8 needs: atomic_update
// *p += v.
__device__ __forceinline__ signed char atomic_add(signed char* p, signed char v) {
  return atomic_update(p, [v](signed char old) { return static_cast<signed char>(old + v); });
}

//@ atomic_add_uint8 needs: atomic_update
// *p += v.
__device__ __forceinline__ unsigned char atomic_add(unsigned char* p, unsigned char v) {
  return atomic_update(p, [v](unsigned char old) { return static_cast<unsigned char>(old + v); });
}

//@ atomic_add_int16 needs: atomic_update
// *p += v.
__device__ __forceinline__ short atomic_add(short* p, short v) {
  return atomic_update(p, [v](short old) { return static_cast<short>(old + v); });
}

//@ atomic_add_uint16 needs: atomic_update
// *p += v.
__device__ __forceinline__ unsigned short atomic_add(unsigned short* p, unsigned short v) {
  return atomic_update(p, [v](unsigned short old) { return static_cast<unsigned short>(old + v); });
}

//@ atomic_add_float16 needs: half_t
// *p += v.
__device__ __forceinline__ half_t atomic_add(half_t* p, half_t v) {
  half_t old;
  asm volatile("atom.add.noftz.f16 %0, [%1], %2;" : "=h"(old.bits) : "l"(p), "h"(v.bits) : "memory");
  return old;
}

//@ atomic_add_bfloat16 needs: atomic_update to_float_bfloat16 to_bfloat16
// *p += v.
__device__ __forceinline__ bfloat16_t atomic_add(bfloat16_t* p, bfloat16_t v) {
  return atomic_update(p, [v](bfloat16_t old) { return to_bfloat16(to_float(old) + to_float(v)); });
}

//@ atomic_add_vec_float32 needs: vec
// n neighbours in global memory += v, each of them atomically, by one instruction; p is aligned to all of them.
template <int n>
__device__ __forceinline__ void atomic_add_vec(float* p, const vec<float, n>& v) {
  const unsigned long long at = __cvta_generic_to_global(p);
  if constexpr (n == 4)
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(at), "f"(v.v[0]), "f"(v.v[1]), "f"(v.v[2]), "f"(v.v[3]) : "memory");
  else
    asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1, %2};" ::"l"(at), "f"(v.v[0]), "f"(v.v[1]) : "memory");
}

//@ atomic_add_vec_float16 needs: vec half_t
// n neighbours in global memory += v, each of them atomically, by one instruction; p is aligned to all of them.
template <int n>
__device__ __forceinline__ void atomic_add_vec(half_t* p, const vec<half_t, n>& v) {
  const unsigned long long at = __cvta_generic_to_global(p);
  if constexpr (n == 8)
    asm volatile("red.relaxed.gpu.global.add.noftz.v8.f16 [%0], {%1, %2, %3, %4, %5, %6, %7, %8};" ::"l"(at), "h"(v.v[0].bits), "h"(v.v[1].bits),
        "h"(v.v[2].bits), "h"(v.v[3].bits), "h"(v.v[4].bits), "h"(v.v[5].bits), "h"(v.v[6].bits), "h"(v.v[7].bits) : "memory");
  else if constexpr (n == 4)
    asm volatile("red.relaxed.gpu.global.add.noftz.v4.f16 [%0], {%1, %2, %3, %4};" ::"l"(at), "h"(v.v[0].bits), "h"(v.v[1].bits), "h"(v.v[2].bits), "h"(v.v[3].bits) : "memory");
  else
    asm volatile("red.relaxed.gpu.global.add.noftz.v2.f16 [%0], {%1, %2};" ::"l"(at), "h"(v.v[0].bits), "h"(v.v[1].bits) : "memory");
}

//@ atomic_add_vec_bfloat16 needs: vec bfloat16_t
// n neighbours in global memory += v, each of them atomically, by one instruction; p is aligned to all of them.
template <int n>
__device__ __forceinline__ void atomic_add_vec(bfloat16_t* p, const vec<bfloat16_t, n>& v) {
  const unsigned long long at = __cvta_generic_to_global(p);
  if constexpr (n == 8)
    asm volatile("red.relaxed.gpu.global.add.noftz.v8.bf16 [%0], {%1, %2, %3, %4, %5, %6, %7, %8};" ::"l"(at), "h"(v.v[0].bits), "h"(v.v[1].bits),
        "h"(v.v[2].bits), "h"(v.v[3].bits), "h"(v.v[4].bits), "h"(v.v[5].bits), "h"(v.v[6].bits), "h"(v.v[7].bits) : "memory");
  else if constexpr (n == 4)
    asm volatile("red.relaxed.gpu.global.add.noftz.v4.bf16 [%0], {%1, %2, %3, %4};" ::"l"(at), "h"(v.v[0].bits), "h"(v.v[1].bits), "h"(v.v[2].bits), "h"(v.v[3].bits) : "memory");
  else
    asm volatile("red.relaxed.gpu.global.add.noftz.v2.bf16 [%0], {%1, %2};" ::"l"(at), "h"(v.v[0].bits), "h"(v.v[1].bits) : "memory");
}

//@ atomic_max
// *p = max(*p, v); T is one of int, unsigned, long long and unsigned long long.
template <typename T>
__device__ __forceinline__ T atomic_max(T* p, T v) {
  return atomicMax(p, v);
}

//@ atomic_max_int8 needs: atomic_update
// *p = max(*p, v).
__device__ __forceinline__ signed char atomic_max(signed char* p, signed char v) {
  return atomic_update(p, [v](signed char old) { return v > old ? v : old; });
}

//@ atomic_max_uint8 needs: atomic_update
// *p = max(*p, v).
__device__ __forceinline__ unsigned char atomic_max(unsigned char* p, unsigned char v) {
  return atomic_update(p, [v](unsigned char old) { return v > old ? v : old; });
}

//@ atomic_max_int16 needs: atomic_update
// *p = max(*p, v).
__device__ __forceinline__ short atomic_max(short* p, short v) {
  return atomic_update(p, [v](short old) { return v > old ? v : old; });
}

//@ atomic_max_uint16 needs: atomic_update
// *p = max(*p, v).
__device__ __forceinline__ unsigned short atomic_max(unsigned short* p, unsigned short v) {
  return atomic_update(p, [v](unsigned short old) { return v > old ? v : old; });
}

//@ atomic_max_float32 needs: atomic_update
// *p = max(*p, v), NaN dropped.
__device__ __forceinline__ float atomic_max(float* p, float v) {
  return atomic_update(p, [v](float old) { return fmaxf(old, v); });
}

//@ atomic_max_float64 needs: atomic_update
// *p = max(*p, v), NaN dropped.
__device__ __forceinline__ double atomic_max(double* p, double v) {
  return atomic_update(p, [v](double old) { return fmax(old, v); });
}

//@ atomic_max_float16 needs: atomic_update to_float_half to_half
// *p = max(*p, v), NaN dropped.
__device__ __forceinline__ half_t atomic_max(half_t* p, half_t v) {
  return atomic_update(p, [v](half_t old) { return to_half(fmaxf(to_float(old), to_float(v))); });
}

//@ atomic_max_bfloat16 needs: atomic_update to_float_bfloat16 to_bfloat16
// *p = max(*p, v), NaN dropped.
__device__ __forceinline__ bfloat16_t atomic_max(bfloat16_t* p, bfloat16_t v) {
  return atomic_update(p, [v](bfloat16_t old) { return to_bfloat16(fmaxf(to_float(old), to_float(v))); });
}

//@ atomic_min
// *p = min(*p, v); T is one of int, unsigned, long long and unsigned long long.
template <typename T>
__device__ __forceinline__ T atomic_min(T* p, T v) {
  return atomicMin(p, v);
}

//@ atomic_min_int8 needs: atomic_update
// *p = min(*p, v).
__device__ __forceinline__ signed char atomic_min(signed char* p, signed char v) {
  return atomic_update(p, [v](signed char old) { return v < old ? v : old; });
}

//@ atomic_min_uint8 needs: atomic_update
// *p = min(*p, v).
__device__ __forceinline__ unsigned char atomic_min(unsigned char* p, unsigned char v) {
  return atomic_update(p, [v](unsigned char old) { return v < old ? v : old; });
}

//@ atomic_min_int16 needs: atomic_update
// *p = min(*p, v).
__device__ __forceinline__ short atomic_min(short* p, short v) {
  return atomic_update(p, [v](short old) { return v < old ? v : old; });
}

//@ atomic_min_uint16 needs: atomic_update
// *p = min(*p, v).
__device__ __forceinline__ unsigned short atomic_min(unsigned short* p, unsigned short v) {
  return atomic_update(p, [v](unsigned short old) { return v < old ? v : old; });
}

//@ atomic_min_float32 needs: atomic_update
// *p = min(*p, v), NaN dropped.
__device__ __forceinline__ float atomic_min(float* p, float v) {
  return atomic_update(p, [v](float old) { return fminf(old, v); });
}

//@ atomic_min_float64 needs: atomic_update
// *p = min(*p, v), NaN dropped.
__device__ __forceinline__ double atomic_min(double* p, double v) {
  return atomic_update(p, [v](double old) { return fmin(old, v); });
}

//@ atomic_min_float16 needs: atomic_update to_float_half to_half
// *p = min(*p, v), NaN dropped.
__device__ __forceinline__ half_t atomic_min(half_t* p, half_t v) {
  return atomic_update(p, [v](half_t old) { return to_half(fminf(to_float(old), to_float(v))); });
}

//@ atomic_min_bfloat16 needs: atomic_update to_float_bfloat16 to_bfloat16
// *p = min(*p, v), NaN dropped.
__device__ __forceinline__ bfloat16_t atomic_min(bfloat16_t* p, bfloat16_t v) {
  return atomic_update(p, [v](bfloat16_t old) { return to_bfloat16(fminf(to_float(old), to_float(v))); });
}

//@ atomic_and
// *p &= v; T is one of int, unsigned and unsigned long long.
template <typename T>
__device__ __forceinline__ T atomic_and(T* p, T v) {
  return atomicAnd(p, v);
}

//@ atomic_and_int64
// *p &= v.
__device__ __forceinline__ long long atomic_and(long long* p, long long v) {
  return static_cast<long long>(
      atomicAnd(reinterpret_cast<unsigned long long*>(p), static_cast<unsigned long long>(v)));
}

//@ atomic_and_int8 needs: atomic_update
// *p &= v.
__device__ __forceinline__ signed char atomic_and(signed char* p, signed char v) {
  return atomic_update(p, [v](signed char old) { return static_cast<signed char>(old & v); });
}

//@ atomic_and_uint8 needs: atomic_update
// *p &= v.
__device__ __forceinline__ unsigned char atomic_and(unsigned char* p, unsigned char v) {
  return atomic_update(p, [v](unsigned char old) { return static_cast<unsigned char>(old & v); });
}

//@ atomic_and_int16 needs: atomic_update
// *p &= v.
__device__ __forceinline__ short atomic_and(short* p, short v) {
  return atomic_update(p, [v](short old) { return static_cast<short>(old & v); });
}

//@ atomic_and_uint16 needs: atomic_update
// *p &= v.
__device__ __forceinline__ unsigned short atomic_and(unsigned short* p, unsigned short v) {
  return atomic_update(p, [v](unsigned short old) { return static_cast<unsigned short>(old & v); });
}

//@ atomic_or
// *p |= v; T is one of int, unsigned and unsigned long long.
template <typename T>
__device__ __forceinline__ T atomic_or(T* p, T v) {
  return atomicOr(p, v);
}

//@ atomic_or_int64
// *p |= v.
__device__ __forceinline__ long long atomic_or(long long* p, long long v) {
  return static_cast<long long>(
      atomicOr(reinterpret_cast<unsigned long long*>(p), static_cast<unsigned long long>(v)));
}

//@ atomic_or_int8 needs: atomic_update
// *p |= v.
__device__ __forceinline__ signed char atomic_or(signed char* p, signed char v) {
  return atomic_update(p, [v](signed char old) { return static_cast<signed char>(old | v); });
}

//@ atomic_or_uint8 needs: atomic_update
// *p |= v.
__device__ __forceinline__ unsigned char atomic_or(unsigned char* p, unsigned char v) {
  return atomic_update(p, [v](unsigned char old) { return static_cast<unsigned char>(old | v); });
}

//@ atomic_or_int16 needs: atomic_update
// *p |= v.
__device__ __forceinline__ short atomic_or(short* p, short v) {
  return atomic_update(p, [v](short old) { return static_cast<short>(old | v); });
}

//@ atomic_or_uint16 needs: atomic_update
// *p |= v.
__device__ __forceinline__ unsigned short atomic_or(unsigned short* p, unsigned short v) {
  return atomic_update(p, [v](unsigned short old) { return static_cast<unsigned short>(old | v); });
}

//@ atomic_xor
// *p ^= v; T is one of int, unsigned and unsigned long long.
template <typename T>
__device__ __forceinline__ T atomic_xor(T* p, T v) {
  return atomicXor(p, v);
}

//@ atomic_xor_int64
// *p ^= v.
__device__ __forceinline__ long long atomic_xor(long long* p, long long v) {
  return static_cast<long long>(
      atomicXor(reinterpret_cast<unsigned long long*>(p), static_cast<unsigned long long>(v)));
}

//@ atomic_xor_int8 needs: atomic_update
// *p ^= v.
__device__ __forceinline__ signed char atomic_xor(signed char* p, signed char v) {
  return atomic_update(p, [v](signed char old) { return static_cast<signed char>(old ^ v); });
}

//@ atomic_xor_uint8 needs: atomic_update
// *p ^= v.
__device__ __forceinline__ unsigned char atomic_xor(unsigned char* p, unsigned char v) {
  return atomic_update(p, [v](unsigned char old) { return static_cast<unsigned char>(old ^ v); });
}

//@ atomic_xor_int16 needs: atomic_update
// *p ^= v.
__device__ __forceinline__ short atomic_xor(short* p, short v) {
  return atomic_update(p, [v](short old) { return static_cast<short>(old ^ v); });
}

//@ atomic_xor_uint16 needs: atomic_update
// *p ^= v.
__device__ __forceinline__ unsigned short atomic_xor(unsigned short* p, unsigned short v) {
  return atomic_update(p, [v](unsigned short old) { return static_cast<unsigned short>(old ^ v); });
}

//@ atomic_exch needs: atomic_update
// *p = v.
template <typename T>
__device__ __forceinline__ T atomic_exch(T* p, T v) {
  if constexpr (sizeof(T) == 8)
    return bits_as<T>(atomicExch(reinterpret_cast<unsigned long long*>(p), bits_as<unsigned long long>(v)));
  else if constexpr (sizeof(T) == 4)
    return bits_as<T>(atomicExch(reinterpret_cast<unsigned*>(p), bits_as<unsigned>(v)));
  else
    return atomic_update(p, [v](T) { return v; });
}

//@ atomic_cas needs: atomic_update
// *p = v if *p holds the bits of `expected`.
template <typename T>
__device__ __forceinline__ T atomic_cas(T* p, T expected, T v) {
  if constexpr (sizeof(T) == 8)
    return bits_as<T>(atomicCAS(reinterpret_cast<unsigned long long*>(p), bits_as<unsigned long long>(expected), bits_as<unsigned long long>(v)));
  else if constexpr (sizeof(T) == 4)
    return bits_as<T>(atomicCAS(reinterpret_cast<unsigned*>(p), bits_as<unsigned>(expected), bits_as<unsigned>(v)));
  else if constexpr (sizeof(T) == 2)
    return bits_as<T>(atomicCAS(reinterpret_cast<unsigned short*>(p), bits_as<unsigned short>(expected), bits_as<unsigned short>(v)));
  else
    return atomic_update(p, [=](T old) { return bits_as<unsigned char>(old) == bits_as<unsigned char>(expected) ? v : old; });
}

//@ atomic_load needs: bits_as
// *p, and what other threads wrote before they stored it with atomic_store.
template <typename T>
__device__ __forceinline__ T atomic_load(const T* p) {
  if constexpr (sizeof(T) == 8) {
    unsigned long long word;
    asm volatile("ld.acquire.gpu.b64 %0, [%1];" : "=l"(word) : "l"(p) : "memory");
    return bits_as<T>(word);
  } else if constexpr (sizeof(T) == 4) {
    unsigned word;
    asm volatile("ld.acquire.gpu.b32 %0, [%1];" : "=r"(word) : "l"(p) : "memory");
    return bits_as<T>(word);
  } else if constexpr (sizeof(T) == 2) {
    unsigned short word;
    asm volatile("ld.acquire.gpu.b16 %0, [%1];" : "=h"(word) : "l"(p) : "memory");
    return bits_as<T>(word);
  } else {
    unsigned word;
    asm volatile("ld.acquire.gpu.b8 %0, [%1];" : "=r"(word) : "l"(p) : "memory");
    return bits_as<T>(static_cast<unsigned char>(word));
  }
}

//@ atomic_store needs: bits_as
// *p = v, after everything that this thread wrote before.
template <typename T>
__device__ __forceinline__ void atomic_store(T* p, T v) {
  if constexpr (sizeof(T) == 8)
    asm volatile("st.release.gpu.b64 [%0], %1;" ::"l"(p), "l"(bits_as<unsigned long long>(v)) : "memory");
  else if constexpr (sizeof(T) == 4)
    asm volatile("st.release.gpu.b32 [%0], %1;" ::"l"(p), "r"(bits_as<unsigned>(v)) : "memory");
  else if constexpr (sizeof(T) == 2)
    asm volatile("st.release.gpu.b16 [%0], %1;" ::"l"(p), "h"(bits_as<unsigned short>(v)) : "memory");
  else
    asm volatile("st.release.gpu.b8 [%0], %1;" ::"l"(p), "r"(static_cast<unsigned>(bits_as<unsigned char>(v))) : "memory");
}
