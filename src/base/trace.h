#pragma once

#include <atomic>
#include <cstdint>

namespace headrace {

// Ranges of a profiler, on the calling thread.
struct RangeHooks {
  void (*push)(const char* name);
  void (*pop)();
};
// From now on spans are ranges of a profiler too; null: no longer.
void set_range_hooks(const RangeHooks* hooks);

namespace trace_detail {
// A bit each: a Trace records; there are hooks.
extern std::atomic<unsigned> watched;
}  // namespace trace_detail

// A stretch of work of this thread, seen by Trace and by profilers. `name` is a literal.
class Span {
 public:
  explicit Span(const char* name, std::uint64_t nbytes = 0) : name_(name), nbytes_(nbytes) {
    if (trace_detail::watched.load(std::memory_order_relaxed)) begin();
  }
  ~Span() {
    if (begin_ns_ >= 0) end();
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

  // Bytes that were not known at the beginning.
  void add(std::uint64_t nbytes) { nbytes_ += nbytes; }

 private:
  void begin();
  void end();

  const char* name_;
  std::uint64_t nbytes_;
  std::int64_t begin_ns_ = -1;
  const RangeHooks* hooks_ = nullptr;
};

}  // namespace headrace
