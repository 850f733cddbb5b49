#pragma once

// Work of one call that a device has not done when the call returns:
//  1. The call gives a queue its work, which began behind what the caller's stream had.
//  2. start() has the caller's stream wait for it, and the queue tell when it is done.
//  3. Whoever comes first, the completion thread (device/completion.h) or one that waits, looks for
//     errors: then it is done.
//  4. The completion thread calls back and lets go of what the work needed: until then the work
//     itself keeps it, whoever drops what.

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "device/backend.h"
#include "headrace/future.h"
#include "headrace/tensor.h"

namespace headrace::detail {

class DeviceWork final : public FutureState, public std::enable_shared_from_this<DeviceWork> {
 public:
  // Of what `queue` was given so far. `check` is called once when that is done, throws what is
  // wrong, and owns all that the work needs, the queue too: it goes when the device is done, also
  // when this throws, and must wait for that in its destructor.
  static std::shared_ptr<DeviceWork> start(Device device,
                                           Queue& queue,
                                           Stream stream,
                                           std::function<void()> check);
  ~DeviceWork() override;

  bool done() const override;
  bool wait_for(std::chrono::nanoseconds timeout) const override;
  void wait() const override;
  bool cancel() override { return false; }
  void rethrow() const override;
  void on_done(std::function<void()> callback) override;

  void before(Stream stream);
  Stream stream() const { return done() ? Stream() : stream_; }

  // For the completion thread: whether the work is done, by now, and everybody was told.
  // `look`: at the mark, too, though nobody told that it is reached.
  bool end(bool look) noexcept;

 private:
  DeviceWork(Device device, Stream stream, std::unique_ptr<Mark> mark, std::function<void()> check);
  void check_process() const;
  // True when the work is done; false while the mark is not reached, or another thread looks for
  // errors.
  bool complete_if_reached() const;
  // Once the mark is reached, or the device has failed, by `error`. Only the first comer does it:
  // false for the others, while it is at it.
  bool complete(std::exception_ptr error) const;

  const Device device_;
  const Stream stream_;
  const unsigned generation_;
  const std::unique_ptr<Mark> mark_;
  // By the queue, which does not keep the work: a device that has failed drops nothing.
  const std::shared_ptr<std::atomic<bool>> told_reached_;

  // What follows is known by looking.
  mutable Mutex mutex_;
  mutable ConditionVariable changed_;
  mutable std::function<void()> check_ GUARDED_BY(mutex_);
  mutable bool completing_ GUARDED_BY(mutex_) = false;
  mutable std::vector<std::function<void()>> callbacks_ GUARDED_BY(mutex_);
  mutable std::exception_ptr error_;  // written before done_ is set, read after
  mutable std::atomic<bool> done_{false};
  mutable std::atomic<bool> told_{false};  // somebody got the error
};

// After which threads look for themselves: a device that has failed tells nobody.
inline constexpr auto kLookInterval = std::chrono::milliseconds(20);

}  // namespace headrace::detail
