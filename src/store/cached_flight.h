#pragma once

// What CachedReads keeps of its reads while they are under way.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "store/async.h"
#include "store/cached_copies.h"
#include "store/cached_reads.h"

namespace headrace {

using TimePoint = std::chrono::steady_clock::time_point;

// Where one object has changed others have, too: so long each is looked at once more before it is
// taken for what it was. Else who reads many that have all changed would find out one by one.
inline constexpr std::chrono::seconds kDoubt(10);

inline bool tells_versions(const KnownObject& object) { return !object.tag.empty(); }

inline bool is_sized(const std::optional<KnownObject>& object) {
  return object && object->size != KnownObject::kNotTold;
}

// What one read wants. The read itself may be cancelled and gone: it is found by its ticket.
struct CachedReads::Want {
  std::uint64_t ticket = 0;
  Extent extent{};
  std::uint64_t max_nbytes = UINT64_MAX;
  TimePoint deadline = TimePoint::max();
  // Of a range of an object that is known: where it begins, and the pieces that it is made of.
  std::uint64_t offset = 0, nbytes = 0;
  std::vector<std::size_t> pieces{};
};

// Reads of one object that were submitted together.
struct CachedReads::Group {
  std::string key{};
  std::string if_version{};
  std::vector<Want> wants{};
  int attempt = 1;
};

// Reads that are answered together: one, or, of a store that cannot tell versions, all that are of
// one object.
struct CachedReads::Ask {
  struct Piece {
    std::uint64_t offset = 0, nbytes = 0;
    std::string name{};
    CachedBytes bytes{};   // null: missing
    CachedBytes before{};  // what was kept of a piece that is fetched once more
  };

  std::string key{};
  std::string if_version{};
  int attempt = 1;
  long writes = 0;
  std::optional<KnownObject> object{};
  std::vector<Want> wants{};
  std::vector<Piece> pieces{};
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::size_t> by_extent{};  // of the pieces
  std::int64_t memory_hits = 0, disk_hits = 0;
  bool doubts = false;     // the object is to be looked at, whatever is kept
  bool exact = false;      // the answer is the bytes of its only flight
  CachedBytes kept_end{};  // or these

  // Under the lock of the state, until none is waited for.
  std::vector<std::shared_ptr<Flight>> flights{};
  std::size_t waiting = 0;
  std::size_t live = 0;  // reads that are not cancelled

  bool is_kept() const {
    return std::ranges::all_of(pieces, [](const Piece& piece) { return piece.bytes != nullptr; });
  }
  TimePoint deadline() const {
    TimePoint latest = TimePoint::min();
    for (const Want& want : wants) latest = std::max(latest, want.deadline);
    return latest;
  }
};

// A request to the source.
class CachedReads::Flight final : public AsyncRead {
 public:
  enum class Outcome : std::uint8_t { found, missing, changed, failed };
  struct Slot {
    std::uint64_t offset = 0, nbytes = 0;
    std::string name{};
    CachedBytes bytes{};
  };

  explicit Flight(CachedReads& reads) : reads_(reads) {}
  void done() noexcept override { reads_.landed(*this); }

  std::optional<KnownObject> object{};  // as it was known; when it has landed, as it is
  long writes = 0;
  bool fresh = false;  // CachedCopies::remember()
  bool exact = false;  // else by slots
  bool keeps = true;   // what came is kept at once
  std::vector<Slot> slots{};
  Outcome outcome = Outcome::failed;

  // Under the lock of the state.
  std::shared_ptr<Flight> self{};    // while the source has it
  std::vector<std::string> names{};  // that lead to it
  std::vector<AskOwner> waiters{};
  bool submitted = false;
  bool unwanted = false;
  bool sole = false;  // one ask waited for it

 private:
  CachedReads& reads_;
};

struct CachedReads::State {
  struct Reader {
    AsyncRead* read = nullptr;
    AskOwner ask{};  // null: not planned yet
  };

  Mutex mutex;
  ConditionVariable idle;
  std::unordered_map<std::uint64_t, Reader> readers GUARDED_BY(mutex);
  std::unordered_map<std::string, std::shared_ptr<Flight>> flights GUARDED_BY(mutex);
  std::unordered_map<std::uint64_t, std::shared_ptr<Large>> large GUARDED_BY(mutex);
  std::uint64_t last_ticket GUARDED_BY(mutex) = 0;
  std::size_t under_way GUARDED_BY(mutex) = 0;  // flights, and jobs of threads
  TimePoint doubt_ends GUARDED_BY(mutex) = TimePoint::min();
  std::unordered_set<std::uint64_t> looked_at GUARDED_BY(mutex);  // since it began

  void note(const KnownObject& object, bool has_changed) {
    const TimePoint now = std::chrono::steady_clock::now();
    const MutexLock lock(mutex);
    if (has_changed) {
      if (doubt_ends < now) looked_at.clear();
      doubt_ends = now + kDoubt;
    } else if (now < doubt_ends) {
      looked_at.insert(object.number);
    }
  }

  bool doubts(const KnownObject& object) {
    const MutexLock lock(mutex);
    return doubt_ends != TimePoint::min() && std::chrono::steady_clock::now() < doubt_ends &&
           !looked_at.contains(object.number);
  }

  void ended() {
    // Told under the lock: who waits may destroy this as soon as it has it.
    const MutexLock lock(mutex);
    if (--under_way == 0) idle.notify_all();
  }

  // The reads that are not cancelled are the ask's from now on. False: there are none.
  bool adopt(const AskOwner& ask) REQUIRES(mutex) {
    ask->live = 0;
    for (const Want& want : ask->wants) {
      const auto at = readers.find(want.ticket);
      if (at == readers.end()) continue;
      at->second.ask = ask;
      ++ask->live;
    }
    return ask->live > 0;
  }

  void join(const AskOwner& ask, const std::shared_ptr<Flight>& flight) REQUIRES(mutex) {
    if (std::ranges::find(ask->flights, flight) != ask->flights.end()) return;
    ask->flights.push_back(flight);
    flight->waiters.push_back(ask);
    ++ask->waiting;
  }

  // Null: there is none, or one that may take longer. Where it gives up early, who still has time
  // begins again.
  std::shared_ptr<Flight> find(const std::string& name, TimePoint deadline) REQUIRES(mutex) {
    const auto at = flights.find(name);
    if (at == flights.end() || at->second->deadline > deadline) return nullptr;
    return at->second;
  }

  void enter(const std::shared_ptr<Flight>& flight, const std::string& name) REQUIRES(mutex) {
    flight->names.push_back(name);
    flights.insert_or_assign(name, flight);
  }

  void remove_names(const Flight& flight) REQUIRES(mutex) {
    for (const std::string& name : flight.names) {
      const auto at = flights.find(name);
      if (at != flights.end() && at->second.get() == &flight) flights.erase(at);
    }
  }

  // Of an ask that nobody waits for: flights that nobody else waits for, to be cancelled.
  std::vector<std::shared_ptr<Flight>> leave(Ask& ask) REQUIRES(mutex) {
    std::vector<std::shared_ptr<Flight>> gone;
    for (std::shared_ptr<Flight>& flight : ask.flights) {
      std::erase_if(flight->waiters, [&](const AskOwner& each) { return each.get() == &ask; });
      if (!flight->waiters.empty() || flight->unwanted) continue;
      flight->unwanted = true;
      remove_names(*flight);
      if (flight->submitted) gone.push_back(std::move(flight));
    }
    ask.flights.clear();
    return gone;
  }
};

// What comes of planning some groups.
struct CachedReads::Plan {
  bool looks_on_disk = false;
  std::vector<std::shared_ptr<Flight>> flights{};
  std::vector<GroupOwner> rest{};  // to be planned by a thread that may look on the disk
  GroupOwner rest_of_group{};

  void leave(const Ask& ask) {
    if (!rest_of_group) {
      rest.push_back(std::make_shared<Group>());
      rest_of_group = rest.back();
      rest_of_group->key = ask.key;
      rest_of_group->if_version = ask.if_version;
      rest_of_group->attempt = ask.attempt;
    }
    for (const Want& want : ask.wants) {
      Want again = want;
      again.pieces.clear();
      rest_of_group->wants.push_back(std::move(again));
    }
  }
};

}  // namespace headrace
