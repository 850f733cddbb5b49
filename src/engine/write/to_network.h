#pragma once

// Writes to a store across a network, none of which takes a thread while it is under way:
//  1. Objects come one after another, each with its lock. Those that keep some of what is stored
//     are read ahead, many at once (engine/fetch/in_flight.h).
//  2. Threads encode what is there, and hand it over (engine/write/in_flight.h). What was read is
//     put back on condition that it is still the same, where the store knows conditions.
//  3. Objects whose locks others had, and those that another writer has replaced meanwhile, are
//     done again in another round, when this write has no locks: it never waits for one while it
//     has another, but for the first of a round.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/fetch/in_flight.h"
#include "engine/fetch/plan.h"
#include "engine/fetch/shard_read.h"
#include "engine/query/regions.h"
#include "engine/request/attempts.h"
#include "engine/request/object_locks.h"
#include "engine/request/request.h"
#include "engine/write/encoder.h"
#include "engine/write/in_flight.h"
#include "store/store.h"

namespace headrace {

// Under which what was read is put back; none where the store could not tell a version.
inline WriteCondition condition_of(bool found, std::string version) {
  if (!found) return WriteCondition::if_missing();
  if (version.empty()) return {};
  return WriteCondition::if_version(std::move(version));
}

inline WritesInFlight::Limits limits_of_writes(const Request& request, const AsyncWrites& store) {
  const std::size_t enough = 2 * std::max<std::size_t>(store.depth(), 1);
  return {std::max<std::size_t>(std::min(request.io_depth(), enough), 2), request.memory_budget()};
}

// One stored object, and what of it is written.
template <typename Query>
struct ObjectTask {
  std::shared_ptr<const void> owner;  // of what the rest refers to
  ObjectEncoder<Query>* encoder = nullptr;
  std::string key;
  Query query;
  Shape valid;
  int attempts = 0;
};

template <typename Query>
class NetworkWriter {
 public:
  using Task = ObjectTask<Query>;
  using NextTask = std::function<std::optional<Task>()>;

  NetworkWriter(Request& request, const ObjectLocks& locks, StoreDriver& driver)
      : request_(request),
        locks_(locks),
        driver_(driver),
        conditions_(driver.write_conditions()),
        check_([this] { request_.check(); }),
        writes_(*driver.async_writes(), limits_of_writes(request, *driver.async_writes()), check_) {
  }

  void write(const StoredArray& array, Query query) {
    Regions regions(*this, array, std::move(query));
    const int threads = ObjectEncoder<Query>(request_, array).objects_at_once();
    write([&] { return regions.next(); }, threads);
  }

  // All that next() gives, asked by one thread at a time.
  void write(NextTask next, int threads) {
    round(std::move(next), false, threads);
    Attempts attempts;
    while (!again_.empty()) {
      if (contended_) attempts.wait(check_);
      std::vector<Task> tasks = std::exchange(again_, {});
      contended_ = false;
      std::size_t at = 0;
      round(
          [&]() -> std::optional<Task> {
            if (at == tasks.size()) return std::nullopt;
            return std::move(tasks[at++]);
          },
          true,
          threads);
    }
  }

  WritesInFlight& writes() { return writes_; }
  // As NetworkBoxes has it.
  std::vector<std::unique_ptr<WritesInFlight::Write>> finish() {
    writes_.finish();
    for (auto& write : writes_.take_lost()) others_.push_back(std::move(write));
    return std::exchange(others_, {});
  }

 private:
  // Of a regular grid, or a region of another one.
  struct Part {
    Part(Request& request, const ArrayState& state, RegionPart<Query> part)
        : array(state, std::move(part.layout)),
          region(std::move(part.region)),
          query(std::move(part.query)),
          cut(query, GridCut(array.layout.stored_shape(), region.first_chunk)),
          encoder(request, array) {}

    const StoredArray array;
    const Region region;
    const Query query;
    const typename Query::Cut cut;
    ObjectEncoder<Query> encoder;
  };

  class Regions {
   public:
    Regions(NetworkWriter& writer, const StoredArray& array, Query query)
        : writer_(writer), array_(array), query_(std::move(query)) {
      if (array.layout.regions) {
        cut_.emplace(query_, GridCut(array.layout.metadata->chunk_edges));
      } else {
        begin({array.layout_owner, Region{}, std::move(query_)});
      }
    }

    std::optional<Task> next() {
      while (!part_ || at_ == part_->cut.size()) {
        if (!cut_ || next_ == cut_->size()) return std::nullopt;
        begin(region_part<Query>(array_.layout, *cut_, next_++));
      }
      Coordinates coordinates;
      Task task;
      part_->cut.child(at_++, coordinates.at, task.query);
      task.owner = part_;
      task.encoder = &part_->encoder;
      task.key = part_->array.key(coordinates.at);
      const ArrayLayout& layout = part_->array.layout;
      task.valid =
          valid_extent(coordinates, layout.metadata->shape, layout.stored_shape(), part_->region);
      return task;
    }

   private:
    void begin(RegionPart<Query> part) {
      part_ = std::make_shared<Part>(writer_.request_, array_.state, std::move(part));
      at_ = 0;
    }

    NetworkWriter& writer_;
    const StoredArray& array_;
    Query query_;
    std::optional<typename Query::Cut> cut_;
    std::size_t next_ = 0;
    std::shared_ptr<Part> part_;
    std::size_t at_ = 0;
  };

  class ObjectPut final : public WritesInFlight::Write {
   public:
    explicit ObjectPut(Task of) : task(std::move(of)) { key = task.key; }

    Error located(const Error& failure) const override {
      return failure.with_context(task.encoder->array().where("write", key));
    }

    Task task;
    Buffer encoded;
    Buffer last;
    NewObject object{encoded, last};
  };

  // An object with its lock; read, where some of it is kept.
  class ObjectRead final : public ReadsInFlight::Read {
   public:
    ObjectRead(NetworkWriter& writer, Task task, KeyLocks::Lock lock)
        : writer_(writer), task_(std::move(task)), lock_(std::move(lock)) {
      key = task_.key;
      ready = !task_.encoder->keeps_some(task_.query, task_.valid);
      if (ready) return;
      max_nbytes = task_.encoder->max_object_nbytes();
      held_nbytes = std::min<std::uint64_t>(max_nbytes, task_.encoder->decoded_nbytes());
    }

    void use(std::size_t) override {
      ObjectEncoder<Query>& encoder = *task_.encoder;
      auto room = writer_.writes_.room(encoder.decoded_nbytes());
      auto put = std::make_unique<ObjectPut>(std::move(task_));
      try {
        encoder.encode(put->task.query, put->task.valid, take_before(*put), put->object);
      } catch (const Error& failure) {
        throw put->located(failure);
      }
      const std::span<const ConstBytes> parts = put->object.parts();
      if (parts.empty() && !ready && !found && !error) return;  // it is not there
      put->parts.assign(parts.begin(), parts.end());
      put->erases = parts.empty();
      put->held_nbytes = put->object.held_nbytes();
      put->lock = std::move(lock_);
      bytes = Buffer();
      writer_.writes_.put(std::move(room), std::move(put));
    }

   private:
    std::optional<ConstBytes> take_before(ObjectPut& put) {
      if (ready) return std::nullopt;
      try {
        check_answer(*this);
      } catch (const Error& failure) {
        // Where all that can be seen of it is written anew, it need not be readable.
        if (!covers(put.task.query, put.task.valid) || failure.code() != ErrorCode::corrupt) throw;
        return std::nullopt;
      }
      const WriteCondition condition = condition_of(found, version);
      using Kind = WriteCondition::Kind;
      if ((condition.kind == Kind::version && writer_.conditions_.version) ||
          (condition.kind == Kind::missing && writer_.conditions_.missing)) {
        put.condition = condition;
        put.may_be_lost = true;
      }
      if (!found) return std::nullopt;
      return bytes.bytes();
    }

    NetworkWriter& writer_;
    Task task_;
    KeyLocks::Lock lock_;
  };

  class Source final : public ReadsInFlight::Source {
   public:
    Source(NetworkWriter& writer, NextTask next, bool waits)
        : writer_(writer), next_(std::move(next)), waits_(waits) {}

    std::unique_ptr<ReadsInFlight::Read> next() override {
      for (;;) {
        writer_.request_.check();
        std::optional<Task> task = next_();
        if (!task) return nullptr;
        std::optional<KeyLocks::Lock> lock;
        if (std::exchange(waits_, false)) {
          lock = writer_.locks_.lock(task->key, [this] { writer_.request_.check(); });
        } else {
          lock = writer_.locks_.try_lock(task->key);
        }
        if (lock) return std::make_unique<ObjectRead>(writer_, std::move(*task), std::move(*lock));
        writer_.again_.push_back(std::move(*task));
      }
    }

   private:
    NetworkWriter& writer_;
    const NextTask next_;
    bool waits_;  // for the first lock
  };

  void round(NextTask next, bool waits, int threads) {
    AsyncReads& reads = *driver_.async_reads();
    {
      ReadsInFlight flight(reads, limits_of_flight(request_, reads), check_);
      flight.add(std::make_unique<Source>(*this, std::move(next), waits));
      request_.parallel(
          static_cast<std::size_t>(threads), [&](std::size_t) { flight.work(); }, threads);
    }
    writes_.finish();
    for (std::unique_ptr<WritesInFlight::Write>& write : writes_.take_lost()) {
      auto* const of_task = dynamic_cast<ObjectPut*>(write.get());
      if (of_task == nullptr) {
        others_.push_back(std::move(write));
        continue;
      }
      ObjectPut& put = *of_task;
      try {
        std::rethrow_exception(put.error);
      } catch (const Error& failure) {
        if (failure.code() == ErrorCode::unsupported) {
          conditions_ = {};
        } else if (++put.task.attempts >= Attempts::kMost) {
          throw put.located(failure);
        } else {
          contended_ = true;
        }
      }
      again_.push_back(std::move(put.task));
    }
  }

  Request& request_;
  const ObjectLocks& locks_;
  StoreDriver& driver_;
  WriteConditions conditions_;  // as the server knows them
  const std::function<void()> check_;
  std::vector<Task> again_;
  bool contended_ = false;                                      // some of them, by another writer
  std::vector<std::unique_ptr<WritesInFlight::Write>> others_;  // lost, and not of tasks
  WritesInFlight writes_;
};

}  // namespace headrace
