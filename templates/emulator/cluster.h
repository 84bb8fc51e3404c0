// Twins of ../prelude/cluster.cuh; bodies in runtime/cluster.cpp and runtime/hopper.cpp.
#pragma once

__device__ __forceinline__ int cluster_rank() { return tilec_cluster_rank(); }
__device__ __forceinline__ void cluster_arrive(TILEC_SITE) { tilec_cluster_arrive(true, tilec_line); }
__device__ __forceinline__ void cluster_arrive_relaxed(TILEC_SITE) { tilec_cluster_arrive(false, tilec_line); }
__device__ __forceinline__ void cluster_wait(TILEC_SITE) { tilec_cluster_wait(tilec_line); }
__device__ __forceinline__ void cluster_sync(TILEC_SITE) {
  tilec_cluster_arrive(true, tilec_line);
  tilec_cluster_wait(tilec_line);
}
template <typename T>
__device__ __forceinline__ T* cluster_peer(T* p, int rank, TILEC_SITE) {
  return static_cast<T*>(tilec_peer(p, rank, tilec_line));
}
__device__ __forceinline__ void mbarrier_arrive_at(unsigned long long* barrier, int rank, TILEC_SITE) {
  tilec_mbarrier_arrive_at(barrier, rank, 0, tilec_line);
}
__device__ __forceinline__ void mbarrier_expect_at(unsigned long long* barrier, int bytes, int rank, TILEC_SITE) {
  tilec_mbarrier_arrive_at(barrier, rank, bytes, tilec_line);
}
__device__ __forceinline__ void bulk_copy_at(void* dst, const void* src, int bytes, unsigned long long* barrier, int rank, TILEC_SITE) {
  tilec_bulk_copy_at(dst, src, bytes, barrier, rank, tilec_line);
}
