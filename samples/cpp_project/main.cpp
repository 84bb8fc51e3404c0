// Calls the generated kernels from plain C++ and from C and checks a few results against the host.
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "gemm.h"
#include "norms.h"
#include "saxpy.h"

namespace {

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

template <typename T>
T* to_device(const std::vector<T>& host) {
  T* device = nullptr;
  check(cudaMalloc(&device, host.size() * sizeof(T)), "cudaMalloc");
  check(cudaMemcpy(device, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice), "to the device");
  return device;
}

template <typename T>
std::vector<T> to_host(const T* device, size_t size) {
  std::vector<T> host(size);
  check(cudaMemcpy(host.data(), device, size * sizeof(T), cudaMemcpyDeviceToHost), "to the host");
  return host;
}

// Integers from -4 to 4, so that every product and sum is exact.
float value(int i) { return static_cast<float>(i * 7 % 9 - 4); }

int gemm_errors(int m, int n, int k) {
  std::vector<__half> a(m * k), b(k * n);
  for (int i = 0; i < m * k; ++i) a[i] = __float2half(value(i));
  for (int i = 0; i < k * n; ++i) b[i] = __float2half(value(i + 3));
  float* c = to_device(std::vector<float>(m * n, NAN));
  // Extents in the order in which they first appear in the annotations: M, K, N.
  check(gemm_launch(to_device(a), to_device(b), c, m, k, n, nullptr), "gemm");
  check(cudaDeviceSynchronize(), "gemm");
  const std::vector<float> got = to_host(c, m * n);
  int errors = 0;
  for (int row = 0; row < m; ++row)
    for (int col = 0; col < n; ++col) {
      float want = 0;
      for (int i = 0; i < k; ++i) want += value(row * k + i) * value(i * n + col + 3);
      errors += got[row * n + col] != want;
    }
  return errors;
}

int saxpy_errors(int n) {
  std::vector<float> x(n), y(n);
  for (int i = 0; i < n; ++i) x[i] = value(i), y[i] = value(i + 1);
  float* device_y = to_device(y);
  check(saxpy_launch(0.5f, to_device(x), device_y, n, nullptr), "saxpy");
  check(cudaDeviceSynchronize(), "saxpy");
  const std::vector<float> got = to_host(device_y, n);
  int errors = 0;
  for (int i = 0; i < n; ++i) errors += got[i] != 0.5f * x[i] + y[i];
  return errors;
}

int norms_errors(int m, int n) {
  std::vector<float> x(m * n), want(m * n);
  for (int i = 0; i < m; ++i) {
    const float top = static_cast<float>(1 << i % 8);  // powers of two, so that every quotient is exact
    for (int j = 0; j < n; ++j) x[i * n + j] = j == (i * 31) % n ? -top : value(i + j) / 4 * top / 2;
    for (int j = 0; j < n; ++j) want[i * n + j] = x[i * n + j] / top;
  }
  float* device_x = to_device(x);
  check(normalise_rows(device_x, to_device(std::vector<float>(m, NAN)), m, n, nullptr), "norms");
  check(cudaDeviceSynchronize(), "norms");
  const std::vector<float> got = to_host(device_x, m * n);
  int errors = 0;
  for (int i = 0; i < m * n; ++i) errors += got[i] != want[i];
  return errors;
}

}  // namespace

int main() {
  const int errors = gemm_errors(256, 384, 96) + gemm_errors(130, 70, 45) + saxpy_errors(10000) + saxpy_errors(1) + norms_errors(33, 1000);
  std::printf("%d errors\n", errors);
  return errors != 0;
}
