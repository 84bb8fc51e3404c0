// The part of the CUDA runtime's interface that launchers use, with CUDA's names and numbers; bodies in runtime/.
#pragma once

#include "tilec_language.h"

using size_t = decltype(sizeof(0));
typedef struct tilec_stream* cudaStream_t;

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInvalidDeviceFunction = 98,
  cudaErrorNoKernelImageForDevice = 209,
  cudaErrorLaunchOutOfResources = 701,
  cudaErrorMisalignedAddress = 716,
  cudaErrorNotSupported = 801,
  cudaErrorInvalidClusterSize = 912,
  cudaErrorUnknown = 999
};
enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
  cudaFuncAttributePreferredSharedMemoryCarveout = 9,
  cudaFuncAttributeNonPortableClusterSizeAllowed = 13
};
enum cudaDeviceAttr {
  cudaDevAttrMaxThreadsPerBlock = 1,
  cudaDevAttrMaxSharedMemoryPerBlock = 8,
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97
};
enum { cudaEnableDefault = 0 };
enum cudaDriverEntryPointQueryResult {
  cudaDriverEntryPointSuccess = 0,
  cudaDriverEntryPointSymbolNotFound = 1,
  cudaDriverEntryPointVersionNotSufficent = 2
};
enum cudaMemcpyKind {
  cudaMemcpyHostToHost = 0,
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
  cudaMemcpyDefault = 4
};
enum cudaLaunchAttributeID {
  cudaLaunchAttributeIgnore = 0,
  cudaLaunchAttributeCooperative = 2,
  cudaLaunchAttributeClusterDimension = 4,
  cudaLaunchAttributeProgrammaticStreamSerialization = 6
};
union cudaLaunchAttributeValue {
  char pad[64];
  int cooperative;
  int programmaticStreamSerializationAllowed;
  struct { unsigned x, y, z; } clusterDim;
};
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  char pad[8 - sizeof(cudaLaunchAttributeID)];
  cudaLaunchAttributeValue val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  unsigned long dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};

struct cudaFuncAttributes {
  unsigned long sharedSizeBytes, constSizeBytes, localSizeBytes;
  int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion;
};

extern "C" {
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value);
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel, void** arguments);
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned version, unsigned long long flags,
                                             cudaDriverEntryPointQueryResult* result);
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel, int threads, unsigned long shared_bytes);
cudaError_t cudaMemsetAsync(void* p, int value, unsigned long bytes, cudaStream_t stream);
cudaError_t cudaMemcpyAsync(void* dst, const void* src, unsigned long bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();
const char* cudaGetErrorString(cudaError_t error);
const char* cudaGetErrorName(cudaError_t error);
}

// ---- registration: the build appends one table per file, made with these ---------------------------------------------
// A function that is called with an array of pointers to its arguments, as cudaLaunchKernelExC calls kernels.
struct tilec_callable {
  const char* name;
  const void* address;
  int (*call)(const void* address, void** arguments);
  const int* sizes;  // bytes of each argument
  int count;
  bool kernel;
  unsigned cluster[3];  // blocks of a cluster, of a kernel
};

template <int... i> struct tilec_indices {};
template <int n, int... i> struct tilec_count_to : tilec_count_to<n - 1, n - 1, i...> {};
template <int... i> struct tilec_count_to<0, i...> { using type = tilec_indices<i...>; };

template <typename R, typename... A>
struct tilec_invoke {
  static constexpr int sizes[sizeof...(A) + 1] = {static_cast<int>(sizeof(A))..., 0};
  template <int... i>
  static int unpack(const void* address, [[maybe_unused]] void** arguments, tilec_indices<i...>) {
    const auto f = reinterpret_cast<R (*)(A...)>(const_cast<void*>(address));
    if constexpr (__is_same(R, void)) {
      f(*static_cast<A*>(arguments[i])...);
      return 0;
    } else {
      return static_cast<int>(f(*static_cast<A*>(arguments[i])...));
    }
  }
  static int call(const void* address, void** arguments) {
    return unpack(address, arguments, typename tilec_count_to<sizeof...(A)>::type());
  }
};

template <typename R, typename... A>
tilec_callable tilec_describe(const char* name, R (*f)(A...), bool kernel, unsigned x = 1, unsigned y = 1, unsigned z = 1) {
  return {name, reinterpret_cast<const void*>(f), tilec_invoke<R, A...>::call, tilec_invoke<R, A...>::sizes, sizeof...(A), kernel, {x, y, z}};
}
