// The asynchronous half: reads of a catalogue's objects as reads of those that they lie in.

#include <algorithm>
#include <charconv>
#include <cstring>
#include <functional>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/checked.h"
#include "base/fork_mutex.h"
#include "headrace/error.h"
#include "store/async_driver.h"
#include "store/coalesce.h"
#include "store/reference/catalogue_store.h"

namespace headrace {
namespace {

// How many reads are under way where the stores behind do not say.
constexpr std::size_t kDepth = 64;

// A version is that of the other object behind a word on where in it the bytes are: references that
// are made anew may lead elsewhere in it.
std::string place_of(const Whereabouts& where) {
  const std::string text = where.store->url() + '\n' + where.key + '\n' +
                           std::to_string(where.offset) + '\n' + std::to_string(where.nbytes);
  char digits[16];
  const auto end =
      std::to_chars(digits, digits + sizeof digits, std::hash<std::string>()(text), 16);
  return std::string(digits, end.ptr) + ' ';
}

std::string version_at(const std::string& place, const std::string& version) {
  return version.empty() ? version : place + version;
}

// Reads of one object that are one request, and which of them are still wanted.
class Joined final : public AsyncRead {
 public:
  struct Member {
    AsyncRead* read = nullptr;
    std::uint64_t skip = 0;  // of what comes
    std::uint64_t nbytes = 0;
    std::string place{};
  };
  using Ended = std::function<void(const Joined&)>;

  void done() noexcept override;

  std::shared_ptr<StoreDriver> store{};
  std::vector<Member> members{};
  std::size_t unwanted = 0;        // of them, under the lock of UnderWay
  std::shared_ptr<Joined> self{};  // until done()
  Ended ended{};

 private:
  void hand_over(const Member& member);
};

void Joined::hand_over(const Member& member) {
  AsyncRead& read = *member.read;
  // Beyond the end of the object lies what another one wants.
  const bool is_before_end = error && members.size() > 1 &&
                             member.skip + member.nbytes <= nbytes_before_end &&
                             bytes.size() == extent.nbytes;
  read.error = is_before_end ? nullptr : error;
  read.found = is_before_end || (found && !error);
  read.version = version_at(member.place, version);
  // Of a part of an object it is known already.
  if (read.object_nbytes == 0) read.object_nbytes = object_nbytes;
  if (!read.found) {
    if (!read.error) {
      Whereabouts where;
      where.store = store;
      where.key = key;
      throw_unreachable(read.key, where);
    }
    return;
  }
  if (members.size() == 1 && !into.empty()) return;  // it is there
  if (members.size() == 1) {
    read.bytes = std::move(bytes);
    return;
  }
  const ConstBytes part = bytes.bytes().subspan(member.skip, member.nbytes);
  if (read.into.empty()) {
    read.bytes.assign(part);
  } else {
    std::memcpy(read.into.data(), part.data(), part.size());
  }
}

void Joined::done() noexcept {
  const std::shared_ptr<Joined> kept = std::move(self);
  ended(*this);
  for (const Member& member : members) {
    try {
      hand_over(member);
    } catch (...) {
      member.read->error = std::current_exception();
      member.read->found = false;
    }
  }
  // Who waits keeps the store until then; its own thread must not be the last to let go of it.
  store.reset();
  for (const Member& member : members) member.read->done();
}

// The reads that are under way, by ticket.
struct UnderWay {
  ForkMutex mutex;
  std::unordered_map<std::uint64_t, std::shared_ptr<Joined>> reads GUARDED_BY(mutex);
  std::uint64_t next GUARDED_BY(mutex) = 1;
};

class RemoteCatalogueStore : public OfCatalogue<AsyncDriver> {
 public:
  RemoteCatalogueStore(std::shared_ptr<Catalogue> catalogue, const Coalescing& near)
      : OfCatalogue(std::move(catalogue)), near_(near) {}

  std::size_t depth() const override { return kDepth; }
  void submit(std::span<AsyncRead* const> reads) noexcept override;
  void cancel(AsyncRead& read) noexcept override;

 protected:
  std::optional<ObjectState> look_up(std::string_view key) override;

 private:
  struct Wanted {
    AsyncRead* read = nullptr;
    Whereabouts where{};
    ByteRange range{};  // of the other object; not of a whole one
    std::string place{};
    std::string if_version{};  // of the other object
  };
  // False: it is done.
  bool prepare(Wanted& wanted);
  void read_here(Wanted& wanted);
  // Of each the read is the other store's from then on, and null here.
  void send(std::span<Wanted* const> members, const Extent& extent);
  void submit_near(std::vector<Wanted>& wanted);

  const Coalescing near_;
  const std::shared_ptr<UnderWay> under_way_ = std::make_shared<UnderWay>();
};

void end_with(AsyncRead& read, std::exception_ptr error) {
  read.error = std::move(error);
  read.found = false;
  read.done();
}

// The extent of an object of so many bytes, checked.
ByteRange range_of(const AsyncRead& read, std::uint64_t nbytes) {
  switch (read.extent.kind) {
    case Extent::Kind::whole:
      check_object_nbytes(read.key, nbytes, read.max_nbytes);
      return {0, nbytes};
    case Extent::Kind::range:
      check_object_range(read.key, nbytes, read.extent.offset, read.extent.nbytes);
      return {read.extent.offset, read.extent.nbytes};
    case Extent::Kind::suffix:
      break;
  }
  const std::uint64_t n = std::min(nbytes, read.extent.nbytes);
  return {nbytes - n, n};
}

void place(AsyncRead& read, ConstBytes bytes) {
  if (read.into.empty()) {
    read.bytes.assign(bytes);
  } else if (!bytes.empty()) {
    std::memcpy(read.into.data(), bytes.data(), bytes.size());
  }
}

bool RemoteCatalogueStore::prepare(Wanted& wanted) {
  AsyncRead& read = *wanted.read;
  read.error = nullptr;
  read.ticket = 0;
  read.object_nbytes = 0;
  try {
    std::optional<Whereabouts> where = catalogue_->find(read.key);
    if (!where) {
      read.found = false;
      read.done();
      return false;
    }
    wanted.where = std::move(*where);
    const bool asynchronous = wanted.where.store && wanted.where.store->async_reads() != nullptr;
    if (asynchronous) {
      wanted.place = place_of(wanted.where);
      if (!read.if_version.empty() && !read.if_version.starts_with(wanted.place)) {
        throw_changed(read.key);
      }
      // What the catalogue knows of the object, else what the reader saw of it before.
      wanted.if_version = !wanted.where.if_version.empty() ? wanted.where.if_version
                          : read.if_version.empty()        ? std::string()
                                                    : read.if_version.substr(wanted.place.size());
    } else if (!wanted.where.store && !read.if_version.empty()) {
      throw_changed(read.key);  // it had a place, and has none any more
    }
    if (wanted.where.nbytes != Whereabouts::kWhole || !wanted.where.store) {
      const std::uint64_t nbytes =
          wanted.where.store ? wanted.where.nbytes : wanted.where.bytes.size();
      wanted.range = range_of(read, nbytes);
      read.object_nbytes = nbytes;
      if (wanted.where.store) {
        wanted.range.offset = checked_add(wanted.range.offset, wanted.where.offset, "reference");
      }
      if (asynchronous && wanted.range.nbytes > 0) return true;
      if (wanted.range.nbytes == 0) {
        read.bytes.clear();
        read.found = true;
        read.done();
        return false;
      }
    } else if (asynchronous) {
      return true;
    }
    read_here(wanted);
    read.found = true;
    read.done();
  } catch (...) {
    end_with(read, std::current_exception());
  }
  return false;
}

// What costs microseconds: what is in memory, and files.
void RemoteCatalogueStore::read_here(Wanted& wanted) {
  AsyncRead& read = *wanted.read;
  const Whereabouts& where = wanted.where;
  if (!where.store) {
    place(read, where.bytes.subspan(wanted.range.offset, wanted.range.nbytes));
    return;
  }
  const auto reader = open_at(read.key, where);
  const std::uint64_t version = reader->version();
  read.version = version == 0 ? "" : std::to_string(version);
  if (!read.if_version.empty() && read.if_version != read.version) throw_changed(read.key);
  read.object_nbytes = reader->size();
  const ByteRange range = range_of(read, reader->size());
  if (read.into.empty()) {
    read.bytes.resize(checked_cast<std::size_t>(range.nbytes, "reference"));
    reader->read(range.offset, read.bytes.bytes());
  } else {
    reader->read(range.offset, read.into);
  }
}

void RemoteCatalogueStore::send(std::span<Wanted* const> members, const Extent& extent) {
  auto joined = std::make_shared<Joined>();
  const Wanted& first = *members.front();
  joined->store = first.where.store;
  joined->key = first.where.key;
  joined->extent = extent;
  joined->if_version = first.if_version;
  joined->if_unchanged_since = first.where.if_unchanged_since;
  joined->deadline = first.read->deadline;
  if (members.size() == 1) {
    joined->into = first.read->into;
    joined->max_nbytes = first.read->max_nbytes;
    joined->bytes = std::move(first.read->bytes);
  }
  for (const Wanted* member : members) {
    joined->members.push_back(
        {member->read, member->range.offset - extent.offset, member->range.nbytes, member->place});
    joined->deadline = std::max(joined->deadline, member->read->deadline);
  }
  joined->ended = [under_way = under_way_](const Joined& read) {
    std::vector<std::shared_ptr<Joined>> gone;  // freed after the lock
    const ForkLock lock(under_way->mutex);
    for (const Joined::Member& member : read.members) {
      const auto at = under_way->reads.find(member.read->ticket);
      if (at == under_way->reads.end()) continue;
      gone.push_back(std::move(at->second));
      under_way->reads.erase(at);
    }
  };
  joined->self = joined;
  {
    const ForkLock lock(under_way_->mutex);
    for (const Wanted* member : members) {
      member->read->ticket = under_way_->next++;
      under_way_->reads.emplace(member->read->ticket, joined);
    }
  }
  for (Wanted* member : members) member->read = nullptr;
  AsyncRead* const read = joined.get();
  // done() may be called before this returns, and lets go of the store.
  const std::shared_ptr<StoreDriver> store = first.where.store;
  store->async_reads()->submit({&read, 1});
}

// Ranges of one object, of one version, a request for those that are near each other.
void RemoteCatalogueStore::submit_near(std::vector<Wanted>& wanted) {
  std::vector<ByteRange> ranges;
  for (const Wanted& each : wanted) ranges.push_back(each.range);
  const Coalescing near = wanted.front().where.store->coalescing().value_or(near_);
  for (const RangeGroup& group : coalesce(ranges, near)) {
    std::vector<Wanted*> members;
    for (const std::size_t i : group.members) members.push_back(&wanted[i]);
    send(members, Extent::range(group.range.offset, group.range.nbytes));
  }
}

void RemoteCatalogueStore::submit(std::span<AsyncRead* const> reads) noexcept {
  using Object = std::tuple<StoreDriver*, std::string, std::string, std::int64_t>;
  std::map<Object, std::vector<Wanted>> objects;
  for (AsyncRead* const read : reads) {
    Wanted wanted;
    wanted.read = read;
    if (!prepare(wanted)) continue;
    try {
      if (wanted.where.nbytes == Whereabouts::kWhole) {
        Wanted* const member = &wanted;
        const Extent extent = read->extent;
        send({&member, 1}, extent);
        continue;
      }
      Object object{wanted.where.store.get(),
                    wanted.where.key,
                    wanted.if_version,
                    wanted.where.if_unchanged_since};
      objects[std::move(object)].push_back(std::move(wanted));
    } catch (...) {
      if (wanted.read != nullptr) end_with(*read, std::current_exception());
    }
  }
  for (auto& [object, wanted] : objects) {
    try {
      submit_near(wanted);
    } catch (...) {
      for (const Wanted& each : wanted) {
        if (each.read != nullptr) end_with(*each.read, std::current_exception());
      }
    }
  }
}

void RemoteCatalogueStore::cancel(AsyncRead& read) noexcept {
  std::shared_ptr<Joined> joined;
  std::shared_ptr<StoreDriver> store;
  {
    const ForkLock lock(under_way_->mutex);
    const auto at = under_way_->reads.find(read.ticket);
    if (at == under_way_->reads.end()) return;
    joined = std::move(at->second);
    under_way_->reads.erase(at);
    // With others it ends when they do, or nobody wants it any more.
    if (++joined->unwanted < joined->members.size()) return;
    store = joined->store;  // done() lets go of it
  }
  store->async_reads()->cancel(*joined);
}

std::optional<AsyncDriver::ObjectState> RemoteCatalogueStore::look_up(std::string_view key) {
  const std::optional<Whereabouts> where = catalogue_->find(key);
  if (!where) return std::nullopt;
  if (!where->store) return ObjectState{where->bytes.size(), {}};
  AsyncReads* const reads = where->store->async_reads();
  if (reads == nullptr) {
    return ObjectState{open_at(key, *where)->size(), {}};
  }
  if (where->nbytes == 0) return ObjectState{};
  // The last byte: that there are so many, and of which version.
  WaitedRead last;
  last.key = where->key;
  last.if_version = where->if_version;
  last.if_unchanged_since = where->if_unchanged_since;
  last.extent = where->nbytes == Whereabouts::kWhole
                    ? Extent::suffix(1)
                    : Extent::range(checked_add(where->offset, where->nbytes - 1, "reference"), 1);
  read_and_wait(*reads, last);
  if (!last.found) throw_unreachable(key, *where);
  const std::uint64_t nbytes =
      where->nbytes == Whereabouts::kWhole ? last.object_nbytes : where->nbytes;
  return ObjectState{nbytes, version_at(place_of(*where), last.version)};
}

}  // namespace

std::shared_ptr<StoreDriver> make_remote_catalogue_store(std::shared_ptr<Catalogue> catalogue,
                                                         const Coalescing& near) {
  return std::make_shared<RemoteCatalogueStore>(std::move(catalogue), near);
}

}  // namespace headrace
