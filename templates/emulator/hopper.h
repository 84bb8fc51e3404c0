// Twins of ../prelude/hopper.cuh and of the products of warp groups; bodies in runtime/hopper*.cpp.
#pragma once

struct alignas(128) TensorMap {
  unsigned long long opaque[16];
};

#include "hopper_calls.h"

__device__ __forceinline__ int warp_group_index(TILEC_SITE) {
  return __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 128), 0, 32, tilec_line);
}
__device__ __forceinline__ bool grid_exists() { return true; }
__device__ __forceinline__ int thread_index_anew() { return static_cast<int>(threadIdx.x); }
template <int n>
__device__ __forceinline__ void registers_give(TILEC_SITE) {
  tilec_registers(n, false, tilec_line);
}
template <int n>
__device__ __forceinline__ void registers_take(TILEC_SITE) {
  tilec_registers(n, true, tilec_line);
}

__device__ __forceinline__ void mbarrier_init(unsigned long long* barrier, int count, TILEC_SITE) { tilec_mbarrier_init(barrier, count, tilec_line); }
__device__ __forceinline__ void mbarrier_init_fence() {}
__device__ __forceinline__ void mbarrier_arrive(unsigned long long* barrier, TILEC_SITE) { tilec_mbarrier_arrive(barrier, 0, false, tilec_line); }
__device__ __forceinline__ void mbarrier_expect(unsigned long long* barrier, int bytes, TILEC_SITE) {
  tilec_mbarrier_arrive(barrier, bytes, true, tilec_line);
}
__device__ __forceinline__ void mbarrier_wait(unsigned long long* barrier, unsigned parity, TILEC_SITE) {
  tilec_mbarrier_wait(barrier, parity, tilec_line);
}
__device__ __forceinline__ void mbarrier_expect_bytes(unsigned long long* barrier, int bytes, TILEC_SITE) {
  tilec_mbarrier_expect(barrier, bytes, tilec_line);
}
__device__ __forceinline__ void mbarrier_arrive_copies(unsigned long long* barrier, TILEC_SITE) { tilec_mbarrier_arrive_copies(barrier, tilec_line); }
__device__ __forceinline__ void mbarrier_arrive_portable(unsigned long long* barrier, TILEC_SITE) { tilec_mbarrier_arrive(barrier, 0, false, tilec_line); }
__device__ __forceinline__ void mbarrier_wait_portable(unsigned long long* barrier, unsigned parity, TILEC_SITE) {
  tilec_mbarrier_wait(barrier, parity, tilec_line);
}
__device__ __forceinline__ void fence_proxy_async() { tilec_fence_proxy_async(); }

__device__ __forceinline__ void tma_prefetch(const TensorMap*) {}
__device__ __forceinline__ void tma_load_1d(void* dst, const TensorMap* map, unsigned long long* barrier, int x, TILEC_SITE) {
  tilec_tma_load(dst, map, barrier, 1, x, 0, 0, 0, 0, tilec_line);
}
__device__ __forceinline__ void tma_load_2d(void* dst, const TensorMap* map, unsigned long long* barrier, int x, int y, TILEC_SITE) {
  tilec_tma_load(dst, map, barrier, 2, x, y, 0, 0, 0, tilec_line);
}
__device__ __forceinline__ void tma_load_3d(void* dst, const TensorMap* map, unsigned long long* barrier, int x, int y, int z, TILEC_SITE) {
  tilec_tma_load(dst, map, barrier, 3, x, y, z, 0, 0, tilec_line);
}
__device__ __forceinline__ void tma_load_4d(void* dst, const TensorMap* map, unsigned long long* barrier, int x, int y, int z, int u, TILEC_SITE) {
  tilec_tma_load(dst, map, barrier, 4, x, y, z, u, 0, tilec_line);
}
__device__ __forceinline__ void tma_load_5d(void* dst, const TensorMap* map, unsigned long long* barrier, int x, int y, int z, int u, int v,
                                            TILEC_SITE) {
  tilec_tma_load(dst, map, barrier, 5, x, y, z, u, v, tilec_line);
}
__device__ __forceinline__ void tma_load_2d_once(void* dst, const TensorMap* map, unsigned long long* barrier, int x, int y, TILEC_SITE) {
  tilec_tma_load(dst, map, barrier, 2, x, y, 0, 0, 0, tilec_line);
}
__device__ __forceinline__ void tma_load_2d_multicast(void* dst, const TensorMap* map, unsigned long long* barrier, int x, int y,
                                                      unsigned short blocks, TILEC_SITE) {
  tilec_tma_multicast(dst, map, barrier, 2, x, y, 0, 0, 0, blocks, tilec_line);
}
__device__ __forceinline__ void tma_store_1d(const TensorMap* map, const void* src, int x, TILEC_SITE) {
  tilec_tma_store(map, src, 1, x, 0, 0, 0, 0, tilec_line);
}
__device__ __forceinline__ void tma_store_2d(const TensorMap* map, const void* src, int x, int y, TILEC_SITE) {
  tilec_tma_store(map, src, 2, x, y, 0, 0, 0, tilec_line);
}
__device__ __forceinline__ void tma_store_3d(const TensorMap* map, const void* src, int x, int y, int z, TILEC_SITE) {
  tilec_tma_store(map, src, 3, x, y, z, 0, 0, tilec_line);
}
__device__ __forceinline__ void tma_store_4d(const TensorMap* map, const void* src, int x, int y, int z, int u, TILEC_SITE) {
  tilec_tma_store(map, src, 4, x, y, z, u, 0, tilec_line);
}
__device__ __forceinline__ void tma_store_5d(const TensorMap* map, const void* src, int x, int y, int z, int u, int v, TILEC_SITE) {
  tilec_tma_store(map, src, 5, x, y, z, u, v, tilec_line);
}
__device__ __forceinline__ void tma_add_2d(const TensorMap* map, const void* src, int x, int y, TILEC_SITE) {
  tilec_tma_add(map, src, 2, x, y, 0, 0, 0, tilec_line);
}
__device__ __forceinline__ void tma_add_3d(const TensorMap* map, const void* src, int x, int y, int z, TILEC_SITE) {
  tilec_tma_add(map, src, 3, x, y, z, 0, 0, tilec_line);
}
__device__ __forceinline__ void tma_add_4d(const TensorMap* map, const void* src, int x, int y, int z, int u, TILEC_SITE) {
  tilec_tma_add(map, src, 4, x, y, z, u, 0, tilec_line);
}
__device__ __forceinline__ void tma_add_5d(const TensorMap* map, const void* src, int x, int y, int z, int u, int v, TILEC_SITE) {
  tilec_tma_add(map, src, 5, x, y, z, u, v, tilec_line);
}
__device__ __forceinline__ void bulk_commit() { tilec_bulk_commit(); }
template <int pending>
__device__ __forceinline__ void bulk_wait_read() {
  tilec_bulk_wait_read(pending);
}
__device__ __forceinline__ void stmatrix_x4(void* p, unsigned r0, unsigned r1, unsigned r2, unsigned r3, TILEC_SITE) {
  tilec_stmatrix_x4(p, r0, r1, r2, r3, tilec_line);
}
__device__ __forceinline__ void warp_group_sync(int warp_group, TILEC_SITE) { tilec_named_barrier(warp_group + 1, 128, true, tilec_line); }

__device__ __forceinline__ unsigned long long wgmma_descriptor(const void* p, int leading, int stride, int swizzle, TILEC_SITE) {
  return tilec_wgmma_descriptor(p, leading, stride, swizzle, tilec_line);
}
__device__ __forceinline__ unsigned long long wgmma_descriptor_anew(const void* p, int leading, int stride, int swizzle, TILEC_SITE) {
  return tilec_wgmma_descriptor(p, leading, stride, swizzle, tilec_line);
}
__device__ __forceinline__ void wgmma_fence() { tilec_wgmma_fence(); }
__device__ __forceinline__ void wgmma_commit() { tilec_wgmma_commit(); }
template <int n>
__device__ __forceinline__ void wgmma_settle(float*) {}
template <int n>
__device__ __forceinline__ void wgmma_forget(float*) {}
template <int n>
__device__ __forceinline__ void wgmma_settle_words(unsigned*) {}
template <int pending>
__device__ __forceinline__ void wgmma_wait(TILEC_SITE) {
  tilec_wgmma_wait(pending, tilec_line);
}

// Every product that the prelude can write: one for each n and type.
#define TILEC_WGMMA_16(n, type, kind)                                                                                              \
  template <int trans_a, int trans_b>                                                                                             \
  inline void wgmma_m64n##n##k16_##kind(type* d, unsigned long long a, unsigned long long b, bool accumulate, TILEC_SITE) {        \
    tilec_wgmma(tilec_wgmma_##kind, n, d, a, b, accumulate, trans_a != 0, trans_b != 0, tilec_line);                               \
  }                                                                                                                               \
  template <int trans_b>                                                                                                          \
  inline void wgmma_m64n##n##k16_##kind##_held(type* d, const unsigned* a, unsigned long long b, bool accumulate, TILEC_SITE) {    \
    tilec_wgmma_held(tilec_wgmma_##kind, n, d, a, b, accumulate, trans_b != 0, tilec_line);                                        \
  }
#define TILEC_WGMMA(n, depth, type, kind)                                                                                            \
  inline void wgmma_m64n##n##k##depth##_##kind(type* d, unsigned long long a, unsigned long long b, bool accumulate, TILEC_SITE) {     \
    tilec_wgmma(tilec_wgmma_##kind, n, d, a, b, accumulate, false, false, tilec_line);                                             \
  }                                                                                                                                 \
  inline void wgmma_m64n##n##k##depth##_##kind##_held(type* d, const unsigned* a, unsigned long long b, bool accumulate, TILEC_SITE) { \
    tilec_wgmma_held(tilec_wgmma_##kind, n, d, a, b, accumulate, false, tilec_line);                                               \
  }
#define TILEC_WGMMA_N(n)                  \
  TILEC_WGMMA_16(n, float, f16_f32)       \
  TILEC_WGMMA_16(n, float, bf16_f32)      \
  TILEC_WGMMA_16(n, unsigned, f16_f16)    \
  TILEC_WGMMA(n, 8, float, tf32_f32)      \
  TILEC_WGMMA(n, 32, int, s8_s32)         \
  TILEC_WGMMA(n, 32, int, u8_s32)         \
  TILEC_WGMMA(n, 32, float, e4m3_f32)     \
  TILEC_WGMMA(n, 32, float, e5m2_f32)     \
  TILEC_WGMMA(n, 32, unsigned, e4m3_f16)  \
  TILEC_WGMMA(n, 32, unsigned, e5m2_f16)
TILEC_WGMMA_N(8) TILEC_WGMMA_N(16) TILEC_WGMMA_N(24) TILEC_WGMMA_N(32) TILEC_WGMMA_N(40) TILEC_WGMMA_N(48) TILEC_WGMMA_N(56)
TILEC_WGMMA_N(64) TILEC_WGMMA_N(72) TILEC_WGMMA_N(80) TILEC_WGMMA_N(88) TILEC_WGMMA_N(96) TILEC_WGMMA_N(104) TILEC_WGMMA_N(112)
TILEC_WGMMA_N(120) TILEC_WGMMA_N(128) TILEC_WGMMA_N(136) TILEC_WGMMA_N(144) TILEC_WGMMA_N(152) TILEC_WGMMA_N(160) TILEC_WGMMA_N(168)
TILEC_WGMMA_N(176) TILEC_WGMMA_N(184) TILEC_WGMMA_N(192) TILEC_WGMMA_N(200) TILEC_WGMMA_N(208) TILEC_WGMMA_N(216) TILEC_WGMMA_N(224)
TILEC_WGMMA_N(232) TILEC_WGMMA_N(240) TILEC_WGMMA_N(248) TILEC_WGMMA_N(256)
#undef TILEC_WGMMA_N
#undef TILEC_WGMMA
#undef TILEC_WGMMA_16
