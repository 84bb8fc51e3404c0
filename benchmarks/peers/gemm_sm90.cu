// A hand-written GEMM for Hopper, to measure generated ones against: C[M,N] = A[M,K] B, fp16 in and out, fp32 accumulate.
//
//   nvcc -std=c++17 -shared -Xcompiler -fPIC -gencode arch=compute_90a,code=sm_90a -DB_NK=1 -o gemm_sm90.so gemm_sm90.cu
//
// Tiles of 128 x 256 x 64. One thread keeps four stages filled by TMA, two warp groups multiply 64 rows each by wgmma and write
// through a swizzled staging area; blocks are persistent and take tiles in panels of 16 rows. B is [N,K] with B_NK, else [K,N].
// Rows must start on 16 bytes; everything else is free, as TMA fills with zeros and clips.
#include <cuda_runtime.h>

#ifndef B_NK
#define B_NK 0
#endif

namespace {

constexpr int BM = 128, BN = 256, BK = 64, STAGES = 4, CONSUMERS = 2, CHUNKS = 2, PANEL = 16;
constexpr int THREADS = 128 * (CONSUMERS + 1);
constexpr int A_BYTES = BM * BK * 2, B_BYTES = BN * BK * 2, STAGE = A_BYTES + B_BYTES, CHUNK = 64 * 64 * 2;
constexpr int STAGING = STAGES * STAGE, BARRIERS = STAGING + CONSUMERS * CHUNKS * CHUNK, SHARED = BARRIERS + 16 * STAGES;

struct alignas(128) Map { unsigned long long words[16]; };
using u32 = unsigned;
using u64 = unsigned long long;

#define DEVICE __device__ __forceinline__

DEVICE void wait(u32 barrier, u32 parity) {
  u32 done = 0;
  while (!done)
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
}
DEVICE void arrive(u32 barrier) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory"); }
DEVICE void load(u32 to, const Map* map, u32 barrier, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
               ::"r"(to), "l"(map), "r"(barrier), "r"(x), "r"(y) : "memory");
}
DEVICE void store(const Map* map, u32 from, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map), "r"(from), "r"(x), "r"(y) : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
template <int pending> DEVICE void stores_have_read() { asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory"); }
template <int pending> DEVICE void products_are_done() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory"); }
DEVICE void group_sync(int group) {
  if (group == 0) asm volatile("bar.sync 1, 128;" ::: "memory");
  else asm volatile("bar.sync 2, 128;" ::: "memory");
}
DEVICE u32 pack(float low, float high) {
  u32 word;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}
DEVICE u64 descriptor(u32 at, u32 leading) {
  return static_cast<u64>((at & 0x3ffff) >> 4) | static_cast<u64>(leading >> 4) << 16 | static_cast<u64>(1024 >> 4) << 32 | 1ull << 62;
}

#define D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define D16(i) D4(i), D4(i + 4), D4(i + 8), D4(i + 12)
#define D64(i) D16(i), D16(i + 16), D16(i + 32), D16(i + 48)
DEVICE void multiply(float (&d)[128], u64 a, u64 b, int add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\nwgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {"
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
      "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,"
      "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,"
      "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,"
      "%122,%123,%124,%125,%126,%127}, %128, %129, p, 1, 1, 0, %131;\n}"
      : D64(0), D64(64) : "l"(a), "l"(b), "r"(add), "n"(1 - B_NK));
}

struct Place { int m, n; };
DEVICE Place place_of(int tile, int rows, int columns) {
  const int top = tile / (PANEL * columns) * PANEL, in_panel = tile % (PANEL * columns), height = min(rows - top, PANEL);
  return {(top + in_panel % height) * BM, in_panel / height * BN};
}

__global__ void __launch_bounds__(THREADS, 1)
gemm(const __grid_constant__ Map map_a, const __grid_constant__ Map map_b, const __grid_constant__ Map map_c, int M, int N, int K) {
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char shared[];
  const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0), thread = threadIdx.x % 128;
  const u32 base = static_cast<u32>(__cvta_generic_to_shared(shared)), full = base + BARRIERS, empty = full + 8 * STAGES;
  const int steps = (K + BK - 1) / BK, rows = (M + BM - 1) / BM, columns = (N + BN - 1) / BN, tiles = rows * columns;

  if (threadIdx.x == 128 * CONSUMERS) {
    for (int s = 0; s < STAGES; ++s) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(full + 8 * s) : "memory");
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(empty + 8 * s), "r"(CONSUMERS) : "memory");
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  if (group < CONSUMERS) asm volatile("bar.sync 3, %0;" ::"n"(128 * CONSUMERS + 32) : "memory");
  else if (thread < 32) {
    __syncwarp();
    asm volatile("bar.arrive 3, %0;" ::"n"(128 * CONSUMERS + 32) : "memory");
  }

  int stage = 0;
  u32 phase = 0;
  if (group == CONSUMERS) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (thread == 0) {
      for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const Place at = place_of(tile, rows, columns);
        for (int k = 0; k < steps; ++k) {
          const u32 a = base + stage * STAGE, b = a + A_BYTES, barrier = full + 8 * stage;
          wait(empty + 8 * stage, phase ^ 1);
          asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(STAGE) : "memory");
          load(a, &map_a, barrier, k * BK, at.m);
          if (B_NK) load(b, &map_b, barrier, k * BK, at.n);
          else
            for (int j = 0; j < BN / 64; ++j) load(b + j * BK * 128, &map_b, barrier, at.n + j * 64, k * BK);
          if (++stage == STAGES) {
            stage = 0;
            phase ^= 1;
          }
        }
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    float acc[128];
    const int lane = thread % 32, row = thread / 32 * 16 + lane % 16;
    const u64 desc_a = descriptor(base + group * 64 * 128, 16), desc_b = descriptor(base + A_BYTES, B_NK ? 16 : BK * 128);
    const u32 staging = base + STAGING + group * CHUNKS * CHUNK;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
      const Place at = place_of(tile, rows, columns);
      const bool lag = steps > STAGES;
      if (lag && group == 1) asm volatile("bar.sync 4, 256;" ::: "memory");
      int previous = 0;
      for (int k = 0; k < steps; ++k) {
        wait(full + 8 * stage, phase);
        const u64 a = desc_a + stage * (STAGE >> 4), b = desc_b + stage * (STAGE >> 4);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int kk = 0; kk < BK / 16; ++kk) multiply(acc, a + kk * 2, b + kk * (B_NK ? 2 : 128), kk > 0 || k > 0);
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        products_are_done<1>();
        if (k > 0 && thread == 0) arrive(empty + 8 * previous);
        previous = stage;
        if (lag && k == 0 && group == 0) asm volatile("bar.arrive 4, 256;" ::: "memory");
        if (++stage == STAGES) {
          stage = 0;
          phase ^= 1;
        }
      }
      products_are_done<0>();
      if (steps > 0 && thread == 0) arrive(empty + 8 * previous);
#pragma unroll
      for (int c = 0; c < BN / 64; ++c) {
        const u32 chunk = staging + c % CHUNKS * CHUNK;
        if (thread == 0) stores_have_read<CHUNKS - 1>();
        group_sync(group);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const float* d = acc + c * 32 + j * 8;
          asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                       ::"r"(chunk + row * 128 + (((j * 2 + lane / 16) ^ row % 8) << 4)), "r"(pack(d[0], d[1])), "r"(pack(d[2], d[3])),
                         "r"(pack(d[4], d[5])), "r"(pack(d[6], d[7])) : "memory");
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        group_sync(group);
        if (thread == 0) store(&map_c, chunk, at.n + c * 64, at.m + group * 64);
      }
    }
    stores_have_read<0>();
  }
#endif
}

// A row-major matrix of halves, boxes of 64 columns, swizzled over 128 bytes.
cudaError_t describe(Map* map, const void* p, int inner, int outer, int box_rows) {
  using Encode = int (*)(void*, int, u32, void*, const u64*, const u64*, const u32*, const u32*, int, int, int, int);
  void* found = nullptr;
  cudaDriverEntryPointQueryResult query;
  const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &query);
  if (error != cudaSuccess) return error;
  const u64 extents[] = {static_cast<u64>(inner), static_cast<u64>(outer)}, pitch[] = {static_cast<u64>(inner) * 2};
  const u32 box[] = {64, static_cast<u32>(box_rows)}, steps[] = {1, 1};
  const int bad = reinterpret_cast<Encode>(found)(map, 6, 2, const_cast<void*>(p), extents, pitch, box, steps, 0, 3, pitch[0] % 128 ? 2 : 3, 0);
  return bad ? cudaErrorInvalidValue : cudaSuccess;
}

}  // namespace

extern "C" cudaError_t gemm_launch(const void* A, const void* B, void* C, int M, int K, int N, cudaStream_t stream) {
  if (K % 8 || N % 8) return cudaErrorInvalidValue;
  Map a, b, c;
  cudaError_t error = describe(&a, A, K, M, BM);
  if (error == cudaSuccess) error = B_NK ? describe(&b, B, K, N, BN) : describe(&b, B, N, K, BK);
  if (error == cudaSuccess) error = describe(&c, C, N, M, 64);
  int device = 0, count = 0;
  if (error == cudaSuccess) error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  if (error == cudaSuccess) error = cudaFuncSetAttribute(gemm, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED);
  if (error != cudaSuccess) return error;
  const int tiles = (M + BM - 1) / BM * ((N + BN - 1) / BN);
  gemm<<<tiles < count ? tiles : count, THREADS, SHARED, stream>>>(a, b, c, M, N, K);
  return cudaGetLastError();
}
