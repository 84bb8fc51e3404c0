// ldmatrix: a warp reads 8x8 matrices of 16-bit elements from shared memory into mma fragments.
// Lane 8 * i + j gives the address of row j (16 bytes, aligned) of matrix i. Lane l receives, of each matrix, the elements
// (l / 4, l % 4 * 2) and the one after it; with `_trans`, (l % 4 * 2, l / 4) and the one below it.

//@ ldmatrix_x4 needs: shared_address
// Four 8x8 matrices.
__device__ __forceinline__ void ldmatrix_x4(unsigned* r, const void* p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(p)) : "memory");
}

//@ ldmatrix_x4_trans needs: shared_address
// Four 8x8 matrices, each transposed.
__device__ __forceinline__ void ldmatrix_x4_trans(unsigned* r, const void* p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(p)) : "memory");
}

//@ ldmatrix_x2 needs: shared_address
// Two 8x8 matrices; lanes 0 to 15 give the addresses.
__device__ __forceinline__ void ldmatrix_x2(unsigned* r, const void* p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1]) : "r"(shared_address(p)) : "memory");
}

//@ ldmatrix_x2_trans needs: shared_address
// Two 8x8 matrices; lanes 0 to 15 give the addresses, each transposed.
__device__ __forceinline__ void ldmatrix_x2_trans(unsigned* r, const void* p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1]) : "r"(shared_address(p)) : "memory");
}

//@ ldmatrix_x1 needs: shared_address
// One 8x8 matrix; lanes 0 to 7 give the addresses.
__device__ __forceinline__ void ldmatrix_x1(unsigned* r, const void* p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
               : "=r"(r[0]) : "r"(shared_address(p)) : "memory");
}

//@ ldmatrix_x1_trans needs: shared_address
// One 8x8 matrix; lanes 0 to 7 give the addresses, transposed.
__device__ __forceinline__ void ldmatrix_x1_trans(unsigned* r, const void* p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
               : "=r"(r[0]) : "r"(shared_address(p)) : "memory");
}
