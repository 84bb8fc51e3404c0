// Random numbers without a state: any number of any stream at once.

//@ philox
// Number `draw` of the stream `sequence` of a seed, as cuRAND's Philox4_32_10 generator gives them one after another.
__device__ __forceinline__ unsigned philox(unsigned long long seed, unsigned long long sequence, unsigned long long draw) {
  unsigned a = static_cast<unsigned>(draw >> 2), b = static_cast<unsigned>(draw >> 34);
  unsigned c = static_cast<unsigned>(sequence), d = static_cast<unsigned>(sequence >> 32);
  unsigned k = static_cast<unsigned>(seed), l = static_cast<unsigned>(seed >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const unsigned long long x = 0xd2511f53ull * a, y = 0xcd9e8d57ull * c;
    a = static_cast<unsigned>(y >> 32) ^ b ^ k;
    b = static_cast<unsigned>(y);
    c = static_cast<unsigned>(x >> 32) ^ d ^ l;
    d = static_cast<unsigned>(x);
    k += 0x9e3779b9u;
    l += 0xbb67ae85u;
  }
  const unsigned low = (draw & 1) != 0 ? b : a, high = (draw & 1) != 0 ? d : c;
  return (draw & 2) != 0 ? high : low;
}
