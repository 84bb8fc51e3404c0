// Which orders through mbarriers compute-sanitizer's racecheck follows. Every kernel but the last is correct: 32 threads write a tile
// and others read it backwards, behind a barrier in shared memory.
//
//     nvcc -std=c++17 -O3 -arch=sm_90 benchmarks/racecheck_orders.cu -o racecheck_orders
//     for k in 0 1 2 3 4 5 6; do compute-sanitizer --tool racecheck ./racecheck_orders $k; done
#include <cstdio>
#include <cstdlib>
#include <cuda/barrier>
#include <cuda_runtime.h>

namespace {

using Barrier = cuda::barrier<cuda::thread_scope_block>;
constexpr int threads = 64;

__device__ unsigned address(const void* p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); }

__device__ void arrive(unsigned long long* barrier) {
  asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared.b64 state, [%0];\n}" ::"r"(address(barrier)) : "memory");
}

__device__ void wait(unsigned long long* barrier) {
  unsigned done = 0;
  while (done == 0)
    asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.parity.shared.b64 p, [%1], 0;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done) : "r"(address(barrier)) : "memory");
}

// Who arrives for the 32 writers: each of them, one behind __syncwarp(), one behind bar.sync, or one that nothing orders behind them.
enum class By { each, lane, thread_after_barrier, nobody_else };

template <By by>
__global__ void written_in_ptx(int* out) {
  __shared__ int tile[32];
  __shared__ alignas(8) unsigned long long barrier;
  const int t = threadIdx.x;
  if (t == 0) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(address(&barrier)), "r"(by == By::each ? 32 : 1) : "memory");
  }
  __syncthreads();
  if (t < 32) {
    tile[t] = t + 1;
    if (by == By::lane) __syncwarp();
    if (by == By::thread_after_barrier) asm volatile("bar.sync 1, 32;" ::: "memory");
    if (by == By::each || t == 31) arrive(&barrier);
  } else {
    wait(&barrier);
    out[t - 32] = tile[63 - t];
  }
}

template <By by>
__global__ void of_the_library(int* out) {
  __shared__ int tile[32];
  __shared__ alignas(Barrier) unsigned char memory[sizeof(Barrier)];
  Barrier& barrier = *reinterpret_cast<Barrier*>(memory);
  const int t = threadIdx.x;
  if (t == 0) init(&barrier, by == By::each ? 64 : 33);
  __syncthreads();
  if (t < 32) {
    tile[t] = t + 1;
    if (by == By::lane) __syncwarp();
    if (by == By::each || t == 31) (void)barrier.arrive();
  } else {
    barrier.arrive_and_wait();
    out[t - 32] = tile[63 - t];
  }
}

}  // namespace

int main(int argc, char** argv) {
  int *out, seen[32];
  cudaMalloc(&out, sizeof seen);
  const char* name = "";
  switch (argc > 1 ? atoi(argv[1]) : 0) {
    case 0: name = "mbarrier, each writer arrives"; written_in_ptx<By::each><<<1, threads>>>(out); break;
    case 1: name = "mbarrier, one lane arrives behind __syncwarp()"; written_in_ptx<By::lane><<<1, threads>>>(out); break;
    case 2: name = "mbarrier, one thread arrives behind bar.sync"; written_in_ptx<By::thread_after_barrier><<<1, threads>>>(out); break;
    case 3: name = "cuda::barrier, each writer arrives"; of_the_library<By::each><<<1, threads>>>(out); break;
    case 4: name = "cuda::barrier, one lane arrives behind __syncwarp()"; of_the_library<By::lane><<<1, threads>>>(out); break;
    case 5: name = "a race: one thread arrives, nothing orders the other writers"; written_in_ptx<By::nobody_else><<<1, threads>>>(out); break;
    default: name = "a race through cuda::barrier"; of_the_library<By::nobody_else><<<1, threads>>>(out); break;
  }
  const cudaError_t state = cudaDeviceSynchronize();
  cudaMemcpy(seen, out, sizeof seen, cudaMemcpyDeviceToHost);
  int right = 0;
  for (int i = 0; i < 32; ++i) right += seen[i] == 32 - i;
  printf("%s: %s, %d of 32 values right\n", name, cudaGetErrorString(state), right);
}
