// How a run ends: one response file with the status, the faulting instruction or the source line, and a message.
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <map>

#include "runtime.h"

namespace tilec {

namespace {

const char* response_file;

// Line 1: status; 2: offset of the instruction in the program's library, or 0; 3: line of the .cu, or 0; the rest: message.
void respond(const char* status, size_t instruction, int line, const std::string& message) {
  const std::string text = format("%s\n%zu\n%d\n", status, instruction, line) + message;
  const int file = open(response_file, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (file < 0 || write(file, text.data(), text.size()) != static_cast<ssize_t>(text.size())) _exit(99);
  close(file);
}

std::string place() {
  if (live_threads == 0) return "";
  return ", in " + name_block() + (current != nullptr ? ", " + name_thread(*current) : "");
}

uintptr_t instruction_of(void* context) {
  [[maybe_unused]] auto* const u = static_cast<ucontext_t*>(context);
#if defined(__x86_64__)
  return static_cast<uintptr_t>(u->uc_mcontext.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return u->uc_mcontext.pc;
#else
  return 0;
#endif
}

bool is_write([[maybe_unused]] void* context) {
#if defined(__x86_64__)
  return (static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & 2) != 0;
#else
  return false;
#endif
}

// The instruction's offset in the program's library; 0 if it is elsewhere.
size_t offset_in_program(uintptr_t instruction) {
  Dl_info here = {}, program = {};
  if (registered == nullptr || dladdr(registered, &program) == 0) return 0;
  if (dladdr(reinterpret_cast<void*>(instruction), &here) == 0 || here.dli_fbase != program.dli_fbase) return 0;
  return instruction - reinterpret_cast<uintptr_t>(here.dli_fbase);
}

[[noreturn]] void fail_at(const char* status, uintptr_t instruction, const std::string& message) {
  respond(status, offset_in_program(instruction), 0, message + place());
  fflush(stdout);
  _exit(0);
}

void on_memory_fault(int, siginfo_t* info, void* context) {
  const uintptr_t instruction = instruction_of(context);
  const char* const p = static_cast<const char*>(info->si_addr);
  if (current != nullptr && p < current->stack && p >= current->stack - 4096)
    fail_at("fault", instruction, "a thread's local variables take more than its stack of 256 KB");
  const Region* const region = find_region(p);
  const char* const verb = is_write(context) ? "a write of " : "a read of ";
  if (region == nullptr) fail_at("fault", instruction, verb + describe_access(p, 1, nullptr));
  const bool inside = p >= region->begin && p < region->begin + region->bytes;
  fail_at(inside ? "fault" : "overrun", instruction, verb + describe_access(p, 1, region) + (inside ? ", an input, which is read-only" : ""));
}

void on_signal(int number, siginfo_t*, void* context) {
  const uintptr_t instruction = instruction_of(context);
  if (number == SIGALRM) fail_at("timeout", instruction, "the kernel was still running when its time was up");
  fail_at("fault", instruction, number == SIGFPE ? "an integer division by zero" : format("signal %d (%s)", number, strsignal(number)));
}

std::string name_threads(const std::vector<int>& indices) {
  std::string text;
  for (size_t i = 0; i < indices.size();) {
    size_t j = i;
    while (j + 1 < indices.size() && indices[j + 1] == indices[j] + 1) ++j;
    text += (text.empty() ? "" : ", ") + (i == j ? format("%d", indices[i]) : format("%d-%d", indices[i], indices[j]));
    i = j + 1;
  }
  return (indices.size() == 1 ? "thread " : "threads ") + text;
}

std::string describe_wait(const Thread& thread) {
  if (thread.state == State::at_barrier) {
    const std::string what = thread.barrier == 0 ? "__syncthreads()" : format("barrier_sync<%d>", thread.barrier);
    return format("wait at %s in line %d", what.c_str(), thread.line);
  }
  if (thread.state == State::at_cluster_barrier) return format("wait at cluster_wait() in line %d", thread.line);
  if (thread.state == State::at_condition) return format("wait for %s in line %d", thread.waits_for, thread.line);
  const std::string lanes = thread.mask == 0xffffffffu ? "the other lanes" : format("the lanes of mask 0x%08x", thread.mask);
  return format("wait for %s at %s in line %d", lanes.c_str(), name_collective(thread.collective, thread.kind), thread.line);
}

}  // namespace

std::string format(const char* text, ...) {
  char buffer[1024];
  va_list arguments;
  va_start(arguments, text);
  vsnprintf(buffer, sizeof buffer, text, arguments);
  va_end(arguments);
  return buffer;
}

std::string name_block() { return format("block (%u, %u, %u)", blockIdx.x, blockIdx.y, blockIdx.z); }

std::string name_thread(const Thread& thread) {
  return format("thread (%u, %u, %u)", thread.position.x, thread.position.y, thread.position.z);
}

const char* name_collective(Collective what, int kind) {
  static const char* const shuffles[] = {"a shfl_xor", "a shfl_down", "a shfl_up", "a shfl_idx"};
  static const char* const mmas[] = {"mma_m16n8k16_f16_f32", "mma_m16n8k16_bf16_f32", "mma_m16n8k16_f16_f16", "mma_m16n8k8_tf32_f32",
                                     "mma_m16n8k32_s8_s32",  "mma_m16n8k32_u8_s32",   "mma_m16n8k32_e4m3_f32", "mma_m16n8k32_e5m2_f32"};
  switch (what) {
    case Collective::none: return "nothing";
    case Collective::warp_barrier: return "__syncwarp()";
    case Collective::ballot: return "a vote";
    case Collective::shuffle: return shuffles[kind];
    case Collective::ldmatrix: return "an ldmatrix";
    case Collective::stmatrix: return "an stmatrix";
    case Collective::mma: return mmas[kind];
  }
  return "";
}

void report_deadlock() {
  int line = 0;
  std::string message = "no thread can go on: ";
  const char* separator = "";
  for (int rank = 0; rank < cluster_size; ++rank) {
    activate(rank);
    std::map<std::string, std::vector<int>> waits;
    for (const Thread& thread : threads) {
      if (thread.index >= static_cast<int>(blockDim.x * blockDim.y * blockDim.z)) break;
      if (thread.state == State::exited) {
        waits["have exited"].push_back(thread.index);
      } else {
        waits[describe_wait(thread)].push_back(thread.index);
        line = thread.line;
      }
    }
    const std::string where = cluster_size > 1 ? " of " + name_block() : "";
    for (const auto& [what, who] : waits) {
      message += separator + name_threads(who) + where + " " + what;
      separator = "; ";
    }
  }
  fail("deadlock", line, message);
}

void start_reports(const char* response_path, int timeout_s) {
  response_file = response_path;
  static char stack[1 << 16];
  stack_t alternate = {};
  alternate.ss_sp = stack;
  alternate.ss_size = sizeof stack;
  sigaltstack(&alternate, nullptr);
  struct sigaction action = {};
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  action.sa_sigaction = on_memory_fault;
  sigaction(SIGSEGV, &action, nullptr);
  sigaction(SIGBUS, &action, nullptr);
  action.sa_sigaction = on_signal;
  for (const int number : {SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGALRM}) sigaction(number, &action, nullptr);
  itimerval timer = {};
  timer.it_value.tv_sec = timeout_s;
  setitimer(ITIMER_REAL, &timer, nullptr);
}

void fail(const char* status, int line, const std::string& message) {
  respond(status, 0, line, message + place());
  fflush(stdout);
  _exit(0);
}

void succeed(const char* status, const std::string& message) { respond(status, 0, 0, message); }

}  // namespace tilec

using namespace tilec;

void tilec_trap(const char* what, int line) { fail("fault", line, what); }

// ---- undefined behaviour, as -fsanitize sees it: the compiler calls these with the place in the source ---------------
namespace {
struct SourceLocation {
  const char* file;
  unsigned line, column;
};
struct TypeDescriptor {
  uint16_t kind, info;
  char name[1];
};
struct MismatchData {
  SourceLocation location;
  const TypeDescriptor* type;
  unsigned char log_alignment, check;
};
struct OperandData {
  SourceLocation location;
  const TypeDescriptor* type;
};

[[noreturn]] void undefined(const void* data, const char* what) {
  fail("fault", static_cast<int>(static_cast<const SourceLocation*>(data)->line), what);
}
}  // namespace

extern "C" {
[[noreturn]] void __ubsan_handle_type_mismatch_v1_abort(const MismatchData* data, const void* p) {
  const int line = static_cast<int>(data->location.line);
  const size_t alignment = size_t{1} << data->log_alignment;
  if (p == nullptr) fail("fault", line, format("an access to %s through a null pointer", data->type->name));
  fail("fault", line, format("an access to %s at ", data->type->name) + describe_access(p, 1, find_region(p)) +
                          format(", which is not aligned to %zu bytes", alignment));
}
[[noreturn]] void __ubsan_handle_out_of_bounds_abort(const OperandData* data, uintptr_t index) {
  fail("fault", static_cast<int>(data->location.line), format("index %zd is out of range for %s", static_cast<ssize_t>(index), data->type->name));
}
[[noreturn]] void __ubsan_handle_shift_out_of_bounds_abort(const void* data, uintptr_t, uintptr_t) { undefined(data, "a shift by more than the type's bits"); }
[[noreturn]] void __ubsan_handle_add_overflow_abort(const void* data, uintptr_t, uintptr_t) { undefined(data, "a signed addition overflows"); }
[[noreturn]] void __ubsan_handle_sub_overflow_abort(const void* data, uintptr_t, uintptr_t) { undefined(data, "a signed subtraction overflows"); }
[[noreturn]] void __ubsan_handle_mul_overflow_abort(const void* data, uintptr_t, uintptr_t) { undefined(data, "a signed multiplication overflows"); }
[[noreturn]] void __ubsan_handle_negate_overflow_abort(const void* data, uintptr_t) { undefined(data, "a negation overflows"); }
[[noreturn]] void __ubsan_handle_divrem_overflow_abort(const void* data, uintptr_t, uintptr_t) { undefined(data, "an integer division by zero, or one that overflows"); }
[[noreturn]] void __ubsan_handle_pointer_overflow_abort(const void* data, uintptr_t, uintptr_t) { undefined(data, "a pointer computation overflows"); }
}
