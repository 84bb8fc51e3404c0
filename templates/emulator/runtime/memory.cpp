// Global arrays and shared tiles, each fenced: canary bytes next to it, inaccessible pages beyond them.
//
//   | no access | canary | data, its end flush with the page's | no access |     a global array
//   | no access | canary | data | canary | no access |                        a shared tile, or the whole of shared memory
#include <sys/mman.h>

#include <cstring>
#include <deque>

#include "runtime.h"

namespace tilec {

namespace {

constexpr size_t page = 4096;
constexpr size_t array_fence = size_t{1} << 26;  // so that a row index that is far out still hits the array's own fence
constexpr size_t tile_fence = size_t{1} << 18;

struct Tile {
  std::string name;
  int offset;
  size_t bytes;
  Region* region;      // in "apart" mode
  bool touched;        // in the running block
};

std::deque<Region> regions;  // stable addresses
std::deque<Tile> all_tiles[most_ranks];  // by the block's rank in its cluster
Region* all_shared_memory[most_ranks];
int rank_of_shared = 0;                  // whose shared memory is meant
size_t shared_bytes = 0;

size_t round_up(size_t n, size_t step) { return (n + step - 1) / step * step; }

size_t arena_used = 0;

char* reserve(size_t bytes) {
  void* const p = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) fail("fault", 0, format("out of memory for %zu bytes", bytes));
  return static_cast<char*>(p);
}

// Arrays: the blocks of a cooperative launch are processes that share them.
char* reserve_array(size_t bytes) {
  void* const p = mmap(nullptr, bytes, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) fail("fault", 0, format("out of memory for %zu bytes", bytes));
  return static_cast<char*>(p);
}

char* reserve_in_arena(size_t bytes) {
  if (arena_begin == nullptr) arena_begin = reserve(arena_bytes);
  if (arena_used + bytes > arena_bytes) fail("fault", 0, "too many shared tiles to keep apart");
  arena_used += bytes;
  return arena_begin + arena_used - bytes;
}

// Maps a region: `front` canary bytes, room for `bytes` that end `slack` bytes before the accessible part does.
Region& map_region(size_t front, size_t bytes, size_t slack, size_t fence, char* (*reserve_bytes)(size_t)) {
  const size_t open = round_up(front + bytes + slack, page);
  char* const p = reserve_bytes(open + 2 * fence);
  regions.emplace_back();
  Region& region = regions.back();
  region.reserved_begin = p;
  region.reserved_end = region.reserved_begin + open + 2 * fence;
  region.canary_begin = region.reserved_begin + fence;
  region.canary_end = region.canary_begin + open;
  region.bytes = bytes;
  mprotect(region.canary_begin, open, PROT_READ | PROT_WRITE);
  memset(region.canary_begin, canary, open);
  return region;
}

Region& map_shared(const std::string& name, size_t bytes, int offset) {
  Region& region = map_region(page, bytes, page, tile_fence, reserve_in_arena);
  region.name = name;
  region.shape = format("%zu bytes of shared memory", bytes);
  region.begin = region.canary_begin + page;
  region.shared = true;
  region.offset = offset;
  region.rank = rank_of_shared;
  return region;
}

void check_canary(const Region& region) {
  const auto check = [&](const char* from, const char* to) {
    for (const char* p = from; p < to; ++p)
      if (static_cast<unsigned char>(*p) != canary)
        fail("overrun", 0, format("a thread of the block wrote %s", describe_access(p, 1, &region).c_str()));
  };
  check(region.canary_begin, region.begin);
  check(region.begin + region.bytes, region.canary_end);
}

Tile& find_tile(const char* name, int offset, size_t bytes) {
  std::deque<Tile>& tiles = all_tiles[rank_of_shared];
  for (Tile& tile : tiles)
    if (tile.offset == offset && tile.bytes == bytes && tile.name == name) return tile;
  tiles.push_back({name, offset, bytes, nullptr, false});
  return tiles.back();
}

}  // namespace

char* arena_begin = nullptr;

Region& add_array(const std::string& name, const std::string& shape, size_t bytes, size_t alignment) {
  const size_t length = round_up(bytes, alignment);
  Region& region = map_region(page, length, 0, array_fence, reserve_array);
  region.name = name;
  region.shape = shape;
  region.bytes = bytes;
  region.begin = region.canary_end - length;
  memset(region.begin, poison, bytes);
  return region;
}

void protect_array(const Region& region) {
  mprotect(region.canary_begin, static_cast<size_t>(region.canary_end - region.canary_begin), PROT_READ);
}

void start_shared(long bytes) {
  shared_bytes = static_cast<size_t>(bytes);
  for (Tile& tile : all_tiles[rank_of_shared]) tile.touched = false;
  if (settings.apart) return;
  Region*& shared_memory = all_shared_memory[rank_of_shared];
  if (shared_memory == nullptr || shared_memory->bytes != shared_bytes) shared_memory = &map_shared("shared memory", shared_bytes, 0);
  memset(shared_memory->begin, poison, shared_bytes);
  races_fresh_tile(shared_memory->begin, shared_bytes);
}

void activate_shared(int rank) { rank_of_shared = rank; }

char* shared_of(const void* p, int rank) {
  const Region* const region = find_region(p);
  if (region == nullptr || !region->shared || region->rank != active_rank)
    fail("fault", 0, "the place in another block of " + describe_access(p, 1, region) + ", not in this block's shared memory");
  const ptrdiff_t at = static_cast<const char*>(p) - region->begin;
  activate_shared(rank);
  char* const there = static_cast<char*>(tilec_shared_tile(region->name.c_str(), region->offset, region->bytes, 0));
  activate_shared(active_rank);
  return there + at;
}

void check_canaries() {
  for (const Region& region : regions) check_canary(region);
}

const Region* find_region(const void* p) {
  const char* const c = static_cast<const char*>(p);
  for (const Region& region : regions)
    if (c >= region.reserved_begin && c < region.reserved_end) return &region;
  return nullptr;
}

std::string describe_access(const void* p, size_t bytes, const Region* region) {
  const std::string size = format("%zu byte%s", bytes, bytes == 1 ? "" : "s");
  if (region == nullptr) return size + format(" at %p, which is in no array and no tile", p);
  const char* const c = static_cast<const char*>(p);
  const std::string what = region->name + " (" + region->shape + ")";
  const ptrdiff_t past = c - (region->begin + region->bytes);
  if (c < region->begin) return size + format(", %td before the start of ", region->begin - c) + what;
  if (past >= 0) return size + format(", %td past the end of ", past) + what;
  if (past + static_cast<ptrdiff_t>(bytes) > 0) return size + format(", the last %td of them past the end of ", past + static_cast<ptrdiff_t>(bytes)) + what;
  return size + format(" at byte %td of ", c - region->begin) + what;
}

void check_range(const void* p, size_t bytes, const char* what, bool must_be_shared, int line, size_t alignment) {
  const Region* const region = find_region(p);
  const std::string prefix = std::string(what) + " ";
  if (region == nullptr || region->shared != must_be_shared)
    fail("fault", line, prefix + describe_access(p, bytes, region) + (must_be_shared ? ", not in shared memory" : ", not in global memory"));
  const char* const c = static_cast<const char*>(p);
  if (c < region->begin || c + bytes > region->begin + region->bytes) fail("overrun", line, prefix + describe_access(p, bytes, region));
  if (alignment == 0) alignment = bytes;
  if (reinterpret_cast<uintptr_t>(p) % alignment != 0)
    fail("fault", line, prefix + describe_access(p, bytes, region) + format(", which is not aligned to %zu bytes", alignment));
}

}  // namespace tilec

using namespace tilec;

void* tilec_shared_tile(const char* name, int offset, unsigned long bytes, int line) {
  const std::string shown = *name != '\0' ? name : format("the tile at offset %d", offset);
  if (offset < 0 || static_cast<size_t>(offset) + bytes > shared_bytes)
    fail("overrun", line, format("%s takes bytes %d to %lu of shared memory, but the launch gives the block %zu", shown.c_str(), offset,
                                 static_cast<unsigned long>(offset) + bytes, shared_bytes));
  if (!settings.apart) return all_shared_memory[rank_of_shared]->begin + offset;
  Tile& tile = find_tile(shown.c_str(), offset, bytes);
  if (tile.region == nullptr) tile.region = &map_shared(shown, bytes, offset);
  if (!tile.touched) {
    memset(tile.region->begin, poison, bytes);
    races_fresh_tile(tile.region->begin, bytes);
  }
  tile.touched = true;
  return tile.region->begin;
}

unsigned tilec_shared_address(const void* p) {
  const Region* const region = find_region(p);
  if (region == nullptr || !region->shared) fail("fault", 0, "shared_address() of " + describe_access(p, 1, region) + ", not in shared memory");
  return static_cast<unsigned>(static_cast<const char*>(p) - region->begin + region->offset);
}

void tilec_copy_unchecked(void* dst, const void* src, unsigned long bytes) { memcpy(dst, src, bytes); }

void tilec_check_access(const void* p, int bytes, bool write, int line) {
  const Region* const region = find_region(p);
  const size_t size = static_cast<size_t>(bytes);
  const char* const what = write ? "store_vec writes " : "load_vec reads ";
  if (reinterpret_cast<uintptr_t>(p) % size != 0)
    fail("fault", line, what + describe_access(p, size, region) + format(", which is not aligned to %d bytes", bytes));
  if (region == nullptr) return;  // a thread's own array
  const char* const c = static_cast<const char*>(p);
  if (c < region->begin || c + bytes > region->begin + region->bytes) fail("overrun", line, what + describe_access(p, size, region));
  races_access(p, size, write, line);
}
