// Shared tiles, shared-memory addresses and vector access: how a kernel names and moves memory.
// Entries are cut at the `//@` lines; an entry's text is what lies between its line and the next one.

//@ shared_tile
// The tile of `elements` elements that starts `offset` bytes into the block's dynamic shared memory.
template <typename T, int elements>
__device__ __forceinline__ T* shared_tile(int offset) {
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  return reinterpret_cast<T*>(shared_memory + offset);
}

//@ shelved
// An array of a thread: the first `kept` elements are in registers, the others on the shelf, 16 bytes of a thread beside those of the next.
// Whoever asks for element i knows i while compiling; behind a pointer to it are those of its 16 bytes.
template <typename T, int kept, int threads>
struct shelved {
  static constexpr int chunk = static_cast<int>(16 / sizeof(T));
  T first[kept];
  T* const others;
  __device__ __forceinline__ shelved(T* shelf, int thread) : others(shelf + thread * chunk) {}
  __device__ __forceinline__ T& operator[](int i) {
    return i < kept ? first[i] : others[(i - kept) / chunk * chunk * threads + (i - kept) % chunk];
  }
  __device__ __forceinline__ T* operator+(int i) { return &(*this)[i]; }
};

//@ settle_shelf
// What is on the shelf is there, and in no register as well.
__device__ __forceinline__ void settle_shelf() { asm volatile("" ::: "memory"); }

//@ shared_address
// The address that shared-memory instructions take: bytes from the start of the block's shared window.
__device__ __forceinline__ unsigned shared_address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

//@ anew
// x, of which the compiler does not know that it is what it was in the step before: it keeps nothing that is made of it in registers.
__device__ __forceinline__ unsigned anew(unsigned x) {
  asm volatile("" : "+r"(x));
  return x;
}

//@ word_at
// The four bytes that begin `skip` bytes behind `words`.
__device__ __forceinline__ unsigned word_at(const unsigned char* words, int skip) {
  const unsigned* const w = reinterpret_cast<const unsigned*>(words) + skip / 4;
  return __funnelshift_r(w[0], w[1], skip * 8);  // modulo 32
}

//@ word_in_ring
// The four bytes `at` bytes into rings of 256 each, which begin at their byte `start`, 0 or 128.
__device__ __forceinline__ unsigned word_in_ring(const unsigned char* ring, int start, int at) {
  const int word = at & ~3;
  const unsigned low = *reinterpret_cast<const unsigned*>(ring + (word ^ start));
  const unsigned high = *reinterpret_cast<const unsigned*>(ring + ((word + 4) ^ start));
  return __funnelshift_r(low, high, at * 8);  // modulo 32
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
