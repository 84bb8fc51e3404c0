// gemm: hand-written in the form of a generated file. C = A * B with edges in every dimension, f16 in, f32 out.
//
// tilec-manifest-begin
// {"version": 1, "kernels": [{"symbol": "gemm", "source": {"file": "gemm.py", "line": 1}, "workspace": "0",
//   "params": [{"name": "A", "dtype": "float16", "shape": ["M", "K"], "role": "in"},
//              {"name": "B", "dtype": "float16", "shape": ["K", "N"], "role": "in"},
//              {"name": "C", "dtype": "float32", "shape": ["M", "N"], "role": "out"}],
//   "extents": [{"name": "M", "dtype": "int32"}, {"name": "N", "dtype": "int32"}, {"name": "K", "dtype": "int32"}],
//   "flop": "2 * M * N * K", "bytes": "2 * M * K + 2 * K * N + 4 * M * N",
//   "launches": [{"variants": [{"symbol": "gemm", "arch": "sm_80", "when": "K % 8 == 0 and N % 8 == 0",
//     "args": ["A", "B", "C", "M", "N", "K"], "grid": ["ceildiv(N, 64)", "ceildiv(M, 64)", "1"], "block": [128, 1, 1],
//     "shared_bytes": 16384}]}]}]}
// tilec-manifest-end

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#error "gemm was written for sm_80 and newer: nvcc -arch=sm_80"
#endif

// ---- prelude: the instructions this file uses, one wrapper each -------------------------------------------------
@PRELUDE half_t shared_tile cp_async_16_zfill cp_async_commit cp_async_wait ldmatrix_x4 ldmatrix_x4_trans mma_m16n8k16_f16_f32@
// ---- end of prelude -----------------------------------------------------------------------------------------------

namespace {
__device__ __forceinline__ int A_shared_at(int row, int col) { return row * 32 + ((col / 8) ^ (row / 2 % 4)) * 8 + col % 8; }
__device__ __forceinline__ int B_shared_at(int row, int col) { return row * 64 + ((col / 8) ^ (row % 8)) * 8 + col % 8; }
}  // namespace

extern "C" __global__ void __launch_bounds__(128)
gemm(const half_t* __restrict__ A, const half_t* __restrict__ B, float* __restrict__ C, int M, int N, int K) {
  half_t* const A_shared = shared_tile<half_t, 4096>(0);     // [2][64][32]
  half_t* const B_shared = shared_tile<half_t, 4096>(8192);  // [2][32][64]
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const int row0 = blockIdx.y * 64, col0 = blockIdx.x * 64, warp_row = warp / 2 * 32, warp_col = warp % 2 * 32;
  float C_local[2][4][4] = {};

  const auto copy = [&](int ko, int stage) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int chunk = thread + i * 128, row = chunk / 4, col = chunk % 4 * 8;
      const bool in_range = row0 + row < M && ko * 32 + col < K;
      cp_async_16_zfill(A_shared + stage * 2048 + A_shared_at(row, col), in_range ? A + static_cast<long long>(row0 + row) * K + ko * 32 + col : A, in_range);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int chunk = thread + i * 128, row = chunk / 8, col = chunk % 8 * 8;
      const bool in_range = ko * 32 + row < K && col0 + col < N;
      cp_async_16_zfill(B_shared + stage * 2048 + B_shared_at(row, col), in_range ? B + static_cast<long long>(ko * 32 + row) * N + col0 + col : B, in_range);
    }
  };

  const int steps = (K + 31) / 32;
  if (steps > 0) copy(0, 0);
  cp_async_commit();
  for (int ko = 0; ko < steps; ++ko) {
    if (ko + 1 < steps) copy(ko + 1, (ko + 1) % 2);
    cp_async_commit();
    cp_async_wait<1>();
    __syncthreads();
    const half_t* const A_tile = A_shared + ko % 2 * 2048;
    const half_t* const B_tile = B_shared + ko % 2 * 2048;
#pragma unroll
    for (int k = 0; k < 32; k += 16) {
      unsigned a[2][4], b[2][4];
#pragma unroll
      for (int m = 0; m < 2; ++m)
        ldmatrix_x4(a[m], A_tile + A_shared_at(warp_row + m * 16 + lane % 16, k + lane / 16 * 8));
#pragma unroll
      for (int n = 0; n < 2; ++n)
        ldmatrix_x4_trans(b[n], B_tile + B_shared_at(k + lane % 16, warp_col + n * 16 + lane / 16 * 8));
#pragma unroll
      for (int m = 0; m < 2; ++m)
#pragma unroll
        for (int n = 0; n < 4; ++n)
          mma_m16n8k16_f16_f32(C_local[m][n], a[m], b[n / 2] + n % 2 * 2);
    }
    __syncthreads();
  }

#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int n = 0; n < 4; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int row = row0 + warp_row + m * 16 + e / 2 * 8 + lane / 4, col = col0 + warp_col + n * 8 + lane % 4 * 2 + e % 2;
        if (row < M && col < N) C[static_cast<long long>(row) * N + col] = C_local[m][n][e];
      }
}

#ifndef __CUDACC_RTC__
// Queues gemm on `stream`.
extern "C" cudaError_t gemm_launch(const void* A, const void* B, void* C, int M, int N, int K, cudaStream_t stream) {
  const auto aligned = [](const void* p) { return reinterpret_cast<unsigned long long>(p) % 16 == 0; };
  if (!aligned(A) || !aligned(B) || !aligned(C)) return cudaErrorMisalignedAddress;
  if (K % 8 != 0 || N % 8 != 0) return cudaErrorInvalidValue;
  if (M == 0 || N == 0) return cudaSuccess;
  const void* const kernel = reinterpret_cast<const void*>(gemm);
  cudaLaunchConfig_t launch = {};
  launch.gridDim = dim3((N + 63) / 64, (M + 63) / 64, 1);
  launch.blockDim = dim3(128, 1, 1);
  launch.dynamicSmemBytes = 16384;
  launch.stream = stream;
  void* arguments[] = {&A, &B, &C, &M, &N, &K};
  return cudaLaunchKernelExC(&launch, kernel, arguments);
}
#endif
