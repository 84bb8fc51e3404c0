// Clusters of blocks (sm_90): their barrier, and the shared memory of the other blocks.
// Blocks may reach into each other only between a cluster barrier behind their start and one in front of their end.

//@ cluster_rank
// The number of this block in its cluster, x fastest.
__device__ __forceinline__ int cluster_rank() {
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}

//@ cluster_arrive
// Counts as come at the cluster's barrier; what this thread has written is visible behind cluster_wait. Every thread does this.
__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }

//@ cluster_arrive_relaxed
// cluster_arrive that makes nothing visible.
__device__ __forceinline__ void cluster_arrive_relaxed() { asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); }

//@ cluster_wait
// Waits until every thread of the cluster has come.
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }

//@ cluster_sync needs: cluster_arrive cluster_wait
// Waits for every thread of the cluster.
__device__ __forceinline__ void cluster_sync() {
  cluster_arrive();
  cluster_wait();
}

//@ cluster_peer
// The place in the shared memory of block `rank` of the cluster that p is in this one's.
template <typename T>
__device__ __forceinline__ T* cluster_peer(T* p, int rank) {
  unsigned long long there;
  asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(p), "r"(rank));
  return reinterpret_cast<T*>(there);
}

//@ mbarrier_arrive_at needs: shared_address
// One arrival at this barrier of block `rank` of the cluster. It tells that this thread is done with what the copy engine brought;
// what the thread has written itself needs a cluster barrier.
__device__ __forceinline__ void mbarrier_arrive_at(unsigned long long* barrier, int rank) {
  asm volatile(
      "{\n"
      ".reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
      "}"
      ::"r"(shared_address(barrier)), "r"(rank) : "memory");
}

//@ mbarrier_expect_at needs: shared_address
// One arrival at this barrier of block `rank` of the cluster, which announces that `bytes` will be copied there in this phase.
__device__ __forceinline__ void mbarrier_expect_at(unsigned long long* barrier, int bytes, int rank) {
  asm volatile(
      "{\n"
      ".reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %2;\n"
      "mbarrier.arrive.expect_tx.relaxed.cluster.shared::cluster.b64 _, [there], %1;\n"
      "}"
      ::"r"(shared_address(barrier)), "r"(bytes), "r"(rank) : "memory");
}

//@ bulk_copy_at needs: shared_address
// Queues a copy of `bytes` (a multiple of 16) from this block's src to the same place as dst in block `rank` of the cluster, where
// `barrier` counts them. fence_proxy_async comes first, by whoever wrote src.
__device__ __forceinline__ void bulk_copy_at(void* dst, const void* src, int bytes, unsigned long long* barrier, int rank) {
  asm volatile(
      "{\n"
      ".reg .b32 there, counted;\n"
      "mapa.shared::cluster.u32 there, %0, %4;\n"
      "mapa.shared::cluster.u32 counted, %3, %4;\n"
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [there], [%1], %2, [counted];\n"
      "}"
      ::"r"(shared_address(dst)), "r"(shared_address(src)), "r"(bytes), "r"(shared_address(barrier)), "r"(rank) : "memory");
}
