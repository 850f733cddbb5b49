#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace headrace {

// Fibers that one thread at a time runs. A fiber that is resumed for the first time, or again
// after its body has returned, runs body(context) from the start.
class FiberSet {
 public:
  using Body = void (*)(void* context);

  FiberSet(Body body, void* context);
  ~FiberSet();
  FiberSet(const FiberSet&) = delete;

  // At least `count` fibers.
  void reserve(unsigned count);
  // Runs fiber `index` until it suspends (false) or its body has returned (true).
  bool resume(unsigned index);
  // From inside a fiber.
  void suspend();
  // Where fiber `index` keeps its frames.
  std::span<const char> stack(unsigned index) const;
  // Forgets what the fibers were doing. They hold nothing that would have to be released.
  void abandon();

 private:
  struct Fiber;
  struct Scheduler;
  friend struct FiberEntry;

  Body body_;
  void* context_;
  unsigned current_ = 0;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::unique_ptr<Scheduler> scheduler_;
};

}  // namespace headrace
