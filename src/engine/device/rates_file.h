#pragma once

// Measured rates in a file, one for each combination of what they depend on:
//
//   $XDG_CACHE_HOME/headrace/rates-<hash>.json, or ~/.cache/headrace/...
//
// It is read as what others may have written: what is not as this version writes it is measured
// anew. It appears whole or not at all, and a home that takes no files costs a measurement a
// process.

#include <optional>
#include <string>

#include "kernels/tuning.h"

namespace headrace {

// The rates of codecs, by their names in the file and in reports.
struct RatedCodec {
  const char* name;
  DecodeRates::OfCodec DecodeRates::*rates;
};
inline constexpr RatedCodec kRatedCodecs[] = {{"zstd", &DecodeRates::zstd},
                                              {"lz4", &DecodeRates::lz4},
                                              {"blosc", &DecodeRates::blosc},
                                              {"deflate", &DecodeRates::deflate},
                                              {"delta", &DecodeRates::delta},
                                              {"other", &DecodeRates::other}};

// What rates depend on.
struct RatesKey {
  std::string host;     // the processor and how many of them this process may use
  std::string device;   // "NVIDIA H200"
  std::string driver;   // Backend::driver
  std::string version;  // of headrace
};

// Empty where the environment names no folder for it.
std::string rates_path(const RatesKey& key);
// Nothing where there is no such file, or none that is good for the key.
std::optional<DecodeRates> load_rates(const std::string& path, const RatesKey& key);
// Why it could not be written; empty when it was.
std::string store_rates(const std::string& path, const RatesKey& key, const DecodeRates& rates);

}  // namespace headrace
