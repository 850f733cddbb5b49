#pragma once

#include <atomic>
#include <cstdint>

namespace headrace {

namespace trace_detail {
extern std::atomic<bool> recording;
std::int64_t now_ns();
void end(const char* name, std::int64_t begin_ns, std::uint64_t nbytes);
}  // namespace trace_detail

// A stretch of work of this thread, seen by Trace. `name` is a literal.
class Span {
 public:
  explicit Span(const char* name, std::uint64_t nbytes = 0) : name_(name), nbytes_(nbytes) {
    if (trace_detail::recording.load(std::memory_order_relaxed)) begin_ns_ = trace_detail::now_ns();
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
