#include "store/async_driver.h"

#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "base/wait_latch.h"
#include "headrace/error.h"

namespace headrace {

void WaitedRead::done() noexcept { latch_->count_down(); }
void WaitedWrite::done() noexcept { latch_->count_down(); }

void read_and_wait(AsyncReads& store, std::span<WaitedRead> wanted) {
  WaitLatch latch(wanted.size());
  std::vector<AsyncRead*> reads;
  reads.reserve(wanted.size());
  for (WaitedRead& read : wanted) {
    read.latch_ = &latch;
    reads.push_back(&read);
  }
  store.submit(reads);
  latch.wait([&] {
    for (WaitedRead& read : wanted) store.cancel(read);
  });
}

void read_and_wait(AsyncReads& store, WaitedRead& wanted) {
  read_and_wait(store, {&wanted, 1});
  if (wanted.error) std::rethrow_exception(wanted.error);
}

void get_and_wait(AsyncReads& store, std::span<GetRequest> requests) {
  std::vector<GetRequest*> asked;
  for (GetRequest& request : requests) {
    request.found = false;
    request.error = nullptr;
    try {
      check_key(request.key);
      asked.push_back(&request);
    } catch (const Error&) {
      request.error = std::current_exception();
    }
  }
  std::vector<WaitedRead> reads(asked.size());
  for (std::size_t i = 0; i < asked.size(); ++i) {
    reads[i].key = asked[i]->key;
    reads[i].max_nbytes = asked[i]->max_nbytes;
    reads[i].bytes = std::move(*asked[i]->into);  // its memory is used again
    reads[i].bytes.clear();
  }
  read_and_wait(store, reads);
  for (std::size_t i = 0; i < asked.size(); ++i) {
    asked[i]->error = reads[i].error;
    asked[i]->found = reads[i].found && !reads[i].error;
    *asked[i]->into = std::move(reads[i].bytes);
  }
}

void write_and_wait(AsyncWrites& store, WaitedWrite& wanted) {
  WaitLatch latch(1);
  wanted.latch_ = &latch;
  AsyncWrite* const write = &wanted;
  store.submit({&write, 1});
  latch.wait([&] { store.cancel(wanted); });
  if (wanted.error) std::rethrow_exception(wanted.error);
}

std::uint64_t version_number(const std::string& version) {
  if (version.empty()) return 0;
  const std::uint64_t number = std::hash<std::string>()(version);
  return number == 0 ? 1 : number;
}

namespace {

class AsyncReader : public ObjectReader {
 public:
  AsyncReader(std::shared_ptr<AsyncDriver> store,
              std::string key,
              std::uint64_t nbytes,
              std::string version)
      : store_(std::move(store)),
        key_(std::move(key)),
        nbytes_(nbytes),
        version_(std::move(version)) {}

  std::uint64_t size() const override { return nbytes_; }
  std::uint64_t version() const override { return version_number(version_); }
  std::string version_text() const override { return version_; }

  void read(std::uint64_t offset, MutableBytes dst) const override {
    const RangeRead range{offset, dst};
    read_ranges({&range, 1});
  }

  // By one request.
  void read_scattered(std::uint64_t offset, std::span<const MutableBytes> dsts) const override {
    if (dsts.size() == 1) return read(offset, dsts.front());
    Buffer bytes(static_cast<std::size_t>(total_size(dsts)));
    read(offset, bytes.bytes());
    const std::byte* from = bytes.data();
    for (const MutableBytes dst : dsts) {
      if (!dst.empty()) std::memcpy(dst.data(), from, dst.size());
      from += dst.size();
    }
  }

  void read_ranges(std::span<const RangeRead> ranges) const override {
    std::size_t wanted = 0;
    for (const auto& [offset, dst] : ranges) {
      check_object_range(key_, nbytes_, offset, dst.size());
      wanted += dst.empty() ? 0 : 1;
    }
    std::vector<WaitedRead> reads(wanted);
    std::size_t next = 0;
    for (const auto& [offset, dst] : ranges) {
      if (dst.empty()) continue;
      WaitedRead& read = reads[next++];
      read.key = key_;
      read.extent = Extent::range(offset, dst.size());
      read.if_version = version_;
      read.into = dst;
    }
    read_and_wait(*store_, reads);
    for (const WaitedRead& read : reads) {
      if (read.error) std::rethrow_exception(read.error);
      if (!read.found) {
        throw Error(ErrorCode::not_found,
                    store_->url() + ": " + key_ + " was removed while it was read");
      }
      // All there is to go by where the store cannot tell versions.
      if (read.object_nbytes != 0 && read.object_nbytes != nbytes_) throw_changed(key_);
    }
  }

 private:
  const std::shared_ptr<AsyncDriver> store_;
  const std::string key_;
  const std::uint64_t nbytes_;
  const std::string version_;
};

}  // namespace

bool AsyncDriver::get_within(std::string_view key, Buffer& into, std::uint64_t max_nbytes) {
  GetRequest request{std::string(key), &into, false, nullptr, max_nbytes};
  get_many({&request, 1});
  if (request.error) std::rethrow_exception(request.error);
  return request.found;
}

bool AsyncDriver::get_versioned(std::string_view key,
                                Buffer& into,
                                std::uint64_t max_nbytes,
                                std::string& version) {
  check_key(key);
  WaitedRead read;
  read.key = key;
  read.max_nbytes = max_nbytes;
  read_and_wait(*this, read);
  into = std::move(read.bytes);
  version = std::move(read.version);
  return read.found;
}

void AsyncDriver::get_many(std::span<GetRequest> requests) { get_and_wait(*this, requests); }

std::unique_ptr<ObjectReader> AsyncDriver::open(std::string_view key) {
  check_key(key);
  std::optional<ObjectState> state = look_up(key);
  if (!state) return nullptr;
  return std::make_unique<AsyncReader>(
      shared_from_this(), std::string(key), state->nbytes, std::move(state->version));
}

bool AsyncDriver::exists(std::string_view key) {
  check_key(key);
  return look_up(key).has_value();
}

}  // namespace headrace
