#pragma once

// The reactors of the process. A child of fork starts its own and touches nothing of its parent's.

#include <cstddef>
#include <cstdint>
#include <memory>

#include "store/http/reactor.h"

namespace headrace {

inline constexpr std::size_t kReactors = 2;

// Which one gets the next transfer: the one that has the least to do.
std::size_t choose_reactor();
// False: the process ends, the transfer is left as it is. Throws when no reactor can be started.
bool start_transfer(std::size_t reactor, std::unique_ptr<Transfer>& transfer);
void cancel_transfer(std::size_t reactor, std::uint64_t number);

}  // namespace headrace
