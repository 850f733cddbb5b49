#pragma once

// Which blocks of a launch touched each byte of memory, to find what the host run of kernels cannot
// show by wrong results: its blocks see each other's writes at once, and on a GPU they need not.
//  1. Built with HEADRACE_SIMT_SHADOW, kernels are compiled with -fsanitize=thread, so that every
//     load and store calls __tsan_read4 and its like. These functions are this file's, in place of
//     ThreadSanitizer's runtime: it orders threads, and knows nothing of blocks.
//  2. simt::launch makes a Shadow. What its fibers touch is noted there, but for their stacks and
//     shared memory.
//  3. An error, at the end of the launch:
//     - two blocks touch a byte, at least one writes it, and not both by atomics or the operations
//       *_shared_cache: no block of a launch waits for another;
//     - load_constant of a byte that the launch writes, even by the same thread: its cache of one
//       multiprocessor is not told of writes.
// Every access counts, not only those that a schedule brings together: one run finds what it runs
// through, whatever the seed.

#ifdef HEADRACE_SIMT_SHADOW

#include <cstddef>
#include <cstdint>
#include <memory>

namespace headrace::host::simt {

// `shared_`: atomics, load_shared_cache, store_shared_cache. An atomic update is a shared_write.
enum class Access : std::uint8_t { read, write, shared_read, shared_write, constant };

class Shadow {
 public:
  explicit Shadow(const char* kernel);
  ~Shadow();
  Shadow(const Shadow&) = delete;
  Shadow& operator=(const Shadow&) = delete;

  // `pc`: where in the program. Any thread.
  void note(unsigned block, const void* data, std::size_t nbytes, Access access, const void* pc);
  // Throws `device` with the first conflict.
  void check() const;

 private:
  struct Page;
  struct State;
  Page& page_of(std::uintptr_t number);

  std::unique_ptr<State> state_;
};

// What the calling thread runs: null outside of kernels.
struct Watched {
  Shadow* shadow = nullptr;
  unsigned block = 0;
  const void* stack = nullptr;  // of the fiber
  std::size_t stack_nbytes = 0;
  const void* shared = nullptr;
  std::size_t shared_nbytes = 0;
};
extern thread_local constinit Watched watched;

void note(const void* data, std::size_t nbytes, Access access, const void* pc);

}  // namespace headrace::host::simt

#endif
