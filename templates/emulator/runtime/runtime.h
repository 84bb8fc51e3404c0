// The emulator's insides: threads as fibers, warps, barriers, memory regions, and the one way to report a fault.
// A single OS thread runs everything, one block at a time, so plain globals hold the state of the running block. The blocks of a
// cluster live at once: their states are exchanged with the globals when another one runs (cluster.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "../tilec_language.h"

#include "../cuda_api.h"

namespace tilec {

// ---- settings of a run -------------------------------------------------------------------------------------------
enum class Asynchrony { lazy, eager, random };
struct Settings {
  Asynchrony asynchrony = Asynchrony::lazy;
  bool apart = true;             // every shared tile in its own allocation, else at the plan's offsets
  uint64_t seed = 0;
  bool races = false;            // check every access of shared memory; the program is built for it
  int compute_capability = 80;
  long shared_limit = 166912;    // most dynamic shared memory of a block, bytes
  int multiprocessors = 4;
};
extern Settings settings;

uint64_t random_bits();
int random_below(int n);

// ---- threads, warps, barriers ------------------------------------------------------------------------------------
enum class State { ready, in_collective, at_barrier, at_cluster_barrier, at_condition, exited };

// What all lanes of a warp do together; the body runs once, when the last lane has come.
enum class Collective { none, warp_barrier, ballot, shuffle, ldmatrix, stmatrix, mma };

struct AsyncCopy {
  void* dst;
  const void* src;
  int bytes;
  int valid;  // the first of them are copied, the others zeroed
  bool landed;
};

struct Thread {
  void* stack_pointer = nullptr;
  char* stack = nullptr;  // lowest usable byte
  State state = State::ready;
  int index = 0;  // within the block
  int rank = 0;   // of the block in its cluster
  uint3 position = {};
  // What it waits for.
  Collective collective = Collective::none;
  int kind = 0;
  unsigned mask = 0;
  void* argument = nullptr;
  int barrier = 0;
  const char* waits_for = "";  // at a condition
  int line = 0;
  // Its arrivals at the barrier of the cluster, and how many of them it has waited for.
  int cluster_arrivals = 0, cluster_waits = 0;
  // Its asynchronous copies: the closed groups, oldest first, then the open one.
  std::vector<std::vector<AsyncCopy>> groups;
  std::vector<AsyncCopy> open_group;
};

struct Warp {
  unsigned live = 0;     // lanes that exist and have not exited
  unsigned ready = 0;    // lanes that can run
  unsigned waiting = 0;  // lanes in a collective
  uint64_t priority = 0;
};

constexpr int all_threads = -1;
struct Barrier {
  int arrived = 0;
  int expected = all_threads;
  int line = 0;
};

extern std::vector<Thread> threads;  // of the running block
extern std::vector<Warp> warps;
extern Thread* current;  // null between threads
extern int live_threads;

// Runs `call(address, arguments)` in every thread of every block of the grid, the blocks of a cluster together.
void run_grid(dim3 grid, dim3 block, dim3 cluster, long shared_bytes, const tilec_callable& kernel, void** arguments, bool cooperative);
// Runs blocks that may wait for each other; `run` executes one of them.
void run_together(uint64_t blocks, const std::function<void(uint64_t)>& run);
void block_thread();  // gives up the processor until the thread is ready again
void collective(Collective what, int kind, unsigned mask, void* argument, int line);
void run_collective(const Thread& representative, Warp& warp, unsigned lanes, int first_thread);

// scheduler.cpp and cluster.cpp: the state of a block is exchanged with that of another one of the running cluster.
struct Block {
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  int live_threads = 0;
  Barrier barriers[16];
  uint3 position = {};
};
extern Barrier barriers[16];  // of the running block

// cluster.cpp
constexpr int most_ranks = 16;
extern int active_rank;   // of the running block in its cluster
extern int cluster_size;  // blocks of the running cluster
void start_cluster(int ranks, int threads_of_block);
void activate(int rank);  // the globals are that block's from now on
void end_cluster_block();  // the running block's threads have exited
void cluster_thread_exits();
void note_ordered_by(const void* barrier, unsigned phases);  // the running block has waited for so many phases of an mbarrier

// Does something as another block of the running cluster. Nothing in it may wait.
template <typename Action>
void in_block(int rank, Action action) {
  const int own = active_rank;
  activate(rank);
  action();
  activate(own);
}

// fibers.cpp
void create_fiber(Thread& thread, void (*entry)());
void resume_fiber(Thread& thread);
void suspend_fiber(Thread& thread);

// instructions.cpp
void finish_copies(Thread& thread, int pending);
void finish_some_copies(Thread& thread);
void finish_all_copies(Thread& thread);
void land(const Thread& thread, const std::vector<AsyncCopy>& group);
std::vector<AsyncCopy> take_copies(Thread& thread);

// ---- memory ------------------------------------------------------------------------------------------------------
struct Region {
  std::string name;   // the array's or the tile's name
  std::string shape;  // for the report: "float16[64, 64]"
  char* begin = nullptr;
  size_t bytes = 0;
  char* reserved_begin = nullptr;  // with canaries and inaccessible pages
  char* reserved_end = nullptr;
  char* canary_begin = nullptr;  // the accessible part
  char* canary_end = nullptr;
  bool shared = false;
  int offset = 0;  // of a tile, in the plan
  int rank = 0;    // of the block in its cluster whose shared memory it is
};

constexpr unsigned char poison = 0xff;   // NaN in every floating-point type
constexpr unsigned char canary = 0xfd;

Region& add_array(const std::string& name, const std::string& shape, size_t bytes, size_t alignment);
void protect_array(const Region& region);  // read-only from now on
void start_shared(long bytes);             // before each block
void activate_shared(int rank);            // shared tiles are those of that block of the cluster
char* shared_of(const void* p, int rank);  // the place of another block of the cluster that p names in the running one
void check_canaries();                     // after each block
const Region* find_region(const void* p);  // the array or tile whose memory or surroundings hold p
std::string describe_access(const void* p, size_t bytes, const Region* region);
void check_range(const void* p, size_t bytes, const char* what, bool must_be_shared, int line, size_t alignment = 0);

// Shared tiles lie in one range of addresses, the arena.
extern char* arena_begin;
constexpr size_t arena_bytes = size_t{1} << 27;

// ---- races on shared memory (races.cpp): told of every access and of everything that orders threads -------------------
void races_start_cluster(int blocks, int count);
void races_fresh_tile(const char* begin, size_t bytes);
void races_access(const void* p, size_t bytes, bool write, int line);
void races_block_barrier();
void races_arrive(int barrier, const Thread& thread);
void races_barrier_complete(int barrier, const std::vector<int>& waiting);
void races_warp_barrier(unsigned lanes, int first_thread);
void races_mbarrier_arrive(const void* barrier);                // by the current thread
void races_mbarrier_over(const void* barrier);                  // a phase has ended
void races_mbarrier_wait(const void* barrier, unsigned phases);  // the current thread has seen so many of them end
void races_proxy_fence();     // of the current thread
void races_cluster_arrive();  // at the barrier of the cluster, by the current thread
void races_cluster_over();    // all have come
void races_cluster_wait();    // the current thread has seen that
std::string name_race_place(unsigned place);

// races_async.cpp: copies of single threads, and operations of engines by the number that their issue gives
void races_copy_issued(const void* dst, size_t bytes, int line);
void races_copy_landed(const Thread& thread, const void* dst, size_t bytes);
int races_bulk_issued(const std::vector<std::pair<const char*, size_t>>& parts, bool write, int line);
void races_bulk_counted(int id, const void* barrier, unsigned phase);  // its bytes are there, counted by that phase of a barrier
void races_bulk_waited(int id, const Thread& thread);                  // the thread that issued it has waited for it
unsigned races_time_of(int id);
void races_product_waited(int id, unsigned time);  // the current thread has waited for a product of that time

// ---- reports -----------------------------------------------------------------------------------------------------
void start_reports(const char* response_path, int timeout_s);
// Writes the report, with the running block and thread, and ends the process.
[[noreturn]] void fail(const char* status, int line, const std::string& message);
void succeed(const char* status, const std::string& message);
std::string format(const char* text, ...) __attribute__((format(printf, 1, 2)));
std::string name_thread(const Thread& thread);
std::string name_block();
[[noreturn]] void report_deadlock();
const char* name_collective(Collective what, int kind);

// ---- registered functions ----------------------------------------------------------------------------------------
extern const tilec_callable* registered;
extern int registered_count;
extern const char* program_base;  // where the program's library is loaded
const tilec_callable* find_callable(const void* address);

}  // namespace tilec
