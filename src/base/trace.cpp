#include "base/trace.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/fork_mutex.h"
#include "headrace/error.h"
#include "headrace/trace.h"

namespace headrace {
namespace trace_detail {

std::atomic<unsigned> watched{0};

}  // namespace trace_detail

namespace {

using trace_detail::watched;

constexpr unsigned kRecording = 1, kHooks = 2;

std::atomic<const RangeHooks*> range_hooks{nullptr};

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

struct Event {
  const char* name;
  std::int64_t begin_ns;
  std::int64_t duration_ns;
  std::uint64_t nbytes;
};

struct ThreadEvents {
  ForkMutex mutex;  // the thread that records and the one that collects
  unsigned thread = 0;
  std::vector<Event> events GUARDED_BY(mutex);
};

struct Recorder {
  ForkMutex mutex;
  std::vector<std::shared_ptr<ThreadEvents>> threads GUARDED_BY(mutex);
  unsigned next_thread GUARDED_BY(mutex) = 1;
};

Recorder& recorder() {
  static Recorder* const instance = new Recorder;  // threads may outlive static objects
  return *instance;
}

ThreadEvents& events_of_this_thread() {
  static thread_local const std::shared_ptr<ThreadEvents> mine = [] {
    auto events = std::make_shared<ThreadEvents>();
    Recorder& all = recorder();
    const ForkLock lock(all.mutex);
    events->thread = all.next_thread++;
    all.threads.push_back(events);
    return events;
  }();
  return *mine;
}

// What all threads recorded; leaves none, and forgets threads that are gone.
std::vector<std::pair<unsigned, std::vector<Event>>> collect() {
  std::vector<std::shared_ptr<ThreadEvents>> threads;
  {
    Recorder& all = recorder();
    const ForkLock lock(all.mutex);
    threads = all.threads;
    std::erase_if(all.threads, [](const auto& events) { return events.use_count() == 2; });
  }
  std::vector<std::pair<unsigned, std::vector<Event>>> result;
  for (const auto& thread : threads) {
    const ForkLock lock(thread->mutex);
    if (!thread->events.empty()) result.emplace_back(thread->thread, std::move(thread->events));
    thread->events.clear();
  }
  return result;
}

[[noreturn]] void throw_io(const std::string& path, int error) {
  throw Error(ErrorCode::io, "[trace] " + path + ": " + std::strerror(error), error);
}

}  // namespace

void set_range_hooks(const RangeHooks* hooks) {
  range_hooks = hooks;
  if (hooks) {
    watched |= kHooks;
  } else {
    watched &= ~kHooks;
  }
}

void Span::begin() {
  hooks_ = range_hooks;
  if (hooks_) hooks_->push(name_);
  begin_ns_ = now_ns();
}

void Span::end() {
  if (hooks_) hooks_->pop();
  if (!(watched.load(std::memory_order_relaxed) & kRecording)) return;
  ThreadEvents& mine = events_of_this_thread();
  const ForkLock lock(mine.mutex);
  mine.events.push_back({name_, begin_ns_, now_ns() - begin_ns_, nbytes_});
}

Trace::Trace(std::string path) : path_(std::move(path)) {
  if (watched.fetch_or(kRecording) & kRecording)
    throw Error(ErrorCode::invalid_argument, "[trace] " + path_ + ": a trace is being recorded");
  collect();  // what ended after the last trace had
}

Trace::~Trace() {
  if (recording_) watched &= ~kRecording;
}

void Trace::finish() {
  if (!std::exchange(recording_, false)) return;
  watched &= ~kRecording;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path_.c_str(), "w"),
                                                             std::fclose);
  if (!file) throw_io(path_, errno);
  const char* separator = "\n";
  std::fputs("{\"traceEvents\": [", file.get());
  for (const auto& [thread, events] : collect()) {
    for (const Event& event : events) {
      std::fprintf(file.get(),
                   "%s{\"name\": \"%s\", \"cat\": \"headrace\", \"ph\": \"X\", \"pid\": %d, "
                   "\"tid\": %u, \"ts\": %.3f, \"dur\": %.3f, \"args\": {\"bytes\": %llu}}",
                   separator,
                   event.name,
                   static_cast<int>(::getpid()),
                   thread,
                   static_cast<double>(event.begin_ns) / 1e3,
                   static_cast<double>(event.duration_ns) / 1e3,
                   static_cast<unsigned long long>(event.nbytes));
      separator = ",\n";
    }
  }
  std::fputs("\n], \"displayTimeUnit\": \"ms\"}\n", file.get());
  if (std::fflush(file.get()) != 0) throw_io(path_, errno);
}

}  // namespace headrace
