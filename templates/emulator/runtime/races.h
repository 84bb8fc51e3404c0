// What the files of the race check share: events, clocks, and what each byte of shared memory remembers.
#pragma once

#include <array>

#include "runtime.h"

namespace tilec {

// An access: 24 bits of time, 4 of the block's rank in its cluster, 10 of thread, 1 for the engines of its multiprocessor, 25 of place
// (an instruction's offset in the program, or a line with the top bit).
using Event = uint64_t;
constexpr unsigned in_flight = 0xffffff;  // a time: begun, and not known to be over by anybody
constexpr unsigned line_bit = 1u << 24;

inline Event make_event(unsigned time, int rank, int thread, bool engine, unsigned place) {
  return static_cast<Event>(time) << 40 | static_cast<Event>(rank) << 36 | static_cast<Event>(thread) << 26 | static_cast<Event>(engine) << 25 | place;
}
inline unsigned time_of(Event e) { return static_cast<unsigned>(e >> 40); }
inline int rank_of(Event e) { return static_cast<int>(e >> 36 & 15); }
inline int thread_of(Event e) { return static_cast<int>(e >> 26 & 1023); }
inline bool by_engine(Event e) { return (e >> 25 & 1) != 0; }
inline unsigned place_of(Event e) { return static_cast<unsigned>(e & 0x1ffffff); }

struct Shadow {
  Event write, read, earlier_read;
};
extern Shadow* shadow;  // one for each byte of the arena; null without the check

// Up to when the accesses of each warp of the cluster, and of the engines of each block for each of its warp groups, come before something.
constexpr size_t most_warps = 40;  // of a block: 32, then the engines by the warp group that they work for
constexpr size_t most_groups = 8;
using Clock = std::array<unsigned, most_ranks * most_warps>;
extern unsigned now;
Clock& clock_of(const Thread& thread);
inline size_t warp_of(int rank, int thread) { return static_cast<size_t>(rank) * most_warps + static_cast<size_t>(thread) / 32; }
inline size_t engines_of(int rank, int thread) { return static_cast<size_t>(rank) * most_warps + 32 + static_cast<size_t>(thread) / 128; }
inline size_t engines_of(Event e) { return engines_of(rank_of(e), thread_of(e)); }
void merge(Clock& into, const Clock& from);

// A fence between what threads do and what engines see: when the thread was there, and what it knew to be over.
struct ProxyFence {
  unsigned own = 0, full = 0;
  Clock known = {};
};
ProxyFence& proxy_fence_of(int rank, int thread);

void settle_doubt();
void note_access(const void* p, size_t bytes, bool write, Event event);

void races_mbarrier_tells(const void* barrier, Event event);  // whoever waits for it comes behind an operation that it counted

// races_async.cpp
void start_async();
void races_bulk_seen(const void* barrier, unsigned count);

}  // namespace tilec
