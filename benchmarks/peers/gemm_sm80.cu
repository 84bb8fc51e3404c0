// The hand-written peer of tilec's portable GEMM: C[M,N] = A[M,K] * B, f16 in and out, f32 accumulators, for sm_80 and later.
//
// cp.async ring of STAGES blocks, XOR swizzle, ldmatrix, mma.sync m16n8k16, fragments double-buffered in registers across the
// barrier, persistent blocks whose loads run ahead into the next tile. No includes; M, N and K are multiples of BM, BN and BK.
//
//   nvcc -arch=sm_90 -cubin -DB_KN=1 gemm_sm80.cu        B_KN=0: B is [N,K] (default); 1: B is [K,N]
//   launch: grid min(tiles, multiprocessors), THREADS threads, SHARED_BYTES of dynamic shared memory
#ifndef B_KN
#define B_KN 0
#endif

namespace {

constexpr int BM = 128, BN = 256, BK = 32, WM = 64, WN = 64, STAGES = 4, PANEL = 8;
constexpr int WARPS_N = BN / WN, WARPS = BM / WM * WARPS_N, THREADS = WARPS * 32;
constexpr int MI = WM / 16, NI = WN / 8, K_STEPS = BK / 16;
constexpr int ROW_A = BK * 2, ROW_B = (B_KN ? BN : BK) * 2;  // bytes of a row in shared memory
constexpr int BYTES_A = BM * BK * 2, BYTES_B = BN * BK * 2, STAGE = BYTES_A + BYTES_B;
constexpr int CHUNKS_A = BYTES_A / 16 / THREADS, CHUNKS_B = BYTES_B / 16 / THREADS;  // 16-byte chunks a thread loads per block
constexpr int STEP_A = THREADS / (ROW_A / 16), STEP_B = THREADS / (ROW_B / 16);      // rows between two of them
static_assert(STEP_A % 8 == 0 && STEP_B % 8 == 0, "the swizzle of a thread's chunks is that of its first row");
static_assert(K_STEPS % 2 == 0 && STAGES >= 3, "fragment buffers alternate; one barrier a block");

using half_bits = unsigned short;

extern __shared__ __align__(128) unsigned char shared_memory[];

__device__ __forceinline__ unsigned shared_address(const void* p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); }

// What the 16-byte chunk number of a row is exchanged by.
template <int row_bytes>
__device__ __forceinline__ constexpr unsigned swizzle(unsigned row) {
  return row_bytes >= 128 ? row & 7 : (row / (128 / row_bytes)) & (row_bytes / 16 - 1);
}

__device__ __forceinline__ void copy_16(unsigned dst, const half_bits* src) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(dst), "l"(src) : "memory");
}
__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int pending>
__device__ __forceinline__ void wait() { asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory"); }

template <bool transposed>
__device__ __forceinline__ void load_matrices(unsigned (&r)[4], unsigned address) {
  if constexpr (transposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}
__device__ __forceinline__ void multiply(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ unsigned pack(float lo, float hi) {
  unsigned r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
}

struct Tile {
  int row, col;
};

// Tile number `t` of a raster in panels of PANEL rows of tiles, down first.
__device__ __forceinline__ Tile tile_at(int t, int tiles_m, int tiles_n) {
  const int panel = t / (PANEL * tiles_n), first = panel * PANEL, height = min(tiles_m - first, PANEL), inside = t - first * tiles_n;
  return {(first + inside % height) * BM, inside / height * BN};
}

}  // namespace

extern "C" __global__ void __launch_bounds__(THREADS, 1)
gemm(const half_bits* __restrict__ A, const half_bits* __restrict__ B, half_bits* __restrict__ C, int M, int N, int K) {
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  const int warp_row = warp / WARPS_N * WM, warp_col = warp % WARPS_N * WN;
  const int blocks = K / BK, tiles_m = M / BM, tiles_n = N / BN, tiles = tiles_m * tiles_n;
  const unsigned base = shared_address(shared_memory);

  // The loader is an iterator of its own (tile, block, slot), STAGES - 1 blocks ahead of the arithmetic, also across tiles.
  const int row_a = thread / (ROW_A / 16), col_a = thread % (ROW_A / 16), row_b = thread / (ROW_B / 16), col_b = thread % (ROW_B / 16);
  const unsigned put_a = base + row_a * ROW_A + ((col_a ^ swizzle<ROW_A>(row_a)) << 4);
  const unsigned put_b = base + BYTES_A + row_b * ROW_B + ((col_b ^ swizzle<ROW_B>(row_b)) << 4);
  int load_tile = blockIdx.x, load_block = 0, load_slot = 0;
  const half_bits *next_a = A, *next_b = B;
  const auto begin_tile = [&] {
    const Tile t = tile_at(load_tile, tiles_m, tiles_n);
    next_a = A + static_cast<size_t>(t.row + row_a) * K + col_a * 8;
    next_b = B_KN ? B + static_cast<size_t>(row_b) * N + t.col + col_b * 8 : B + static_cast<size_t>(t.col + row_b) * K + col_b * 8;
  };
  const auto load = [&] {
    if (load_tile < tiles) {
      const unsigned slot = load_slot * STAGE;
#pragma unroll
      for (int i = 0; i < CHUNKS_A; ++i) copy_16(put_a + slot + i * STEP_A * ROW_A, next_a + static_cast<size_t>(i * STEP_A) * K);
#pragma unroll
      for (int i = 0; i < CHUNKS_B; ++i) copy_16(put_b + slot + i * STEP_B * ROW_B, next_b + static_cast<size_t>(i * STEP_B) * (B_KN ? N : K));
    }
    commit();
  };
  const auto advance = [&] {  // apart from `load`: a branch to the next tile would split the arithmetic's basic block
    load_slot = load_slot + 1 == STAGES ? 0 : load_slot + 1;
    next_a += BK;
    next_b += B_KN ? static_cast<size_t>(BK) * N : BK;
    if (++load_block == blocks) {
      load_block = 0;
      load_tile += gridDim.x;
      if (load_tile < tiles) begin_tile();
    }
  };

  // A lane's ldmatrix address inside a slot; a k-step is an exclusive-or (k along the row) or 16 rows further (B [K,N]).
  const int frag_row_a = warp_row + lane % 16, frag_row_b = B_KN ? lane % 16 : warp_col + lane % 8 + lane / 16 * 8;
  const unsigned get_a = base + frag_row_a * ROW_A, mix_a = (lane / 16 ^ swizzle<ROW_A>(frag_row_a)) << 4;
  const unsigned get_b = base + BYTES_A + frag_row_b * ROW_B;
  const unsigned mix_b = ((B_KN ? warp_col / 8 + lane / 16 : lane / 8 % 2) ^ swizzle<ROW_B>(frag_row_b)) << 4;
  unsigned a[2][MI][4], b[2][NI / 2][4];
  float sum[MI][NI][4];
  const auto fragments = [&](int buffer, unsigned slot, int k) {
#pragma unroll
    for (int i = 0; i < MI; ++i) load_matrices<false>(a[buffer][i], get_a + slot + i * 16 * ROW_A + (mix_a ^ (k * 32)));
#pragma unroll
    for (int j = 0; j < NI / 2; ++j)
      load_matrices<B_KN>(b[buffer][j], get_b + slot + (B_KN ? k : j) * 16 * ROW_B + (mix_b ^ ((B_KN ? j : k) * 32)));
  };

  if (load_tile < tiles) begin_tile();
#pragma unroll
  for (int s = 0; s < STAGES - 1; ++s) {
    load();
    advance();
  }
  int slot = 0;
  wait<STAGES - 2>();
  __syncthreads();
  fragments(0, 0, 0);
  for (int t = blockIdx.x; t < tiles; t += gridDim.x) {
#pragma unroll
    for (int i = 0; i < MI; ++i)
#pragma unroll
      for (int j = 0; j < NI; ++j) sum[i][j][0] = sum[i][j][1] = sum[i][j][2] = sum[i][j][3] = 0.f;
    for (int block = 0; block < blocks; ++block) {
#pragma unroll
      for (int k = 0; k < K_STEPS; ++k) {
        if (k == K_STEPS - 1) {  // the next block has landed, and every warp has read this one's last fragments
          wait<STAGES - 2>();
          __syncthreads();
          slot = slot + 1 == STAGES ? 0 : slot + 1;
          fragments((k + 1) % 2, slot * STAGE, 0);
        } else {
          fragments((k + 1) % 2, slot * STAGE, k + 1);
        }
        if (k == 0) load();
#pragma unroll
        for (int i = 0; i < MI; ++i)
#pragma unroll
          for (int n = 0; n < NI; ++n) {
            const int j = i % 2 ? NI - 1 - n : n;  // there and back: the next product shares an operand with the last
            multiply(sum[i][j], a[k % 2][i], b[k % 2][j / 2][j % 2 * 2], b[k % 2][j / 2][j % 2 * 2 + 1]);
          }
      }
      advance();
    }
    // Per warp, 16 rows at a time through shared memory of its own, then 16-byte stores; loads of the next tile are in flight.
    const Tile out = tile_at(t, tiles_m, tiles_n);
    unsigned char* const staging = shared_memory + STAGES * STAGE + warp * 16 * WN * 2;
    constexpr int ROW_CHUNKS = WN / 8;
#pragma unroll
    for (int i = 0; i < MI; ++i) {
      __syncwarp();
#pragma unroll
      for (int j = 0; j < NI; ++j) {
        const unsigned at = ((j ^ swizzle<WN * 2>(lane / 4)) << 4) + lane % 4 * 4;
        *reinterpret_cast<unsigned*>(staging + lane / 4 * WN * 2 + at) = pack(sum[i][j][0], sum[i][j][1]);
        *reinterpret_cast<unsigned*>(staging + (lane / 4 + 8) * WN * 2 + at) = pack(sum[i][j][2], sum[i][j][3]);
      }
      __syncwarp();
#pragma unroll
      for (int r = lane / ROW_CHUNKS; r < 16; r += 32 / ROW_CHUNKS) {
        const int chunk = lane % ROW_CHUNKS, row = out.row + warp_row + i * 16 + r, col = out.col + warp_col + chunk * 8;
        const uint4 v = *reinterpret_cast<const uint4*>(staging + r * WN * 2 + ((chunk ^ swizzle<WN * 2>(r)) << 4));
        *reinterpret_cast<uint4*>(C + static_cast<size_t>(row) * N + col) = v;
      }
    }
  }
  wait<0>();
}
