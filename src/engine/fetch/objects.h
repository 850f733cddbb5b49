#pragma once

#include <cstddef>
#include <string>

#include "base/function_ref.h"
#include "store/store.h"

namespace headrace {

// Whole objects, asked for in batches: one thread waits for the next batch while the others use the
// one before.
struct FetchPlan {
  std::size_t objects = 0;
  std::size_t batch = 1;  // objects asked for at once
  int threads = 1;
  std::uint64_t max_nbytes = UINT64_MAX;  // of an object: GetRequest
};

// Larger chunks of a local store cost more to read than to ask for: they are not asked for in
// batches.
inline constexpr std::size_t kMaxBatchedChunk = 1 << 20;

// What is held of the store's bytes at a time: a batch that is fetched, one in use and one between.
inline constexpr std::size_t kFetchedBatches = 3;

// Calls use(i, request) once for each object i, from several threads at once; the request says
// whether it was found or why it could not be read. `check` is called at short intervals and may
// throw. The first exception ends the fetch and is rethrown.
void fetch_objects(StoreDriver& driver,
                   const FetchPlan& plan,
                   FunctionRef<std::string(std::size_t)> key_of,
                   FunctionRef<void(std::size_t, const GetRequest&)> use,
                   FunctionRef<void()> check);

}  // namespace headrace
