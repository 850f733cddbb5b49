#pragma once

// Disks are asked for what comes next while threads read and decode what came: hints to the store,
// without which a read is as right and slower. One for each read, used by all of its threads.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "engine/fetch/plan.h"
#include "store/async.h"
#include "store/store.h"

namespace headrace {

// The runs of a list, of parts of shards that are open.
class RunsAhead {
 public:
  static constexpr std::uint64_t kNbytes = std::uint64_t{16} << 20;  // ahead of a request

  explicit RunsAhead(const FetchList& list);
  // Before each request is read. `reader_of`: of the runs of a request, null for one that nobody is
  // to be asked for.
  void before(std::size_t request, FunctionRef<const ObjectReader*(const FetchRequest&)> reader_of);

 private:
  const FetchList& list_;
  std::vector<std::uint64_t> begins_;  // of requests, were their runs one after the other
  std::atomic<std::size_t> next_{1};   // to be asked for: the first one is read at once
};

// Objects that are opened and read one by one, in their order, whole or the same part of each.
class ObjectsAhead {
 public:
  using KeyOf = FunctionRef<std::string(std::size_t object)>;

  // Does nothing where there are few, or where those looked at are in memory. `nbytes`: of each, at
  // most some 32 MiB of which are asked for ahead.
  ObjectsAhead(StoreDriver& driver,
               std::size_t objects,
               const Extent& part,
               std::size_t nbytes,
               KeyOf key_of);
  // Before each is read.
  void before(std::size_t object, KeyOf key_of);

 private:
  StoreDriver& driver_;
  const std::size_t objects_;
  const Extent part_;
  std::size_t most_ = 0;              // ahead; 0: nothing is done
  std::atomic<std::size_t> next_{1};  // to be asked for
};

}  // namespace headrace
