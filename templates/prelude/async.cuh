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
