// The types of the products of warp groups, and the interface between the wrappers of hopper.h and the runtime.
#pragma once

enum {
  tilec_wgmma_f16_f32, tilec_wgmma_bf16_f32, tilec_wgmma_f16_f16, tilec_wgmma_tf32_f32,
  tilec_wgmma_s8_s32, tilec_wgmma_u8_s32, tilec_wgmma_e4m3_f32, tilec_wgmma_e5m2_f32,
  tilec_wgmma_e4m3_f16, tilec_wgmma_e5m2_f16
};

extern "C" {
void tilec_registers(int n, bool take, int line);
void tilec_mbarrier_init(void* barrier, int count, int line);
void tilec_mbarrier_arrive(void* barrier, int bytes, bool announces, int line);
void tilec_mbarrier_arrive_copies(void* barrier, int line);
void tilec_mbarrier_expect(void* barrier, int bytes, int line);
void tilec_mbarrier_wait(void* barrier, unsigned parity, int line);
void tilec_fence_proxy_async();
void tilec_tma_load(void* dst, const void* map, void* barrier, int rank, int x, int y, int z, int u, int v, int line);
void tilec_tma_multicast(void* dst, const void* map, void* barrier, int rank, int x, int y, int z, int u, int v, unsigned blocks, int line);
void tilec_mbarrier_arrive_at(void* barrier, int rank, int bytes, int line);
void tilec_bulk_copy_at(void* dst, const void* src, int bytes, void* barrier, int rank, int line);
int tilec_cluster_rank();
void tilec_cluster_arrive(bool visible, int line);
void tilec_cluster_wait(int line);
void* tilec_peer(const void* p, int rank, int line);
void tilec_tma_store(const void* map, const void* src, int rank, int x, int y, int z, int u, int v, int line);
void tilec_tma_add(const void* map, const void* src, int rank, int x, int y, int z, int u, int v, int line);
void tilec_bulk_commit();
void tilec_bulk_wait_read(int pending);
void tilec_stmatrix_x4(void* p, unsigned r0, unsigned r1, unsigned r2, unsigned r3, int line);
unsigned long long tilec_wgmma_descriptor(const void* p, int leading, int stride, int swizzle, int line);
void tilec_wgmma_fence();
void tilec_wgmma(int kind, int n, void* d, unsigned long long a, unsigned long long b, bool accumulate, bool trans_a, bool trans_b, int line);
void tilec_wgmma_held(int kind, int n, void* d, const unsigned* a, unsigned long long b, bool accumulate, bool trans_b, int line);
void tilec_wgmma_commit();
void tilec_wgmma_wait(int pending, int line);
}
