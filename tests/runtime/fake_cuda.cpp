// A stand-in for libcuda.so.1: keeps a log of what is asked of it, and reads kernel arguments as the real one does, by pointers.
//
// FAKE_GPUS, FAKE_CAPABILITY choose the machine; fake_arguments(n) says how many 8-byte arguments the next launches have.
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

namespace {
std::mutex mutex;
std::string text;
int arguments = 0, next_module = 1, loaded = 0, bad_images = 0;
thread_local void* current = nullptr;

void say(const char* format, ...) {
  char line[4096];
  va_list list;
  va_start(list, format);
  std::vsnprintf(line, sizeof line, format, list);
  va_end(list);
  std::lock_guard<std::mutex> hold(mutex);
  text += line;
  text += '\n';
}

int number(const char* name, int otherwise) {
  const char* value = std::getenv(name);
  return value ? std::atoi(value) : otherwise;
}
}  // namespace

extern "C" {
const char* fake_log() {
  static std::string copy;
  std::lock_guard<std::mutex> hold(mutex);
  copy.swap(text);
  text.clear();
  return copy.c_str();
}
void fake_arguments(int count) { arguments = count; }
void fake_bad_images(int count) { bad_images = count; }
void fake_current(int device) { current = reinterpret_cast<void*>(0x1000l + device); }
int fake_loaded() { return loaded; }

int cuInit(unsigned) { return number("FAKE_INIT", 0); }
int cuDriverGetVersion(int* v) { return *v = 13000, 0; }
int cuDeviceGetCount(int* n) { return *n = number("FAKE_GPUS", 2), 0; }
int cuDeviceGetName(char* name, int size, int device) { return std::snprintf(name, size, "Stand-in %d", device), 0; }
int cuDeviceGetAttribute(int* value, int which, int) {
  const int capability = number("FAKE_CAPABILITY", 80);
  *value = which == 16 ? 132 : which == 75 ? capability / 10 : which == 76 ? capability % 10 : 1;
  return 0;
}
int cuGetErrorName(int code, const char** name) { return *name = code == 200 ? "CUDA_ERROR_INVALID_IMAGE" : "CUDA_ERROR_OTHER", 0; }
int cuDevicePrimaryCtxRetain(void** context, int device) { return *context = reinterpret_cast<void*>(0x1000l + device), 0; }
int cuCtxGetCurrent(void** context) { return *context = current, 0; }
int cuCtxGetDevice(int* device) { return *device = static_cast<int>(reinterpret_cast<long>(current) - 0x1000), 0; }
static thread_local void* below = nullptr;
int cuCtxPushCurrent_v2(void* context) { return below = current, current = context, 0; }
int cuCtxPopCurrent_v2(void** context) { return *context = current, current = below, 0; }
int cuModuleLoadData(void** module, const void* image) {
  std::lock_guard<std::mutex> hold(mutex);
  if (std::memcmp(image, "\x7f" "ELF", 4) != 0 || (bad_images > 0 && bad_images--)) return 200;
  ++loaded;
  return *module = reinterpret_cast<void*>(static_cast<long>(next_module++)), 0;
}
int cuModuleUnload(void*) {
  std::lock_guard<std::mutex> hold(mutex);
  return --loaded, 0;
}
int cuModuleGetFunction(void** function, void*, const char* name) { return *function = strdup(name), 0; }
int cuFuncSetAttribute(void* function, int which, int value) { return say("attribute %s %d %d", (char*)function, which, value), 0; }
int cuPointerGetAttribute(int* value, int, unsigned long address) { return *value = address >= 0x200000000ul ? 1 : 0, 0; }
int cuStreamSynchronize(void* stream) { return say("synchronize %p", stream), 0; }
struct Config { unsigned grid[3], block[3], shared; void* stream; const int* attributes; unsigned count; };
int cuLaunchKernelEx(const Config* c, void* function, void** values, void**) {
  std::string line;
  for (int i = 0; i < arguments; ++i) {
    char word[32];
    std::snprintf(word, sizeof word, " %lx", *static_cast<unsigned long*>(values[i]));
    line += word;
  }
  for (unsigned i = 0; i < c->count; ++i)
    if (c->attributes[18 * i] == 2 && c->attributes[18 * i + 2] == 1) say("together");
  say("launch %s device %ld grid %u %u %u block %u %u %u shared %u stream %ld:%s", (char*)function, reinterpret_cast<long>(current) - 0x1000, c->grid[0],
      c->grid[1], c->grid[2], c->block[0], c->block[1], c->block[2], c->shared, reinterpret_cast<long>(c->stream), line.c_str());
  return 0;
}
int cuMemsetD8Async(unsigned long address, unsigned char value, size_t size, void*) { return say("clear %lx %d %zu", address, value, size), 0; }
int cuTensorMapEncodeTiled(void* map, int, unsigned, void* address, const void*, const void*, const void*, const void*, int, int, int, int) {
  std::memset(map, 0, 128);
  std::memcpy(map, &address, sizeof address);
  say("map %p", address);
  return 0;
}
}
