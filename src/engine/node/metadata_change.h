#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "engine/node/catalog.h"
#include "engine/node/lock.h"
#include "engine/request/array_state.h"
#include "engine/request/attempts.h"
#include "engine/request/request.h"

namespace headrace {

// The one way in which metadata change:
//  1. It waits for the node's lock and holds it for as long as it lives.
//  2. documents() are what the store has then, not what a handle has seen.
//  3. store(...) replaces what differs: where the store knows conditions, on condition that nobody
//     else has. Who lost to another begins anew, by again_when_forestalled().
class NodeChange {
 public:
  // `not_found` when the node is gone, unless `given` stands in for a document that the store never
  // had. `call` is for messages.
  NodeChange(const char* call,
             const Store& store,
             const std::string& path,
             NodeType type,
             int zarr_format,
             const std::function<void()>& poll,
             const NodeDocuments* given = nullptr);

  const NodeDocuments& documents() const { return documents_; }
  // Whether other processes are held off. Where they are not, `conflict` says that somebody has
  // changed the documents since they were read, as far as that can be seen.
  bool excludes_processes() const { return lock_.excludes_processes(); }
  // v2 has two documents, each replaced by itself: of a change of both, another writer's change of
  // one may lie in between.
  void store(std::string document, std::string attributes);
  // Whether the store has documents(): a write that failed may have been made all the same.
  bool is_current() const;

 private:
  void check_documents(const std::string& document, const std::string& attributes) const;
  void check_unchanged() const;
  bool replaces_on_condition() const;
  bool replace(const char* name, const std::string& text, bool is_there, std::string& version);
  bool store_on_condition(const std::string& document, const std::string& attributes);
  [[noreturn]] void throw_conflict() const;

  const char* const call_;
  const Store store_;
  const std::string path_;
  const NodeLock lock_;
  bool is_stored_ = true;  // false: the documents were given
  NodeDocuments documents_;
  NodeVersions versions_;
};

// `invalid_argument` for a document that could not be read again once it is stored.
void check_readable(const std::string& where, const std::string& document);

// Of a change that another writer may forestall: what it throws then, or where that can not be
// known, whether it was made.
class Forestalled : public Error {
 public:
  using Error::Error;
};
class InDoubt : public Error {
 public:
  using Error::Error;
};

// Calls body(), which reads what is there, changes it and stores it, again for as long as others
// forestall it; a bounded number of times. `on_doubt`: where it is not known whether the change was
// made, before another was.
enum class OnDoubt : std::uint8_t { again, raise };

template <typename Body>
auto again_when_forestalled(const std::function<void()>& poll, OnDoubt on_doubt, Body body) {
  Attempts attempts;
  Poll due(poll);
  for (;;) {
    try {
      return body();
    } catch (const Forestalled&) {
      if (!attempts.next([&] { due.check(); })) throw;
    } catch (const InDoubt&) {
      if (on_doubt == OnDoubt::raise || !attempts.next([&] { due.check(); })) throw;
    }
  }
}

// That of an array. `conflict` when another array, of another type, has taken its place.
class ArrayChange {
 public:
  ArrayChange(const char* call, const ArrayState& state, const std::function<void()>& poll);

  const std::shared_ptr<const ArrayMetadata>& now() const { return now_; }
  bool excludes_processes() const { return node_.excludes_processes(); }
  bool is_current() const { return node_.is_current(); }
  // Stores them, then shows them to all copies of the handle. now() is `metadata` afterwards.
  void store(std::shared_ptr<const ArrayMetadata> metadata);

 private:
  const ArrayState& state_;
  NodeChange node_;
  std::shared_ptr<const ArrayMetadata> now_;
};

// `now`, a JSON object, with the changes.
std::string changed_attributes(const std::string& now, const AttributeChanges& changes);

}  // namespace headrace
