// What a generated file sees when it is built for the CPU: the CUDA language and the prelude's wrappers, declarations only.
//
// No standard header, so that a file compiles in a fraction of a second; the bodies are in runtime/, built once.
// Every wrapper has the signature of its device twin in ../prelude; TILEC_SITE adds the caller's line, for the reports.
#pragma once

#include "tilec_language.h"
#include "cuda_api.h"
#include "numeric.h"

// ---- intrinsics that CUDA declares by itself ---------------------------------------------------------------------
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
inline int __float_as_int(float x) { return __builtin_bit_cast(int, x); }
inline float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
inline float __int_as_float(int x) { return __builtin_bit_cast(float, x); }
inline long long __double_as_longlong(double x) { return __builtin_bit_cast(long long, x); }
inline double __longlong_as_double(long long x) { return __builtin_bit_cast(double, x); }
template <typename T>
inline T __ldg(const T* p) {
  return *p;
}

// ---- the language's own synchronisation and exchange ------------------------------------------------------------
inline void __syncthreads(TILEC_SITE) { tilec_block_barrier(tilec_line); }
inline void __syncwarp(unsigned mask = 0xffffffffu, TILEC_SITE) { tilec_warp_barrier(mask, tilec_line); }
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __nanosleep(unsigned) { tilec_yield(); }
inline void __trap(TILEC_SITE) { tilec_trap("the kernel called __trap()", tilec_line); }
inline unsigned __ballot_sync(unsigned mask, int v, TILEC_SITE) { return tilec_ballot(v != 0, mask, tilec_line); }
inline int __any_sync(unsigned mask, int v, TILEC_SITE) { return tilec_ballot(v != 0, mask, tilec_line) != 0; }
inline int __all_sync(unsigned mask, int v, TILEC_SITE) { return tilec_ballot(v == 0, mask, tilec_line) == 0; }
inline unsigned __activemask(TILEC_SITE) { return tilec_active_lanes(); }
inline int tilec_votes = 0;
inline int __syncthreads_count(int v, TILEC_SITE) {
  tilec_block_barrier(tilec_line);
  tilec_votes = 0;
  tilec_block_barrier(tilec_line);
  tilec_votes += v != 0;
  tilec_block_barrier(tilec_line);
  const int count = tilec_votes;
  tilec_block_barrier(tilec_line);
  return count;
}
inline int __syncthreads_or(int v, TILEC_SITE) { return __syncthreads_count(v, tilec_line) != 0; }
inline int __syncthreads_and(int v, TILEC_SITE) { return __syncthreads_count(v == 0, tilec_line) == 0; }
template <typename T>
inline T __shfl_sync(unsigned mask, T v, int source, int width = 32, TILEC_SITE) {
  tilec_shuffle(tilec_shuffle_idx, &v, sizeof(T), source, mask, width, tilec_line);
  return v;
}
template <typename T>
inline T __shfl_xor_sync(unsigned mask, T v, int lane_mask, int width = 32, TILEC_SITE) {
  tilec_shuffle(tilec_shuffle_xor, &v, sizeof(T), lane_mask, mask, width, tilec_line);
  return v;
}
template <typename T>
inline T __shfl_down_sync(unsigned mask, T v, unsigned delta, int width = 32, TILEC_SITE) {
  tilec_shuffle(tilec_shuffle_down, &v, sizeof(T), static_cast<int>(delta), mask, width, tilec_line);
  return v;
}
template <typename T>
inline T __shfl_up_sync(unsigned mask, T v, unsigned delta, int width = 32, TILEC_SITE) {
  tilec_shuffle(tilec_shuffle_up, &v, sizeof(T), static_cast<int>(delta), mask, width, tilec_line);
  return v;
}

template <typename T>
inline unsigned __match_any_sync(unsigned mask, T v, TILEC_SITE) {
  unsigned same = 0;
  for (int lane = 0; lane < 32; ++lane)
    if ((mask >> lane & 1) != 0 && __shfl_sync(mask, v, lane, 32, tilec_line) == v) same |= 1u << lane;
  return same;
}

// ---- twins of ../prelude/memory.cuh -----------------------------------------------------------------------------
template <typename T, int elements>
__device__ __forceinline__ T* shared_tile(int offset, TILEC_SITE) {
  return static_cast<T*>(tilec_shared_tile("", offset, sizeof(T) * elements, tilec_line));
}
// The build spells `X = shared_tile<...>(...)` this way, so that reports can say X.
template <typename T, int elements>
__device__ __forceinline__ T* tilec_named_tile(const char* name, int offset, TILEC_SITE) {
  return static_cast<T*>(tilec_shared_tile(name, offset, sizeof(T) * elements, tilec_line));
}
template <typename T, int kept, int threads>
struct shelved {
  static constexpr int chunk = static_cast<int>(16 / sizeof(T));
  T first[kept];
  T* const others;
  __device__ __forceinline__ shelved(T* shelf, int thread) : others(shelf + thread * chunk) {}
  __device__ __forceinline__ T& operator[](int i) {
    return i < kept ? first[i] : others[(i - kept) / chunk * chunk * threads + (i - kept) % chunk];
  }
  __device__ __forceinline__ T* operator+(int i) { return &(*this)[i]; }
};
__device__ __forceinline__ void settle_shelf() {}
__device__ __forceinline__ unsigned shared_address(const void* p) { return tilec_shared_address(p); }
template <typename T, int n>
struct alignas(sizeof(T) * n) vec {
  T v[n];
};
template <int n, typename T>
__device__ __forceinline__ vec<T, n> load_vec(const T* p, TILEC_SITE) {
  tilec_check_access(p, sizeof(T) * n, false, tilec_line);
  vec<T, n> value;
  memcpy(&value, p, sizeof(T) * n);
  return value;
}
template <int n, typename T>
__device__ __forceinline__ void store_vec(T* p, const vec<T, n>& value, TILEC_SITE) {
  tilec_check_access(p, sizeof(T) * n, true, tilec_line);
  memcpy(p, &value, sizeof(T) * n);
}

// ---- twins of ../prelude/async.cuh ------------------------------------------------------------------------------
__device__ __forceinline__ void cp_async_16(void* dst, const void* src, TILEC_SITE) { tilec_cp_async(dst, src, 16, true, tilec_line); }
__device__ __forceinline__ void cp_async_8(void* dst, const void* src, TILEC_SITE) { tilec_cp_async(dst, src, 8, true, tilec_line); }
__device__ __forceinline__ void cp_async_4(void* dst, const void* src, TILEC_SITE) { tilec_cp_async(dst, src, 4, true, tilec_line); }
__device__ __forceinline__ void cp_async_16_zfill(void* dst, const void* src, bool in_range, TILEC_SITE) {
  tilec_cp_async(dst, src, 16, in_range, tilec_line);
}
__device__ __forceinline__ void cp_async_16_part(void* dst, const void* src, int bytes, TILEC_SITE) {
  tilec_cp_async_part(dst, src, bytes, tilec_line);
}
template <int span>
__device__ __forceinline__ void fetch_line(unsigned char* line, const unsigned char* src, TILEC_SITE) {
  const int before = static_cast<int>(reinterpret_cast<unsigned long long>(src) % 16), part = static_cast<int>(threadIdx.x % 4) * 16;
  for (int at = 0; at < span; at += 64)
    if (at + part < span) cp_async_16(line + at + part, src - before + at + part, tilec_line);
  if (part == 0) cp_async_16_part(line + span, src - before + span, before, tilec_line);
}
template <int bytes, int lanes>
__device__ __forceinline__ void fetch_words(unsigned char* dst, const unsigned char* src, const unsigned char* begin, const unsigned char* end,
                                            const unsigned char* limit, TILEC_SITE) {
  for (int at = static_cast<int>(threadIdx.x % lanes) * 16; at < bytes; at += 16 * lanes) {
    const long long front = src + at - begin, left = end - src - at;
    const int there = left < 0 ? 0 : left < 16 ? static_cast<int>(left) : 16;
    if (there == 0 || (front >= 0 && (there == 16 || limit - src - at >= 16))) {
      cp_async_16_part(dst + at, there > 0 ? src + at : begin, there, tilec_line);
    } else {
      for (int b = 0; b < 16; ++b) dst[at + b] = front + b >= 0 && b < there ? src[at + b] : 0;
    }
  }
}
__device__ __forceinline__ unsigned anew(unsigned x) { return x; }
__device__ __forceinline__ unsigned word_at(const unsigned char* words, int skip) {
  const unsigned* const w = reinterpret_cast<const unsigned*>(words) + skip / 4;
  return skip % 4 == 0 ? w[0] : w[0] >> skip % 4 * 8 | w[1] << (32 - skip % 4 * 8);
}
__device__ __forceinline__ unsigned word_in_ring(const unsigned char* ring, int start, int at) {
  const int word = at & ~3;
  const unsigned low = *reinterpret_cast<const unsigned*>(ring + (word ^ start));
  const unsigned high = *reinterpret_cast<const unsigned*>(ring + ((word + 4) ^ start));
  return at % 4 == 0 ? low : low >> at % 4 * 8 | high << (32 - at % 4 * 8);
}
__device__ __forceinline__ void cp_async_8_zfill(void* dst, const void* src, bool in_range, TILEC_SITE) {
  tilec_cp_async(dst, src, 8, in_range, tilec_line);
}
__device__ __forceinline__ void cp_async_4_zfill(void* dst, const void* src, bool in_range, TILEC_SITE) {
  tilec_cp_async(dst, src, 4, in_range, tilec_line);
}
__device__ __forceinline__ void cp_async_commit() { tilec_cp_async_commit(); }
template <int pending>
__device__ __forceinline__ void cp_async_wait() {
  tilec_cp_async_wait(pending);
}

// ---- twins of ../prelude/ldmatrix.cuh ---------------------------------------------------------------------------
__device__ __forceinline__ void ldmatrix_x4(unsigned* r, const void* p, TILEC_SITE) { tilec_ldmatrix(r, p, 4, false, tilec_line); }
__device__ __forceinline__ void ldmatrix_x2(unsigned* r, const void* p, TILEC_SITE) { tilec_ldmatrix(r, p, 2, false, tilec_line); }
__device__ __forceinline__ void ldmatrix_x1(unsigned* r, const void* p, TILEC_SITE) { tilec_ldmatrix(r, p, 1, false, tilec_line); }
__device__ __forceinline__ void ldmatrix_x4_trans(unsigned* r, const void* p, TILEC_SITE) { tilec_ldmatrix(r, p, 4, true, tilec_line); }
__device__ __forceinline__ void ldmatrix_x2_trans(unsigned* r, const void* p, TILEC_SITE) { tilec_ldmatrix(r, p, 2, true, tilec_line); }
__device__ __forceinline__ void ldmatrix_x1_trans(unsigned* r, const void* p, TILEC_SITE) { tilec_ldmatrix(r, p, 1, true, tilec_line); }

// ---- twins of ../prelude/mma.cuh --------------------------------------------------------------------------------
__device__ __forceinline__ void mma_m16n8k16_f16_f32(float* d, const unsigned* a, const unsigned* b, TILEC_SITE) {
  tilec_mma(tilec_mma_f16_f32, d, a, b, tilec_line);
}
__device__ __forceinline__ void mma_m16n8k16_bf16_f32(float* d, const unsigned* a, const unsigned* b, TILEC_SITE) {
  tilec_mma(tilec_mma_bf16_f32, d, a, b, tilec_line);
}
__device__ __forceinline__ void mma_m16n8k16_f16_f16(unsigned* d, const unsigned* a, const unsigned* b, TILEC_SITE) {
  tilec_mma(tilec_mma_f16_f16, d, a, b, tilec_line);
}
__device__ __forceinline__ void mma_m16n8k8_tf32_f32(float* d, const unsigned* a, const unsigned* b, TILEC_SITE) {
  tilec_mma(tilec_mma_tf32_f32, d, a, b, tilec_line);
}
__device__ __forceinline__ void mma_m16n8k32_s8_s32(int* d, const unsigned* a, const unsigned* b, TILEC_SITE) {
  tilec_mma(tilec_mma_s8_s32, d, a, b, tilec_line);
}
__device__ __forceinline__ void mma_m16n8k32_u8_s32(int* d, const unsigned* a, const unsigned* b, TILEC_SITE) {
  tilec_mma(tilec_mma_u8_s32, d, a, b, tilec_line);
}
__device__ __forceinline__ void mma_m16n8k32_e4m3_f32(float* d, const unsigned* a, const unsigned* b, TILEC_SITE) {
  tilec_mma(tilec_mma_e4m3_f32, d, a, b, tilec_line);
}
__device__ __forceinline__ void mma_m16n8k32_e5m2_f32(float* d, const unsigned* a, const unsigned* b, TILEC_SITE) {
  tilec_mma(tilec_mma_e5m2_f32, d, a, b, tilec_line);
}

// The dense registers of one half (16 columns) of a sparse left operand: each pair of kept elements is in one register of some lane.
inline void tilec_dense_half(unsigned* dense, const unsigned* a, unsigned e, int half, int tilec_line) {
  const int q = static_cast<int>((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 4);
  const int first = static_cast<int>((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32) - q;
  const unsigned marks = __shfl_sync(0xffffffffu, e, first + half, 32, tilec_line);
  for (int r = 0; r < 4; ++r) {
    const int four = q / 2 + r / 2 * 2;
    const unsigned pair = __shfl_sync(0xffffffffu, a[r % 2 + half * 2], first + four, 32, tilec_line);
    const unsigned code = marks >> (r % 2 * 16 + four * 4) & 15u;
    dense[r] = 0;
    for (unsigned n = 0; n < 2; ++n) {
      const unsigned place = static_cast<unsigned>(q % 2 * 2) + n;
      const unsigned kept = place == (code & 3u) ? pair & 0xffffu : place == code >> 2 ? pair >> 16 : 0u;
      dense[r] |= kept << (16 * n);
    }
  }
}
// The same of one half (32 columns) of 8-bit elements.
inline void tilec_dense_bytes(unsigned* dense, const unsigned* a, unsigned e, int half, int tilec_line) {
  const int q = static_cast<int>((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 4);
  const int first = static_cast<int>((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32) - q;
  for (int r = 0; r < 4; ++r) {
    const int four = q + r / 2 * 4;
    const unsigned marks = __shfl_sync(0xffffffffu, e, first + r % 2 + half * 2, 32, tilec_line);
    const unsigned word = __shfl_sync(0xffffffffu, a[r % 2 + half * 2], first + four / 2, 32, tilec_line);
    const unsigned pair = word >> (four % 2 * 16), code = marks >> (four * 4) & 15u;
    dense[r] = (pair & 0xffu) << ((code & 3u) * 8) | (pair >> 8 & 0xffu) << ((code >> 2) * 8);
  }
}
// A sparse product as two dense ones, of the halves that `spread` makes of the left operand.
inline void tilec_mma_sparse(int kind, void (*spread)(unsigned*, const unsigned*, unsigned, int, int), void* d, const unsigned* a,
                             const unsigned* b0, const unsigned* b1, unsigned e, int tilec_line) {
  unsigned dense[2][4];
  for (int half = 0; half < 2; ++half) spread(dense[half], a, e, half, tilec_line);
  tilec_mma(kind, d, dense[0], b0, tilec_line);
  tilec_mma(kind, d, dense[1], b1, tilec_line);
}
__device__ __forceinline__ void mma_sp_m16n8k32_f16_f32(float* d, const unsigned* a, const unsigned* b0, const unsigned* b1, unsigned e, TILEC_SITE) {
  tilec_mma_sparse(tilec_mma_f16_f32, tilec_dense_half, d, a, b0, b1, e, tilec_line);
}
__device__ __forceinline__ void mma_sp_m16n8k32_bf16_f32(float* d, const unsigned* a, const unsigned* b0, const unsigned* b1, unsigned e, TILEC_SITE) {
  tilec_mma_sparse(tilec_mma_bf16_f32, tilec_dense_half, d, a, b0, b1, e, tilec_line);
}
__device__ __forceinline__ void mma_sp_m16n8k64_s8_s32(int* d, const unsigned* a, const unsigned* b0, const unsigned* b1, unsigned e, TILEC_SITE) {
  tilec_mma_sparse(tilec_mma_s8_s32, tilec_dense_bytes, d, a, b0, b1, e, tilec_line);
}
__device__ __forceinline__ void mma_sp_m16n8k64_u8_s32(int* d, const unsigned* a, const unsigned* b0, const unsigned* b1, unsigned e, TILEC_SITE) {
  tilec_mma_sparse(tilec_mma_u8_s32, tilec_dense_bytes, d, a, b0, b1, e, tilec_line);
}

// ---- twins of ../prelude/warp.cuh -------------------------------------------------------------------------------
template <typename T>
__device__ __forceinline__ T shfl_xor(T v, int lane_mask, TILEC_SITE) {
  return __shfl_xor_sync(0xffffffffu, v, lane_mask, 32, tilec_line);
}
template <typename T>
__device__ __forceinline__ T shfl_down(T v, int delta, TILEC_SITE) {
  return __shfl_down_sync(0xffffffffu, v, static_cast<unsigned>(delta), 32, tilec_line);
}
template <typename T>
__device__ __forceinline__ T shfl_up(T v, int delta, TILEC_SITE) {
  return __shfl_up_sync(0xffffffffu, v, static_cast<unsigned>(delta), 32, tilec_line);
}
template <typename T>
__device__ __forceinline__ T shfl_idx(T v, int source, TILEC_SITE) {
  return __shfl_sync(0xffffffffu, v, source, 32, tilec_line);
}
__device__ __forceinline__ void quad_transpose(unsigned* words, int lane, TILEC_SITE) {
  const bool odd = lane % 2 == 1, high = lane / 2 % 2 == 1;
  const unsigned a = shfl_xor(odd ? words[0] : words[1], 1, tilec_line), b = shfl_xor(odd ? words[2] : words[3], 1, tilec_line);
  words[0] = odd ? a : words[0];
  words[1] = odd ? words[1] : a;
  words[2] = odd ? b : words[2];
  words[3] = odd ? words[3] : b;
  const unsigned c = shfl_xor(high ? words[0] : words[2], 2, tilec_line), d = shfl_xor(high ? words[1] : words[3], 2, tilec_line);
  words[0] = high ? c : words[0];
  words[1] = high ? d : words[1];
  words[2] = high ? words[2] : c;
  words[3] = high ? words[3] : d;
}
__device__ __forceinline__ bool any_sync(bool v, TILEC_SITE) { return __any_sync(0xffffffffu, v, tilec_line) != 0; }
__device__ __forceinline__ bool all_sync(bool v, TILEC_SITE) { return __all_sync(0xffffffffu, v, tilec_line) != 0; }

// ---- twins of ../prelude/sync.cuh -------------------------------------------------------------------------------
__device__ __forceinline__ void block_sync(TILEC_SITE) { tilec_block_barrier(tilec_line); }
__device__ __forceinline__ void await_launches(TILEC_SITE) { (void)tilec_line; }
__device__ __forceinline__ void release_launches(TILEC_SITE) { (void)tilec_line; }
__device__ __forceinline__ void warp_sync(TILEC_SITE) { tilec_warp_barrier(0xffffffffu, tilec_line); }
__device__ __forceinline__ void grid_sync(unsigned* arrived, TILEC_SITE) {
  tilec_block_barrier(tilec_line);
  if (threadIdx.x + threadIdx.y + threadIdx.z == 0) tilec_grid_barrier(arrived, tilec_line);
  tilec_block_barrier(tilec_line);
}
template <int id>
__device__ __forceinline__ void barrier_sync(int count, TILEC_SITE) {
  tilec_named_barrier(id, count, true, tilec_line);
}
template <int id>
__device__ __forceinline__ void barrier_arrive(int count, TILEC_SITE) {
  tilec_named_barrier(id, count, false, tilec_line);
}
__device__ __forceinline__ void barrier_sync_at(int id, int count, TILEC_SITE) { tilec_named_barrier(id, count, true, tilec_line); }
__device__ __forceinline__ void barrier_arrive_at(int id, int count, TILEC_SITE) { tilec_named_barrier(id, count, false, tilec_line); }

#include "hopper.h"
#include "cluster.h"
#include "atomic.h"
// Entries that are built from the wrappers alone need no twin: the prelude's own text serves.
#if __has_include("../prelude/reduce.cuh")
#include "../prelude/reduce.cuh"
#endif
#include "../prelude/random.cuh"
