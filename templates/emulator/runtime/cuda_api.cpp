// The CUDA runtime's functions that launchers call: everything happens at once, in the caller's thread.
#include <cstring>
#include <map>

#include "runtime.h"

namespace tilec {
namespace {
std::map<const void*, int> shared_limits;  // what cudaFuncSetAttribute allowed a kernel
constexpr int default_shared_limit = 48 * 1024;

cudaError_t check_launch(const cudaLaunchConfig_t& config, const void* kernel, dim3 cluster) {
  const dim3 g = config.gridDim, b = config.blockDim;
  if (g.x == 0 || g.y == 0 || g.z == 0 || g.x > 0x7fffffffu || g.y > 65535 || g.z > 65535) return cudaErrorInvalidConfiguration;
  if (b.x == 0 || b.y == 0 || b.z == 0 || b.x > 1024 || b.y > 1024 || b.z > 64 || b.x * b.y * b.z > 1024) return cudaErrorInvalidConfiguration;
  const auto found = shared_limits.find(kernel);
  const int limit = found == shared_limits.end() ? default_shared_limit : found->second;
  if (config.dynamicSmemBytes > static_cast<unsigned long>(limit)) return cudaErrorInvalidValue;
  if (cluster.x == 0 || cluster.y == 0 || cluster.z == 0 || cluster.x * cluster.y * cluster.z > 8) return cudaErrorInvalidClusterSize;
  if (g.x % cluster.x != 0 || g.y % cluster.y != 0 || g.z % cluster.z != 0) return cudaErrorInvalidConfiguration;
  return cudaSuccess;
}
}  // namespace
}  // namespace tilec

using namespace tilec;

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = 1024; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = default_shared_limit; break;
    case cudaDevAttrMultiProcessorCount: *value = settings.multiprocessors; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = static_cast<int>(settings.shared_limit) + 1024; break;
    case cudaDevAttrComputeCapabilityMajor: *value = settings.compute_capability / 10; break;
    case cudaDevAttrComputeCapabilityMinor: *value = settings.compute_capability % 10; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = static_cast<int>(settings.shared_limit); break;
    default: return cudaErrorInvalidValue;
  }
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  if (find_callable(kernel) == nullptr) return cudaErrorInvalidDeviceFunction;
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (value < 0 || value > settings.shared_limit) return cudaErrorInvalidValue;
  shared_limits[kernel] = value;
  return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  if (find_callable(kernel) == nullptr) return cudaErrorInvalidDeviceFunction;
  *attributes = {};
  attributes->maxThreadsPerBlock = 1024;
  return cudaSuccess;
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel, void** arguments) {
  const tilec_callable* const callable = find_callable(kernel);
  if (callable == nullptr) return cudaErrorInvalidDeviceFunction;
  bool cooperative = false;
  dim3 cluster = {callable->cluster[0], callable->cluster[1], callable->cluster[2]};
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const cudaLaunchAttribute& attribute = config->attrs[i];
    cooperative |= attribute.id == cudaLaunchAttributeCooperative && attribute.val.cooperative != 0;
    if (attribute.id != cudaLaunchAttributeClusterDimension) continue;
    const dim3 asked = {attribute.val.clusterDim.x, attribute.val.clusterDim.y, attribute.val.clusterDim.z};
    const bool fixed = cluster.x * cluster.y * cluster.z > 1;
    if (fixed && (asked.x != cluster.x || asked.y != cluster.y || asked.z != cluster.z)) return cudaErrorInvalidClusterSize;
    cluster = asked;
  }
  const cudaError_t error = check_launch(*config, kernel, cluster);
  if (error != cudaSuccess) return error;
  if (cooperative && cluster.x * cluster.y * cluster.z > 1) return cudaErrorNotSupported;
  run_grid(config->gridDim, config->blockDim, cluster, static_cast<long>(config->dynamicSmemBytes), *callable, arguments, cooperative);
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel, int, unsigned long) {
  *blocks = 1;
  return find_callable(kernel) == nullptr ? cudaErrorInvalidDeviceFunction : cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* p, int value, unsigned long bytes, cudaStream_t) {
  memset(p, value, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* dst, const void* src, unsigned long bytes, cudaMemcpyKind, cudaStream_t) {
  memmove(dst, src, bytes);
  return cudaSuccess;
}

cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaPeekAtLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "an error of the emulated CUDA runtime"; }
const char* cudaGetErrorName(cudaError_t) { return "cudaError"; }
