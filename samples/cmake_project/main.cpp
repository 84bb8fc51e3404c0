// Captures two launches into a CUDA graph, runs it three times and checks the sum: launchers only queue, so graphs may hold them.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "add.h"

namespace {

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

}  // namespace

int main() {
  constexpr int size = 10001;
  const std::vector<float> ones(size, 1.0f), zeros(size, 0.0f);
  float *one = nullptr, *sum = nullptr, *other = nullptr;
  for (float** p : {&one, &sum, &other}) check(cudaMalloc(p, size * sizeof(float)), "cudaMalloc");
  check(cudaMemcpy(one, ones.data(), size * sizeof(float), cudaMemcpyHostToDevice), "to the device");
  check(cudaMemcpy(sum, zeros.data(), size * sizeof(float), cudaMemcpyHostToDevice), "to the device");
  cudaStream_t stream;
  check(cudaStreamCreate(&stream), "stream");
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
  check(add_launch(one, sum, other, size, stream), "add");
  check(add_launch(one, other, sum, size, stream), "add");
  cudaGraph_t graph;
  check(cudaStreamEndCapture(stream, &graph), "capture");
  cudaGraphExec_t ready;
  check(cudaGraphInstantiate(&ready, graph, 0), "graph");
  for (int i = 0; i < 3; ++i) check(cudaGraphLaunch(ready, stream), "graph");
  check(cudaStreamSynchronize(stream), "graph");
  std::vector<float> got(size);
  check(cudaMemcpy(got.data(), sum, size * sizeof(float), cudaMemcpyDeviceToHost), "to the host");
  int errors = 0;
  for (float value : got) errors += value != 6.0f;
  std::printf("%d errors\n", errors);
  return errors != 0;
}
