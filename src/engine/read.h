#pragma once

#include <atomic>

#include "engine/array_state.h"
#include "engine/request_context.h"
#include "format/selection.h"

namespace headrace {

// `selection` was resolved for the shape of `layout`. `out` has its result shape and the array's
// dtype.
void read_selection(const ArrayState& state,
                    std::shared_ptr<const ArrayLayout> layout,
                    const ResolvedSelection& selection,
                    const TensorView& out,
                    const ReadOptions& options,
                    const std::atomic<bool>* cancel = nullptr);

// The index of a shard that lies at [base, base + nbytes) of an object, from the cache when the
// object is still the same.
std::shared_ptr<const ShardIndex> load_shard_index(RequestContext& context,
                                                   const ShardLevel& level,
                                                   const std::string& key,
                                                   const ObjectReader& reader,
                                                   std::uint64_t base,
                                                   std::uint64_t nbytes);

}  // namespace headrace
