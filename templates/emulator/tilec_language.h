// The CUDA language as plain C++, and the interface between a generated file and the emulator's runtime.
#pragma once

#define __global__
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __shared__ shared_tiles_are_spelled_with_shared_tile_only
#define TILEC_SITE int tilec_line = __builtin_LINE()

struct uint3 { unsigned x, y, z; };
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

// The running thread's coordinates: plain variables that the scheduler sets before it resumes a thread.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
constexpr int warpSize = 32;

extern "C" {
void* tilec_shared_tile(const char* name, int offset, unsigned long bytes, int line);
unsigned tilec_shared_address(const void* p);
void tilec_check_access(const void* p, int bytes, bool write, int line);
void tilec_cp_async(void* dst, const void* src, int bytes, bool in_range, int line);
void tilec_cp_async_part(void* dst, const void* src, int bytes, int line);
void tilec_cp_async_commit();
void tilec_cp_async_wait(int pending);
void tilec_ldmatrix(unsigned* r, const void* p, int matrices, bool transposed, int line);
void tilec_mma(int kind, void* d, const unsigned* a, const unsigned* b, int line);
void tilec_shuffle(int kind, void* value, int bytes, int lane, unsigned mask, int width, int line);
unsigned tilec_ballot(bool v, unsigned mask, int line);
void tilec_warp_barrier(unsigned mask, int line);
void tilec_block_barrier(int line);
void tilec_named_barrier(int id, int count, bool wait, int line);
void tilec_copy_unchecked(void* dst, const void* src, unsigned long bytes);
void tilec_yield();
unsigned tilec_active_lanes();
void tilec_grid_barrier(unsigned* arrived, int line);
[[noreturn]] void tilec_trap(const char* what, int line);
int printf(const char* format, ...);
void* memcpy(void* dst, const void* src, unsigned long bytes) noexcept;
void* memset(void* dst, int value, unsigned long bytes) noexcept;
}

enum { tilec_shuffle_xor, tilec_shuffle_down, tilec_shuffle_up, tilec_shuffle_idx };
enum {
  tilec_mma_f16_f32, tilec_mma_bf16_f32, tilec_mma_f16_f16, tilec_mma_tf32_f32,
  tilec_mma_s8_s32, tilec_mma_u8_s32, tilec_mma_e4m3_f32, tilec_mma_e5m2_f32
};
