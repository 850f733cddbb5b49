#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/per_process.h"
#include "headrace/store.h"
#include "store/async.h"
#include "store/io_threads.h"

namespace headrace {

// The asynchronous reads of an application's store that has blocking ones only, by threads that do
// nothing but wait for it. What is cancelled, or past its deadline, is done at once: what the store
// answers later goes nowhere, for it writes to no memory of the reader's.
//
// Whole objects go to it by batches (batch_size()), and so do ranges of one object where it takes
// batches; else each goes by itself.
class BlockingReads final : public AsyncReads {
 public:
  static constexpr std::size_t kThreads = 32;

  explicit BlockingReads(std::shared_ptr<CustomStore> store);

  void submit(std::span<AsyncRead* const> reads) noexcept override;
  void cancel(AsyncRead& read) noexcept override;
  std::size_t depth() const override { return kThreads; }

 private:
  class Waiting;
  struct Call;
  struct Shared {
    Shared();
    std::shared_ptr<Waiting> waiting;
  };

  void watch(const std::shared_ptr<Waiting>& waiting);

  const std::shared_ptr<CustomStore> store_;
  const std::size_t batch_size_;
  IoThreads threads_{kThreads};
  IoThreads watch_{1};
  PerProcess<Shared> shared_;  // a child of fork waits for nothing
};

}  // namespace headrace
