#include "store/cached_reads.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/mutex.h"
#include "headrace/error.h"
#include "store/async_driver.h"
#include "store/cached_flight.h"
#include "store/cached_large.h"
#include "store/store.h"

namespace headrace {
namespace {

// That look for copies on the disk, and keep them there.
constexpr std::size_t kThreads = 8;
// An answer that a thread of the source's own may cut up and copy.
constexpr std::size_t kSmallNbytes = std::size_t{128} << 10;

bool is_timeout(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& failure) {
    return failure.os_error() == ETIMEDOUT;
  } catch (...) {
    return false;
  }
}

}  // namespace

CachedReads::CachedReads(CachedCopies& copies, AsyncReads& source, std::string url)
    : copies_(copies), source_(source), url_(std::move(url)), threads_(kThreads) {}

CachedReads::~CachedReads() {
  State& state = state_.get();
  const MutexLock lock(state.mutex);
  while (state.under_way > 0) state.idle.wait(state.mutex);
}

std::exception_ptr CachedReads::changed(const std::string& key) const noexcept {
  try {
    throw_changed(url_ + ": " + key);
  } catch (...) {
    return std::current_exception();
  }
}

std::exception_ptr CachedReads::cancelled(const std::string& key) const noexcept {
  try {
    throw Error(ErrorCode::cancelled, url_ + ": the read of " + key + " was cancelled");
  } catch (...) {
    return std::current_exception();
  }
}

// Null: it is cancelled. Else nobody else ends it any more.
AsyncRead* CachedReads::claim(const Want& want) noexcept {
  State& state = state_.get();
  AskOwner gone;  // freed after the lock
  const MutexLock lock(state.mutex);
  const auto at = state.readers.find(want.ticket);
  if (at == state.readers.end()) return nullptr;
  AsyncRead* const read = at->second.read;
  gone = std::move(at->second.ask);
  state.readers.erase(at);
  return read;
}

void CachedReads::end_all(std::span<const Want> wants, const std::exception_ptr& error) noexcept {
  for (const Want& want : wants) {
    AsyncRead* const read = claim(want);
    if (read == nullptr) continue;
    read->error = error;
    read->done();
  }
}

void CachedReads::submit(std::span<AsyncRead* const> reads) noexcept {
  State& state = state_.get();
  std::vector<GroupOwner> groups;
  using ObjectName = std::pair<std::string_view, std::string_view>;
  std::map<ObjectName, GroupOwner> by_object;
  for (AsyncRead* const read : reads) {
    read->error = nullptr;
    read->found = false;
    if (Large::is_large(*read) && may_tell_version(*read)) {
      submit_large(*read);
      continue;
    }
    try {
      const bool is_whole = read->extent.kind == Extent::Kind::whole;
      const auto known = by_object.find({read->key, read->if_version});
      GroupOwner group = is_whole || known == by_object.end() ? nullptr : known->second;
      if (!group) {
        group = groups.emplace_back(std::make_shared<Group>());
        group->key = read->key;
        group->if_version = read->if_version;
        // By the strings of the group's: a read may be gone as soon as it is noted.
        if (!is_whole) by_object.emplace(ObjectName(group->key, group->if_version), group);
      }
      Want& want = group->wants.emplace_back();
      want.extent = read->extent;
      want.max_nbytes = read->max_nbytes;
      want.deadline = read->deadline;
      const MutexLock lock(state.mutex);
      want.ticket = read->ticket = ++state.last_ticket;
      state.readers.emplace(want.ticket, State::Reader{read});
    } catch (...) {
      read->error = std::current_exception();
      read->done();
    }
  }
  begin(std::move(groups));
}

void CachedReads::cancel(AsyncRead& read) noexcept {
  State& state = state_.get();
  std::vector<std::shared_ptr<Flight>> gone;
  AskOwner ask;
  std::shared_ptr<Large> large;
  {
    const MutexLock lock(state.mutex);
    const auto found = state.large.find(read.ticket);
    if (found != state.large.end()) large = found->second;
  }
  if (large) return large->cancel(cancelled(read.key));
  {
    const MutexLock lock(state.mutex);
    const auto at = state.readers.find(read.ticket);
    if (at == state.readers.end()) return;
    ask = std::move(at->second.ask);
    state.readers.erase(at);
    // Else it is about to be answered.
    if (ask && --ask->live == 0 && ask->waiting > 0) gone = state.leave(*ask);
  }
  for (const std::shared_ptr<Flight>& flight : gone) source_.cancel(*flight);
  gone.clear();
  read.error = cancelled(read.key);
  read.done();
}

void CachedReads::on_thread(std::function<void()> job) noexcept {
  State& state = state_.get();
  {
    const MutexLock lock(state.mutex);
    ++state.under_way;
  }
  try {
    threads_.run([&state, job] {
      job();
      state.ended();
    });
  } catch (...) {  // no thread is to be had
    job();
    state.ended();
  }
}

void CachedReads::begin(std::vector<GroupOwner> groups) noexcept {
  std::vector<GroupOwner> rest = plan_all(groups, !copies_.has_disk());
  groups.clear();
  begin_on_threads(std::move(rest));
}

void CachedReads::begin_on_threads(std::vector<GroupOwner> groups) noexcept {
  const std::size_t jobs = std::min(threads_.most(), groups.size());
  for (std::size_t i = 0; i < jobs; ++i) {
    const auto first = groups.begin() + static_cast<std::ptrdiff_t>(groups.size() * i / jobs);
    const auto end = groups.begin() + static_cast<std::ptrdiff_t>(groups.size() * (i + 1) / jobs);
    try {
      on_thread([this, part = std::vector<GroupOwner>(first, end)] {
        begin_on_threads(plan_all(part, true));
      });
    } catch (...) {
      for (auto group = first; group != end; ++group)
        end_all((*group)->wants, std::current_exception());
    }
  }
}

// By a thread of the source's.
void CachedReads::landed(Flight& flight) noexcept {
  if (!copies_.has_disk() && flight.bytes.size() <= kSmallNbytes) return take(flight);
  on_thread([this, &flight] { take(flight); });
}

void CachedReads::take(Flight& flight) noexcept {
  using Outcome = Flight::Outcome;
  try {
    if (flight.error) std::rethrow_exception(flight.error);
    if (flight.found) {
      flight.outcome = Outcome::found;
      flight.exact ? take_exact(flight) : take_pieces(flight);
    } else {
      flight.outcome = Outcome::missing;
      if (flight.object) copies_.forget(flight.key, *flight.object);
    }
  } catch (const Error& error) {
    // What cannot tell its versions, and is shorter than it was, is another object, too.
    const bool is_short =
        flight.object && !tells_versions(*flight.object) && error.code() == ErrorCode::corrupt;
    flight.outcome = is_changed(error) || is_short ? Outcome::changed : Outcome::failed;
    flight.error = std::current_exception();
  } catch (...) {
    flight.outcome = Outcome::failed;
    flight.error = std::current_exception();
  }
  if (flight.object) {
    try {
      if (flight.outcome == Outcome::changed) copies_.forget(flight.key, *flight.object);
      if (flight.outcome <= Outcome::changed)
        state_.get().note(*flight.object, flight.outcome == Outcome::changed);
    } catch (...) {
      flight.outcome = Outcome::failed;
      flight.error = std::current_exception();
    }
  }

  State& state = state_.get();
  std::vector<AskOwner> waiters;
  {
    const MutexLock lock(state.mutex);
    state.remove_names(flight);
    waiters.swap(flight.waiters);
    flight.sole = waiters.size() == 1;
    for (AskOwner& ask : waiters) {
      if (--ask->waiting > 0) ask = nullptr;
    }
  }
  for (const AskOwner& ask : waiters) {
    if (ask) finish(ask);
  }
  waiters.clear();
  std::shared_ptr<Flight> self;  // freed after the lock
  {
    const MutexLock lock(state.mutex);
    self.swap(flight.self);
  }
  self = nullptr;
  state.ended();
}

void CachedReads::take_exact(Flight& flight) {
  const std::uint64_t came = flight.bytes.size();
  const bool is_whole = flight.extent.kind == Extent::Kind::whole;
  const bool is_end = flight.extent.kind == Extent::Kind::suffix;
  if (!flight.if_version.empty() && !flight.version.empty() &&
      flight.version != flight.if_version) {
    throw_changed(flight.key);
  }
  if (flight.extent.kind == Extent::Kind::range && came != flight.extent.nbytes) {
    check_object_range(flight.key, came, 0, flight.extent.nbytes);
    throw Error(ErrorCode::corrupt, flight.key + ": more bytes came than were asked for");
  }
  KnownObject seen{KnownObject::kNotTold, version_number(flight.version), 0, flight.version};
  if (flight.object_nbytes != 0) seen.size = flight.object_nbytes;
  if (is_whole || (is_end && came < flight.extent.nbytes)) seen.size = came;
  const std::uint64_t block_nbytes = copies_.block_nbytes();
  copies_.count_misses(static_cast<std::int64_t>((came + block_nbytes - 1) / block_nbytes), came);
  seen = copies_.remember(flight.key, std::move(seen), flight.writes, flight.fresh);
  flight.object = std::move(seen);
  if (flight.object->number == 0) return;
  if (is_end && flight.object->size == KnownObject::kNotTold) {
    auto copy = std::make_shared<Buffer>();
    copy->assign(flight.bytes);
    const std::string name = copies_.name_of_end(flight.key, *flight.object, flight.extent.nbytes);
    return copies_.keep(name, std::move(copy));
  }
  keep_along_blocks(flight, is_end ? flight.object->size - came : flight.extent.offset);
}

void CachedReads::keep_along_blocks(const Flight& flight, std::uint64_t offset) {
  const std::uint64_t block_nbytes = copies_.block_nbytes();
  ConstBytes bytes = flight.bytes;
  while (!bytes.empty()) {
    const std::size_t nbytes =
        std::min<std::uint64_t>(block_nbytes - offset % block_nbytes, bytes.size());
    auto copy = std::make_shared<Buffer>();
    copy->assign(bytes.first(nbytes));
    copies_.keep(copies_.name_of(flight.key, *flight.object, offset, nbytes), std::move(copy));
    offset += nbytes;
    bytes = bytes.subspan(nbytes);
  }
}

void CachedReads::take_pieces(Flight& flight) {
  const KnownObject& object = *flight.object;
  const bool is_other = !flight.version.empty() && flight.version != object.tag;
  const bool is_resized = flight.object_nbytes != 0 && object.size != KnownObject::kNotTold &&
                          flight.object_nbytes != object.size;
  if (is_other || is_resized) throw_changed(flight.key);
  copies_.count_misses(std::ssize(flight.slots), flight.extent.nbytes);
  const ConstBytes bytes = flight.bytes;
  check_object_range(flight.key, bytes.size(), 0, flight.extent.nbytes);
  for (Flight::Slot& slot : flight.slots) {
    auto copy = std::make_shared<Buffer>();
    copy->assign(bytes.subspan(slot.offset - flight.extent.offset, slot.nbytes));
    slot.bytes = std::move(copy);
    if (flight.keeps) copies_.keep(slot.name, slot.bytes);
  }
  flight.bytes.reset();
}

// All that it waited for has landed.
void CachedReads::finish(const AskOwner& ask) noexcept {
  using Outcome = Flight::Outcome;
  const Flight* worst = nullptr;
  for (const std::shared_ptr<Flight>& flight : ask->flights) {
    if (!worst || flight->outcome > worst->outcome) worst = flight.get();
  }
  const Outcome outcome = worst ? worst->outcome : Outcome::found;
  try {
    switch (outcome) {
      case Outcome::changed:
        return end_by_change(*ask);
      case Outcome::failed:
        if (worst->deadline < ask->deadline() && is_timeout(worst->error)) {
          --ask->attempt;
          return begin_again(*ask);
        }
        return end_all(ask->wants, worst->error);
      case Outcome::missing:
        for (const Want& want : ask->wants) {
          if (AsyncRead* const read = claim(want)) read->done();
        }
        return;
      case Outcome::found:
        if (!ask->exact && !ask->kept_end) finish_pieces(*ask);
        return deliver_all(*ask);
    }
  } catch (const Error& error) {
    if (is_changed(error)) return end_by_change(*ask);
    end_all(ask->wants, std::current_exception());
  } catch (...) {
    end_all(ask->wants, std::current_exception());
  }
}

void CachedReads::finish_pieces(Ask& ask) {
  std::unordered_map<std::string_view, const Flight::Slot*> slots;
  for (const std::shared_ptr<Flight>& flight : ask.flights) {
    for (const Flight::Slot& slot : flight->slots) slots.emplace(slot.name, &slot);
  }
  bool is_same = true, compares = false;
  for (Ask::Piece& piece : ask.pieces) {
    if (!piece.bytes) piece.bytes = slots.at(piece.name)->bytes;
    if (!piece.before) continue;
    compares = true;
    is_same = is_same && std::ranges::equal(piece.before->bytes(), piece.bytes->bytes());
  }
  if (!is_same) {
    copies_.forget(ask.key, *ask.object);
    state_.get().note(*ask.object, true);
    throw_changed(ask.key);
  }
  if (!compares || ask.object->number == 0) return;
  for (const Ask::Piece& piece : ask.pieces) copies_.keep(piece.name, piece.bytes);
}

// Who has seen nothing of the object yet takes what there is now.
void CachedReads::end_by_change(Ask& ask) noexcept {
  if (ask.if_version.empty() && ask.attempt < kReadAttempts) return begin_again(ask);
  end_all(ask.wants, changed(ask.key));
}

void CachedReads::begin_again(Ask& ask) noexcept {
  std::vector<GroupOwner> groups;
  try {
    auto group = std::make_shared<Group>();
    group->key = ask.key;
    group->if_version = ask.if_version;
    group->attempt = ask.attempt + 1;
    group->wants = ask.wants;
    for (Want& want : group->wants) want.pieces.clear();
    groups.push_back(std::move(group));
  } catch (...) {
    return end_all(ask.wants, std::current_exception());
  }
  begin_on_threads(std::move(groups));
}

void CachedReads::deliver_all(Ask& ask) noexcept {
  for (const Want& want : ask.wants) {
    AsyncRead* const read = claim(want);
    if (read == nullptr) continue;
    try {
      deliver(ask, want, *read);
      read->found = true;
    } catch (...) {
      read->error = std::current_exception();
    }
    read->done();
  }
}

void CachedReads::deliver(const Ask& ask, const Want& want, AsyncRead& read) {
  const KnownObject& object = ask.exact ? *ask.flights.front()->object : *ask.object;
  read.version = ask.if_version.empty() ? told_version(object) : ask.if_version;
  read.object_nbytes = object.size == KnownObject::kNotTold ? 0 : object.size;
  if (ask.exact && ask.flights.front()->sole && read.into.empty()) {
    read.bytes = std::move(ask.flights.front()->bytes);
    return;
  }
  if (ask.exact || ask.kept_end) {
    const ConstBytes bytes = ask.exact ? ask.flights.front()->bytes.bytes() : ask.kept_end->bytes();
    if (read.into.empty()) {
      read.bytes.assign(bytes);
    } else if (!bytes.empty()) {
      std::memcpy(read.into.data(), bytes.data(), bytes.size());
    }
    return;
  }
  const auto nbytes = static_cast<std::size_t>(want.nbytes);
  if (read.into.empty()) read.bytes.resize(nbytes);
  const MutableBytes into = read.into.empty() ? read.bytes.bytes() : read.into;
  const std::uint64_t end = want.offset + want.nbytes;
  for (const std::size_t i : want.pieces) {
    const Ask::Piece& piece = ask.pieces[i];
    const std::uint64_t from = std::max(piece.offset, want.offset);
    const std::uint64_t to = std::min(piece.offset + piece.nbytes, end);
    std::memcpy(into.data() + (from - want.offset),
                piece.bytes->data() + (from - piece.offset),
                static_cast<std::size_t>(to - from));
  }
}

}  // namespace headrace
