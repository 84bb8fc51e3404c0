// Exchange within a warp: every lane takes part, and gets a value of another lane.

//@ shfl_xor
// The value of lane `lane ^ lane_mask`. T has at most 8 bytes.
template <typename T>
__device__ __forceinline__ T shfl_xor(T v, int lane_mask) {
  static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
  if constexpr (sizeof(T) <= 4) {
    unsigned bits = 0;
    memcpy(&bits, &v, sizeof(T));
    bits = __shfl_xor_sync(0xffffffffu, bits, lane_mask);
    memcpy(&v, &bits, sizeof(T));
  } else {
    unsigned long long bits = 0;
    memcpy(&bits, &v, sizeof(T));
    bits = __shfl_xor_sync(0xffffffffu, bits, lane_mask);
    memcpy(&v, &bits, sizeof(T));
  }
  return v;
}

//@ shfl_down
// The value of lane `lane + delta`; its own value where there is no such lane. T has at most 8 bytes.
template <typename T>
__device__ __forceinline__ T shfl_down(T v, int delta) {
  static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
  if constexpr (sizeof(T) <= 4) {
    unsigned bits = 0;
    memcpy(&bits, &v, sizeof(T));
    bits = __shfl_down_sync(0xffffffffu, bits, delta);
    memcpy(&v, &bits, sizeof(T));
  } else {
    unsigned long long bits = 0;
    memcpy(&bits, &v, sizeof(T));
    bits = __shfl_down_sync(0xffffffffu, bits, delta);
    memcpy(&v, &bits, sizeof(T));
  }
  return v;
}

//@ shfl_up
// The value of lane `lane - delta`; its own value where there is no such lane. T has at most 8 bytes.
template <typename T>
__device__ __forceinline__ T shfl_up(T v, int delta) {
  static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
  if constexpr (sizeof(T) <= 4) {
    unsigned bits = 0;
    memcpy(&bits, &v, sizeof(T));
    bits = __shfl_up_sync(0xffffffffu, bits, delta);
    memcpy(&v, &bits, sizeof(T));
  } else {
    unsigned long long bits = 0;
    memcpy(&bits, &v, sizeof(T));
    bits = __shfl_up_sync(0xffffffffu, bits, delta);
    memcpy(&v, &bits, sizeof(T));
  }
  return v;
}

//@ shfl_idx
// The value of lane `source`. T has at most 8 bytes.
template <typename T>
__device__ __forceinline__ T shfl_idx(T v, int source) {
  static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
  if constexpr (sizeof(T) <= 4) {
    unsigned bits = 0;
    memcpy(&bits, &v, sizeof(T));
    bits = __shfl_sync(0xffffffffu, bits, source);
    memcpy(&v, &bits, sizeof(T));
  } else {
    unsigned long long bits = 0;
    memcpy(&bits, &v, sizeof(T));
    bits = __shfl_sync(0xffffffffu, bits, source);
    memcpy(&v, &bits, sizeof(T));
  }
  return v;
}

//@ any_sync
// Whether v holds in any lane of the warp.
__device__ __forceinline__ bool any_sync(bool v) { return __any_sync(0xffffffffu, v) != 0; }

//@ all_sync
// Whether v holds in every lane of the warp.
__device__ __forceinline__ bool all_sync(bool v) { return __all_sync(0xffffffffu, v) != 0; }
