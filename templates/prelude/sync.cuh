// Barriers: of the block, of a warp, and of some warps of a block.

//@ block_sync
// Waits for every thread of the block.
__device__ __forceinline__ void block_sync() { __syncthreads(); }

//@ await_launches
// Waits until the launches in front in the stream have ended and what they wrote is visible.
__device__ __forceinline__ void await_launches() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

//@ release_launches
// Lets the next launch that waits by itself begin, once all blocks have come here or ended.
__device__ __forceinline__ void release_launches() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

//@ warp_sync
// Waits for every lane of the warp.
__device__ __forceinline__ void warp_sync() { __syncwarp(); }

//@ barrier_sync
// Waits at named barrier `id` (1 to 15) until `count` threads have come, these included; count is a multiple of 32.
template <int id>
__device__ __forceinline__ void barrier_sync(int count) {
  asm volatile("bar.sync %0, %1;" ::"n"(id), "r"(count) : "memory");
}

//@ barrier_arrive
// Counts as come at named barrier `id` without waiting.
template <int id>
__device__ __forceinline__ void barrier_arrive(int count) {
  asm volatile("bar.arrive %0, %1;" ::"n"(id), "r"(count) : "memory");
}

//@ barrier_sync_at
// Waits at the barrier of that number until `count` threads have come; all threads of a warp give the same number.
__device__ __forceinline__ void barrier_sync_at(int id, int count) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(count) : "memory"); }

//@ barrier_arrive_at
// Counts as come at the barrier of that number without waiting.
__device__ __forceinline__ void barrier_arrive_at(int id, int count) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(count) : "memory"); }

//@ grid_sync
// Waits for all threads of all blocks of a cooperative launch; *arrived, 0 at the start, counts the blocks that have come.
__device__ __forceinline__ void grid_sync(unsigned* arrived) {
  __syncthreads();
  if (threadIdx.x + threadIdx.y + threadIdx.z == 0) {
    const unsigned blocks = gridDim.x * gridDim.y * gridDim.z;
    __threadfence();
    const unsigned wanted = (atomicAdd(arrived, 1u) / blocks + 1) * blocks;
    unsigned seen;
    do {
      asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(seen) : "l"(arrived) : "memory");
    } while (seen < wanted);
    __threadfence();
  }
  __syncthreads();
}
