// The element types that CUDA has no built-in name for without a header: bits in a struct, converted by numeric.cuh.
// Entries are cut at the `//@` lines; an entry's text is what lies between its line and the next one.

//@ half_t
struct half_t { unsigned short bits; };

//@ bfloat16_t
struct bfloat16_t { unsigned short bits; };

//@ fp8_e4m3_t
struct fp8_e4m3_t { unsigned char bits; };

//@ fp8_e5m2_t
struct fp8_e5m2_t { unsigned char bits; };

//@ foreign_pointer
// A pointer that becomes one to whatever the author's function takes.
struct foreign_pointer {
  const void* p;
  template <typename T>
  __device__ __forceinline__ operator T*() const { return static_cast<T*>(const_cast<void*>(p)); }
};
