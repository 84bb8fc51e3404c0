// Shared tiles, shared-memory addresses and vector access: how a kernel names and moves memory.
// Entries are cut at the `//@` lines; an entry's text is what lies between its line and the next one.

//@ shared_tile
// The tile of `elements` elements that starts `offset` bytes into the block's dynamic shared memory.
template <typename T, int elements>
__device__ __forceinline__ T* shared_tile(int offset) {
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  return reinterpret_cast<T*>(shared_memory + offset);
}

//@ shared_address
// The address that shared-memory instructions take: bytes from the start of the block's shared window.
__device__ __forceinline__ unsigned shared_address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

//@ vec
// n neighbouring elements, moved by one instruction.
template <typename T, int n>
struct alignas(sizeof(T) * n) vec {
  T v[n];
};

//@ load_vec needs: vec
// n elements from p, which is aligned to all of them.
template <int n, typename T>
__device__ __forceinline__ vec<T, n> load_vec(const T* p) {
  return *reinterpret_cast<const vec<T, n>*>(p);
}

//@ store_vec needs: vec
// n elements to p, which is aligned to all of them.
template <int n, typename T>
__device__ __forceinline__ void store_vec(T* p, const vec<T, n>& value) {
  *reinterpret_cast<vec<T, n>*>(p) = value;
}
