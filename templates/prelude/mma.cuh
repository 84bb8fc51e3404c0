// mma.sync: a warp multiplies a row-major A fragment by a column-major B fragment and adds to d.
// With g = lane / 4 and q = lane % 4, register by register:
//   16-bit k16   a: (g, 2q) (g + 8, 2q) (g, 2q + 8) (g + 8, 2q + 8)      b: (2q, g) (2q + 8, g)      two elements a register
//   tf32   k8    a: (g, q) (g + 8, q) (g, q + 4) (g + 8, q + 4)          b: (q, g) (q + 4, g)        one element a register
//   8-bit  k32   a: (g, 4q) (g + 8, 4q) (g, 4q + 16) (g + 8, 4q + 16)    b: (4q, g) (4q + 16, g)     four elements a register
//   d            (g, 2q) (g, 2q + 1) (g + 8, 2q) (g + 8, 2q + 1); f16: the first and the last two share a register

//@ mma_m16n8k16_f16_f32
// d += a * b, 16x8x16, f16 operands, f32 accumulators.
__device__ __forceinline__ void mma_m16n8k16_f16_f32(float* d, const unsigned* a, const unsigned* b) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

//@ mma_m16n8k16_bf16_f32
// d += a * b, 16x8x16, bf16 operands, f32 accumulators.
__device__ __forceinline__ void mma_m16n8k16_bf16_f32(float* d, const unsigned* a, const unsigned* b) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

//@ mma_m16n8k16_f16_f16
// d += a * b, 16x8x16, f16 operands, f16 accumulators, rounded once for the 16 products.
__device__ __forceinline__ void mma_m16n8k16_f16_f16(unsigned* d, const unsigned* a, const unsigned* b) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 "
               "{%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"
               : "+r"(d[0]), "+r"(d[1])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

//@ mma_m16n8k8_tf32_f32
// d += a * b, 16x8x8, f32 operands of which the 13 low bits are not read, f32 accumulators.
__device__ __forceinline__ void mma_m16n8k8_tf32_f32(float* d, const unsigned* a, const unsigned* b) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

//@ mma_m16n8k32_s8_s32
// d += a * b, 16x8x32, signed 8-bit operands, 32-bit accumulators that wrap.
__device__ __forceinline__ void mma_m16n8k32_s8_s32(int* d, const unsigned* a, const unsigned* b) {
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

//@ mma_m16n8k32_u8_s32
// d += a * b, 16x8x32, unsigned 8-bit operands, 32-bit accumulators that wrap.
__device__ __forceinline__ void mma_m16n8k32_u8_s32(int* d, const unsigned* a, const unsigned* b) {
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

//@ mma_m16n8k32_e4m3_f32 needs: mma_m16n8k16_f16_f32
// d += a * b, 16x8x32, e4m3 operands, f32 accumulators; sm_89 and newer.
__device__ __forceinline__ void mma_m16n8k32_e4m3_f32(float* d, const unsigned* a, const unsigned* b) {
#if __CUDA_ARCH__ == 900
  // Hopper has none and ptxas's own stand-in spills; f16 holds these numbers, and the order along k does not matter to a product.
#pragma unroll
  for (int half = 0; half < 32; half += 16) {
    unsigned wide[6];
#pragma unroll
    for (int r = 0; r < 6; ++r) {
      const unsigned short pair = (r < 4 ? a[r] : b[r - 4]) >> half;
      asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(wide[r]) : "h"(pair));
    }
    mma_m16n8k16_f16_f32(d, wide, wide + 4);
  }
#else
  asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

//@ mma_m16n8k32_e5m2_f32 needs: mma_m16n8k16_f16_f32
// d += a * b, 16x8x32, e5m2 operands, f32 accumulators; sm_89 and newer.
__device__ __forceinline__ void mma_m16n8k32_e5m2_f32(float* d, const unsigned* a, const unsigned* b) {
#if __CUDA_ARCH__ == 900
  // Hopper has none: see e4m3.
#pragma unroll
  for (int half = 0; half < 32; half += 16) {
    unsigned wide[6];
#pragma unroll
    for (int r = 0; r < 6; ++r) {
      const unsigned short pair = (r < 4 ? a[r] : b[r - 4]) >> half;
      asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(wide[r]) : "h"(pair));
    }
    mma_m16n8k16_f16_f32(d, wide, wide + 4);
  }
#else
  asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

//@ mma_sp_m16n8k32_f16_f32
// d += a * b, 16x8x32, of a only the two elements of each four of a row that e names, f16 operands, f32 accumulators.
// a and d as for k16; b: the registers of rows 0 to 15, then of 16 to 31; e of lanes 0 and 1 of each four, bits of rows g and g + 8.
__device__ __forceinline__ void mma_sp_m16n8k32_f16_f32(float* d, const unsigned* a, const unsigned* b0, const unsigned* b1, unsigned e) {
#if __CUDACC_VER_MAJOR__ > 12 || (__CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ >= 5)
  asm volatile("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 "
#else
  asm volatile("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 "
#endif
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, 0x0;"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0[0]), "r"(b0[1]), "r"(b1[0]), "r"(b1[1]), "r"(e));
}

//@ mma_sp_m16n8k32_bf16_f32
// d += a * b, 16x8x32, of a only the two elements of each four of a row that e names, bf16 operands, f32 accumulators.
// a and d as for k16; b: the registers of rows 0 to 15, then of 16 to 31; e of lanes 0 and 1 of each four, bits of rows g and g + 8.
__device__ __forceinline__ void mma_sp_m16n8k32_bf16_f32(float* d, const unsigned* a, const unsigned* b0, const unsigned* b1, unsigned e) {
#if __CUDACC_VER_MAJOR__ > 12 || (__CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ >= 5)
  asm volatile("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32 "
#else
  asm volatile("mma.sp.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32 "
#endif
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, 0x0;"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0[0]), "r"(b0[1]), "r"(b1[0]), "r"(b1[1]), "r"(e));
}

//@ mma_sp_m16n8k64_s8_s32
// d += a * b, 16x8x64, of a only the two elements of each four of a row that e names, s8 operands, s32 accumulators.
// a and d as for k32; b: the registers of rows 0 to 31, then of 32 to 63; e of lane q: row g + q % 2 * 8, columns from q / 2 * 32 on.
__device__ __forceinline__ void mma_sp_m16n8k64_s8_s32(int* d, const unsigned* a, const unsigned* b0, const unsigned* b1, unsigned e) {
#if __CUDACC_VER_MAJOR__ > 12 || (__CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ >= 5)
  asm volatile("mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.s32.s8.s8.s32 "
#else
  asm volatile("mma.sp.sync.aligned.m16n8k64.row.col.s32.s8.s8.s32 "
#endif
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, 0x0;"
               : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0[0]), "r"(b0[1]), "r"(b1[0]), "r"(b1[1]), "r"(e));
}

//@ mma_sp_m16n8k64_u8_s32
// d += a * b, 16x8x64, of a only the two elements of each four of a row that e names, u8 operands, s32 accumulators.
// a and d as for k32; b: the registers of rows 0 to 31, then of 32 to 63; e of lane q: row g + q % 2 * 8, columns from q / 2 * 32 on.
__device__ __forceinline__ void mma_sp_m16n8k64_u8_s32(int* d, const unsigned* a, const unsigned* b0, const unsigned* b1, unsigned e) {
#if __CUDACC_VER_MAJOR__ > 12 || (__CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ >= 5)
  asm volatile("mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.s32.u8.u8.s32 "
#else
  asm volatile("mma.sp.sync.aligned.m16n8k64.row.col.s32.u8.u8.s32 "
#endif
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, 0x0;"
               : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0[0]), "r"(b0[1]), "r"(b1[0]), "r"(b1[1]), "r"(e));
}
