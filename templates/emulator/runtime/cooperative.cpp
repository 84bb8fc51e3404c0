// Cooperative launches: blocks that wait for each other at a grid barrier.
//
// Each block runs in a process of its own, a copy of this one; arrays lie in memory that all of them share. One block runs at a
// time, so that atomic updates stay whole; another one goes on when the running one waits at the barrier or ends.
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "runtime.h"

namespace tilec {
namespace {

constexpr uint64_t most_blocks = 64;
constexpr int ended = 7;  // exit code of a block that ran to its end

struct Meeting {
  pthread_mutex_t turn;
  pthread_cond_t all_here;
  unsigned blocks, arrived, round;
};
Meeting* meeting = nullptr;

Meeting& open_meeting(unsigned blocks) {
  void* const p = mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) fail("fault", 0, "out of memory for a cooperative launch");
  Meeting& m = *static_cast<Meeting*>(p);
  pthread_mutexattr_t mutex;
  pthread_mutexattr_init(&mutex);
  pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
  pthread_mutex_init(&m.turn, &mutex);
  pthread_condattr_t condition;
  pthread_condattr_init(&condition);
  pthread_condattr_setpshared(&condition, PTHREAD_PROCESS_SHARED);
  pthread_cond_init(&m.all_here, &condition);
  m.blocks = blocks;
  m.arrived = m.round = 0;
  return m;
}

}  // namespace

void run_together(uint64_t blocks, const std::function<void(uint64_t)>& run) {
  if (blocks > most_blocks)
    fail("fault", 0, format("a cooperative launch of %llu blocks: the emulator holds %llu at once", static_cast<unsigned long long>(blocks),
                            static_cast<unsigned long long>(most_blocks)));
  meeting = &open_meeting(static_cast<unsigned>(blocks));
  fflush(stdout);
  std::vector<pid_t> processes;
  for (uint64_t b = 0; b < blocks; ++b) {
    const pid_t process = fork();
    if (process == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      pthread_mutex_lock(&meeting->turn);
      run(b);
      fflush(stdout);
      pthread_mutex_unlock(&meeting->turn);
      _exit(ended);
    }
    if (process < 0) fail("fault", 0, "no process for a block of a cooperative launch");
    processes.push_back(process);
  }
  for (uint64_t left = blocks; left > 0; --left) {
    int status = 0;
    wait(&status);
    if (WIFEXITED(status) && WEXITSTATUS(status) == ended) continue;
    for (const pid_t process : processes) kill(process, SIGKILL);  // the block has reported what is wrong
    _exit(0);
  }
  munmap(meeting, sizeof(Meeting));
  meeting = nullptr;
}

}  // namespace tilec

using namespace tilec;

void tilec_grid_barrier(unsigned* arrived, int line) {
  if (meeting == nullptr) fail("fault", line, "a grid barrier in a launch that is not cooperative");
  Meeting& m = *meeting;
  if (*arrived != m.round * m.blocks + m.arrived) fail("fault", line, format("the grid barrier's counter is %u, not %u", *arrived, m.round * m.blocks + m.arrived));
  ++*arrived;
  const unsigned round = m.round;
  if (++m.arrived == m.blocks) {
    m.arrived = 0;
    ++m.round;
    pthread_cond_broadcast(&m.all_here);
    return;
  }
  while (m.round == round) pthread_cond_wait(&m.all_here, &m.turn);
}
