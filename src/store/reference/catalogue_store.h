#pragma once

// What the two stores of a catalogue share.

#include <memory>
#include <string_view>

#include "base/buffer.h"
#include "store/reference/catalogue.h"
#include "store/store.h"

namespace headrace {

std::unique_ptr<ObjectReader> open_at(std::string_view key, Whereabouts where);
void get_at(std::string_view key, const Whereabouts& where, Buffer& into, std::uint64_t max_nbytes);
// `io`: a reference to an object that is not there is no missing chunk.
[[noreturn]] void throw_unreachable(std::string_view key, const Whereabouts& where);

std::shared_ptr<StoreDriver> make_remote_catalogue_store(std::shared_ptr<Catalogue> catalogue,
                                                         const Coalescing& near);

}  // namespace headrace
