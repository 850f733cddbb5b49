#pragma once

// Encoders on the device, from bytes in device memory to encoded ones.

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/kernels.h"

namespace headrace {

struct Encoder {
  std::string name;
  void (*encode)(Queue&, const EncodeBatch&);
  // By a library: the size it makes of a chunk, and whether it decodes `encoded` to `chunk`.
  std::size_t (*library_nbytes)(const std::vector<std::uint8_t>& chunk);
  bool (*decodes_to)(const std::vector<std::uint8_t>& encoded,
                     const std::vector<std::uint8_t>& chunk);
};
const std::vector<Encoder>& encoders();

// One chunk encoded, on a queue of its own.
std::vector<std::uint8_t> encode_one(const Encoder& encoder,
                                     const std::vector<std::uint8_t>& chunk);

// `count` chunks, of which `chunks` are the distinct ones: median of several runs, and the size.
nlohmann::json run_encoder(const Encoder& encoder,
                           const std::vector<std::vector<std::uint8_t>>& chunks,
                           std::size_t count,
                           Queue& queue);

// The kernels of one call, in order, each with the median of its times.
nlohmann::json run_encoder_stages(const Encoder& encoder,
                                  const std::vector<std::vector<std::uint8_t>>& chunks,
                                  std::size_t count,
                                  Queue& queue);

}  // namespace headrace
