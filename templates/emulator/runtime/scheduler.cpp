// Runs a grid: block after block, the threads of a block as fibers in a random, unfair order.
//
// A thread runs until it must wait. The next warp is the ready one of highest priority, and priorities are random and
// change at random moments; so one warp runs far ahead while others are held back, which is what uncovers a missing
// barrier. When no thread can run, the block is stuck and the report says who waits for what.
#include <algorithm>

#include "hopper.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace tilec {

Settings settings;
std::vector<Thread> threads;
std::vector<Warp> warps;
Thread* current = nullptr;
int live_threads = 0;
Barrier barriers[16];

namespace {

uint64_t random_state = 0;
int block_threads = 0;
const tilec_callable* running_kernel;
void** running_arguments;
bool priorities_rule;  // else every choice is uniform

void wake(Thread& thread) {
  thread.state = State::ready;
  warps[thread.index / 32].ready |= 1u << (thread.index % 32);
}

// `last` is the thread whose arrival completes the barrier, if it would have waited, else null.
void complete_barrier(int id, const Thread* last) {
  const bool whole_block = barriers[id].expected == all_threads;
  barriers[id] = {};
  std::vector<int> waiting;
  if (last != nullptr) waiting.push_back(last->index);
  for (int i = 0; i < block_threads; ++i) {
    Thread& thread = threads[static_cast<size_t>(i)];
    if (thread.state != State::at_barrier || thread.barrier != id) continue;
    wake(thread);
    waiting.push_back(i);
  }
  if (whole_block) races_block_barrier();
  races_barrier_complete(id, waiting);
}

// Runs the collective that `lane` waits in, if all the lanes it needs have come to the same one.
bool try_collective(int warp_index, int lane) {
  Warp& warp = warps[warp_index];
  Thread* const lanes = &threads[warp_index * 32];
  const unsigned needed = lanes[lane].mask & warp.live;
  if ((warp.waiting & needed) != needed) return false;
  for (unsigned rest = needed; rest != 0; rest &= rest - 1) {
    const Thread& other = lanes[__builtin_ctz(rest)];
    if (other.collective != lanes[lane].collective || other.kind != lanes[lane].kind || other.mask != lanes[lane].mask) return false;
  }
  run_collective(lanes[lane], warp, needed, warp_index * 32);
  warp.waiting &= ~needed;
  for (unsigned rest = needed; rest != 0; rest &= rest - 1) wake(lanes[__builtin_ctz(rest)]);
  return true;
}

void exit_thread() {
  Thread& thread = *current;
  Warp& warp = warps[thread.index / 32];
  thread.state = State::exited;
  const unsigned bit = 1u << (thread.index % 32);
  warp.ready &= ~bit;
  warp.live &= ~bit;
  --live_threads;
  for (unsigned rest = warp.waiting; rest != 0; rest &= rest - 1) {
    const int lane = __builtin_ctz(rest);
    if ((warp.waiting >> lane & 1) != 0) try_collective(thread.index / 32, lane);
  }
  if (barriers[0].arrived > 0 && barriers[0].expected == all_threads && barriers[0].arrived == live_threads) complete_barrier(0, nullptr);
  if (cluster_size > 1) cluster_thread_exits();
}

void thread_main() {
  running_kernel->call(running_kernel->address, running_arguments);
  exit_thread();
  suspend_fiber(*current);
}

int choose_warp() {
  const int count = static_cast<int>(warps.size());
  int best = -1, seen = 0;
  for (int w = 0; w < count; ++w) {
    if (warps[w].ready == 0) continue;
    ++seen;
    if (best < 0 || (priorities_rule ? warps[w].priority > warps[best].priority : random_below(seen) == 0)) best = w;
  }
  if (seen > 1 && random_below(16) == 0) warps[random_below(count)].priority = random_bits();
  return best;
}

void run_warp(int w) {
  const unsigned start = warps[w].ready;
  const int order = random_below(32);
  for (int i = 0; i < 32; ++i) {
    const int lane = i ^ order;
    if ((start >> lane & 1) == 0 || (warps[w].ready >> lane & 1) == 0) continue;
    Thread& thread = threads[w * 32 + lane];
    current = &thread;
    threadIdx = thread.position;
    resume_fiber(thread);
    current = nullptr;
  }
}

void start_block(int count) {
  if (static_cast<int>(threads.size()) < count) threads.resize(count);
  live_threads = count;
  block_threads = count;
  warps.assign((count + 31) / 32, {});
  for (Barrier& barrier : barriers) barrier = {};
  priorities_rule = random_below(4) != 0;
  for (Warp& warp : warps) warp.priority = random_bits();
  for (int i = 0; i < count; ++i) {
    Thread& thread = threads[i];
    thread.index = i;
    thread.rank = active_rank;
    const unsigned u = static_cast<unsigned>(i);
    thread.position = {u % blockDim.x, u / blockDim.x % blockDim.y, u / (blockDim.x * blockDim.y)};
    thread.groups.clear();
    thread.open_group.clear();
    thread.collective = Collective::none;
    thread.cluster_arrivals = thread.cluster_waits = 0;
    create_fiber(thread, thread_main);
    wake(thread);
    warps[i / 32].live |= 1u << (i % 32);
  }
}

bool can_run() {
  for (const Warp& warp : warps)
    if (warp.ready != 0) return true;
  return false;
}

// The block of the cluster that goes on: of those with a warp that can run, the one of highest priority; -1 if there is none.
int choose_block(uint64_t (&priorities)[most_ranks]) {
  if (cluster_size == 1) return live_threads > 0 && can_run() ? 0 : -1;
  int best = -1;
  for (int r = 0; r < cluster_size; ++r) {
    activate(r);
    if (live_threads > 0 && can_run() && (best < 0 || priorities[r] > priorities[best])) best = r;
  }
  if (random_below(64) == 0) priorities[random_below(cluster_size)] = random_bits();
  return best;
}

// Nobody can run: an asynchronous operation of some block happens.
bool progress() {
  for (int r = 0; r < cluster_size; ++r) {
    activate(r);
    if (live_threads > 0 && hopper_progress()) return true;
  }
  return false;
}

void end_block(int count) {
  for (int i = 0; i < count; ++i) finish_all_copies(threads[i]);
  hopper_end_block(count);
  for (int id = 0; id < 16; ++id)
    if (barriers[id].arrived > 0)
      fail("fault", barriers[id].line, format("barrier %d was left with %d arrivals and no one to wait", id, barriers[id].arrived));
  if (cluster_size > 1) end_cluster_block();
  check_canaries();
}

// Runs the blocks at these positions to their ends, as one cluster.
void run_cluster(const std::vector<uint3>& positions, int count, long shared_bytes) {
  uint64_t priorities[most_ranks] = {};
  start_cluster(static_cast<int>(positions.size()), count);
  races_start_cluster(cluster_size, count);
  for (int r = 0; r < cluster_size; ++r) {
    activate(r);
    blockIdx = positions[static_cast<size_t>(r)];
    start_shared(shared_bytes);
    start_block(count);
    hopper_start_block(count);
    if (cluster_size > 1) priorities[r] = random_bits();
  }
  for (int running = cluster_size; running > 0;) {
    const int rank = choose_block(priorities);
    if (rank < 0) {
      if (!progress()) report_deadlock();
      continue;
    }
    activate(rank);
    run_warp(choose_warp());
    if (settings.asynchrony == Asynchrony::random) {
      finish_some_copies(threads[random_below(count)]);
      hopper_random_progress();
    }
    if (live_threads > 0) continue;
    end_block(count);
    --running;
  }
}

}  // namespace

uint64_t random_bits() {  // splitmix64
  uint64_t z = (random_state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

int random_below(int n) { return static_cast<int>((random_bits() >> 33) % static_cast<uint64_t>(n)); }

void run_grid(dim3 grid, dim3 block, dim3 cluster, long shared_bytes, const tilec_callable& kernel, void** arguments, bool cooperative) {
  gridDim = grid;
  blockDim = block;
  running_kernel = &kernel;
  running_arguments = arguments;
  random_state = settings.seed * 0x2545f4914f6cdd1du + 1;
  const dim3 clusters = {grid.x / cluster.x, grid.y / cluster.y, grid.z / cluster.z};
  const uint64_t total = static_cast<uint64_t>(clusters.x) * clusters.y * clusters.z;
  const int count = static_cast<int>(block.x * block.y * block.z);
  // Seed 0 takes the blocks (or clusters) in order, others start somewhere and go backwards or forwards from there.
  const uint64_t first = settings.seed == 0 ? 0 : random_bits() % total;
  const bool backwards = settings.seed != 0 && random_below(2) == 0;
  const auto run = [&](uint64_t i) {
    const uint64_t b = ((backwards ? total - 1 - i : i) + first) % total;
    const unsigned x = static_cast<unsigned>(b % clusters.x), y = static_cast<unsigned>(b / clusters.x % clusters.y);
    const unsigned z = static_cast<unsigned>(b / clusters.x / clusters.y);
    std::vector<uint3> positions;
    for (unsigned r = 0; r < cluster.x * cluster.y * cluster.z; ++r)
      positions.push_back({x * cluster.x + r % cluster.x, y * cluster.y + r / cluster.x % cluster.y, z * cluster.z + r / cluster.x / cluster.y});
    run_cluster(positions, count, shared_bytes);
  };
  if (cooperative) return run_together(total, run);
  for (uint64_t i = 0; i < total; ++i) run(i);
}

void block_thread() {
  Thread& thread = *current;
  warps[thread.index / 32].ready &= ~(1u << (thread.index % 32));
  suspend_fiber(thread);
}

void collective(Collective what, int kind, unsigned mask, void* argument, int line) {
  Thread& thread = *current;
  const int warp_index = thread.index / 32, lane = thread.index % 32;
  if ((mask >> lane & 1) == 0) fail("fault", line, format("lane %d calls %s with a mask that leaves it out", lane, name_collective(what, kind)));
  thread.collective = what;
  thread.kind = kind;
  thread.mask = mask;
  thread.argument = argument;
  thread.line = line;
  warps[warp_index].waiting |= 1u << lane;
  if (try_collective(warp_index, lane)) return;
  thread.state = State::in_collective;
  block_thread();
}

}  // namespace tilec

using namespace tilec;

void tilec_block_barrier(int line) {
  Barrier& barrier = barriers[0];
  if (barrier.arrived > 0 && barrier.expected == all_threads && barrier.line != line)
    fail("fault", line, format("divergent barrier: this thread is at __syncthreads() in line %d, others of its block wait at the one in line %d",
                               line, barrier.line));
  tilec_named_barrier(0, all_threads, true, line);
}

void tilec_named_barrier(int id, int count, bool wait, int line) {
  if (id < 0 || id > 15) fail("fault", line, format("there is no barrier %d: a block has 0 to 15", id));
  if (count != all_threads && (count <= 0 || count % 32 != 0))
    fail("fault", line, format("barrier %d is told to expect %d threads, which is no positive multiple of 32", id, count));
  Barrier& barrier = barriers[id];
  if (barrier.arrived > 0 && barrier.expected != count)
    fail("fault", line, format("barrier %d expects %d threads here and %d in line %d", id, count, barrier.expected, barrier.line));
  barrier.expected = count;
  barrier.line = line;
  ++barrier.arrived;
  races_arrive(id, *current);
  const bool complete = barrier.arrived == (count == all_threads ? live_threads : count);
  if (complete) {
    complete_barrier(id, wait ? current : nullptr);
  } else if (wait) {
    current->state = State::at_barrier;
    current->barrier = id;
    current->line = line;
    block_thread();
  }
}

void tilec_yield() { suspend_fiber(*current); }

unsigned tilec_active_lanes() { return warps[current->index / 32].live; }
