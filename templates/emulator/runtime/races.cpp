// Finds races on shared memory whatever the order of the run: two accesses of one byte by two threads, one a write, with
// nothing between them that orders the threads.
//
// The program is built with -fsanitize=thread, so the compiler calls the hooks below at every access; no library of that
// sanitizer is linked. Time counts synchronisations. Each byte remembers its last write and two last reads (when, by which
// thread, from where); each thread knows, for every warp, up to when that warp's accesses come before its own.
// An asynchronous copy is in flight from its issue to the wait of its thread: until then no access may meet it.
// Two threads that write the same value are let pass, since replicated results are stored so.
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>

#include "runtime.h"

namespace tilec {

namespace {

// An access: 24 bits of time, 10 of thread, 30 of place (an instruction's offset in the program, or a line with the top bit).
using Event = uint64_t;
constexpr unsigned in_flight = 0xffffff;
constexpr unsigned line_bit = 1u << 29;

Event make_event(unsigned time, int thread, unsigned place) {
  return static_cast<Event>(time) << 40 | static_cast<Event>(thread) << 30 | place;
}
unsigned time_of(Event e) { return static_cast<unsigned>(e >> 40); }
int thread_of(Event e) { return static_cast<int>(e >> 30 & 1023); }
unsigned place_of(Event e) { return static_cast<unsigned>(e & 0x3fffffff); }

struct Shadow {
  Event write, read, earlier_read;
};

Shadow* shadow = nullptr;  // one for each byte of the arena
unsigned now = 1;
unsigned last_full = 0;  // what happened until the last barrier of the whole block comes before everything after it
std::vector<std::array<unsigned, 32>> seen;

struct Arrival {
  int thread;
  unsigned time;
};
std::vector<Arrival> arrivals[16];

// What comes before the end of an mbarrier's running phase, and of those that are over: times of warps.
struct Phase {
  std::array<unsigned, 32> running = {}, over = {};
};
std::map<const void*, Phase> phases;

// The same of the blocks of a cluster that do not run; and whose shared memory each page of the arena is.
struct Kept {
  unsigned now = 1, last_full = 0;
  std::vector<std::array<unsigned, 32>> seen;
  std::vector<Arrival> arrivals[16];
};
Kept kept[most_ranks];
constexpr size_t page = 4096;
unsigned char owner[arena_bytes / page];

// A write that meets another one: a race unless it leaves the bytes as they are, which the next call here can tell.
struct Doubt {
  const char* p = nullptr;
  size_t bytes = 0;
  char before[64];
  Event first, second;
};
Doubt doubt;

std::string name_place(Event e) { return name_race_place(place_of(e)); }

std::string describe(Event e, const char* verb) {
  const std::string who = name_thread(threads[static_cast<size_t>(thread_of(e))]);
  return who + (time_of(e) == in_flight ? "'s asynchronous copy, not waited for, " : " ") + verb + " in " + name_place(e);
}

[[noreturn]] void report(const char* p, Event first, const char* first_verb, Event second, const char* second_verb) {
  current = nullptr;  // the message names both threads
  fail("race", 0, "nothing orders two accesses of " + describe_access(p, 1, find_region(p)) + ": " + describe(first, first_verb) + ", and " +
                      describe(second, second_verb));
}

void settle_doubt() {
  if (doubt.p == nullptr) return;
  const char* const p = doubt.p;
  doubt.p = nullptr;
  if (memcmp(p, doubt.before, doubt.bytes) != 0) report(p, doubt.first, "writes it", doubt.second, "writes another value");
}

bool unordered(Event earlier, int thread) {
  if (earlier == 0) return false;
  if (time_of(earlier) == in_flight) return true;
  if (thread_of(earlier) == thread || time_of(earlier) <= last_full) return false;
  return time_of(earlier) > seen[static_cast<size_t>(thread)][static_cast<size_t>(thread_of(earlier) / 32)];
}

void note_read(Shadow& s, const char* p, Event event, int thread) {
  if (unordered(s.write, thread)) report(p, s.write, "writes it", event, "reads it");
  if (s.read != 0 && thread_of(s.read) != thread) s.earlier_read = unordered(s.read, thread) ? s.read : s.earlier_read;
  s.read = event;
}

void note_write(Shadow& s, const char* p, Event event, int thread) {
  if (unordered(s.read, thread)) report(p, s.read, "reads it", event, "writes it");
  if (unordered(s.earlier_read, thread)) report(p, s.earlier_read, "reads it", event, "writes it");
  if (unordered(s.write, thread)) {
    if (time_of(s.write) == in_flight || time_of(event) == in_flight) report(p, s.write, "writes it", event, "writes it");
    if (doubt.p == nullptr) {
      doubt.p = p;
      doubt.first = s.write;
      doubt.second = event;
      doubt.bytes = 0;
    }
    const size_t length = static_cast<size_t>(p + 1 - doubt.p);
    if (length <= sizeof doubt.before) {
      doubt.bytes = length;
      memcpy(doubt.before, doubt.p, length);
    }
  }
  s = {event, 0, 0};
}

void access(const void* p, size_t bytes, bool write, unsigned time, unsigned place) {
  const char* const c = static_cast<const char*>(p);
  const int thread = current->index;
  const bool same_store = c == doubt.p && thread == thread_of(doubt.second);  // told by a wrapper and by the compiler
  if (!same_store) settle_doubt();
  const Event event = make_event(time, thread, place);
  Shadow* s = shadow + (c - arena_begin);
  for (size_t i = 0; i < bytes; ++i)
    write ? note_write(s[i], c + i, event, thread) : note_read(s[i], c + i, event, thread);
}

bool in_shared(const void* p) {
  const char* const c = static_cast<const char*>(p);
  return shadow != nullptr && current != nullptr && c >= arena_begin && c < arena_begin + arena_bytes;
}

// An access of shared memory, the block's own or that of another one of its cluster.
void watch(const void* p, size_t bytes, bool write, unsigned place) {
  if (!in_shared(p)) return;
  const int rank = owner[static_cast<size_t>(static_cast<const char*>(p) - arena_begin) / page];
  if (cluster_size > 1) cluster_races_access(p, bytes, write, rank, place);
  if (rank == active_rank) access(p, bytes, write, now, place);
}

unsigned instruction_place(const void* return_address) {
  return static_cast<unsigned>(static_cast<const char*>(return_address) - program_base) & (line_bit - 1);
}

}  // namespace

void races_exchange(int from, int to) {
  if (shadow == nullptr) return;
  settle_doubt();
  Kept& out = kept[from];
  Kept& in = kept[to];
  out.now = now;
  out.last_full = last_full;
  now = in.now;
  last_full = in.last_full;
  out.seen = std::move(seen);
  seen = std::move(in.seen);
  for (int i = 0; i < 16; ++i) {
    out.arrivals[i] = std::move(arrivals[i]);
    arrivals[i] = std::move(in.arrivals[i]);
  }
}

void races_own_pages(const char* begin, size_t bytes, int rank) {
  memset(owner + static_cast<size_t>(begin - arena_begin) / page, rank, bytes / page);
}

void races_start_block(int count) {
  if (!settings.races) return;
  if (shadow == nullptr) {
    void* const p = mmap(nullptr, arena_bytes * sizeof(Shadow), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) fail("fault", 0, "out of memory for the race check");
    shadow = static_cast<Shadow*>(p);
  }
  now = 1;
  last_full = 0;
  seen.assign(static_cast<size_t>(count), {});
  for (auto& list : arrivals) list.clear();
  phases.clear();
  doubt.p = nullptr;
}

std::string name_race_place(unsigned place) {
  return (place & line_bit) != 0 ? format("line %u", place & ~line_bit) : format("{instruction %u}", place);
}

void races_fresh_tile(const char* begin, size_t bytes) {
  if (shadow != nullptr) cluster_races_fresh(begin, bytes);
  if (shadow != nullptr) memset(static_cast<void*>(shadow + (begin - arena_begin)), 0, bytes * sizeof(Shadow));
}

void races_access(const void* p, size_t bytes, bool write, int line) {
  watch(p, bytes, write, line_bit | static_cast<unsigned>(line));
}

void races_copy_issued(const void* dst, size_t bytes, int line) {
  if (in_shared(dst)) access(dst, bytes, true, in_flight, line_bit | static_cast<unsigned>(line));
}

void races_copy_landed(const Thread& thread, const void* dst, size_t bytes) {
  if (shadow == nullptr) return;
  Shadow* const s = shadow + (static_cast<const char*>(dst) - arena_begin);
  for (size_t i = 0; i < bytes; ++i) s[i].write = make_event(now, thread.index, place_of(s[i].write));
}

void races_block_barrier() {
  settle_doubt();
  last_full = now++;
}

void races_arrive(int barrier, const Thread& thread) {
  if (shadow == nullptr) return;
  settle_doubt();
  arrivals[barrier].push_back({thread.index, now++});
}

// Everything before the arrivals comes before what the waiting threads do next.
void races_barrier_complete(int barrier, const std::vector<int>& waiting) {
  if (shadow == nullptr) return;
  std::array<unsigned, 32> merged = {};
  for (const Arrival& arrival : arrivals[barrier]) {
    const auto& known = seen[static_cast<size_t>(arrival.thread)];
    for (size_t w = 0; w < 32; ++w) merged[w] = std::max(merged[w], known[w]);
    unsigned& own = merged[static_cast<size_t>(arrival.thread / 32)];
    own = std::max(own, arrival.time);  // of the warp's last lane: a little generous to lanes that arrive and go on
  }
  for (const int thread : waiting)
    for (size_t w = 0; w < 32; ++w) seen[static_cast<size_t>(thread)][w] = std::max(seen[static_cast<size_t>(thread)][w], merged[w]);
  arrivals[barrier].clear();
}

void races_mbarrier_arrive(const void* barrier) {
  if (shadow == nullptr || cluster_size > 1) return;
  settle_doubt();
  auto& running = phases[barrier].running;
  const auto thread = static_cast<size_t>(current->index);
  for (size_t w = 0; w < 32; ++w) running[w] = std::max(running[w], seen[thread][w]);
  running[thread / 32] = std::max(running[thread / 32], now++);
}

void races_mbarrier_over(const void* barrier) {
  if (shadow == nullptr || cluster_size > 1) return;
  Phase& phase = phases[barrier];
  for (size_t w = 0; w < 32; ++w) phase.over[w] = std::max(phase.over[w], phase.running[w]);
  phase.running = {};
}

void races_mbarrier_wait(const void* barrier) {
  if (shadow == nullptr || cluster_size > 1) return;
  settle_doubt();
  const auto& over = phases[barrier].over;
  auto& mine = seen[static_cast<size_t>(current->index)];
  for (size_t w = 0; w < 32; ++w) mine[w] = std::max(mine[w], over[w]);
}

void races_warp_barrier(unsigned lanes, int first_thread) {
  if (shadow == nullptr) return;
  settle_doubt();
  std::array<unsigned, 32> merged = {};
  for (unsigned rest = lanes; rest != 0; rest &= rest - 1)
    for (size_t w = 0; w < 32; ++w) merged[w] = std::max(merged[w], seen[static_cast<size_t>(first_thread + __builtin_ctz(rest))][w]);
  merged[static_cast<size_t>(first_thread / 32)] = now++;
  for (unsigned rest = lanes; rest != 0; rest &= rest - 1) seen[static_cast<size_t>(first_thread + __builtin_ctz(rest))] = merged;
}

}  // namespace tilec

using namespace tilec;

extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
#define TILEC_HOOK(name, bytes, write)                                                                        \
  void __tsan_##name(void* p) {                                                                               \
    watch(p, bytes, write, instruction_place(__builtin_return_address(0)));                                   \
  }
#define TILEC_HOOKS(bytes)                                                                                      \
  TILEC_HOOK(read##bytes, bytes, false) TILEC_HOOK(write##bytes, bytes, true)                                 \
  TILEC_HOOK(unaligned_read##bytes, bytes, false) TILEC_HOOK(unaligned_write##bytes, bytes, true)             \
  TILEC_HOOK(volatile_read##bytes, bytes, false) TILEC_HOOK(volatile_write##bytes, bytes, true)
TILEC_HOOKS(1) TILEC_HOOKS(2) TILEC_HOOKS(4) TILEC_HOOKS(8) TILEC_HOOKS(16)
#undef TILEC_HOOKS
#undef TILEC_HOOK
void __tsan_read_range(void* p, size_t bytes) {
  watch(p, bytes, false, instruction_place(__builtin_return_address(0)));
}
void __tsan_write_range(void* p, size_t bytes) {
  watch(p, bytes, true, instruction_place(__builtin_return_address(0)));
}
}
