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

//@ quad_transpose needs: shfl_xor
// Lane q of four neighbouring lanes ends with word q of each of them, in the order of the lanes: a 4x4 transposition.
__device__ __forceinline__ void quad_transpose(unsigned* words, int lane) {
  const bool odd = lane % 2 == 1, high = lane / 2 % 2 == 1;
  const unsigned a = shfl_xor(odd ? words[0] : words[1], 1), b = shfl_xor(odd ? words[2] : words[3], 1);
  words[0] = odd ? a : words[0];
  words[1] = odd ? words[1] : a;
  words[2] = odd ? b : words[2];
  words[3] = odd ? words[3] : b;
  const unsigned c = shfl_xor(high ? words[0] : words[2], 2), d = shfl_xor(high ? words[1] : words[3], 2);
  words[0] = high ? c : words[0];
  words[1] = high ? d : words[1];
  words[2] = high ? words[2] : c;
  words[3] = high ? words[3] : d;
}
