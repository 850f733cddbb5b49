#pragma once

// How calls that wait for a store across a network are ended by whoever made them:
//  1. InterruptScope scope(poll);
//  2. Calls of this thread that open, list, look for, read or write call `poll` some ten times a
//     second while they wait. This is how an interpreter handles its signals.
//  3. What it throws ends the requests that are under way, and comes out of the call when they
//     have: soon, for nobody waits for their answers.

#include <functional>

#pragma GCC visibility push(default)
namespace headrace {

class InterruptScope {
 public:
  // An empty one: nothing is called within the scope.
  explicit InterruptScope(std::function<void()> poll) noexcept;
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

 private:
  const std::function<void()> poll_;
  const std::function<void()>* const outer_;
};

}  // namespace headrace
#pragma GCC visibility pop
