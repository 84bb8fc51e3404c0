// The race check's half of what is asynchronous: copies of single threads, bulk copies of the engines, products of warp groups.
//
// Each is in flight from its issue until somebody waits for it: at the issue it must meet nothing that is not ordered before the
// issuing thread, and until the wait nothing may meet it. Whoever waits, and whoever learns from them, comes behind it; a barrier
// of threads alone orders no engine.
#include <algorithm>
#include <deque>

#include "races.h"

namespace tilec {

namespace {

struct Flight {
  int id;
  std::vector<std::pair<const char*, size_t>> parts;
  bool write;
  Event event;          // what it is once it has been waited for
  const void* barrier;  // that counts it, once all its bytes are there
  unsigned phase;       // the phase of the barrier which that ends
};

std::deque<Flight> flights;
int last_id = 0;

Event flying(Event e) { return (e & ((Event{1} << 40) - 1)) | static_cast<Event>(in_flight) << 40; }

// What stands in shared memory for the operation becomes `event`: an access like others, at that time.
void land_parts(const Flight& f, Event event) {
  const Event before = flying(f.event);
  for (const auto& [p, bytes] : f.parts)
    for (size_t i = 0; i < bytes; ++i) {
      Shadow& s = shadow[p + i - arena_begin];
      for (Event* const e : {&s.write, &s.read, &s.earlier_read})
        if (*e == before) *e = event;
    }
}

// What a thread has written is seen by an engine if the writer has fenced since, or whoever issues the operation has, knowing of it.
bool fenced(Event written) {
  if (written == 0 || by_engine(written)) return true;
  const ProxyFence& writers = proxy_fence_of(rank_of(written), thread_of(written));
  if (time_of(written) <= writers.own) return true;
  const ProxyFence& mine = proxy_fence_of(current->rank, current->index);
  const bool own = rank_of(written) == current->rank;
  return (own && time_of(written) <= mine.full) || time_of(written) <= mine.known[warp_of(rank_of(written), thread_of(written))];
}

std::deque<Flight>::iterator find_flight(int id) {
  return std::find_if(flights.begin(), flights.end(), [id](const Flight& f) { return f.id == id; });
}

}  // namespace

void start_async() { flights.clear(); }

void races_copy_issued(const void* dst, size_t bytes, int line) {
  if (shadow == nullptr) return;
  note_access(dst, bytes, true, make_event(in_flight, current->rank, current->index, false, line_bit | static_cast<unsigned>(line)));
}

void races_copy_landed(const Thread& thread, const void* dst, size_t bytes) {
  if (shadow == nullptr) return;
  Shadow* const s = shadow + (static_cast<const char*>(dst) - arena_begin);
  for (size_t i = 0; i < bytes; ++i) s[i].write = make_event(now, thread.rank, thread.index, false, place_of(s[i].write));
}

int races_bulk_issued(const std::vector<std::pair<const char*, size_t>>& parts, bool write, int line) {
  if (shadow == nullptr) return 0;
  const Event event = make_event(now++, current->rank, current->index, true, line_bit | static_cast<unsigned>(line));
  for (const auto& [p, bytes] : parts) {
    note_access(p, bytes, write, flying(event));
    for (size_t i = 0; i < bytes && !write; ++i)
      if (const Event before = shadow[p + i - arena_begin].write; !fenced(before))
        fail("fault", line, "an asynchronous operation reads " + describe_access(p + i, 1, find_region(p + i)) +
                                ", which a thread has written without fence_proxy_async since, in " + name_race_place(place_of(before)));
  }
  flights.push_back({++last_id, parts, write, event, nullptr, 0});
  return last_id;
}

void races_bulk_counted(int id, const void* barrier, unsigned phase) {
  const auto f = find_flight(id);
  if (f == flights.end()) return;
  f->barrier = barrier;
  f->phase = phase;
}

// The current thread has waited for `count` phases of a barrier: what they counted is over for it, and for those it tells.
void races_bulk_seen(const void* barrier, unsigned count) {
  Clock& mine = clock_of(*current);
  for (auto f = flights.begin(); f != flights.end();) {
    if (f->barrier != barrier || f->phase >= count) {
      ++f;
      continue;
    }
    land_parts(*f, f->event);
    races_mbarrier_tells(barrier, f->event);
    unsigned& known = mine[engines_of(f->event)];
    known = std::max(known, time_of(f->event));
    f = flights.erase(f);
  }
}

// The thread that issued it has waited for it: it is like an access of that thread.
void races_bulk_waited(int id, const Thread& thread) {
  const auto f = find_flight(id);
  if (f == flights.end()) return;
  land_parts(*f, make_event(now++, thread.rank, thread.index, false, place_of(f->event)));
  flights.erase(f);
}

// The current thread has waited for products of its warp group, the last of which is this one.
void races_product_waited(int id, unsigned time) {
  if (shadow == nullptr) return;
  const auto f = find_flight(id);
  if (f != flights.end()) {
    land_parts(*f, f->event);
    flights.erase(f);
  }
  unsigned& known = clock_of(*current)[engines_of(current->rank, current->index)];
  known = std::max(known, time);
}

unsigned races_time_of(int id) {
  const auto f = find_flight(id);
  return f == flights.end() ? 0 : time_of(f->event);
}

}  // namespace tilec
