// mbarriers, the copy engine, stmatrix, proxy fences and register hand-over.
//
// A load or store happens when it is queued (eager), when someone waits for it (lazy), or some time between (random).
#include <algorithm>
#include <cstring>
#include <map>

#include "../hopper_calls.h"
#include "../hopper_types.h"
#include "hopper.h"

namespace tilec {

namespace {

struct Mbarrier {
  int count = 0;
  int missing = 0;     // arrivals until the phase ends
  long bytes = 0;      // announced and not yet there
  unsigned phase = 0;  // phases that are over
};

struct Transfer {
  EncodedMap map;
  char* shared;
  void* barrier;  // of a load
  long bytes;     // of a copy from `source`, shared memory of the block `from` of the cluster; else 0
  const char* source;
  int from;
  int at[5];
  int line;
  bool adds;  // of a store: to what is there
  bool done;  // of a store that is not waited for yet
  int flight, source_flight;  // for the race check: what it does to `shared`, and to `source`
};

// An arrival that waits for copies of its thread.
struct CopyArrival {
  int thread;
  void* barrier;
  std::vector<AsyncCopy> copies;
  int line;
};

struct ThreadState {
  std::vector<std::vector<Transfer>> groups;  // of stores, oldest first
  std::vector<Transfer> open;
  int registers = 0;
};

struct Unfenced {
  const char* chunk;
  unsigned lanes;  // that wrote a part of it and have not fenced
};

std::map<void*, Mbarrier> mbarriers;
std::vector<Transfer> loads;
std::vector<CopyArrival> arrivals;
std::vector<ThreadState> states;
std::vector<std::vector<Unfenced>> unfenced;  // by warp
std::vector<const Region*> known;

// The same of the blocks of a cluster that do not run.
struct Kept {
  std::map<void*, Mbarrier> mbarriers;
  std::vector<Transfer> loads;
  std::vector<CopyArrival> arrivals;
  std::vector<ThreadState> states;
  std::vector<std::vector<Unfenced>> unfenced;
  std::vector<const Region*> known;
};
Kept kept[most_ranks];

// What stands in shared memory for the state of an mbarrier: whoever writes there by mistake is found out.
uint64_t image_of(const Mbarrier& m) {
  return 0x6d62000000000000u ^ static_cast<uint64_t>(m.count) << 40 ^ static_cast<uint64_t>(m.missing) << 32 ^ static_cast<uint64_t>(m.bytes) << 8 ^
         (m.phase & 255);
}

void write_image(void* barrier, const Mbarrier& m) {
  const uint64_t image = image_of(m);
  memcpy(barrier, &image, sizeof image);
}

Mbarrier& find_mbarrier(void* barrier, int line) {
  const auto found = mbarriers.find(barrier);
  if (found == mbarriers.end()) fail("fault", line, "an mbarrier that was not initialised: " + describe_access(barrier, 8, find_region(barrier)));
  const uint64_t image = image_of(found->second);
  if (memcmp(barrier, &image, sizeof image) != 0) fail("fault", line, "an mbarrier was overwritten: " + describe_access(barrier, 8, find_region(barrier)));
  return found->second;
}

void finish_phase(void* barrier, Mbarrier& m) {
  if (m.missing == 0 && m.bytes == 0) {
    ++m.phase;
    m.missing = m.count;
    races_mbarrier_over(barrier);
    wake_waiting();
  }
  write_image(barrier, m);
}

unsigned swizzled(unsigned address, int span) {
  if (span == 0) return address;
  return address ^ (address >> 7 & static_cast<unsigned>(span / 16 - 1)) << 4;
}

// Walks the rows of a box: the address of each in the tensor, and how many of its elements are in range, from the first that is.
template <typename Row>
void for_rows(const Transfer& t, Row row) {
  const EncodedMap& m = t.map;
  const int rows = m.box[1] * m.box[2] * m.box[3] * m.box[4];
  for (int r = 0; r < rows; ++r) {
    int left = r;
    long offset = 0;
    bool inside = true;
    for (int d = 1; d < 5; ++d) {
      const long i = static_cast<long>(t.at[d]) + left % m.box[d];
      left /= m.box[d];
      inside = inside && i >= 0 && i < static_cast<long>(m.dims[d]);
      offset += i * static_cast<long>(m.strides[d]);
    }
    row(r, inside, m.address + offset);
  }
}

// The bytes [from, to) of a row of the box that lie in the tensor.
void in_range(const Transfer& t, int& from, int& to) {
  const int item = t.map.item;
  const long first = t.at[0] < 0 ? -static_cast<long>(t.at[0]) : 0;
  const long last = static_cast<long>(t.map.dims[0]) - t.at[0];
  const long width = t.map.box[0];
  from = static_cast<int>((first < width ? first : width) * item);
  to = static_cast<int>((last < 0 ? 0 : last < width ? last : width) * item);
}

void check_global(const char* p, int bytes, const Transfer& t, const char* what) {
  const Region* const region = find_region(p);
  if (region == nullptr || region->shared || p < region->begin || p + bytes > region->begin + region->bytes)
    fail("overrun", t.line, std::string(what) + " " + describe_access(p, static_cast<size_t>(bytes), region));
}

void count_bytes(const Transfer& t, long bytes) {
  Mbarrier& m = find_mbarrier(t.barrier, t.line);
  races_bulk_counted(t.flight, t.barrier, m.phase);
  races_bulk_counted(t.source_flight, t.barrier, m.phase);
  m.bytes -= bytes;
  finish_phase(t.barrier, m);
}

void copy_now(const Transfer& t) {
  memcpy(t.shared, t.source, static_cast<size_t>(t.bytes));
  count_bytes(t, t.bytes);
}

void load_now(const Transfer& t) {
  if (t.bytes != 0) return copy_now(t);
  const unsigned base = tilec_shared_address(t.shared);
  const int width = t.map.box[0] * t.map.item;
  int from, to;
  in_range(t, from, to);
  int total = 0;
  for_rows(t, [&](int r, bool inside, const char* source) {
    for (int c = 0; c < width; c += 16) {
      char chunk[16] = {};
      for (int i = 0; i < 16; ++i) {
        const int b = c + i;
        if (!inside || b < from || b >= to) continue;
        const char* const p = source + static_cast<long>(t.at[0]) * t.map.item + b;
        if (i == 0 || b == from) check_global(p, (to < c + 16 ? to : c + 16) - b, t, "a tma_load reads");
        chunk[i] = *p;
      }
      const unsigned address = swizzled(base + static_cast<unsigned>(r * width + c), t.map.swizzle);
      memcpy(t.shared + (address - base), chunk, 16);
      total += 16;
    }
  });
  count_bytes(t, total);
}

void store_now(const Transfer& t) {
  const unsigned base = tilec_shared_address(t.shared);
  const int width = t.map.box[0] * t.map.item;
  int from, to;
  in_range(t, from, to);
  for_rows(t, [&](int r, bool inside, char* target) {
    if (!inside || from >= to) return;
    char* const row = target + static_cast<long>(t.at[0]) * t.map.item;
    check_global(row + from, to - from, t, t.adds ? "a tma_add writes" : "a tma_store writes");
    for (int b = from; t.adds && b < to; b += 4) {
      const unsigned address = swizzled(base + static_cast<unsigned>(r * width + b), t.map.swizzle);
      float sum, more;
      memcpy(&sum, row + b, sizeof sum);
      memcpy(&more, t.shared + (address - base), sizeof more);
      sum += more;
      memcpy(row + b, &sum, sizeof sum);
    }
    for (int b = from; !t.adds && b < to; ++b) {
      const unsigned address = swizzled(base + static_cast<unsigned>(r * width + b), t.map.swizzle);
      row[b] = t.shared[address - base];
    }
  });
}

Transfer make_transfer(const void* map, const void* shared, int rank, const int (&at)[5], int line, const char* what) {
  Transfer t = {};
  memcpy(&t.map, map, sizeof t.map);
  if (t.map.magic != EncodedMap::expected_magic) fail("fault", line, std::string(what) + " through a TensorMap that was not encoded");
  if (t.map.rank != rank) fail("fault", line, format("%s names %d coordinates of a tensor with %d dimensions", what, rank, t.map.rank));
  t.shared = static_cast<char*>(const_cast<void*>(shared));
  memcpy(t.at, at, sizeof at);
  t.line = line;
  int bytes = t.map.item;
  for (int d = 0; d < 5; ++d) bytes *= t.map.box[d];
  const Region* const region = find_region(shared);
  if (region == nullptr || !region->shared) fail("fault", line, std::string(what) + " with " + describe_access(shared, 1, region) + ", not in shared memory");
  if (t.shared < region->begin || t.shared + bytes > region->begin + region->bytes)
    fail("overrun", line, std::string(what) + " takes " + describe_access(shared, static_cast<size_t>(bytes), region));
  const unsigned alignment = t.map.swizzle != 0 ? static_cast<unsigned>(t.map.swizzle) * 8 : 128;
  if (tilec_shared_address(shared) % alignment != 0) fail("fault", line, format("%s needs shared memory aligned to %u bytes", what, alignment));
  return t;
}

bool load_one(size_t i) {
  if (i >= loads.size()) return false;
  const Transfer t = loads[i];
  loads.erase(loads.begin() + static_cast<long>(i));
  load_now(t);
  return true;
}

// The copies land, and their thread arrives.
bool arrive_one(size_t i) {
  if (i >= arrivals.size()) return false;
  const CopyArrival a = arrivals[i];
  arrivals.erase(arrivals.begin() + static_cast<long>(i));
  Thread* const running = current;
  current = &threads[static_cast<size_t>(a.thread)];
  land(*current, a.copies);
  tilec_mbarrier_arrive(a.barrier, 0, false, a.line);
  current = running;
  return true;
}

void finish_stores(ThreadState& s, int pending) {
  while (static_cast<int>(s.groups.size()) > pending) {
    for (const Transfer& t : s.groups.front()) {
      if (!t.done) store_now(t);
      races_bulk_waited(t.flight, *current);
    }
    s.groups.erase(s.groups.begin());
  }
}

// The oldest group that has not happened does.
void advance_stores(ThreadState& s) {
  for (auto& group : s.groups) {
    if (group.empty() || group.front().done) continue;
    for (Transfer& t : group) {
      store_now(t);
      t.done = true;
    }
    return;
  }
}

long box_bytes(const Transfer& t) {
  long bytes = t.map.item;
  for (int d = 0; d < 5; ++d) bytes *= t.map.box[d];
  return bytes;
}

int take_off(const void* p, long bytes, bool write, int line) {
  return races_bulk_issued({{static_cast<const char*>(p), static_cast<size_t>(bytes)}}, write, line);
}

struct StmatrixArgument {
  char* p;
  unsigned r[4];
};

}  // namespace

void wait_for(const char* what, int line) {
  current->state = State::at_condition;
  current->waits_for = what;
  current->line = line;
  block_thread();
}

void wake_waiting() {
  for (Thread& thread : threads) {
    if (thread.state != State::at_condition) continue;
    thread.state = State::ready;
    warps[static_cast<size_t>(thread.index) / 32].ready |= 1u << (thread.index % 32);
  }
}

void remember_region(const void* p, int line) {
  const Region* const region = find_region(p);
  if (region == nullptr || !region->shared) fail("fault", line, describe_access(p, 1, region) + ", not in shared memory");
  // Of tiles that share bytes, kept apart here, the one named last is meant.
  known.erase(std::remove(known.begin(), known.end(), region), known.end());
  known.insert(known.begin(), region);
}

char* shared_at(unsigned address, int line) {
  for (const Region* r : known) {
    const unsigned first = static_cast<unsigned>(r->offset);
    if (address >= first && address < first + r->bytes) return r->begin + (address - first);
  }
  fail("overrun", line, format("a wgmma descriptor leads to byte %u of shared memory, which is in none of its operands' tiles", address));
}

void hopper_exchange(int from, int to) {
  kept[from] = {std::move(mbarriers), std::move(loads), std::move(arrivals), std::move(states), std::move(unfenced), std::move(known)};
  Kept& k = kept[to];
  mbarriers = std::move(k.mbarriers);
  loads = std::move(k.loads);
  arrivals = std::move(k.arrivals);
  states = std::move(k.states);
  unfenced = std::move(k.unfenced);
  known = std::move(k.known);
  products_exchange(from, to);
}

void hopper_start_block(int thread_count) {
  mbarriers.clear();
  loads.clear();
  arrivals.clear();
  states.assign(static_cast<size_t>(thread_count), {});
  unfenced.assign(static_cast<size_t>(thread_count + 31) / 32, {});
  known.clear();
  products_start_block(thread_count);
}

bool hopper_progress() { return load_one(0) || arrive_one(0) || products_progress(false); }

void hopper_random_progress() {
  if (!loads.empty()) load_one(static_cast<size_t>(random_below(static_cast<int>(loads.size()))));
  if (!arrivals.empty() && random_below(4) == 0) arrive_one(static_cast<size_t>(random_below(static_cast<int>(arrivals.size()))));
  products_progress(true);
  ThreadState& s = states[static_cast<size_t>(random_below(static_cast<int>(states.size())))];
  advance_stores(s);
}

void hopper_arrivals_of(int thread) {
  for (size_t i = 0; i < arrivals.size();)
    if (arrivals[i].thread == thread)
      arrive_one(i);
    else
      ++i;
}

void hopper_end_block(int thread_count) {
  while (arrive_one(0)) {
  }
  products_end_block(thread_count);
  if (!loads.empty()) fail("fault", loads[0].line, "the block ends while a tma_load is still on its way into its shared memory");
  const int own = active_rank;
  for (int r = 0; r < cluster_size; ++r)
    if (r != own) in_block(r, [&] {
      for (const Transfer& t : loads)
        if (t.bytes != 0 && t.from == own) fail("fault", t.line, "a block of the cluster ends while its shared memory is still copied to this one");
    });
  long total = 0;
  for (int i = 0; i < thread_count; ++i) {
    ThreadState& s = states[static_cast<size_t>(i)];
    if (!s.open.empty()) fail("fault", s.open[0].line, "a tma_store was not closed by bulk_commit");
    for (const auto& group : s.groups)
      if (!group.empty()) fail("fault", group[0].line, "the block ends while a tma_store still reads its shared memory: a bulk_wait_read<0> is missing");
    if (s.registers != states[static_cast<size_t>(i / 128 * 128)].registers)
      fail("fault", 0, format("the threads of warp group %d do not all give or take registers", i / 128));
    total += s.registers;
  }
  if (total > 65536) fail("fault", 0, format("the block takes %ld registers, a multiprocessor has 65536", total));
}

void run_stmatrix(int first_thread) {
  for (int m = 0; m < 4; ++m)
    for (int row = 0; row < 8; ++row) {
      const auto& target = *static_cast<StmatrixArgument*>(threads[static_cast<size_t>(first_thread + 8 * m + row)].argument);
      check_range(target.p, 16, "stmatrix writes", true, threads[static_cast<size_t>(first_thread)].line);
      for (int q = 0; q < 4; ++q) {
        const auto& source = *static_cast<StmatrixArgument*>(threads[static_cast<size_t>(first_thread + 4 * row + q)].argument);
        memcpy(target.p + 4 * q, &source.r[m], 4);
      }
      unfenced[static_cast<size_t>(first_thread) / 32].push_back({target.p, 15u << (4 * row)});
    }
}

}  // namespace tilec

using namespace tilec;

void tilec_registers(int n, bool take, int line) {
  if (n % 8 != 0 || n < 24 || n > 256) fail("fault", line, format("setmaxnreg of %d: not a multiple of 8 from 24 to 256", n));
  ThreadState& s = states[static_cast<size_t>(current->index)];
  const int launch = 65536 / static_cast<int>(states.size()) / 8 * 8;
  const int before = s.registers != 0 ? s.registers : launch;
  if (!take && n > before) fail("fault", line, format("registers_give<%d> by a thread that has %d", n, before));
  s.registers = n;
}

void tilec_mbarrier_init(void* barrier, int count, int line) {
  check_range(barrier, 8, "mbarrier_init writes", true, line);
  if (mbarriers.count(barrier) != 0) fail("fault", line, "an mbarrier is initialised twice");
  mbarriers[barrier] = {count, count, 0, 0};
  write_image(barrier, mbarriers[barrier]);
}

void tilec_mbarrier_arrive(void* barrier, int bytes, bool, int line) {
  Mbarrier& m = find_mbarrier(barrier, line);
  m.bytes += bytes;
  races_mbarrier_arrive(barrier);
  if (m.missing == 0) fail("fault", line, format("an arrival too many at an mbarrier of %d", m.count));
  --m.missing;
  finish_phase(barrier, m);
}

void tilec_mbarrier_arrive_copies(void* barrier, int line) {
  find_mbarrier(barrier, line);
  arrivals.push_back({current->index, barrier, take_copies(*current), line});
  if (settings.asynchrony == Asynchrony::eager)
    arrive_one(arrivals.size() - 1);
  else
    wake_waiting();
}

void tilec_mbarrier_expect(void* barrier, int bytes, int line) {
  Mbarrier& m = find_mbarrier(barrier, line);
  m.bytes += bytes;
  write_image(barrier, m);
}

void tilec_mbarrier_wait(void* barrier, unsigned parity, int line) {
  if (parity > 1) fail("fault", line, format("an mbarrier has the parities 0 and 1, not %u", parity));
  while ((find_mbarrier(barrier, line).phase & 1) == parity) {
    bool moved = false;
    for (size_t i = 0; i < loads.size() && !moved; ++i)
      if (loads[i].barrier == barrier) moved = load_one(i);
    for (size_t i = 0; i < arrivals.size() && !moved; ++i)
      if (arrivals[i].barrier == barrier) moved = arrive_one(i);
    if (!moved) wait_for("an mbarrier", line);
  }
  races_mbarrier_wait(barrier, mbarriers[barrier].phase);
  if (cluster_size > 1) note_ordered_by(barrier, mbarriers[barrier].phase);
}

void tilec_fence_proxy_async() {
  races_proxy_fence();
  std::vector<Unfenced>& mine = unfenced[static_cast<size_t>(current->index) / 32];
  std::vector<Unfenced> rest;
  for (Unfenced u : mine) {
    u.lanes &= ~(1u << (current->index % 32));
    if (u.lanes != 0) rest.push_back(u);
  }
  mine = rest;
}

void tilec_tma_load(void* dst, const void* map, void* barrier, int rank, int x, int y, int z, int u, int v, int line) {
  Transfer t = make_transfer(map, dst, rank, {x, y, z, u, v}, line, "a tma_load");
  find_mbarrier(barrier, line);
  t.barrier = barrier;
  t.flight = take_off(t.shared, box_bytes(t), true, line);
  if (settings.asynchrony == Asynchrony::eager) {
    load_now(t);
  } else {
    loads.push_back(t);
    wake_waiting();
  }
}

// Into every block of `blocks`, at the same place, counted by the same barrier there.
void tilec_tma_multicast(void* dst, const void* map, void* barrier, int rank, int x, int y, int z, int u, int v, unsigned blocks, int line) {
  if (blocks == 0 || blocks >> cluster_size != 0)
    fail("fault", line, format("a multicast to the blocks of mask 0x%x of a cluster of %d", blocks, cluster_size));
  for (int r = 0; r < cluster_size; ++r) {
    if ((blocks >> r & 1) == 0) continue;
    if (r == active_rank) {
      tilec_tma_load(dst, map, barrier, rank, x, y, z, u, v, line);
      continue;
    }
    check_peer(r, line);
    char* const there = shared_of(dst, r);
    void* const counted = shared_of(barrier, r);
    in_block(r, [&] { tilec_tma_load(there, map, counted, rank, x, y, z, u, v, line); });
  }
}

void tilec_mbarrier_arrive_at(void* barrier, int rank, int bytes, int line) {
  if (rank == active_rank) return tilec_mbarrier_arrive(barrier, bytes, bytes != 0, line);
  check_peer(rank, line);
  void* const there = shared_of(barrier, rank);
  unsigned phase = 0;
  in_block(rank, [&] {
    phase = find_mbarrier(there, line).phase;
    tilec_mbarrier_arrive(there, bytes, bytes != 0, line);
  });
  note_touched(rank, line, there, phase);
}

// Bytes of this block's shared memory to the same place as dst in the block `rank`, counted by that place of its barrier.
void tilec_bulk_copy_at(void* dst, const void* src, int bytes, void* barrier, int rank, int line) {
  if (bytes <= 0 || bytes % 16 != 0) fail("fault", line, format("a bulk copy of %d bytes, no multiple of 16", bytes));
  for (const void* p : {static_cast<const void*>(dst), src}) {
    const Region* const region = find_region(p);
    const char* const c = static_cast<const char*>(p);
    if (region == nullptr || !region->shared) fail("fault", line, "a bulk copy with " + describe_access(p, 1, region) + ", not in shared memory");
    if (c < region->begin || c + bytes > region->begin + region->bytes) fail("overrun", line, "a bulk copy takes " + describe_access(p, static_cast<size_t>(bytes), region));
    if (tilec_shared_address(p) % 16 != 0) fail("fault", line, "a bulk copy needs shared memory aligned to 16 bytes");
  }
  for (const auto& of_warp : unfenced)
    for (const Unfenced& w : of_warp)
      if (w.chunk >= static_cast<const char*>(src) && w.chunk < static_cast<const char*>(src) + bytes)
        fail("fault", line, "a bulk copy reads what a thread has written without fence_proxy_async since");
  check_peer(rank, line);
  Transfer t = {};
  t.shared = shared_of(dst, rank);
  t.barrier = shared_of(barrier, rank);
  t.bytes = bytes;
  t.source = static_cast<const char*>(src);
  t.from = active_rank;
  t.line = line;
  t.flight = take_off(t.shared, bytes, true, line);
  t.source_flight = take_off(src, bytes, false, line);
  in_block(rank, [&] {
    find_mbarrier(t.barrier, line);
    if (settings.asynchrony == Asynchrony::eager) return copy_now(t);
    loads.push_back(t);
    wake_waiting();
  });
}

namespace {

void queue_store(Transfer t, const std::string& what) {
  const long bytes = box_bytes(t);
  for (const auto& of_warp : unfenced)
    for (const Unfenced& w : of_warp)
      if (w.chunk >= t.shared && w.chunk < t.shared + bytes)
        fail("fault", t.line, what + " reads what a thread has written without fence_proxy_async since");
  ThreadState& s = states[static_cast<size_t>(current->index)];
  t.flight = take_off(t.shared, bytes, false, t.line);
  t.done = settings.asynchrony == Asynchrony::eager;
  if (t.done) store_now(t);
  s.open.push_back(t);
}

}  // namespace

void tilec_tma_store(const void* map, const void* src, int rank, int x, int y, int z, int u, int v, int line) {
  queue_store(make_transfer(map, src, rank, {x, y, z, u, v}, line, "a tma_store"), "a tma_store");
}

void tilec_tma_add(const void* map, const void* src, int rank, int x, int y, int z, int u, int v, int line) {
  Transfer t = make_transfer(map, src, rank, {x, y, z, u, v}, line, "a tma_add");
  if (t.map.item != 4) fail("fault", line, "a tma_add to a tensor that is not of float32");
  t.adds = true;
  queue_store(t, "a tma_add");
}

void tilec_bulk_commit() {
  ThreadState& s = states[static_cast<size_t>(current->index)];
  s.groups.push_back(std::move(s.open));
  s.open.clear();
}

void tilec_bulk_wait_read(int pending) { finish_stores(states[static_cast<size_t>(current->index)], pending); }

void tilec_stmatrix_x4(void* p, unsigned r0, unsigned r1, unsigned r2, unsigned r3, int line) {
  StmatrixArgument argument = {static_cast<char*>(p), {r0, r1, r2, r3}};
  collective(Collective::stmatrix, 0, 0xffffffffu, &argument, line);
}

// ---- the driver's cuTensorMapEncodeTiled --------------------------------------------------------------------------
namespace {

constexpr int item_bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};

int encode_tiled(void* map, int type, unsigned rank, void* address, const unsigned long long* dims, const unsigned long long* strides,
                 const unsigned* box, const unsigned* steps, int interleave, int swizzle, int, int fill) {
  EncodedMap m = {};
  if (type < 0 || type > 12 || rank < 1 || rank > 5 || interleave != 0 || fill != 0 || swizzle < 0 || swizzle > 3) return 1;
  if (reinterpret_cast<uintptr_t>(map) % 64 != 0 || reinterpret_cast<uintptr_t>(address) % 16 != 0) return 1;
  m.magic = EncodedMap::expected_magic;
  m.address = static_cast<char*>(address);
  m.rank = static_cast<int>(rank);
  m.item = item_bytes[type];
  m.swizzle = swizzle == 0 ? 0 : 16 << swizzle;
  for (unsigned d = 0; d < 5; ++d) {
    m.dims[d] = d < rank ? dims[d] : 1;
    m.box[d] = static_cast<unsigned short>(d < rank ? box[d] : 1);
    m.strides[d] = d > 0 && d < rank ? strides[d - 1] : 0;
    if (m.dims[d] == 0 || m.dims[d] > 1ull << 32 || m.box[d] == 0 || m.box[d] > 256) return 1;
    if (d < rank && steps[d] != 1) return 1;
    if (m.strides[d] % 16 != 0 || m.strides[d] >= 1ull << 40) return 1;
  }
  const int width = m.box[0] * m.item;
  if (width % 16 != 0 || (m.swizzle != 0 && width > m.swizzle)) return 1;
  static_assert(sizeof m <= 128);
  memset(map, 0, 128);
  memcpy(map, &m, sizeof m);
  return 0;
}

}  // namespace

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned, unsigned long long, cudaDriverEntryPointQueryResult* result) {
  const bool found = strcmp(symbol, "cuTensorMapEncodeTiled") == 0;
  *function = found ? reinterpret_cast<void*>(encode_tiled) : nullptr;
  if (result != nullptr) *result = found ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
