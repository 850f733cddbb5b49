// Ranges of objects of a cached store.

#include <algorithm>
#include <cstring>
#include <exception>
#include <iterator>
#include <optional>
#include <utility>

#include "headrace/error.h"
#include "store/async_driver.h"
#include "store/cached_driver.h"

namespace headrace {
namespace {

[[noreturn]] void throw_removed(const std::string& url, const std::string& key) {
  throw Error(ErrorCode::not_found, url + ": " + key + " was removed while it was read");
}

// Consecutive bytes from each run's offset on go to the places from its first to the next run's.
void read_runs(const ObjectReader& behind,
               std::span<RangeRead> runs,
               std::span<const std::size_t> first_of_run,
               std::span<const MutableBytes> places) {
  const auto places_of = [&](std::size_t run) {
    const std::size_t end = run + 1 < runs.size() ? first_of_run[run + 1] : places.size();
    return places.subspan(first_of_run[run], end - first_of_run[run]);
  };
  std::vector<Buffer> buffers(runs.size());
  for (std::size_t run = 0; run < runs.size(); ++run) {
    buffers[run].resize(total_size(places_of(run)));
    runs[run].dst = buffers[run].bytes();
  }
  behind.read_ranges(runs);
  for (std::size_t run = 0; run < runs.size(); ++run) {
    const std::byte* from = buffers[run].data();
    for (const MutableBytes place : places_of(run)) {
      std::memcpy(place.data(), from, place.size());
      from += place.size();
    }
  }
}

// Where nothing of the object was told yet, neither bytes nor its version, the reader changes to
// what the store has now; else what was told before and after would be of two objects.
class CachedReader final : public ObjectReader {
 public:
  CachedReader(std::shared_ptr<CachedDriver> driver, std::string key, Source source)
      : driver_(std::move(driver)),
        key_(std::move(key)),
        size_(source.object.size),
        source_(std::move(source)) {}

  std::uint64_t size() const override { return size_; }
  std::uint64_t version() const override {
    const ForkLock lock(mutex_);
    ++told_;
    return source_.object.number;
  }

  void read(std::uint64_t offset, MutableBytes dst) const override {
    const RangeRead all{offset, dst};
    read_ranges({&all, 1});
  }

  void read_scattered(std::uint64_t offset, std::span<const MutableBytes> dsts) const override {
    check_object_range(key_, size_, offset, total_size(dsts));
    std::vector<RangeRead> reads;
    for (const MutableBytes dst : dsts) {
      reads.push_back({offset, dst});
      offset += dst.size();
    }
    read_ranges(reads);
  }

  void read_ranges(std::span<const RangeRead> reads) const override {
    for (const RangeRead& each : reads)
      check_object_range(key_, size_, each.offset, each.dst.size());
    bool first = false;
    Source source = begin(first);
    for (int attempt = 1;; ++attempt) {
      try {
        driver_->read(key_, source, reads);
        break;
      } catch (const Error& error) {
        if (!first || attempt == kReadAttempts || !is_changed(error)) throw;
      }
      source = change();
    }
    const ForkLock lock(mutex_);
    // What was there leaves with `source`, after the lock: its destructor may be the application's.
    if (source.object.number == source_.object.number) source_.behind.swap(source.behind);
  }

 private:
  Source begin(bool& first) const {
    const ForkLock lock(mutex_);
    first = told_++ == 0;
    return source_;
  }

  // By the one read that was begun.
  Source change() const {
    std::optional<Source> source = driver_->open_now(key_);
    if (!source) throw_removed(driver_->url(), key_);
    bool is_late = source->object.size != size_;
    Source now = *source;
    {
      const ForkLock lock(mutex_);
      is_late = is_late || told_ > 1;
      if (!is_late) std::swap(source_, now);
    }
    if (is_late) throw_changed(driver_->url() + ": " + key_);
    return *std::move(source);
  }

  const std::shared_ptr<CachedDriver> driver_;
  const std::string key_;
  const std::uint64_t size_;
  mutable ForkMutex mutex_;
  mutable Source source_ GUARDED_BY(mutex_);
  // Reads that were begun, and who asked for the version.
  mutable long told_ GUARDED_BY(mutex_) = 0;
};

}  // namespace

std::unique_ptr<ObjectReader> make_cached_reader(std::shared_ptr<CachedDriver> driver,
                                                 std::string key,
                                                 Source source) {
  return std::make_unique<CachedReader>(std::move(driver), std::move(key), std::move(source));
}

std::vector<Block> CachedDriver::wanted_blocks(std::string_view key,
                                               const KnownObject& object,
                                               std::span<const RangeRead> reads) {
  std::vector<Block> blocks;
  for (const auto& [offset, dst] : reads) {
    if (dst.empty()) continue;
    const std::uint64_t last = (offset + dst.size() - 1) / block_nbytes_;
    for (std::uint64_t i = offset / block_nbytes_; i <= last; ++i) {
      if (blocks.empty() || blocks.back().index != i) blocks.push_back({i});
    }
  }
  std::ranges::sort(blocks, {}, &Block::index);
  const auto is_same = [](const Block& a, const Block& b) { return a.index == b.index; };
  // Not std::ranges::unique: clang 14 cannot take libstdc++ 12's subrange.
  blocks.erase(std::unique(blocks.begin(), blocks.end(), is_same), blocks.end());
  for (Block& block : blocks) {
    block.name = name_of(key, object, block.index);
    if (object.number != 0) block.bytes = find(block.name, nbytes_of(object, block.index));
  }
  return blocks;
}

void CachedDriver::read(const std::string& key, Source& source, std::span<const RangeRead> reads) {
  if (reads_) return read_and_wait_for(key, source.object, reads);
  read_by_blocks(key, source, reads);
}

void CachedDriver::read_and_wait_for(const std::string& key,
                                     const KnownObject& object,
                                     std::span<const RangeRead> ranges) {
  std::vector<WaitedRead> reads(static_cast<std::size_t>(
      std::ranges::count_if(ranges, [](const RangeRead& each) { return !each.dst.empty(); })));
  auto read = reads.begin();
  for (const auto& [offset, dst] : ranges) {
    if (dst.empty()) continue;
    read->key = key;
    read->extent = Extent::range(offset, dst.size());
    read->if_version = told_version(object);
    read->into = dst;
    ++read;
  }
  read_and_wait(*reads_, reads);
  for (const WaitedRead& each : reads) {
    if (each.error) std::rethrow_exception(each.error);
    if (!each.found) throw_removed(url(), key);
  }
}

void CachedDriver::read_by_blocks(const std::string& key,
                                  Source& source,
                                  std::span<const RangeRead> reads) {
  const KnownObject& object = source.object;
  std::vector<Block> blocks = wanted_blocks(key, object, reads);
  const auto blocks_of = [&](const RangeRead& read) {
    const auto first =
        std::ranges::lower_bound(blocks, read.offset / block_nbytes_, {}, &Block::index);
    const std::uint64_t last = (read.offset + read.dst.size() - 1) / block_nbytes_;
    return std::span(&*first, last - first->index + 1);
  };
  const auto missing =
      std::ranges::count_if(blocks, [](const Block& block) { return block.bytes == nullptr; });
  const bool again = object.version == 0 && missing > 0 && std::ssize(blocks) > missing;
  if (again) {
    for (Block& block : blocks) block.before = std::exchange(block.bytes, nullptr);
  }

  Flights::Claim claim(flights_);
  std::vector<Block*> mine, others;
  for (Block& block : blocks) {
    if (block.bytes) continue;
    const bool alone = again || object.number == 0;
    (alone || claim.add(block.name) ? mine : others).push_back(&block);
  }
  fetch(key, source, mine);
  claim.release();
  mine.clear();
  for (Block* block : others) {
    flights_.wait(block->name);
    block->bytes = find(block->name, nbytes_of(object, block->index));
    if (!block->bytes) mine.push_back(block);
  }
  fetch(key, source, mine);

  for (const auto& [offset, dst] : reads) {
    if (dst.empty()) continue;
    const std::uint64_t end = offset + dst.size();
    for (const Block& block : blocks_of({offset, dst})) {
      const std::uint64_t at = block.index * block_nbytes_;
      const std::uint64_t from = std::max(at, offset), to = std::min(at + block.bytes->size(), end);
      std::memcpy(dst.data() + (from - offset), block.bytes->data() + (from - at), to - from);
    }
  }
}

// Neighbours are one range, and all ranges are asked for at once.
void CachedDriver::fetch(const std::string& key, Source& source, std::span<Block* const> blocks) {
  if (blocks.empty()) return;
  const KnownObject& object = source.object;
  const auto changed = [&] {
    copies_.forget(key, object);
    throw_changed(url() + ": " + key);
  };
  if (!source.behind) {
    source.behind = store_->open(key);
    if (!source.behind) {
      copies_.forget(key, object);
      throw_removed(url(), key);
    }
    if (source.behind->size() != object.size || source.behind->version() != object.version) {
      source.behind = nullptr;
      changed();
    }
  }

  std::vector<std::shared_ptr<Buffer>> buffers;
  std::vector<MutableBytes> places;
  std::vector<RangeRead> runs;
  std::vector<std::size_t> first_of_run;
  std::uint64_t fetched_nbytes = 0;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const std::uint64_t nbytes = nbytes_of(object, blocks[i]->index);
    buffers.push_back(std::make_shared<Buffer>(nbytes));
    places.push_back(buffers.back()->bytes());
    fetched_nbytes += nbytes;
    if (i > 0 && blocks[i]->index == blocks[i - 1]->index + 1) continue;
    runs.push_back({blocks[i]->index * block_nbytes_, {}});
    first_of_run.push_back(i);
  }
  copies_.count_misses(std::ssize(blocks), fetched_nbytes);
  try {
    if (runs.size() == 1) {
      source.behind->read_scattered(runs[0].offset, places);
    } else {
      read_runs(*source.behind, runs, first_of_run, places);
    }
  } catch (const Error& error) {
    if (error.code() == ErrorCode::not_found) copies_.forget(key, object);
    throw;
  }

  bool is_same = source.behind->unchanged();
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const CachedBytes& before = blocks[i]->before;
    is_same = is_same && (!before || std::ranges::equal(before->bytes(), places[i]));
  }
  if (!is_same) changed();
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    blocks[i]->bytes = buffers[i];
    if (object.number != 0) copies_.keep(blocks[i]->name, std::move(buffers[i]));
  }
}

}  // namespace headrace
