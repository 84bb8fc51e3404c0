// One stack a CUDA thread, and the switch between them.
// On x86-64 the switch saves the six callee-saved registers; elsewhere it is the C library's swapcontext.
#include <sys/mman.h>
#include <ucontext.h>

#include "runtime.h"

namespace tilec {

namespace {

constexpr size_t stack_bytes = 256 * 1024;
constexpr size_t guard_bytes = 4096;

char* allocate_stack() {
  void* const p = mmap(nullptr, stack_bytes + guard_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) fail("fault", 0, "out of memory for the threads' stacks");
  mprotect(p, guard_bytes, PROT_NONE);
  return static_cast<char*>(p) + guard_bytes;
}

}  // namespace

#if defined(__x86_64__)

extern "C" void tilec_switch_stack(void** save, void* load);
asm(R"(
.text
.globl tilec_switch_stack
.type tilec_switch_stack, @function
tilec_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size tilec_switch_stack, .-tilec_switch_stack
)");

namespace {
void* scheduler_stack;
}

void create_fiber(Thread& thread, void (*entry)()) {
  if (thread.stack == nullptr) thread.stack = allocate_stack();
  void** top = reinterpret_cast<void**>(thread.stack + stack_bytes);
  *--top = nullptr;  // entry sees the stack aligned as after a call
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  thread.stack_pointer = top;
}
void resume_fiber(Thread& thread) { tilec_switch_stack(&scheduler_stack, thread.stack_pointer); }
void suspend_fiber(Thread& thread) { tilec_switch_stack(&thread.stack_pointer, scheduler_stack); }

#else

namespace {
ucontext_t scheduler_context;
}

void create_fiber(Thread& thread, void (*entry)()) {
  if (thread.stack == nullptr) {
    thread.stack = allocate_stack();
    thread.stack_pointer = new ucontext_t;
  }
  auto* const context = static_cast<ucontext_t*>(thread.stack_pointer);
  getcontext(context);
  context->uc_stack.ss_sp = thread.stack;
  context->uc_stack.ss_size = stack_bytes;
  context->uc_link = nullptr;
  makecontext(context, entry, 0);
}
void resume_fiber(Thread& thread) { swapcontext(&scheduler_context, static_cast<ucontext_t*>(thread.stack_pointer)); }
void suspend_fiber(Thread& thread) { swapcontext(static_cast<ucontext_t*>(thread.stack_pointer), &scheduler_context); }

#endif

}  // namespace tilec
