// What the launchers promise: scratch memory by query, graphs, threads, several devices, and errors instead of crashes.
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "gemm.h"
#include "saxpy.h"
#include "split_sum.h"

namespace {

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

// Small integers, so that every sum is exact.
float value(size_t i, int seed) { return static_cast<float>((i * 7 + seed) % 19) - 9; }

// One matrix on one device, whose rows are summed on a stream of its own.
struct Sums {
  int m, n;
  float *a = nullptr, *c = nullptr;
  void* workspace = nullptr;
  cudaStream_t stream = nullptr;
  std::vector<float> host;

  Sums(int rows, int columns, int seed) : m(rows), n(columns), host(static_cast<size_t>(rows) * columns) {
    for (size_t i = 0; i < host.size(); ++i) host[i] = value(i, seed);
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    check(cudaMalloc(&a, host.size() * sizeof(float)), "cudaMalloc");
    check(cudaMalloc(&c, m * sizeof(float)), "cudaMalloc");
    check(cudaMalloc(&workspace, split_sum_workspace(m, n)), "cudaMalloc");
    check(cudaMemcpy(a, host.data(), host.size() * sizeof(float), cudaMemcpyHostToDevice), "to the device");
    poison();
  }
  ~Sums() {
    cudaFree(a), cudaFree(c), cudaFree(workspace), cudaStreamDestroy(stream);
  }
  void poison() {
    check(cudaMemset(c, 0xff, m * sizeof(float)), "poison");
    check(cudaMemset(workspace, 0xff, split_sum_workspace(m, n)), "poison");
    check(cudaDeviceSynchronize(), "poison");
  }
  cudaError_t queue() { return split_sum_launch(a, c, m, n, workspace, stream); }
  int errors() {
    std::vector<float> got(m);
    check(cudaStreamSynchronize(stream), "split_sum");
    check(cudaMemcpy(got.data(), c, m * sizeof(float), cudaMemcpyDeviceToHost), "to the host");
    int wrong = 0;
    for (int row = 0; row < m; ++row) {
      float want = 0;
      for (int j = 0; j < n; ++j) want += host[static_cast<size_t>(row) * n + j];
      wrong += got[row] != want;
    }
    return wrong;
  }
};

// A product, whose launcher makes tensor maps where it is compiled for Hopper: extents are multiples of 8.
struct Product {
  static constexpr int k = 128;
  int m, n, seed;
  __half *a = nullptr, *b = nullptr;
  float* c = nullptr;
  cudaStream_t stream = nullptr;
  std::vector<__half> left, right;

  Product(int rows, int columns, int number) : m(rows / 8 * 8), n(columns / 8 * 8), seed(number), left(m * k), right(k * n) {
    for (size_t i = 0; i < left.size(); ++i) left[i] = __float2half(value(i, seed));
    for (size_t i = 0; i < right.size(); ++i) right[i] = __float2half(value(i, seed + 5));
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    check(cudaMalloc(&a, left.size() * sizeof(__half)), "cudaMalloc");
    check(cudaMalloc(&b, right.size() * sizeof(__half)), "cudaMalloc");
    check(cudaMalloc(&c, m * n * sizeof(float)), "cudaMalloc");
    check(cudaMemcpy(a, left.data(), left.size() * sizeof(__half), cudaMemcpyHostToDevice), "to the device");
    check(cudaMemcpy(b, right.data(), right.size() * sizeof(__half), cudaMemcpyHostToDevice), "to the device");
    poison();
  }
  ~Product() {
    cudaFree(a), cudaFree(b), cudaFree(c), cudaStreamDestroy(stream);
  }
  void poison() {
    check(cudaMemset(c, 0xff, m * n * sizeof(float)), "poison");
    check(cudaDeviceSynchronize(), "poison");
  }
  cudaError_t queue() { return gemm_launch(a, b, c, m, k, n, stream); }
  int errors() {
    std::vector<float> got(m * n);
    check(cudaStreamSynchronize(stream), "gemm");
    check(cudaMemcpy(got.data(), c, got.size() * sizeof(float), cudaMemcpyDeviceToHost), "to the host");
    int wrong = 0;
    for (int row = 0; row < m; row += 3)
      for (int col = 0; col < n; col += 5) {
        float want = 0;
        for (int i = 0; i < k; ++i) want += value(row * k + i, seed) * value(i * n + col, seed + 5);
        wrong += got[row * n + col] != want;
      }
    return wrong;
  }
};

int queried() {
  int wrong = split_sum_workspace(70, 128) < 4 * 70 * sizeof(float);
  for (int m : {1, 70, 1000})
    for (int n : {1, 128, 333}) {
      Sums work(m, n, m + n);
      check(work.queue(), "split_sum");
      wrong += work.errors();
    }
  return wrong;
}

template <typename Work>
int captured() {
  Work work(500, 700, 3);
  cudaGraph_t graph;
  cudaGraphExec_t ready;
  check(cudaStreamBeginCapture(work.stream, cudaStreamCaptureModeGlobal), "capture");
  check(work.queue(), "launch");
  check(cudaStreamEndCapture(work.stream, &graph), "capture");
  check(cudaGraphInstantiate(&ready, graph, 0), "graph");
  int wrong = 0;
  for (int i = 0; i < 3; ++i) {
    work.poison();
    check(cudaGraphLaunch(ready, work.stream), "graph");
    wrong += work.errors();
  }
  return wrong;
}

// Eight threads that begin at the same moment, so that first launches, which load the code, meet.
template <typename Work>
int threaded(int device) {
  std::atomic<int> wrong{0}, arrived{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      check(cudaSetDevice(device), "device");
      Work work(100 + 37 * t, 200 + 11 * t, t);
      for (++arrived; arrived < 8;) std::this_thread::yield();
      for (int i = 0; i < 100; ++i) {
        if (work.queue() != cudaSuccess) ++wrong;
        if (i % 10 == 0) wrong += work.errors(), work.poison();
      }
      wrong += work.errors();
    });
  for (std::thread& t : threads) t.join();
  return wrong;
}

// One thread that goes from device to device and back.
template <typename Work>
int alternating(int devices) {
  int wrong = 0;
  for (int i = 0; i < 4 * devices; ++i) {
    check(cudaSetDevice(i % devices), "device");
    Work work(64 + i, 300, i);
    check(work.queue(), "launch");
    wrong += work.errors();
  }
  check(cudaSetDevice(0), "device");
  return wrong;
}

int refused() {
  Sums work(8, 8, 0);
  int wrong = split_sum_launch(work.a, work.c, -1, 8, work.workspace, work.stream) != cudaErrorInvalidValue;
  const void* odd = reinterpret_cast<const char*>(work.a) + 1;
  wrong += split_sum_launch(odd, work.c, 4, 8, work.workspace, work.stream) != cudaErrorMisalignedAddress;
  wrong += saxpy_launch(1.0f, nullptr, nullptr, 0, work.stream) != cudaSuccess;  // no blocks
  wrong += cudaGetLastError() != cudaSuccess;
  check(work.queue(), "split_sum");  // and nothing is broken after that
  return wrong + work.errors();
}

int report(const char* what, int wrong) {
  std::printf("%-28s %s\n", what, wrong ? "WRONG" : "fine");
  return wrong != 0;
}

}  // namespace

int main() {
  int devices = 0;
  check(cudaGetDeviceCount(&devices), "devices");
  int wrong = report("eight threads, sums", threaded<Sums>(0));  // first of all: nothing is loaded yet
  wrong += report("eight threads, products", threaded<Product>(0));
  wrong += report("scratch memory by query", queried());
  wrong += report("a captured graph, sums", captured<Sums>());
  wrong += report("a captured graph, products", captured<Product>());
  wrong += report("arguments that do not fit", refused());
  if (devices > 1) {
    wrong += report("eight threads elsewhere", threaded<Sums>(1) + threaded<Product>(1));
    wrong += report("device after device", alternating<Sums>(devices) + alternating<Product>(devices));
  } else {
    std::printf("%-28s not tried, there is one\n", "several devices");
  }
  std::printf(wrong ? "NOT all fine\n" : "all fine\n");
  return wrong != 0;
}
