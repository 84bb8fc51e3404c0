// Races between blocks of a cluster: an access to a byte of another block's shared memory and one of that block itself, one of them a
// write, with neither a barrier of the cluster nor an arrival that was waited for between them. For runs that watch every access.
//
// Each byte remembers its last access by its own block and by another one. An access knows how often its thread had come at the
// cluster's barrier, and how many operations between blocks there had been: whoever has waited for a later one comes behind it.
#include <sys/mman.h>

#include "hopper.h"

namespace tilec {

namespace {

struct Access {
  uint32_t number;    // operations between blocks before it, plus one; 0 for none
  uint16_t arrivals;  // of its thread at the cluster's barrier
  unsigned char rank;
  bool write;
  unsigned place;
};

struct Bytes {
  Access own, own_write, peer, peer_write;
};

Bytes* table = nullptr;  // one for each byte of the arena

bool ordered(const Access& before, const Access& now) {
  if (before.number == 0 || before.rank == now.rank) return true;
  if (before.arrivals < current->cluster_waits) return true;
  return before.number <= ordered_by_signals(active_rank, before.rank);
}

void meet(const Access& before, const Access& now, const char* p) {
  if (ordered(before, now)) return;
  const auto tell = [](const Access& a) { return format("block %d %s in ", a.rank, a.write ? "writes it" : "reads it") + name_race_place(a.place); };
  fail("race", 0, "nothing orders two accesses of " + describe_access(p, 1, find_region(p)) + " in a cluster: " + tell(before) + ", and " + tell(now));
}

}  // namespace

void cluster_races_access(const void* p, size_t bytes, bool write, int owner, unsigned place) {
  if (table == nullptr) {
    void* const m = mmap(nullptr, arena_bytes * sizeof(Bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (m == MAP_FAILED) fail("fault", 0, "out of memory for the race check");
    table = static_cast<Bytes*>(m);
  }
  const char* const c = static_cast<const char*>(p);
  const Access now = {static_cast<uint32_t>(operations_between_blocks() + 1), static_cast<uint16_t>(current->cluster_arrivals),
                      static_cast<unsigned char>(active_rank), write, place};
  for (size_t i = 0; i < bytes; ++i) {
    Bytes& b = table[c + i - arena_begin];
    if (owner == active_rank) {
      meet(write ? b.peer : b.peer_write, now, c + i);
      (write ? b.own_write : b.own) = now;
      if (write) b.own = now;
    } else {
      meet(write ? b.own : b.own_write, now, c + i);
      meet(write ? b.peer : b.peer_write, now, c + i);
      (write ? b.peer_write : b.peer) = now;
      if (write) b.peer = now;
    }
  }
}

void cluster_races_fresh(const char* begin, size_t bytes) {
  if (table == nullptr) return;
  for (size_t i = 0; i < bytes; ++i) table[begin + i - arena_begin] = Bytes();
}

}  // namespace tilec
