// What the emulated driver writes into a TensorMap.
#pragma once

struct EncodedMap {
  static constexpr unsigned long long expected_magic = 0x70616d5f636c6974ull;
  unsigned long long magic;
  char* address;
  unsigned long long dims[5];     // elements, innermost first
  unsigned long long strides[5];  // bytes; that of the innermost is not used
  unsigned short box[5];
  int rank, item, swizzle;  // bytes an element, bytes of the swizzle's span
};
