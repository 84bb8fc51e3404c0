// Clusters: which of their blocks runs, their barrier, and who may reach into whose shared memory.
//
// A block may be reached once a cluster barrier has told that it runs, and must not end before one (or an mbarrier that it waits
// for) has told that nobody reaches into it any more. Both are checked by what was waited for, whatever the order of the run.
#include <algorithm>

#include "../hopper_calls.h"
#include "hopper.h"

namespace tilec {

int active_rank = 0;
int cluster_size = 1;

namespace {

// What block `from` last did in the shared memory of another one.
struct Touch {
  int arrivals = -1;      // how often the thread had come at the cluster's barrier by then, at most
  uint64_t number = 0;    // of the last such operation
  uint64_t ordered = 0;   // up to which of them the touched block has waited for them
  int line = 0;
};

// An arrival at an mbarrier of another block, which has not waited for it yet.
struct Signal {
  const void* barrier;
  unsigned phase;
  int from;
  uint64_t number;
};

Block kept[most_ranks];  // the blocks that do not run
Touch touches[most_ranks][most_ranks];  // by touched block, then by the one that did it
std::vector<Signal> signals[most_ranks];
bool ended[most_ranks];
uint64_t last_number = 0;
int arrived = 0, completed = 0, live = 0;  // threads at the barrier, barriers that are over, threads that have not exited
int block_threads = 0;

void exchange(Block& out, Block& in) {
  out.threads = std::move(threads);
  out.warps = std::move(warps);
  out.live_threads = live_threads;
  out.position = blockIdx;
  std::copy(barriers, barriers + 16, out.barriers);
  threads = std::move(in.threads);
  warps = std::move(in.warps);
  live_threads = in.live_threads;
  blockIdx = in.position;
  std::copy(in.barriers, in.barriers + 16, barriers);
}

void complete_if_all_came() {
  if (arrived < live || live == 0) return;
  arrived = 0;
  ++completed;
  const int own = active_rank;
  for (int r = 0; r < cluster_size; ++r) {
    activate(r);
    for (int i = 0; i < block_threads; ++i) {
      Thread& thread = threads[static_cast<size_t>(i)];
      if (thread.state != State::at_cluster_barrier) continue;
      thread.state = State::ready;
      warps[static_cast<size_t>(i) / 32].ready |= 1u << (i % 32);
    }
  }
  activate(own);
  races_cluster_over();
}

}  // namespace

void activate(int rank) {
  if (rank == active_rank) return;
  exchange(kept[active_rank], kept[rank]);
  hopper_exchange(active_rank, rank);
  activate_shared(rank);
  active_rank = rank;
}

void start_cluster(int ranks, int threads_of_block) {
  activate(0);
  cluster_size = ranks;
  arrived = completed = 0;
  last_number = 0;
  block_threads = threads_of_block;
  live = ranks * threads_of_block;
  std::fill(ended, ended + most_ranks, false);
  for (auto& of_block : touches) std::fill(of_block, of_block + most_ranks, Touch());
  for (auto& list : signals) list.clear();
}

void end_cluster_block() {
  int waits = 0;
  for (int i = 0; i < block_threads; ++i) waits = std::max(waits, threads[static_cast<size_t>(i)].cluster_waits);
  for (int from = 0; from < cluster_size; ++from) {
    const Touch& t = touches[active_rank][from];
    if (t.ordered < t.number && t.arrivals >= waits)
      fail("fault", t.line, format("the block ends while block %d of its cluster may still reach into its shared memory: "
                                   "it waits for no cluster barrier behind that", from));
  }
  ended[active_rank] = true;
}

void cluster_thread_exits() {
  --live;
  if (current->cluster_arrivals > completed) --arrived;
  complete_if_all_came();
}

void check_peer(int rank, int line) {
  if (rank < 0 || rank >= cluster_size) fail("fault", line, format("block %d of a cluster of %d", rank, cluster_size));
  if (ended[rank]) fail("fault", line, format("block %d of the cluster has ended", rank));
  if (current->cluster_waits == 0) fail("fault", line, format("nothing tells that block %d of the cluster runs: no cluster barrier in front of this", rank));
}

void note_touched(int rank, int line, const void* barrier, unsigned phase) {
  Touch& t = touches[rank][active_rank];
  t.arrivals = std::max(t.arrivals, current->cluster_arrivals);
  t.number = ++last_number;
  t.line = line;
  if (barrier != nullptr) signals[rank].push_back({barrier, phase, active_rank, t.number});
}

void note_ordered_by(const void* barrier, unsigned phases) {
  std::vector<Signal>& list = signals[active_rank];
  for (size_t i = 0; i < list.size();) {
    if (list[i].barrier != barrier || list[i].phase >= phases) {
      ++i;
      continue;
    }
    Touch& t = touches[active_rank][list[i].from];
    t.ordered = std::max(t.ordered, list[i].number);
    list.erase(list.begin() + static_cast<long>(i));
  }
}

}  // namespace tilec

using namespace tilec;

int tilec_cluster_rank() { return active_rank; }

// What is not made visible is not ordered either, for those who wait.
void tilec_cluster_arrive(bool visible, int line) {
  if (current->cluster_arrivals > current->cluster_waits) fail("fault", line, "a thread comes at the cluster's barrier again without having waited there");
  ++current->cluster_arrivals;
  ++arrived;
  if (visible) races_cluster_arrive();
  complete_if_all_came();
}

void tilec_cluster_wait(int line) {
  if (current->cluster_arrivals == current->cluster_waits) fail("fault", line, "cluster_wait() by a thread that has not come at the cluster's barrier");
  while (completed < current->cluster_arrivals) {
    current->state = State::at_cluster_barrier;
    current->line = line;
    block_thread();
  }
  current->cluster_waits = current->cluster_arrivals;
  races_cluster_wait();
}

void* tilec_peer(const void* p, int rank, int line) {
  if (rank == active_rank) return const_cast<void*>(p);
  check_peer(rank, line);
  note_touched(rank, line, nullptr, 0);
  return shared_of(p, rank);
}
