// Products of warp groups: operands from shared memory through their descriptors, accumulators in the threads' registers.
//
// All 128 threads of a warp group issue the same products in the same order; a product happens once the last of them has
// issued it, and at the latest when one of them waits for it.
#include <cstring>
#include <deque>

#include "../hopper_calls.h"
#include "hopper.h"

namespace tilec {

namespace {

struct Product {
  int kind, n;
  uint64_t a, b;
  bool accumulate, trans_a, trans_b;
  int line;
  int issued = 0;
  void* d[128] = {};
  const unsigned* held[128] = {};  // the words of a, when it lies in registers
};

struct WarpGroup {
  std::deque<Product> open;  // issued by someone, not done; the first has the number `done`
  long done = 0;
  std::vector<std::pair<int, unsigned>> flights;  // for the race check, by number: what reads the operands, and its time
};

struct Issuer {
  long issued = 0;
  std::vector<long> commits;  // products issued before each commit
  bool fenced = false;        // since the last commit
  size_t seen = 0;            // products that it has waited for
};

std::vector<WarpGroup> groups;
std::vector<Issuer> issuers;
std::vector<WarpGroup> kept_groups[most_ranks];  // of the blocks of a cluster that do not run
std::vector<Issuer> kept_issuers[most_ranks];

int depth_of(int kind) {
  switch (kind) {
    case tilec_wgmma_f16_f32: case tilec_wgmma_bf16_f32: case tilec_wgmma_f16_f16: return 16;
    case tilec_wgmma_tf32_f32: return 8;
    default: return 32;
  }
}

float decode(int kind, unsigned bits) {
  switch (kind) {
    case tilec_wgmma_f16_f32: case tilec_wgmma_f16_f16: return decode_half(static_cast<uint16_t>(bits));
    case tilec_wgmma_bf16_f32: return decode_element(tilec_mma_bf16_f32, bits);
    case tilec_wgmma_tf32_f32: return decode_element(tilec_mma_tf32_f32, bits);
    case tilec_wgmma_s8_s32: return decode_element(tilec_mma_s8_s32, bits);
    case tilec_wgmma_u8_s32: return decode_element(tilec_mma_u8_s32, bits);
    case tilec_wgmma_e4m3_f32: case tilec_wgmma_e4m3_f16: return decode_element(tilec_mma_e4m3_f32, bits);
    default: return decode_element(tilec_mma_e5m2_f32, bits);
  }
}

// Element (row along m or n, k) of an operand, as the hardware finds it: blocks of eight rows, exchanged 16-byte chunks.
unsigned element_address(uint64_t descriptor, bool transposed, int row, int k, int item, int line) {
  const unsigned start = static_cast<unsigned>(descriptor & 0x3fff) << 4;
  const unsigned leading = static_cast<unsigned>(descriptor >> 16 & 0x3fff) << 4, stride = static_cast<unsigned>(descriptor >> 32 & 0x3fff) << 4;
  const int mode = static_cast<int>(descriptor >> 62);
  const int span = mode == 0 ? 16 : 256 >> mode;  // 128, 64, 32 bytes
  const auto u = [](int n) { return static_cast<unsigned>(n); };
  unsigned address;
  if (!transposed) {
    const int along = k * item;
    address = start + u(row / 8) * stride + u(row % 8 * span) + u(along % span) + (mode == 0 ? u(along / 16) * leading : 0);
    if (mode != 0 && along >= span) fail("fault", line, "a product runs past the swizzled rows of its operand");
  } else {
    if (mode == 0) fail("fault", line, "an operand whose rows run along m or n needs a swizzle here");
    const int per = span / item;
    address = start + u(row / per) * leading + u(k / 8) * stride + u(k % 8 * span) + u(row % per * item);
  }
  return mode == 0 ? address : address ^ (address >> 7 & u(span / 16 - 1)) << 4;
}

void read_operand(const Product& p, uint64_t descriptor, bool transposed, int rows, std::vector<float>& out) {
  const int depth = depth_of(p.kind), item = 32 / depth;
  out.resize(static_cast<size_t>(rows * depth));
  for (int r = 0; r < rows; ++r)
    for (int k = 0; k < depth; ++k) {
      const char* const c = shared_at(element_address(descriptor, transposed, r, k, item, p.line), p.line);
      unsigned bits = 0;
      memcpy(&bits, c, static_cast<size_t>(item));
      out[static_cast<size_t>(r * depth + k)] = decode(p.kind, bits);
    }
}

// Where an operand lies, in parts of neighbouring bytes.
void add_parts(const Product& p, uint64_t descriptor, bool transposed, int rows, std::vector<std::pair<const char*, size_t>>& parts) {
  const int depth = depth_of(p.kind);
  const size_t item = 32 / static_cast<size_t>(depth);
  for (int r = 0; r < rows; ++r)
    for (int k = 0; k < depth; ++k) {
      const char* const c = shared_at(element_address(descriptor, transposed, r, k, static_cast<int>(item), p.line), p.line);
      if (!parts.empty() && parts.back().first + parts.back().second == c) parts.back().second += item;
      else parts.push_back({c, item});
    }
}

bool is_integer(int kind) { return kind == tilec_wgmma_s8_s32 || kind == tilec_wgmma_u8_s32; }
bool is_half(int kind) { return kind == tilec_wgmma_f16_f16 || kind == tilec_wgmma_e4m3_f16 || kind == tilec_wgmma_e5m2_f16; }

void add_to(void* d, const Product& p, int i, double sum) {
  if (is_integer(p.kind)) {
    auto* const words = static_cast<uint32_t*>(d);
    words[i] = (p.accumulate ? words[i] : 0) + static_cast<uint32_t>(static_cast<int64_t>(sum));
  } else if (is_half(p.kind)) {
    auto* const halves = static_cast<uint16_t*>(d);
    halves[i] = round_to_half((p.accumulate ? static_cast<double>(decode_half(halves[i])) : 0.0) + sum);
  } else {
    auto* const floats = static_cast<float*>(d);
    floats[i] = static_cast<float>((p.accumulate ? static_cast<double>(floats[i]) : 0.0) + sum);
  }
}

// The a of a product that lies in registers, as it is now: words (row g), (row g + 8), then both half the depth further.
void read_held(const Product& p, std::vector<float>& out) {
  const int depth = depth_of(p.kind), per = depth / 8, bits = 32 / per;  // elements of a word, and bits of one
  out.resize(static_cast<size_t>(64 * depth));
  for (int m = 0; m < 64; ++m)
    for (int k = 0; k < depth; ++k) {
      const unsigned word = p.held[m / 16 * 32 + m % 8 * 4 + k % (depth / 2) / per][k / (depth / 2) * 2 + m % 16 / 8];
      const unsigned mask = bits == 32 ? 0xffffffffu : (1u << bits) - 1;
      out[static_cast<size_t>(m * depth + k)] = decode(p.kind, word >> k % per * bits & mask);
    }
}

// Products are summed exactly or nearly so, and rounded once into the accumulator; integers wrap.
void multiply(const Product& p) {
  static std::vector<float> a, b;
  if (p.held[0] != nullptr) read_held(p, a);
  else read_operand(p, p.a, p.trans_a, 64, a);
  const int depth = depth_of(p.kind);
  read_operand(p, p.b, p.trans_b, p.n, b);
  for (int m = 0; m < 64; ++m) {
    const float* const x = &a[static_cast<size_t>(m * depth)];
    for (int n = 0; n < p.n; ++n) {
      const float* const y = &b[static_cast<size_t>(n * depth)];
      double sum = 0;
      for (int k = 0; k < depth; ++k) sum += static_cast<double>(x[k]) * static_cast<double>(y[k]);
      const int thread = m / 16 * 32 + m % 8 * 4 + n % 8 / 2;
      add_to(p.d[thread], p, n / 8 * 4 + m % 16 / 8 * 2 + n % 2, sum);
    }
  }
}

// Does the products of a warp group below number `until` that all its threads have issued.
void advance(WarpGroup& g, long until) {
  while (g.done < until && !g.open.empty() && g.open.front().issued == 128) {
    multiply(g.open.front());
    g.open.pop_front();
    ++g.done;
  }
}

}  // namespace

void products_exchange(int from, int to) {
  kept_groups[from] = std::move(groups);
  kept_issuers[from] = std::move(issuers);
  groups = std::move(kept_groups[to]);
  issuers = std::move(kept_issuers[to]);
}

void products_start_block(int thread_count) {
  groups.assign(static_cast<size_t>(thread_count + 127) / 128, {});
  issuers.assign(static_cast<size_t>(thread_count), {});
}

bool products_progress(bool random) {
  for (WarpGroup& g : groups) {
    const long before = g.done;
    if (!random || random_below(2) == 0) advance(g, g.done + 1);
    if (g.done != before) return true;
  }
  return false;
}

void products_end_block(int) {
  for (const WarpGroup& g : groups)
    if (!g.open.empty()) fail("fault", g.open.front().line, "the block ends while a product of a warp group is not waited for");
}

}  // namespace tilec

using namespace tilec;

unsigned long long tilec_wgmma_descriptor(const void* p, int leading, int stride, int swizzle, int line) {
  remember_region(p, line);
  return static_cast<unsigned long long>((tilec_shared_address(p) & 0x3ffff) >> 4) | static_cast<unsigned long long>(leading >> 4) << 16 |
         static_cast<unsigned long long>(stride >> 4) << 32 | static_cast<unsigned long long>(swizzle) << 62;
}

void tilec_wgmma_fence() { issuers[static_cast<size_t>(current->index)].fenced = true; }

namespace {

void issue(const Product& wanted, void* d, const unsigned* held) {
  Issuer& mine = issuers[static_cast<size_t>(current->index)];
  WarpGroup& g = groups[static_cast<size_t>(current->index) / 128];
  if (!mine.fenced) fail("fault", wanted.line, "a product of a warp group without a wgmma_fence in front of it");
  const size_t place = static_cast<size_t>(mine.issued - g.done);
  if (place == g.open.size()) g.open.push_back(wanted);
  Product& p = g.open[place];
  if (p.kind != wanted.kind || p.n != wanted.n || p.a != wanted.a || p.b != wanted.b || p.accumulate != wanted.accumulate ||
      p.trans_a != wanted.trans_a || p.trans_b != wanted.trans_b)
    fail("fault", wanted.line, "the threads of a warp group issue different products");
  p.d[current->index % 128] = d;
  p.held[current->index % 128] = held;
  ++p.issued;
  ++mine.issued;
  if (p.issued < 128) return;
  if (settings.races) {
    std::vector<std::pair<const char*, size_t>> parts;
    if (p.held[0] == nullptr) add_parts(p, p.a, p.trans_a, 64, parts);
    add_parts(p, p.b, p.trans_b, p.n, parts);
    const int flight = races_bulk_issued(parts, false, p.line);
    g.flights.push_back({flight, races_time_of(flight)});
  }
  if (settings.asynchrony == Asynchrony::eager) advance(g, g.done + static_cast<long>(g.open.size()));
  wake_waiting();
}

}  // namespace

void tilec_wgmma(int kind, int n, void* d, unsigned long long a, unsigned long long b, bool accumulate, bool trans_a, bool trans_b, int line) {
  issue({kind, n, a, b, accumulate, trans_a, trans_b, line}, d, nullptr);
}

void tilec_wgmma_held(int kind, int n, void* d, const unsigned* a, unsigned long long b, bool accumulate, bool trans_b, int line) {
  issue({kind, n, 0, b, accumulate, false, trans_b, line}, d, a);
}

void tilec_wgmma_commit() {
  Issuer& mine = issuers[static_cast<size_t>(current->index)];
  mine.commits.push_back(mine.issued);
  mine.fenced = false;
}

void tilec_wgmma_wait(int pending, int line) {
  Issuer& mine = issuers[static_cast<size_t>(current->index)];
  WarpGroup& g = groups[static_cast<size_t>(current->index) / 128];
  const int count = static_cast<int>(mine.commits.size()) - pending;
  const long until = count > 0 ? mine.commits[static_cast<size_t>(count - 1)] : 0;
  for (advance(g, until); g.done < until; advance(g, until)) wait_for("the products of its warp group", line);
  for (; settings.races && static_cast<long>(mine.seen) < until; ++mine.seen)
    races_product_waited(g.flights[mine.seen].first, g.flights[mine.seen].second);
}
