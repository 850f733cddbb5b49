#include "store/custom_reads.h"

#include <cstring>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/fork_mutex.h"
#include "headrace/error.h"
#include "store/store.h"

namespace headrace {

namespace {

StoreRead::Kind kind_of(const Extent& extent) {
  switch (extent.kind) {
    case Extent::Kind::whole:
      return StoreRead::Kind::whole;
    case Extent::Kind::range:
      return StoreRead::Kind::range;
    case Extent::Kind::suffix:
      return StoreRead::Kind::suffix;
  }
  return StoreRead::Kind::whole;
}

}  // namespace

void check_answered_range(const std::string& url,
                          const std::string& key,
                          std::uint64_t nbytes,
                          std::uint64_t wanted) {
  check_object_range(key, nbytes, 0, wanted);
  if (nbytes == wanted) return;
  throw Error(ErrorCode::corrupt,
              url + ": " + key + ": " + std::to_string(nbytes) + " bytes came where " +
                  std::to_string(wanted) + " were asked for");
}

// Outlives the driver for as long as the application holds it.
class CustomReads::Answers final : public StoreAnswers {
 public:
  explicit Answers(std::string url) : url_(std::move(url)) {}

  // Numbers them. Notes all, or throws.
  void begin(std::span<AsyncRead* const> reads) {
    const ForkLock lock(mutex_);
    try {
      for (AsyncRead* const read : reads) {
        read->ticket = ++last_id_;
        waiting_.emplace(read->ticket, read);
      }
    } catch (...) {
      for (const AsyncRead* const read : reads) waiting_.erase(read->ticket);
      throw;
    }
  }

  void found(std::uint64_t id,
             StoredBytes bytes,
             std::string version,
             std::uint64_t object_nbytes) noexcept override {
    AsyncRead* const read = take(id);
    if (!read) return;
    try {
      give(*read, bytes.bytes);
      read->version = std::move(version);
      if (object_nbytes != 0) read->object_nbytes = object_nbytes;
      read->found = true;
    } catch (...) {
      read->error = std::current_exception();
    }
    bytes = {};
    read->done();
  }

  void missing(std::uint64_t id) noexcept override {
    if (AsyncRead* const read = take(id)) read->done();
  }

  void failed(std::uint64_t id, std::exception_ptr error) noexcept override {
    AsyncRead* const read = take(id);
    if (!read) return;
    read->error = std::move(error);
    read->done();
  }

  void fail_all(std::span<const std::uint64_t> ids, const std::exception_ptr& error) noexcept {
    for (const std::uint64_t id : ids) failed(id, error);
  }

  // False when it is answered.
  bool cancel(std::uint64_t id) noexcept {
    AsyncRead* const read = take(id);
    if (!read) return false;
    try {
      throw Error(ErrorCode::cancelled, url_ + ": the read of " + read->key + " was cancelled");
    } catch (...) {
      read->error = std::current_exception();
    }
    read->done();
    return true;
  }

 private:
  // Who takes it is the only one to answer it.
  AsyncRead* take(std::uint64_t id) noexcept {
    const ForkLock lock(mutex_);
    const auto found = waiting_.find(id);
    if (found == waiting_.end()) return nullptr;
    AsyncRead* const read = found->second;
    waiting_.erase(found);
    return read;
  }

  void give(AsyncRead& read, ConstBytes bytes) const {
    switch (read.extent.kind) {
      case Extent::Kind::whole:
        check_object_nbytes(read.key, bytes.size(), read.max_nbytes);
        read.object_nbytes = bytes.size();
        break;
      case Extent::Kind::range:
        check_answered_range(url_, read.key, bytes.size(), read.extent.nbytes);
        break;
      case Extent::Kind::suffix:
        if (bytes.size() > read.extent.nbytes)
          bytes = bytes.last(static_cast<std::size_t>(read.extent.nbytes));
        break;
    }
    if (read.into.empty()) {
      read.bytes.assign(bytes);
    } else {
      std::memcpy(read.into.data(), bytes.data(), bytes.size());
    }
  }

  const std::string url_;
  ForkMutex mutex_;
  std::unordered_map<std::uint64_t, AsyncRead*> waiting_ GUARDED_BY(mutex_);
  std::uint64_t last_id_ GUARDED_BY(mutex_) = 0;
};

CustomReads::CustomReads(std::shared_ptr<CustomStore> store)
    : store_(std::move(store)),
      depth_(store_->depth()),
      answers_(std::make_shared<Answers>(store_->url())) {}

void CustomReads::submit(std::span<AsyncRead* const> reads) noexcept {
  std::vector<std::uint64_t> ids;
  std::exception_ptr error;
  try {
    std::vector<StoreRead> wanted;
    wanted.reserve(reads.size());
    ids.reserve(reads.size());
    for (const AsyncRead* const read : reads) {
      StoreRead& one = wanted.emplace_back();
      one.key = read->key;
      one.kind = kind_of(read->extent);
      one.range = {read->extent.offset, read->extent.nbytes};
      one.if_version = read->if_version;
    }
    answers_->begin(reads);
    for (std::size_t i = 0; i < reads.size(); ++i) {
      wanted[i].id = reads[i]->ticket;
      ids.push_back(reads[i]->ticket);
    }
    store_->submit(std::move(wanted), answers_);
    return;
  } catch (...) {
    error = std::current_exception();
  }
  if (!ids.empty()) return answers_->fail_all(ids, error);
  for (AsyncRead* const read : reads) {
    read->error = error;
    read->done();
  }
}

void CustomReads::cancel(AsyncRead& read) noexcept {
  const std::uint64_t id = read.ticket;
  if (!answers_->cancel(id)) return;
  try {
    store_->cancel(id);
  } catch (...) {
    // Nobody waits for it any more: that the application goes on with it harms nobody.
  }
}

}  // namespace headrace
