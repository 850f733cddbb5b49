// What is kept of what is wanted, and what is asked of the source for the rest.

#include <algorithm>
#include <charconv>
#include <exception>
#include <utility>

#include "headrace/error.h"
#include "store/async_driver.h"
#include "store/cached_flight.h"
#include "store/cached_reads.h"
#include "store/store.h"

namespace headrace {
namespace {

struct ToldVersion {
  std::uint64_t number = 0;
  std::string tag{};
};

std::optional<ToldVersion> parse_told(std::string_view text) {
  ToldVersion told;
  const char* const end = text.data() + text.size();
  const auto [at, fault] = std::from_chars(text.data(), end, told.number, 16);
  if (fault != std::errc() || at == end || *at != ':') return std::nullopt;
  told.tag.assign(at + 1, end);
  return told;
}

// Of a store that is asked otherwise, whose version says nothing here.
std::optional<KnownObject> of_async(std::optional<KnownObject> object) {
  if (object && object->version != 0 && object->tag.empty()) return std::nullopt;
  return object;
}

}  // namespace

std::string told_version(const KnownObject& object) {
  if (object.number == 0 && object.tag.empty()) return {};
  char text[17];
  const auto end = std::to_chars(text, text + sizeof text, object.number, 16).ptr;
  return std::string(text, end) + ':' + object.tag;
}

bool CachedReads::keeps_parts(std::string_view key) {
  return of_async(copies_.find_object(key)).has_value();
}

// What is left of them, for threads that may look on the disk.
std::vector<CachedReads::GroupOwner> CachedReads::plan_all(std::span<const GroupOwner> groups,
                                                           bool looks_on_disk) noexcept {
  Plan all;
  all.looks_on_disk = looks_on_disk;
  for (const GroupOwner& group : groups) {
    all.rest_of_group = nullptr;
    try {
      plan(*group, all);
    } catch (...) {
      if (all.rest_of_group) {
        std::erase(all.rest, all.rest_of_group);
      }
      end_all(group->wants, std::current_exception());
    }
  }
  send(all);
  return std::move(all.rest);
}

// False: only the disk knows.
bool CachedReads::find_version(const Group& group,
                               const Plan& plan,
                               std::optional<KnownObject>& object) {
  object = of_async(plan.looks_on_disk ? copies_.find_object(group.key)
                                       : copies_.find_object_in_memory(group.key));
  if (!object && !plan.looks_on_disk) return false;
  if (group.if_version.empty()) return true;
  const std::optional<ToldVersion> told = parse_told(group.if_version);
  if (!told) std::rethrow_exception(changed(group.key));
  if (object && object->number == told->number) return true;
  if (object && !told->tag.empty() && object->tag == told->tag) return true;
  // What was known of it is known no more: there was no room, or it was forgotten.
  const bool is_unknown = told->tag.empty() && (object || told->number == 0);
  if (is_unknown || copies_.is_forgotten(told->number)) std::rethrow_exception(changed(group.key));
  object = KnownObject{KnownObject::kNotTold, version_number(told->tag), told->number, told->tag};
  return true;
}

void CachedReads::plan(const Group& group, Plan& plan) {
  const long writes = copies_.writes();
  std::optional<KnownObject> object;
  bool doubts = false;
  const auto ask_for = [&](const Want& want) {
    auto ask = std::make_shared<Ask>();
    ask->key = group.key;
    ask->if_version = group.if_version;
    ask->attempt = group.attempt;
    ask->writes = writes;
    ask->object = object;
    ask->doubts = doubts;
    ask->wants.push_back(want);
    return ask;
  };
  if (!find_version(group, plan, object)) {
    for (const Want& want : group.wants) plan.leave(*ask_for(want));
    return;
  }
  doubts = object && group.if_version.empty() && state_.get().doubts(*object);
  AskOwner together;
  for (const Want& want : group.wants) {
    const bool is_end = want.extent.kind == Extent::Kind::suffix;
    AskOwner ask = ask_for(want);
    if (object && join_exact(ask)) continue;
    if (want.extent.kind == Extent::Kind::whole) {
      plan_whole(ask, plan);
    } else if (!object) {
      fetch_exact(ask, plan);
    } else if (is_end && !is_sized(object)) {
      plan_end(ask, plan);
    } else {
      Want& known = ask->wants.front();
      known.offset = known.extent.offset;
      known.nbytes = known.extent.nbytes;
      if (is_end) {
        known.nbytes = std::min(object->size, known.extent.nbytes);
        known.offset = object->size - known.nbytes;
      }
      if (is_sized(object)) {
        const bool fits =
            known.offset <= object->size && known.nbytes <= object->size - known.offset;
        if (!fits && group.if_version.empty()) {  // the object may have grown
          fetch_exact(ask, plan);
          continue;
        }
        if (!fits) {
          end_all(ask->wants, [&] {
            try {
              check_object_range(group.key, object->size, known.offset, known.nbytes);
            } catch (...) {
              return std::current_exception();
            }
            return std::exception_ptr();
          }());
          continue;
        }
      }
      if (tells_versions(*object)) {
        plan_ranges(ask, plan);
      } else if (!together) {
        together = std::move(ask);
      } else {
        together->wants.push_back(ask->wants.front());
      }
    }
  }
  if (together) plan_ranges(together, plan);
}

CachedBytes CachedReads::find(Ask& ask,
                              const std::string& name,
                              std::uint64_t nbytes,
                              const Plan& plan) {
  if (ask.doubts && tells_versions(*ask.object)) return nullptr;
  if (CachedBytes bytes = copies_.find_in_memory(name, nbytes)) {
    ++ask.memory_hits;
    return bytes;
  }
  CachedBytes bytes = plan.looks_on_disk ? copies_.find_on_disk(name, nbytes) : nullptr;
  if (bytes) ++ask.disk_hits;
  return bytes;
}

// Of each block that the range touches: what is kept of it, else what is to be fetched, the whole
// block where the object's size says how long it is.
void CachedReads::find_pieces(Ask& ask, Want& want, const Plan& plan) {
  const KnownObject& object = *ask.object;
  const std::uint64_t block_nbytes = copies_.block_nbytes();
  const std::uint64_t end = want.offset + want.nbytes;
  const auto known = [&](std::uint64_t from, std::uint64_t to) {
    const auto at = ask.by_extent.find({from, to});
    if (at == ask.by_extent.end()) return false;
    want.pieces.push_back(at->second);
    return true;
  };
  const auto look = [&](std::uint64_t from, std::uint64_t to) {
    Ask::Piece piece{from, to - from, copies_.name_of(ask.key, object, from, to - from)};
    if (object.number != 0) piece.bytes = find(ask, piece.name, piece.nbytes, plan);
    return piece;
  };
  for (std::uint64_t at = want.offset; at < end;) {
    const std::uint64_t block = at - at % block_nbytes;
    const std::uint64_t to = std::min(end, block + block_nbytes);
    const std::uint64_t block_end = std::min(object.size, block + block_nbytes);
    const bool is_part = at != block || to != block_end;
    if (!known(block, block_end) && !(is_part && known(at, to))) {
      Ask::Piece piece = look(block, block_end);
      if (!piece.bytes && is_part) {
        Ask::Piece part = look(at, to);
        if (part.bytes || !is_sized(object)) piece = std::move(part);
      }
      want.pieces.push_back(ask.pieces.size());
      ask.by_extent.emplace(std::pair(piece.offset, piece.offset + piece.nbytes),
                            ask.pieces.size());
      ask.pieces.push_back(std::move(piece));
    }
    at = to;
  }
}

void CachedReads::plan_whole(const AskOwner& ask, Plan& plan) {
  Want& want = ask->wants.front();
  if (is_sized(ask->object) && ask->object->size <= want.max_nbytes) {
    want.nbytes = ask->object->size;
    find_pieces(*ask, want, plan);
    if (ask->is_kept()) return fetch_pieces(ask, plan);
    if (!plan.looks_on_disk) return plan.leave(*ask);
    ask->pieces.clear();
    want.pieces.clear();
  }
  fetch_exact(ask, plan);
}

void CachedReads::plan_end(const AskOwner& ask, Plan& plan) {
  const std::uint64_t nbytes = ask->wants.front().extent.nbytes;
  const std::string name = copies_.name_of_end(ask->key, *ask->object, nbytes);
  if (ask->object->number != 0 && !ask->doubts)
    ask->kept_end = find(*ask, name, CachedCopies::kAnySize, plan);
  if (ask->kept_end) return fetch_pieces(ask, plan);
  if (!plan.looks_on_disk) return plan.leave(*ask);
  fetch_exact(ask, plan);
}

void CachedReads::plan_ranges(const AskOwner& ask, Plan& plan) {
  for (Want& want : ask->wants) find_pieces(*ask, want, plan);
  if (!ask->is_kept() && !plan.looks_on_disk) return plan.leave(*ask);
  fetch_pieces(ask, plan);
}

std::string CachedReads::exact_condition(const Ask& ask) {
  return ask.if_version.empty() ? std::string() : ask.object->tag;
}

std::string CachedReads::exact_name(const Ask& ask) {
  const Want& want = ask.wants.front();
  const Extent& extent = want.extent;
  return "exact\n" + std::to_string(ask.writes) + '\n' + ask.key + '\n' +
         std::to_string(static_cast<int>(extent.kind)) + '\n' + std::to_string(extent.offset) +
         '\n' + std::to_string(extent.nbytes) + '\n' + std::to_string(want.max_nbytes) + '\n' +
         exact_condition(ask);
}

// Of an object that is known by now: whoever knew nothing of it yet may have asked for the same.
// Before the copies are looked up: what lands meanwhile is among them.
bool CachedReads::join_exact(const AskOwner& ask) {
  if (!ask->if_version.empty() || ask->doubts) return false;
  State& state = state_.get();
  const MutexLock lock(state.mutex);
  if (state.flights.empty()) return false;
  const auto flight = state.find(exact_name(*ask), ask->wants.front().deadline);
  if (!flight) return false;
  ask->exact = true;
  if (state.adopt(ask)) state.join(ask, flight);
  return true;
}

// By a request for just what is wanted, of whatever version there is.
void CachedReads::fetch_exact(const AskOwner& ask, Plan& plan) {
  const bool is_unversioned = ask->object && !tells_versions(*ask->object);
  const Want& want = ask->wants.front();
  if (is_unversioned && !ask->if_version.empty()) {
    copies_.forget(ask->key, *ask->object);
    std::rethrow_exception(changed(ask->key));
  }
  const std::string name = exact_name(*ask);
  ask->exact = true;
  State& state = state_.get();
  const MutexLock lock(state.mutex);
  if (!state.adopt(ask)) return;
  if (const std::shared_ptr<Flight> flight = state.find(name, want.deadline)) {
    state.join(ask, flight);
    return;
  }
  // It has just come.
  if (!ask->object && of_async(copies_.find_object_in_memory(ask->key))) return plan.leave(*ask);
  auto flight = std::make_shared<Flight>(*this);
  plan.flights.push_back(flight);
  flight->key = ask->key;
  flight->extent = want.extent;
  flight->if_version = exact_condition(*ask);
  flight->max_nbytes = want.max_nbytes;
  flight->deadline = want.deadline;
  flight->object = ask->object;
  flight->writes = ask->writes;
  flight->fresh = want.extent.kind == Extent::Kind::whole || is_unversioned;
  flight->exact = true;
  state.join(ask, flight);
  state.enter(flight, name);
}

void CachedReads::fetch_pieces(const AskOwner& ask, Plan& plan) {
  const KnownObject& object = *ask->object;
  const bool is_kept = ask->is_kept();
  // Told by its bytes whether the object is still the same.
  const bool compares = (!is_kept || ask->doubts) && !tells_versions(object) &&
                        std::ranges::any_of(ask->pieces, [](const Ask::Piece& piece) {
                          return piece.bytes != nullptr;
                        });
  if (compares) {
    for (Ask::Piece& piece : ask->pieces) piece.before = std::exchange(piece.bytes, nullptr);
  } else {
    copies_.count_hits(ask->memory_hits, ask->disk_hits);
  }
  const bool alone = compares || object.number == 0;
  std::vector<Ask::Piece*> missing;
  for (Ask::Piece& piece : ask->pieces) {
    if (!piece.bytes) missing.push_back(&piece);
  }
  std::ranges::sort(missing, {}, &Ask::Piece::offset);
  const TimePoint deadline = ask->deadline();
  State& state = state_.get();
  {
    const MutexLock lock(state.mutex);
    if (!state.adopt(ask)) return;
    std::shared_ptr<Flight> run;
    for (Ask::Piece* const piece : missing) {
      if (!alone) {
        if (const std::shared_ptr<Flight> flight = state.find(piece->name, deadline)) {
          if (flight != run) {
            state.join(ask, flight);
            run = nullptr;
          }
          continue;
        }
        // It has just come.
        if (!ask->doubts) piece->bytes = copies_.find_in_memory(piece->name, piece->nbytes);
        if (piece->bytes) continue;
      }
      if (!run || run->extent.offset + run->extent.nbytes != piece->offset) {
        run = std::make_shared<Flight>(*this);
        plan.flights.push_back(run);
        run->key = ask->key;
        run->extent = Extent::range(piece->offset, 0);
        run->if_version = object.tag;
        run->deadline = deadline;
        run->object = object;
        run->keeps = !alone;
        state.join(ask, run);
      }
      run->extent.nbytes += piece->nbytes;
      run->slots.push_back({piece->offset, piece->nbytes, piece->name});
      if (!alone) state.enter(run, piece->name);
    }
    if (ask->waiting > 0) return;
  }
  finish(ask);
}

void CachedReads::send(Plan& plan) noexcept {
  if (plan.flights.empty()) return;
  State& state = state_.get();
  std::vector<std::shared_ptr<Flight>> unwanted;
  std::exception_ptr error;
  {
    const MutexLock lock(state.mutex);
    for (const std::shared_ptr<Flight>& flight : plan.flights) flight->self = flight;
    state.under_way += plan.flights.size();
  }
  try {
    std::vector<AsyncRead*> reads;
    reads.reserve(plan.flights.size());
    unwanted.reserve(plan.flights.size());
    for (const std::shared_ptr<Flight>& flight : plan.flights) reads.push_back(flight.get());
    source_.submit(reads);
  } catch (...) {
    error = std::current_exception();
  }
  if (error) {
    for (const std::shared_ptr<Flight>& flight : plan.flights) {
      flight->error = error;
      take(*flight);
    }
    return;
  }
  {
    const MutexLock lock(state.mutex);
    for (const std::shared_ptr<Flight>& flight : plan.flights) {
      flight->submitted = true;
      if (flight->unwanted) unwanted.push_back(flight);
    }
  }
  for (const std::shared_ptr<Flight>& flight : unwanted) source_.cancel(*flight);
}

}  // namespace headrace
