// Hopper: barriers that count bytes, the copy engine, products of warp groups, and register hand-over (sm_90a).
// The copy engine ("async proxy") and ordinary instructions see shared memory through different doors: what threads have
// written is visible to it only behind fence_proxy_async.

//@ tensor_map
// A tensor as the copy engine sees it; the launcher fills it in, see encode_tensor_map.
struct alignas(128) TensorMap {
  unsigned long long opaque[16];
};

//@ warp_group_index
// The number of this thread's warp group, the same register for the whole warp.
__device__ __forceinline__ int warp_group_index() { return __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 128), 0); }

//@ thread_index_anew
// threadIdx.x, which the compiler neither knows from before nor keeps.
__device__ __forceinline__ int thread_index_anew() {
  int x;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(x));
  return x;
}

//@ grid_exists
// True, which the compiler cannot know: it does not move loads from behind a branch on it to the front.
__device__ __forceinline__ bool grid_exists() {
  unsigned x;
  asm volatile("mov.u32 %0, %%nctaid.x;" : "=r"(x));
  return x != 0;
}

//@ registers_give
// Hands registers back until each thread of the warp group has n.
template <int n>
__device__ __forceinline__ void registers_give() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(n));
}

//@ registers_take
// Waits until each thread of the warp group can have n registers, and takes them.
template <int n>
__device__ __forceinline__ void registers_take() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(n));
}

//@ mbarrier_init needs: shared_address
// A barrier whose phases end after `count` arrivals and all bytes that were announced.
__device__ __forceinline__ void mbarrier_init(unsigned long long* barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count) : "memory");
}

//@ mbarrier_init_fence
// Makes barriers that were initialised known to the copy engine and, behind a barrier of the block, to other threads.
__device__ __forceinline__ void mbarrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

//@ mbarrier_arrive needs: shared_address
// One arrival.
__device__ __forceinline__ void mbarrier_arrive(unsigned long long* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

//@ mbarrier_expect needs: shared_address
// One arrival, which announces that the copy engine will deliver `bytes` in this phase.
__device__ __forceinline__ void mbarrier_expect(unsigned long long* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
}

//@ mbarrier_wait needs: shared_address
// Waits until the phase of this parity is over. A new barrier is in phase 0: waiting for parity 1 returns at once.
__device__ __forceinline__ void mbarrier_wait(unsigned long long* barrier, unsigned parity) {
  const unsigned address = shared_address(barrier);
  unsigned done = 0;
  while (done == 0) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}"
        : "=r"(done) : "r"(address), "r"(parity) : "memory");
  }
}

//@ mbarrier_expect_bytes needs: shared_address
// Announces that the copy engine will deliver `bytes` more in this phase.
__device__ __forceinline__ void mbarrier_expect_bytes(unsigned long long* barrier, int bytes) {
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
}

//@ mbarrier_arrive_copies needs: shared_address
// One arrival, once the asynchronous copies that this thread has begun are complete. Nobody waits for that here.
__device__ __forceinline__ void mbarrier_arrive_copies(unsigned long long* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}

//@ mbarrier_arrive_portable needs: shared_address
// mbarrier_arrive for sm_80 and newer.
__device__ __forceinline__ void mbarrier_arrive_portable(unsigned long long* barrier) {
  asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared.b64 state, [%0];\n}" ::"r"(shared_address(barrier)) : "memory");
}

//@ mbarrier_wait_portable needs: shared_address
// mbarrier_wait for sm_80 and newer.
__device__ __forceinline__ void mbarrier_wait_portable(unsigned long long* barrier, unsigned parity) {
  const unsigned address = shared_address(barrier);
  unsigned done = 0;
  while (done == 0) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.test_wait.parity.shared.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}"
        : "=r"(done) : "r"(address), "r"(parity) : "memory");
  }
}

//@ fence_proxy_async
// Lets the copy engine and wgmma see what this thread has written to shared memory.
__device__ __forceinline__ void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

//@ tma_prefetch needs: tensor_map
// Brings the description of a tensor into the cache.
__device__ __forceinline__ void tma_prefetch(const TensorMap* map) { asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory"); }

//@ tma_load_1d needs: tensor_map shared_address
// Queues a box of the tensor that starts at (x): to shared memory, zeros out of range, its bytes counted by `barrier`.
__device__ __forceinline__ void tma_load_1d(void* dst, const TensorMap* map, unsigned long long* barrier, int x) {
  asm volatile("cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3}], [%2];"
               ::"r"(shared_address(dst)), "l"(map), "r"(shared_address(barrier)), "r"(x) : "memory");
}

//@ tma_load_2d needs: tensor_map shared_address
// Queues a box of the tensor that starts at (x, y), x innermost: to shared memory, zeros out of range, its bytes counted by `barrier`.
__device__ __forceinline__ void tma_load_2d(void* dst, const TensorMap* map, unsigned long long* barrier, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
               ::"r"(shared_address(dst)), "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y) : "memory");
}

//@ tma_load_3d needs: tensor_map shared_address
// Queues a box of the tensor that starts at (x, y, z), x innermost.
__device__ __forceinline__ void tma_load_3d(void* dst, const TensorMap* map, unsigned long long* barrier, int x, int y, int z) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];"
               ::"r"(shared_address(dst)), "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z) : "memory");
}

//@ tma_load_4d needs: tensor_map shared_address
// Queues a box of the tensor that starts at (x, y, z, u), x innermost.
__device__ __forceinline__ void tma_load_4d(void* dst, const TensorMap* map, unsigned long long* barrier, int x, int y, int z, int u) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];"
               ::"r"(shared_address(dst)), "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z), "r"(u) : "memory");
}

//@ tma_load_5d needs: tensor_map shared_address
// Queues a box of the tensor that starts at (x, y, z, u, v), x innermost.
__device__ __forceinline__ void tma_load_5d(void* dst, const TensorMap* map, unsigned long long* barrier, int x, int y, int z, int u, int v) {
  asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, %7}], [%2];"
               ::"r"(shared_address(dst)), "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z), "r"(u), "r"(v) : "memory");
}

//@ tma_load_2d_once needs: tensor_map shared_address
// tma_load_2d of data that no other block reads: the L2 cache may drop it first.
__device__ __forceinline__ void tma_load_2d_once(void* dst, const TensorMap* map, unsigned long long* barrier, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5;"
               ::"r"(shared_address(dst)), "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "l"(0x12f0000000000000ull) : "memory");
}

//@ tma_load_2d_multicast needs: tensor_map shared_address
// tma_load_2d into the same place of every block of the cluster whose bit is set in `blocks`, counted by the barrier there.
__device__ __forceinline__ void tma_load_2d_multicast(void* dst, const TensorMap* map, unsigned long long* barrier, int x, int y,
                                                      unsigned short blocks) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;"
               ::"r"(shared_address(dst)), "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "h"(blocks) : "memory");
}

//@ tma_store_1d needs: tensor_map shared_address
// Queues a box from shared memory to the tensor at (x); what lies out of range is dropped. Belongs to the next bulk_commit.
__device__ __forceinline__ void tma_store_1d(const TensorMap* map, const void* src, int x) {
  asm volatile("cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%0, {%2}], [%1];"
               ::"l"(map), "r"(shared_address(src)), "r"(x) : "memory");
}

//@ tma_store_2d needs: tensor_map shared_address
// Queues a box from shared memory to the tensor at (x, y); what lies out of range is dropped. Belongs to the next bulk_commit.
__device__ __forceinline__ void tma_store_2d(const TensorMap* map, const void* src, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];"
               ::"l"(map), "r"(shared_address(src)), "r"(x), "r"(y) : "memory");
}

//@ tma_store_3d needs: tensor_map shared_address
// Queues a box from shared memory to the tensor at (x, y, z).
__device__ __forceinline__ void tma_store_3d(const TensorMap* map, const void* src, int x, int y, int z) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];"
               ::"l"(map), "r"(shared_address(src)), "r"(x), "r"(y), "r"(z) : "memory");
}

//@ tma_store_4d needs: tensor_map shared_address
// Queues a box from shared memory to the tensor at (x, y, z, u).
__device__ __forceinline__ void tma_store_4d(const TensorMap* map, const void* src, int x, int y, int z, int u) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];"
               ::"l"(map), "r"(shared_address(src)), "r"(x), "r"(y), "r"(z), "r"(u) : "memory");
}

//@ tma_store_5d needs: tensor_map shared_address
// Queues a box from shared memory to the tensor at (x, y, z, u, v).
__device__ __forceinline__ void tma_store_5d(const TensorMap* map, const void* src, int x, int y, int z, int u, int v) {
  asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];"
               ::"l"(map), "r"(shared_address(src)), "r"(x), "r"(y), "r"(z), "r"(u), "r"(v) : "memory");
}

//@ tma_add_2d needs: tensor_map shared_address
// Queues the addition of a box from shared memory to the float32 tensor at (x, y); what lies out of range is dropped.
__device__ __forceinline__ void tma_add_2d(const TensorMap* map, const void* src, int x, int y) {
  asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%2, %3}], [%1];"
               ::"l"(map), "r"(shared_address(src)), "r"(x), "r"(y) : "memory");
}

//@ tma_add_3d needs: tensor_map shared_address
// Queues the addition of a box from shared memory to the float32 tensor at (x, y, z); what lies out of range is dropped.
__device__ __forceinline__ void tma_add_3d(const TensorMap* map, const void* src, int x, int y, int z) {
  asm volatile("cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.tile.bulk_group [%0, {%2, %3, %4}], [%1];"
               ::"l"(map), "r"(shared_address(src)), "r"(x), "r"(y), "r"(z) : "memory");
}

//@ tma_add_4d needs: tensor_map shared_address
// Queues the addition of a box from shared memory to the float32 tensor at (x, y, z, u); what lies out of range is dropped.
__device__ __forceinline__ void tma_add_4d(const TensorMap* map, const void* src, int x, int y, int z, int u) {
  asm volatile("cp.reduce.async.bulk.tensor.4d.global.shared::cta.add.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];"
               ::"l"(map), "r"(shared_address(src)), "r"(x), "r"(y), "r"(z), "r"(u) : "memory");
}

//@ tma_add_5d needs: tensor_map shared_address
// Queues the addition of a box from shared memory to the float32 tensor at (x, y, z, u, v); what lies out of range is dropped.
__device__ __forceinline__ void tma_add_5d(const TensorMap* map, const void* src, int x, int y, int z, int u, int v) {
  asm volatile("cp.reduce.async.bulk.tensor.5d.global.shared::cta.add.tile.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];"
               ::"l"(map), "r"(shared_address(src)), "r"(x), "r"(y), "r"(z), "r"(u), "r"(v) : "memory");
}

//@ bulk_commit
// Closes this thread's current group of stores.
__device__ __forceinline__ void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

//@ bulk_wait_read
// Returns when all but the newest `pending` groups of this thread's stores have read their shared memory.
template <int pending>
__device__ __forceinline__ void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}

//@ stmatrix_x4 needs: shared_address
// Stores four 8x8 tiles of 16-bit elements; lane l points p at row l % 8 of tile l / 8.
__device__ __forceinline__ void stmatrix_x4(void* p, unsigned r0, unsigned r1, unsigned r2, unsigned r3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
               ::"r"(shared_address(p)), "r"(r0), "r"(r1), "r"(r2), "r"(r3) : "memory");
}

//@ warp_group_sync needs: barrier_sync
// Waits for the other threads of this warp group, by named barriers 1 to 3.
__device__ __forceinline__ void warp_group_sync(int warp_group) {
  if (warp_group == 0) barrier_sync<1>(128);
  else if (warp_group == 1) barrier_sync<2>(128);
  else barrier_sync<3>(128);
}

//@ wgmma_descriptor needs: shared_address
// Where wgmma finds an operand: its first byte, the distances in bytes between neighbouring blocks of it, and the swizzle
// (1: 128 bytes, 2: 64, 3: 32, 0: none).
__device__ __forceinline__ unsigned long long wgmma_descriptor(const void* p, int leading, int stride, int swizzle) {
  return static_cast<unsigned long long>((shared_address(p) & 0x3ffff) >> 4) | static_cast<unsigned long long>(leading >> 4) << 16 |
         static_cast<unsigned long long>(stride >> 4) << 32 | static_cast<unsigned long long>(swizzle) << 62;
}

//@ wgmma_descriptor_anew needs: shared_address wgmma_descriptor
// The same, made again at each place: the compiler keeps none of them in registers from place to place.
__device__ __forceinline__ unsigned long long wgmma_descriptor_anew(const void* p, int leading, int stride, int swizzle) {
  unsigned at;
  asm volatile("mov.u32 %0, %1;" : "=r"(at) : "r"(shared_address(p)));
  return wgmma_descriptor(__cvta_shared_to_generic(at), leading, stride, swizzle);
}

//@ wgmma_fence
// Orders this thread's accesses to the accumulators before the products that follow.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

//@ wgmma_commit
// Closes the warp group's current group of products.
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

//@ wgmma_wait
// Returns when all but the newest `pending` groups of products are done.
template <int pending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

//@ wgmma_forget
// In front of a product that overwrites the accumulators d: what they hold is of no use, so nothing keeps registers for it.
template <int n>
__device__ __forceinline__ void wgmma_forget(float* d) {
#pragma unroll
  for (int i = 0; i < n; ++i) asm volatile("" : "=f"(d[i]));
}

//@ wgmma_settle
// Between products and other uses of the accumulators d: the compiler moves none of these past it.
template <int n>
__device__ __forceinline__ void wgmma_settle(float* d) {
#pragma unroll
  for (int i = 0; i < n; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

//@ wgmma_settle_words
// wgmma_settle for accumulators of other types, as words.
template <int n>
__device__ __forceinline__ void wgmma_settle_words(unsigned* d) {
#pragma unroll
  for (int i = 0; i < n; ++i) asm volatile("" : "+r"(d[i])::"memory");
}
