#pragma once

#include <atomic>
#include <cstdint>

namespace headrace {

// Ranges for a profiler, which src/cuda hands to NVTX.
struct RangeHooks {
  void (*push)(const char* name);
  void (*pop)();
};
void set_range_hooks(const RangeHooks* hooks);

namespace trace_detail {
// Bit 0: a Trace records. Bit 1: there are hooks.
extern std::atomic<unsigned> watched;
std::int64_t begin(const char* name);
void end(const char* name, std::int64_t begin_ns, std::uint64_t nbytes);
}  // namespace trace_detail

// A stretch of work of this thread, seen by Trace and by profilers. `name` is a literal.
class Span {
 public:
  explicit Span(const char* name, std::uint64_t nbytes = 0) : name_(name), nbytes_(nbytes) {
    if (trace_detail::watched.load(std::memory_order_relaxed))
      begin_ns_ = trace_detail::begin(name);
  }
  ~Span() {
    if (begin_ns_ >= 0) trace_detail::end(name_, begin_ns_, nbytes_);
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  const char* name_;
  std::uint64_t nbytes_;
  std::int64_t begin_ns_ = -1;
};

}  // namespace headrace
