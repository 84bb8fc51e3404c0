/* Calls the kernels from C: the rows of a softmax add up to 1, and a sum of two arrays is right. */
#include <cuda_runtime.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "add.h"
#include "softmax.h"

enum { ROWS = 100, WIDTH = 512, SIZE = ROWS * WIDTH };

static void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  exit(1);
}

int main(void) {
  static float host[SIZE], added[SIZE];
  float *x, *y, *z;
  check(cudaMalloc((void**)&x, sizeof host), "cudaMalloc");
  check(cudaMalloc((void**)&y, sizeof host), "cudaMalloc");
  check(cudaMalloc((void**)&z, sizeof host), "cudaMalloc");
  for (int i = 0; i < SIZE; ++i) host[i] = (float)(i * 7 % 19) / 4;
  check(cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice), "to the device");
  check(softmax_launch(x, y, ROWS, NULL), "softmax");
  check(add_launch(y, y, z, SIZE, NULL), "add");
  check(cudaMemcpy(host, y, sizeof host, cudaMemcpyDeviceToHost), "to the host");
  check(cudaMemcpy(added, z, sizeof added, cudaMemcpyDeviceToHost), "to the host");
  int errors = 0;
  for (int row = 0; row < ROWS; ++row) {
    double sum = 0;
    for (int j = 0; j < WIDTH; ++j) sum += host[row * WIDTH + j];
    errors += !(fabs(sum - 1) < 1e-4);
  }
  for (int i = 0; i < SIZE; ++i) errors += added[i] != host[i] + host[i];
  printf("%d errors\n", errors);
  return errors != 0;
}
