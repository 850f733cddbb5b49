#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "headrace/store.h"
#include "store/async.h"

namespace headrace {

// `corrupt` for fewer bytes than were asked for, as the object ends before, and for more: a store
// that knows no ranges answers with others.
void check_answered_range(const std::string& url,
                          const std::string& key,
                          std::uint64_t nbytes,
                          std::uint64_t wanted);

// The asynchronous reads of an application's store, one with a depth(). What is cancelled is done
// at once, whatever the application does, and so is never waited for.
class CustomReads final : public AsyncReads {
 public:
  explicit CustomReads(std::shared_ptr<CustomStore> store);

  void submit(std::span<AsyncRead* const> reads) noexcept override;
  void cancel(AsyncRead& read) noexcept override;
  std::size_t depth() const override { return depth_; }

 private:
  class Answers;

  const std::shared_ptr<CustomStore> store_;
  const std::size_t depth_;
  const std::shared_ptr<Answers> answers_;
};

}  // namespace headrace
