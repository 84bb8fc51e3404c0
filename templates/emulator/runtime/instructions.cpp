// What the instructions do: exchange in a warp, ldmatrix, mma, and asynchronous copies at the earliest or latest legal time.
#include <cmath>
#include <cstring>

#include "hopper.h"

namespace tilec {

namespace {

struct ShuffleArgument {
  void* value;
  int bytes;
  int lane;
  int width;
};
struct BallotArgument {
  bool v;
  unsigned result;
};
struct LdmatrixArgument {
  unsigned* r;
  const void* p;
};
struct MmaArgument {
  void* d;
  const unsigned* a;
  const unsigned* b;
};

template <typename T>
T& argument_of(int first_thread, int lane) {
  return *static_cast<T*>(threads[first_thread + lane].argument);
}

int shuffle_source(int kind, int lane, const ShuffleArgument& argument) {
  const int base = lane & ~(argument.width - 1), end = base + argument.width;
  int source = lane;
  switch (kind) {
    case tilec_shuffle_xor: source = lane ^ argument.lane; break;
    case tilec_shuffle_down: source = lane + argument.lane; break;
    case tilec_shuffle_up: source = lane - argument.lane; break;
    case tilec_shuffle_idx: source = base + (argument.lane & (argument.width - 1)); break;
  }
  if (kind == tilec_shuffle_xor) return source >= end ? lane : source;
  return source >= base && source < end ? source : lane;
}

void run_shuffle(int kind, unsigned lanes, int first_thread) {
  uint64_t values[32][2] = {};
  for (unsigned rest = lanes; rest != 0; rest &= rest - 1) {
    const int lane = __builtin_ctz(rest);
    const auto& argument = argument_of<ShuffleArgument>(first_thread, lane);
    memcpy(values[lane], argument.value, static_cast<size_t>(argument.bytes));
  }
  for (unsigned rest = lanes; rest != 0; rest &= rest - 1) {
    const int lane = __builtin_ctz(rest);
    const auto& argument = argument_of<ShuffleArgument>(first_thread, lane);
    const int source = shuffle_source(kind, lane, argument);
    if ((lanes >> source & 1) == 0)  // undefined on a GPU
      memset(argument.value, poison, static_cast<size_t>(argument.bytes));
    else
      memcpy(argument.value, values[source], static_cast<size_t>(argument.bytes));
  }
}

void run_ballot(unsigned lanes, int first_thread) {
  unsigned result = 0;
  for (unsigned rest = lanes; rest != 0; rest &= rest - 1)
    if (argument_of<BallotArgument>(first_thread, __builtin_ctz(rest)).v) result |= rest & -rest;
  for (unsigned rest = lanes; rest != 0; rest &= rest - 1) argument_of<BallotArgument>(first_thread, __builtin_ctz(rest)).result = result;
}

void run_ldmatrix(int matrices, bool transposed, int first_thread) {
  uint16_t rows[32][8];
  for (int lane = 0; lane < 8 * matrices; ++lane) {
    current = &threads[first_thread + lane];
    const void* const p = argument_of<LdmatrixArgument>(first_thread, lane).p;
    check_range(p, 16, "ldmatrix reads", true, current->line);
    races_access(p, 16, false, current->line);
    memcpy(rows[lane], p, 16);
  }
  for (int lane = 0; lane < 32; ++lane) {
    unsigned* const r = argument_of<LdmatrixArgument>(first_thread, lane).r;
    const int g = lane / 4, q = lane % 4 * 2;
    for (int m = 0; m < matrices; ++m) {
      const unsigned lo = transposed ? rows[8 * m + q][g] : rows[8 * m + g][q];
      const unsigned hi = transposed ? rows[8 * m + q + 1][g] : rows[8 * m + g][q + 1];
      r[m] = lo | hi << 16;
    }
  }
}

// ---- mma ----------------------------------------------------------------------------------------------------------
float f16_to_f32(uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  float magnitude;
  if (exponent == 31)
    magnitude = mantissa != 0 ? __builtin_nanf("") : __builtin_inff();
  else
    magnitude = exponent == 0 ? ldexpf(static_cast<float>(mantissa), -24) : ldexpf(static_cast<float>(1024 + mantissa), exponent - 25);
  return (bits >> 15) != 0 ? -magnitude : magnitude;
}

// Round to nearest even, from a double that holds the exact or nearly exact value.
uint16_t f64_to_f16(double x) {
  const uint16_t sign = __builtin_signbit(x) ? 0x8000 : 0;
  const double magnitude = fabs(x);
  if (x != x) return 0x7fff;
  if (magnitude >= 65520.0) return static_cast<uint16_t>(sign | 0x7c00);
  int exponent;
  __builtin_frexp(magnitude, &exponent);                    // magnitude = [0.5, 1) * 2^exponent
  const int step = exponent - 11 < -24 ? -24 : exponent - 11;  // the value of the last mantissa bit
  const long units = static_cast<long>(nearbyint(ldexp(magnitude, -step)));
  const int biased = step + 24;  // 0 for denormals and for the smallest normal binade
  return static_cast<uint16_t>(sign | (magnitude == 0 ? 0 : units + (static_cast<long>(biased) << 10)));
}

float e4m3_to_f32(unsigned bits) {
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  const float magnitude = (bits & 127) == 127 ? __builtin_nanf("")
                          : exponent == 0     ? ldexpf(static_cast<float>(mantissa), -9)
                                              : ldexpf(static_cast<float>(8 + mantissa), exponent - 10);
  return (bits >> 7 & 1) != 0 ? -magnitude : magnitude;
}

const float* f16_table() {
  static std::vector<float> table;
  if (table.empty())
    for (int i = 0; i < 65536; ++i) table.push_back(f16_to_f32(static_cast<uint16_t>(i)));
  return table.data();
}

float decode(int kind, unsigned bits) {
  switch (kind) {
    case tilec_mma_bf16_f32: return __builtin_bit_cast(float, bits << 16);
    case tilec_mma_tf32_f32: return __builtin_bit_cast(float, bits & 0xffffe000u);
    case tilec_mma_s8_s32: return static_cast<float>(static_cast<signed char>(bits));
    case tilec_mma_u8_s32: return static_cast<float>(bits & 255);
    case tilec_mma_e4m3_f32: return e4m3_to_f32(bits);
    case tilec_mma_e5m2_f32: return f16_to_f32(static_cast<uint16_t>(bits << 8));
    default: return 0;
  }
}

int elements_per_register(int kind) {
  switch (kind) {
    case tilec_mma_tf32_f32: return 1;
    case tilec_mma_f16_f32: case tilec_mma_bf16_f32: case tilec_mma_f16_f16: return 2;
    default: return 4;
  }
}

// Spreads the lanes' registers into a[16][k] and b[k][8]; k = 8 * elements per register.
void gather(int kind, int first_thread, float (*a)[32], float (*b)[8]) {
  const int per = elements_per_register(kind), bits = 32 / per;
  const unsigned mask = per == 1 ? 0xffffffffu : (1u << bits) - 1;
  const bool half = kind == tilec_mma_f16_f32 || kind == tilec_mma_f16_f16;
  const float* const halves = half ? f16_table() : nullptr;
  for (int lane = 0; lane < 32; ++lane) {
    const auto& argument = argument_of<MmaArgument>(first_thread, lane);
    const int g = lane / 4, q = lane % 4;
    for (int e = 0; e < per; ++e) {
      for (int r = 0; r < 4; ++r) {
        const unsigned raw = argument.a[r] >> (e * bits) & mask;
        a[g + r % 2 * 8][per * q + r / 2 * 4 * per + e] = half ? halves[raw] : decode(kind, raw);
      }
      for (int r = 0; r < 2; ++r) {
        const unsigned raw = argument.b[r] >> (e * bits) & mask;
        b[per * q + r * 4 * per + e][g] = half ? halves[raw] : decode(kind, raw);
      }
    }
  }
}

// Products are summed exactly or nearly so, and rounded once into the accumulator; integers wrap.
void run_mma(int kind, int first_thread) {
  float a[16][32], b[32][8];
  gather(kind, first_thread, a, b);
  const int depth = 8 * elements_per_register(kind);
  double sum[16][8] = {};
  for (int m = 0; m < 16; ++m)
    for (int k = 0; k < depth; ++k)
      for (int n = 0; n < 8; ++n) sum[m][n] += static_cast<double>(a[m][k]) * static_cast<double>(b[k][n]);
  for (int lane = 0; lane < 32; ++lane) {
    void* const d = argument_of<MmaArgument>(first_thread, lane).d;
    for (int i = 0; i < 4; ++i) {
      const double s = sum[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
      if (kind == tilec_mma_f16_f16) {
        auto* const halves = static_cast<uint16_t*>(d);
        halves[i] = f64_to_f16(static_cast<double>(f16_to_f32(halves[i])) + s);
      } else if (kind == tilec_mma_s8_s32 || kind == tilec_mma_u8_s32) {
        auto* const words = static_cast<uint32_t*>(d);
        words[i] += static_cast<uint32_t>(static_cast<int64_t>(s));
      } else {
        auto* const floats = static_cast<float*>(d);
        floats[i] = static_cast<float>(static_cast<double>(floats[i]) + s);
      }
    }
  }
}

void check_whole_warp(const Thread& one, unsigned lanes, int first_thread) {
  if (lanes != 0xffffffffu)
    fail("fault", one.line, format("only %d lanes of a warp execute %s, which needs all 32", __builtin_popcount(lanes),
                                   name_collective(one.collective, one.kind)));
  for (int lane = 0; lane < 32; ++lane)
    if (threads[first_thread + lane].line != one.line)
      fail("fault", one.line, format("the lanes of a warp execute %s in different places: lines %d and %d",
                                     name_collective(one.collective, one.kind), one.line, threads[first_thread + lane].line));
}

void perform(const AsyncCopy& copy) {
  if (copy.valid > 0) memcpy(copy.dst, copy.src, static_cast<size_t>(copy.valid));
  memset(static_cast<char*>(copy.dst) + copy.valid, 0, static_cast<size_t>(copy.bytes - copy.valid));
}

}  // namespace

void land(const Thread& thread, const std::vector<AsyncCopy>& group) {
  for (const AsyncCopy& copy : group) {
    if (!copy.landed) perform(copy);
    races_copy_landed(thread, copy.dst, static_cast<size_t>(copy.bytes));
  }
}

float decode_element(int kind, unsigned bits) { return decode(kind, bits); }
float decode_half(uint16_t bits) { return f16_table()[bits]; }
uint16_t round_to_half(double x) { return f64_to_f16(x); }

void run_collective(const Thread& one, Warp&, unsigned lanes, int first_thread) {
  Thread* const running = current;
  switch (one.collective) {
    case Collective::none: break;
    case Collective::warp_barrier: races_warp_barrier(lanes, first_thread); break;
    case Collective::ballot: run_ballot(lanes, first_thread); break;
    case Collective::shuffle: run_shuffle(one.kind, lanes, first_thread); break;
    case Collective::ldmatrix:
      check_whole_warp(one, lanes, first_thread);
      run_ldmatrix(one.kind / 2, one.kind % 2 != 0, first_thread);
      break;
    case Collective::stmatrix:
      check_whole_warp(one, lanes, first_thread);
      run_stmatrix(first_thread);
      break;
    case Collective::mma:
      check_whole_warp(one, lanes, first_thread);
      run_mma(one.kind, first_thread);
      break;
  }
  current = running;
}

void finish_copies(Thread& thread, int pending) {
  while (static_cast<int>(thread.groups.size()) > pending) {
    const std::vector<AsyncCopy> group = std::move(thread.groups.front());
    thread.groups.erase(thread.groups.begin());
    land(thread, group);
  }
}

// Some of the copies in flight, of any group, land now.
void finish_some_copies(Thread& thread) {
  for (std::vector<AsyncCopy>& group : thread.groups) {
    for (AsyncCopy& copy : group) {
      if (copy.landed || random_below(3) != 0) continue;
      perform(copy);
      copy.landed = true;
    }
  }
}

void finish_all_copies(Thread& thread) {
  finish_copies(thread, 0);
  land(thread, thread.open_group);
  thread.open_group.clear();
}

// The copies in flight are somebody else's from now on; their groups stay, empty, so that waits count them.
std::vector<AsyncCopy> take_copies(Thread& thread) {
  std::vector<AsyncCopy> out = std::move(thread.open_group);
  thread.open_group.clear();
  for (std::vector<AsyncCopy>& group : thread.groups) {
    out.insert(out.end(), group.begin(), group.end());
    group.clear();
  }
  return out;
}

}  // namespace tilec

using namespace tilec;

namespace {

void queue_copy(void* dst, const void* src, int bytes, int valid, int line) {
  check_range(dst, static_cast<size_t>(bytes), "cp_async writes", true, line);
  if (valid > 0) check_range(src, static_cast<size_t>(valid), "cp_async reads", false, line, static_cast<size_t>(bytes));
  races_copy_issued(dst, static_cast<size_t>(bytes), line);
  const bool now = settings.asynchrony == Asynchrony::eager;
  const AsyncCopy copy = {dst, src, bytes, valid, now};
  if (now) perform(copy);
  current->open_group.push_back(copy);
}

}  // namespace

void tilec_cp_async(void* dst, const void* src, int bytes, bool in_range, int line) { queue_copy(dst, src, bytes, in_range ? bytes : 0, line); }

void tilec_cp_async_part(void* dst, const void* src, int bytes, int line) { queue_copy(dst, src, 16, bytes, line); }

void tilec_cp_async_commit() {
  current->groups.push_back(std::move(current->open_group));
  current->open_group.clear();
}

void tilec_cp_async_wait(int pending) {
  if (pending == 0) hopper_arrivals_of(current->index);
  finish_copies(*current, pending);
}

void tilec_ldmatrix(unsigned* r, const void* p, int matrices, bool transposed, int line) {
  LdmatrixArgument argument = {r, p};
  collective(Collective::ldmatrix, matrices * 2 + (transposed ? 1 : 0), 0xffffffffu, &argument, line);
}

void tilec_mma(int kind, void* d, const unsigned* a, const unsigned* b, int line) {
  MmaArgument argument = {d, a, b};
  collective(Collective::mma, kind, 0xffffffffu, &argument, line);
}

void tilec_shuffle(int kind, void* value, int bytes, int lane, unsigned mask, int width, int line) {
  if (bytes > 16) fail("fault", line, format("a shuffle of %d bytes", bytes));
  ShuffleArgument argument = {value, bytes, lane, width};
  collective(Collective::shuffle, kind, mask, &argument, line);
}

unsigned tilec_ballot(bool v, unsigned mask, int line) {
  BallotArgument argument = {v, 0};
  collective(Collective::ballot, 0, mask, &argument, line);
  return argument.result;
}

void tilec_warp_barrier(unsigned mask, int line) { collective(Collective::warp_barrier, 0, mask, nullptr, line); }
