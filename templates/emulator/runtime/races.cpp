// Finds races on shared memory whatever the order of the run: two accesses of one byte by two threads, one a write, with
// nothing between them that orders the threads.
//
// The program is built with -fsanitize=thread, so the compiler calls the hooks below at every access; no library of that
// sanitizer is linked. Time counts synchronisations. Each byte remembers its last write and two last reads (when, by which
// thread, from where); each thread knows, for every warp of its cluster, up to when that warp's accesses come before its own.
// What is asynchronous is in flight from its issue to a wait for it: until then no access may meet it (races_async.cpp).
// Two threads that write the same value are let pass, since replicated results are stored so.
#include "races.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>

namespace tilec {

Shadow* shadow = nullptr;
unsigned now = 1;

namespace {

int threads_of_block = 0, ranks = 1;
unsigned last_full[most_ranks];  // what a block did until the last barrier of all its threads comes before all it does after it
std::vector<Clock> seen;         // by rank and thread
std::vector<ProxyFence> fences;  // the last one of each

struct Arrival {
  int thread;
  unsigned time;
};
std::vector<Arrival> arrivals[most_ranks][16];

// What comes before the end of a barrier's running phase, and of those that are over.
struct Phase {
  Clock running = {}, over = {};
};
std::map<const void*, Phase> phases;  // of mbarriers
Phase cluster_phase;

// A write that meets another one: a race unless it leaves the bytes as they are, which the next call here can tell.
struct Doubt {
  const char* p = nullptr;
  size_t bytes = 0;
  char before[64];
  Event first, second;
};
Doubt doubt;

std::string describe(Event e, const char* verb) {
  std::string who;
  in_block(rank_of(e), [&] { who = name_thread(threads[static_cast<size_t>(thread_of(e))]); });
  if (ranks > 1) who = format("block %d's ", rank_of(e)) + who;
  const char* const what = by_engine(e) ? "'s asynchronous operation" : time_of(e) == in_flight ? "'s asynchronous copy" : "";
  return who + what + (time_of(e) == in_flight ? ", not waited for, " : " ") + verb + " in " + name_race_place(place_of(e));
}

[[noreturn]] void report(const char* p, Event first, const char* first_verb, Event second, const char* second_verb) {
  current = nullptr;  // the message names both threads
  const char* const where = rank_of(first) == rank_of(second) ? ": " : " in a cluster: ";
  fail("race", 0, "nothing orders two accesses of " + describe_access(p, 1, find_region(p)) + where + describe(first, first_verb) + ", and " +
                      describe(second, second_verb));
}

Clock& row(int rank, int thread) { return seen[static_cast<size_t>(rank * threads_of_block + thread)]; }

// Whether nothing orders an access before what the thread of the event `mine` does now.
bool unordered(Event earlier, Event mine) {
  if (earlier == 0) return false;
  if (time_of(earlier) == in_flight) return true;
  const Clock& known = row(rank_of(mine), thread_of(mine));
  if (by_engine(earlier)) return time_of(earlier) > known[engines_of(earlier)];
  if (rank_of(earlier) == rank_of(mine) && (thread_of(earlier) == thread_of(mine) || time_of(earlier) <= last_full[rank_of(mine)])) return false;
  return time_of(earlier) > known[warp_of(rank_of(earlier), thread_of(earlier))];
}

bool same_thread(Event a, Event b) { return ((a ^ b) >> 25 & 0x7fff) == 0; }

void note_read(Shadow& s, const char* p, Event event) {
  if (unordered(s.write, event)) report(p, s.write, "writes it", event, "reads it");
  if (s.read != 0 && (!same_thread(s.read, event) || time_of(s.read) == in_flight)) s.earlier_read = unordered(s.read, event) ? s.read : s.earlier_read;
  s.read = event;
}

void note_write(Shadow& s, const char* p, Event event) {
  if (unordered(s.read, event)) report(p, s.read, "reads it", event, "writes it");
  if (unordered(s.earlier_read, event)) report(p, s.earlier_read, "reads it", event, "writes it");
  if (unordered(s.write, event)) {
    if (time_of(s.write) == in_flight || time_of(event) == in_flight || by_engine(s.write)) report(p, s.write, "writes it", event, "writes it");
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

// An access of shared memory by the current thread, of its own block or of another one of its cluster.
void watch(const void* p, size_t bytes, bool write, unsigned place) {
  const char* const c = static_cast<const char*>(p);
  if (shadow == nullptr || current == nullptr || c < arena_begin || c >= arena_begin + arena_bytes) return;
  note_access(p, bytes, write, make_event(now, current->rank, current->index, false, place));
}

unsigned instruction_place(const void* return_address) {
  return static_cast<unsigned>(static_cast<const char*>(return_address) - program_base) & (line_bit - 1);
}

// The end of a barrier of the whole block: all its threads know what any of them knows.
void share_within(int rank) {
  Clock& first = row(rank, 0);
  for (int i = 1; i < threads_of_block; ++i) merge(first, row(rank, i));
  for (int w = 0; w < (threads_of_block + 31) / 32; ++w) first[warp_of(rank, w * 32)] = last_full[rank];
  for (int i = 1; i < threads_of_block; ++i) row(rank, i) = first;
}

// Only the engines' part of it: within one block the rest follows from `last_full`.
void share_engines() {
  for (size_t g = 0; g < most_groups; ++g) {
    const size_t slot = engines_of(0, static_cast<int>(g) * 128);
    unsigned latest = 0;
    for (int i = 0; i < threads_of_block; ++i) latest = std::max(latest, row(0, i)[slot]);
    for (int i = 0; i < threads_of_block; ++i) row(0, i)[slot] = latest;
  }
}

void arrive_at(Phase& phase) {
  merge(phase.running, clock_of(*current));
  phase.running[warp_of(current->rank, current->index)] = now++;
}

void end_phase(Phase& phase) {
  merge(phase.over, phase.running);
  phase.running = {};
}

}  // namespace

Clock& clock_of(const Thread& thread) { return row(thread.rank, thread.index); }

ProxyFence& proxy_fence_of(int rank, int thread) { return fences[static_cast<size_t>(rank * threads_of_block + thread)]; }

void merge(Clock& into, const Clock& from) {
  const size_t used = static_cast<size_t>(ranks) * most_warps;
  for (size_t w = 0; w < used; ++w) into[w] = std::max(into[w], from[w]);
}

void settle_doubt() {
  if (doubt.p == nullptr) return;
  const char* const p = doubt.p;
  doubt.p = nullptr;
  if (memcmp(p, doubt.before, doubt.bytes) != 0) report(p, doubt.first, "writes it", doubt.second, "writes another value");
}

void note_access(const void* p, size_t bytes, bool write, Event event) {
  const char* const c = static_cast<const char*>(p);
  const bool same_store = c == doubt.p && same_thread(event, doubt.second);  // told by a wrapper and by the compiler
  if (!same_store) settle_doubt();
  Shadow* const s = shadow + (c - arena_begin);
  for (size_t i = 0; i < bytes; ++i) write ? note_write(s[i], c + i, event) : note_read(s[i], c + i, event);
}

void races_start_cluster(int blocks, int count) {
  if (!settings.races) return;
  if (shadow == nullptr) {
    void* const p = mmap(nullptr, arena_bytes * sizeof(Shadow), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) fail("fault", 0, "out of memory for the race check");
    shadow = static_cast<Shadow*>(p);
  }
  now = 1;
  ranks = blocks;
  threads_of_block = count;
  std::fill(last_full, last_full + most_ranks, 0);
  seen.assign(static_cast<size_t>(blocks * count), {});
  fences.assign(static_cast<size_t>(blocks * count), {});
  for (auto& of_block : arrivals)
    for (auto& list : of_block) list.clear();
  phases.clear();
  cluster_phase = {};
  doubt.p = nullptr;
  start_async();
}

std::string name_race_place(unsigned place) {
  return (place & line_bit) != 0 ? format("line %u", place & ~line_bit) : format("{instruction %u}", place);
}

void races_fresh_tile(const char* begin, size_t bytes) {
  if (shadow != nullptr) memset(static_cast<void*>(shadow + (begin - arena_begin)), 0, bytes * sizeof(Shadow));
}

void races_access(const void* p, size_t bytes, bool write, int line) {
  watch(p, bytes, write, line_bit | static_cast<unsigned>(line));
}

void races_block_barrier() {
  if (shadow == nullptr) return;
  settle_doubt();
  last_full[active_rank] = now++;
  ranks > 1 ? share_within(active_rank) : share_engines();
}

void races_arrive(int barrier, const Thread& thread) {
  if (shadow == nullptr) return;
  settle_doubt();
  arrivals[thread.rank][barrier].push_back({thread.index, now++});
}

// Everything before the arrivals comes before what the waiting threads do next.
void races_barrier_complete(int barrier, const std::vector<int>& waiting) {
  if (shadow == nullptr) return;
  Clock merged = {};
  for (const Arrival& arrival : arrivals[active_rank][barrier]) {
    merge(merged, row(active_rank, arrival.thread));
    unsigned& own = merged[warp_of(active_rank, arrival.thread)];
    own = std::max(own, arrival.time);  // of the warp's last lane: a little generous to lanes that arrive and go on
  }
  for (const int thread : waiting) merge(row(active_rank, thread), merged);
  arrivals[active_rank][barrier].clear();
}

void races_mbarrier_arrive(const void* barrier) {
  if (shadow == nullptr) return;
  settle_doubt();
  arrive_at(phases[barrier]);
}

void races_mbarrier_over(const void* barrier) {
  if (shadow != nullptr) end_phase(phases[barrier]);
}

void races_mbarrier_tells(const void* barrier, Event event) {
  unsigned& over = phases[barrier].over[engines_of(event)];
  over = std::max(over, time_of(event));
}

void races_mbarrier_wait(const void* barrier, unsigned count) {
  if (shadow == nullptr) return;
  settle_doubt();
  races_bulk_seen(barrier, count);
  merge(clock_of(*current), phases[barrier].over);
}

void races_proxy_fence() {
  if (shadow == nullptr) return;
  settle_doubt();
  proxy_fence_of(current->rank, current->index) = {now++, last_full[current->rank], clock_of(*current)};
}

void races_cluster_arrive() {
  if (shadow == nullptr) return;
  settle_doubt();
  arrive_at(cluster_phase);
}

void races_cluster_over() {
  if (shadow != nullptr) end_phase(cluster_phase);
}

void races_cluster_wait() {
  if (shadow == nullptr) return;
  settle_doubt();
  merge(clock_of(*current), cluster_phase.over);
}

void races_warp_barrier(unsigned lanes, int first_thread) {
  if (shadow == nullptr) return;
  settle_doubt();
  Clock merged = {};
  for (unsigned rest = lanes; rest != 0; rest &= rest - 1) merge(merged, row(active_rank, first_thread + __builtin_ctz(rest)));
  merged[warp_of(active_rank, first_thread)] = now++;
  for (unsigned rest = lanes; rest != 0; rest &= rest - 1) row(active_rank, first_thread + __builtin_ctz(rest)) = merged;
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
