/* Divides every row of an m x n matrix by its largest magnitude; `top` receives these. */
#ifndef NORMS_H
#define NORMS_H

#include <cuda_runtime.h>

#ifdef __cplusplus
extern "C"
#endif
cudaError_t normalise_rows(float* x, float* top, int m, int n, cudaStream_t stream);

#endif
