// Asynchronous copies, global to shared memory (sm_80 and newer): the copy runs while the thread goes on.
// A `_zfill` copy whose `in_range` is false writes zeros and reads nothing; its source needs only be a valid pointer.

//@ cp_async_16 needs: shared_address
// 16 bytes, global to shared, asynchronous, past the L1 cache, since a tile is read once.
__device__ __forceinline__ void cp_async_16(void* dst, const void* src) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(shared_address(dst)), "l"(src) : "memory");
}

//@ cp_async_16_zfill needs: shared_address
// 16 bytes, global to shared, asynchronous; zeros where the source is out of range.
__device__ __forceinline__ void cp_async_16_zfill(void* dst, const void* src, bool in_range) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
               ::"r"(shared_address(dst)), "l"(src), "r"(in_range ? 16 : 0) : "memory");
}

//@ cp_async_16_part needs: shared_address
// 16 bytes of shared memory, asynchronous: the first `bytes` of them from global memory, zeros behind. Reads nothing where that is 0.
__device__ __forceinline__ void cp_async_16_part(void* dst, const void* src, int bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared_address(dst)), "l"(src), "r"(bytes) : "memory");
}

//@ fetch_line needs: cp_async_16 cp_async_16_part
// The 16-byte words that hold the `span` bytes at `src`, which may be any address, asynchronous; four lanes share that. What lies between
// the first of them and `src` must be memory of the tensor too.
template <int span>
__device__ __forceinline__ void fetch_line(unsigned char* line, const unsigned char* src) {
  const int before = static_cast<int>(reinterpret_cast<unsigned long long>(src) % 16), part = static_cast<int>(threadIdx.x % 4) * 16;
  const unsigned char* const words = src - before;
#pragma unroll
  for (int at = 0; at < span; at += 64)
    if (at + part < span) cp_async_16(line + at + part, words + at + part);
  if (part == 0) cp_async_16_part(line + span, words + span, before);
}

//@ fetch_words needs: cp_async_16_part
// `bytes` bytes from `src`, a 16-byte word, asynchronous; so many lanes share that. Those in front of `begin`, where the tensor begins, and
// from `end` on, where its row ends, are zeros. No word is touched that does not lie between `begin` and `limit`, where the tensor ends.
template <int bytes, int lanes>
__device__ __forceinline__ void fetch_words(unsigned char* dst, const unsigned char* src, const unsigned char* begin, const unsigned char* end,
                                            const unsigned char* limit) {
#pragma unroll 1
  for (int at = static_cast<int>(threadIdx.x % lanes) * 16; at < bytes; at += 16 * lanes) {
    const long long front = src + at - begin, left = end - src - at;
    const int there = left < 0 ? 0 : left < 16 ? static_cast<int>(left) : 16;
    if (there == 0 || (front >= 0 && (there == 16 || limit - src - at >= 16))) {
      cp_async_16_part(dst + at, there > 0 ? src + at : begin, there);
    } else {
#pragma unroll 1
      for (int b = 0; b < 16; ++b) dst[at + b] = front + b >= 0 && b < there ? src[at + b] : 0;
    }
  }
}

//@ cp_async_8 needs: shared_address
// 8 bytes, global to shared, asynchronous, through the L1 cache.
__device__ __forceinline__ void cp_async_8(void* dst, const void* src) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(shared_address(dst)), "l"(src) : "memory");
}

//@ cp_async_8_zfill needs: shared_address
// 8 bytes, global to shared, asynchronous; zeros where the source is out of range.
__device__ __forceinline__ void cp_async_8_zfill(void* dst, const void* src, bool in_range) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;"
               ::"r"(shared_address(dst)), "l"(src), "r"(in_range ? 8 : 0) : "memory");
}

//@ cp_async_4 needs: shared_address
// 4 bytes, global to shared, asynchronous, through the L1 cache.
__device__ __forceinline__ void cp_async_4(void* dst, const void* src) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(dst)), "l"(src) : "memory");
}

//@ cp_async_4_zfill needs: shared_address
// 4 bytes, global to shared, asynchronous; zeros where the source is out of range.
__device__ __forceinline__ void cp_async_4_zfill(void* dst, const void* src, bool in_range) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
               ::"r"(shared_address(dst)), "l"(src), "r"(in_range ? 4 : 0) : "memory");
}

//@ cp_async_commit
// Closes this thread's current group of asynchronous copies; an empty group counts too.
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

//@ cp_async_wait
// Returns when at most `pending` of this thread's newest groups are still in flight.
template <int pending>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}
