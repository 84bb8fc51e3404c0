// The program that runs a launcher: reads a request, maps the arrays, calls, checks the canaries, writes the arrays back.
//
// Usage: runner REQUEST DATA RESPONSE. REQUEST is text, one item a line:
//   library PATH | launcher NAME | seed N | races 0|1 | asynchrony lazy|eager|random | shared apart|real | alignment BYTES
//   timeout SECONDS | capability N | shared_limit BYTES
//   pointer NAME ROLE BYTES SHAPE     an argument: an array whose contents lie in DATA, after those of the arrays before it
//   workspace BYTES                   an argument: memory that starts poisoned
//   scalar HEX                        an argument by value: its bytes
//   stream                            an argument: the null stream
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <sstream>

#include "runtime.h"

namespace tilec {

const tilec_callable* registered = nullptr;
int registered_count = 0;
const char* program_base = nullptr;

const tilec_callable* find_callable(const void* address) {
  for (int i = 0; i < registered_count; ++i)
    if (registered[i].address == address) return &registered[i];
  return nullptr;
}

namespace {

struct Argument {
  std::vector<char> bytes;
  Region* region = nullptr;  // of an array
  size_t position = 0;       // of its contents in the data file
  bool written = false;
};

struct Request {
  std::string library, launcher;
  size_t alignment = 16;
  int timeout_s = 60;
  std::vector<Argument> arguments;
  size_t data_bytes = 0;
};

std::vector<char> bytes_of(const void* p, size_t count) {
  const char* const c = static_cast<const char*>(p);
  return std::vector<char>(c, c + count);
}

void add_pointer(Request& request, const std::string& name, const std::string& role, size_t bytes, const std::string& shape) {
  Argument argument;
  argument.region = &add_array(name, shape, bytes, request.alignment);
  argument.bytes = bytes_of(&argument.region->begin, sizeof(void*));
  argument.position = request.data_bytes;
  argument.written = role != "in";
  request.data_bytes += bytes;
  request.arguments.push_back(argument);
}

void read_line(Request& request, const std::string& key, std::istringstream& rest) {
  std::string word, role;
  size_t bytes = 0;
  if (key == "library") { rest >> std::ws; std::getline(rest, request.library); }
  else if (key == "launcher") rest >> request.launcher;
  else if (key == "seed") rest >> settings.seed;
  else if (key == "races") rest >> settings.races;
  else if (key == "alignment") rest >> request.alignment;
  else if (key == "timeout") rest >> request.timeout_s;
  else if (key == "capability") rest >> settings.compute_capability;
  else if (key == "shared_limit") rest >> settings.shared_limit;
  else if (key == "shared") { rest >> word; settings.apart = word == "apart"; }
  else if (key == "asynchrony") {
    rest >> word;
    settings.asynchrony = word == "eager" ? Asynchrony::eager : word == "random" ? Asynchrony::random : Asynchrony::lazy;
  } else if (key == "pointer") {
    rest >> word >> role >> bytes >> std::ws;
    std::string shape;
    std::getline(rest, shape);
    add_pointer(request, word, role, bytes, shape);
  } else if (key == "workspace") {
    rest >> bytes;
    Argument argument;
    const Region& region = add_array("the workspace", format("%zu bytes", bytes), bytes, 256);
    argument.bytes = bytes_of(&region.begin, sizeof(void*));
    request.arguments.push_back(argument);
  } else if (key == "scalar") {
    rest >> word;
    Argument argument;
    for (size_t i = 0; i + 1 < word.size(); i += 2) argument.bytes.push_back(static_cast<char>(std::stoi(word.substr(i, 2), nullptr, 16)));
    request.arguments.push_back(argument);
  } else if (key == "stream") {
    Argument argument;
    argument.bytes.assign(sizeof(void*), 0);
    request.arguments.push_back(argument);
  }
}

Request read_request(const char* path) {
  Request request;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream rest(line);
    std::string key;
    rest >> key;
    read_line(request, key, rest);
  }
  return request;
}

void load_library(const Request& request) {
  void* const library = dlopen(request.library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) fail("fault", 0, std::string("the built program cannot be loaded: ") + dlerror());
  const auto table = reinterpret_cast<const tilec_callable* (*)(int*)>(dlsym(library, "tilec_registered"));
  if (table == nullptr) fail("fault", 0, "the built program registers no functions");
  registered = table(&registered_count);
  Dl_info place = {};
  if (dladdr(reinterpret_cast<const void*>(table), &place) != 0) program_base = static_cast<const char*>(place.dli_fbase);
}

const tilec_callable& find_launcher(const Request& request) {
  for (int i = 0; i < registered_count; ++i)
    if (!registered[i].kernel && request.launcher == registered[i].name) return registered[i];
  fail("fault", 0, "the file has no launcher " + request.launcher);
}

void check_arguments(const tilec_callable& launcher, const Request& request) {
  const int given = static_cast<int>(request.arguments.size());
  if (given != launcher.count)
    fail("fault", 0, format("%s takes %d arguments, but its manifest makes %d", launcher.name, launcher.count, given));
  for (int i = 0; i < given; ++i)
    if (static_cast<size_t>(launcher.sizes[i]) != request.arguments[static_cast<size_t>(i)].bytes.size())
      fail("fault", 0, format("argument %d of %s has %d bytes, but by its manifest %zu", i, launcher.name, launcher.sizes[i],
                              request.arguments[static_cast<size_t>(i)].bytes.size()));
}

void read_data(const Request& request, const char* path) {
  FILE* const file = fopen(path, "rb");
  for (const Argument& argument : request.arguments) {
    if (argument.region == nullptr) continue;
    const Region& region = *argument.region;
    if (file == nullptr || fread(region.begin, 1, region.bytes, file) != region.bytes) fail("fault", 0, "the data file is too short");
    if (!argument.written) protect_array(region);
  }
  if (file != nullptr) fclose(file);
}

void write_data(const Request& request, const char* path) {
  FILE* const file = fopen(path, "r+b");
  if (file == nullptr) fail("fault", 0, "the data file cannot be written");
  for (const Argument& argument : request.arguments) {
    if (argument.region == nullptr || !argument.written) continue;
    fseek(file, static_cast<long>(argument.position), SEEK_SET);
    if (fwrite(argument.region->begin, 1, argument.region->bytes, file) != argument.region->bytes) fail("fault", 0, "the data file cannot be written");
  }
  fclose(file);
}

}  // namespace
}  // namespace tilec

int main(int count, char** words) {
  using namespace tilec;
  if (count != 4) {
    std::cerr << "usage: runner REQUEST DATA RESPONSE\n";
    return 2;
  }
  start_reports(words[3], 0);
  Request request = read_request(words[1]);
  start_reports(words[3], request.timeout_s);
  load_library(request);
  const tilec_callable& launcher = find_launcher(request);
  check_arguments(launcher, request);
  read_data(request, words[2]);
  std::vector<void*> arguments;
  for (Argument& argument : request.arguments) arguments.push_back(argument.bytes.data());
  const int error = launcher.call(launcher.address, arguments.data());
  check_canaries();
  write_data(request, words[2]);
  fflush(stdout);
  succeed(error == 0 ? "ok" : format("launch error %d", error).c_str(), "");
  _Exit(0);
}
