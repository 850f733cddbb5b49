#include "headrace/loader.h"

#include <algorithm>
#include <atomic>

#include "base/thread_pool.h"
#include "device/device.h"
#include "loader/quality.h"
#include "loader/session.h"

namespace headrace::loader {

class Loader::State {
 public:
  State(const std::vector<Source>& sources, const Options& options)
      : plan(std::make_shared<const Plan>(make_plan(sources, options))) {
    check_device(plan->options.device);
    static_cast<void>(cache_nbytes(*plan));  // says now what does not fit
    position_.epoch = options.epoch;
  }

  ~State() { leave_parent(); }

  std::optional<Batch> next(const std::function<void()>& poll) {
    const Turn turn(*this);
    const StageTimer timer(board, &Stats::stall_s);
    Session& session = running_session();
    std::optional<Batch> batch = session.next(poll);
    if (batch) {
      board.update([&](Stats& stats) {
        ++stats.batches;
        stats.samples += batch->samples;
      });
    } else {
      begun_ = false;
    }
    const ForkLock lock(mutex_);
    if (batch)
      position_.samples = std::min(position_.samples + plan->global_batch(), plan->epoch_samples());
    else
      position_ = {position_.epoch + 1, 0};
    return batch;
  }

  Position position() const {
    const ForkLock lock(mutex_);
    return position_;
  }

  void seek(const Position& position) {
    if (position.epoch < 0 || position.epoch >= kEpochEnd || position.samples < 0 ||
        position.samples > plan->epoch_samples())
      throw Error(ErrorCode::invalid_argument,
                  "[loader] no position: sample " + std::to_string(position.samples) + " of " +
                      std::to_string(plan->epoch_samples()) + ", epoch " +
                      std::to_string(position.epoch));
    const Turn turn(*this);
    const ForkLock lock(mutex_);
    position_ = position;
    begun_ = false;
  }

  // Of the last epoch that was asked for.
  std::shared_ptr<const Order> order(std::int64_t epoch) {
    {
      const ForkLock lock(mutex_);
      if (order_ && order_epoch_ == epoch) return order_;
    }
    auto made = std::make_shared<const Order>(plan->order, epoch);
    const ForkLock lock(mutex_);
    order_ = made;
    order_epoch_ = epoch;
    return made;
  }

  void close() {
    const Turn turn(*this);
    session_.reset();
  }

  const std::shared_ptr<const Plan> plan;
  StatsBoard board;

 private:
  // A child of fork has a session of its own: the parent's has a thread and locks that the child
  // lacks, and is left as it is.
  void leave_parent() {
    if (generation_ == fork_generation()) return;
    generation_ = fork_generation();
    static_cast<void>(session_.release());
  }

  Session& running_session() {
    if (!session_) {
      session_ = std::make_unique<Session>(plan, board);
      begun_ = false;
    }
    if (!begun_) {
      const Position from = position();
      session_->begin(order(from.epoch), from);
      begun_ = true;
    }
    return *session_;
  }

  // Of the thread that uses the session.
  class Turn {
   public:
    explicit Turn(State& state) : state_(state) {
      // A turn that another thread of the parent had is nobody's in the child.
      if (state.generation_ != fork_generation()) state.in_use_ = false;
      if (state.in_use_.exchange(true))
        throw Error(ErrorCode::invalid_argument, "[loader] another thread is using the loader");
      state.leave_parent();
    }
    ~Turn() { state_.in_use_ = false; }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    State& state_;
  };

  mutable ForkMutex mutex_;
  Position position_ GUARDED_BY(mutex_);
  std::shared_ptr<const Order> order_ GUARDED_BY(mutex_);
  std::int64_t order_epoch_ GUARDED_BY(mutex_) = 0;
  bool begun_ = false;  // of the thread whose turn it is

  std::atomic<bool> in_use_{false};
  std::atomic<unsigned> generation_ = fork_generation();
  std::unique_ptr<Session> session_;  // of the process with this generation
};

Loader::Loader(std::vector<Source> sources, const Options& options)
    : state_(std::make_shared<State>(sources, options)) {}

Loader::Loader(std::vector<Variable> variables, const Options& options)
    : Loader(std::vector<Source>{{std::move(variables)}}, options) {}

std::optional<Batch> Loader::next(const std::function<void()>& poll) { return state_->next(poll); }

std::int64_t Loader::batches() const { return state_->plan->batches_from(0); }
std::int64_t Loader::samples() const { return state_->plan->epoch_samples(); }

std::vector<std::string> Loader::names() const {
  std::vector<std::string> names;
  for (const PlannedTensor& tensor : state_->plan->tensors) names.push_back(tensor.name);
  return names;
}

Shape Loader::batch_shape(std::size_t tensor) const {
  Shape shape = state_->plan->tensors.at(tensor).sample_shape;
  shape.insert(shape.begin(), state_->plan->options.batch_size);
  return shape;
}

DType Loader::batch_dtype(std::size_t tensor) const {
  return state_->plan->tensors.at(tensor).dtype;
}

SampleOrigin Loader::sample(std::int64_t epoch, std::int64_t position) const {
  const Plan& plan = *state_->plan;
  if (position < 0 || position >= plan.epoch_samples())
    throw Error(ErrorCode::out_of_bounds,
                "[loader] sample " + std::to_string(position) + " of " +
                    std::to_string(plan.epoch_samples()));
  const SamplePlace place = plan.place_of(state_->order(epoch)->sample_at(position));
  return {static_cast<std::int64_t>(place.source), place.start, plan.patch_begin(place.patch)};
}

Position Loader::position() const { return state_->position(); }
void Loader::seek(const Position& position) { state_->seek(position); }
std::string Loader::order_id() const { return state_->plan->order_id; }

Stats Loader::stats() const {
  Stats stats = state_->board.get();
  if (stats.needed_nbytes > 0)
    stats.read_amplification =
        static_cast<double>(stats.decoded_nbytes) / static_cast<double>(stats.needed_nbytes);
  return stats;
}

ShuffleQuality Loader::shuffle_quality(std::int64_t epoch) const {
  return measure_quality(*state_->plan, epoch);
}

void Loader::close() { state_->close(); }

}  // namespace headrace::loader
