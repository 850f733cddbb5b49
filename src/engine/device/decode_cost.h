#pragma once

// Where a batch is decoded: a model of what it takes by the host's threads and by a GPU. Its rates
// are those that this machine was found to have (engine/device/rates.h) or those built in
// (kernels/tuning.h, bench/device/choice.py), which hold within a factor of two there. That is
// enough: near the border both sides take about as long.

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "codec/device_stage.h"
#include "kernels/tuning.h"

namespace headrace {

struct DecodeWork {
  std::size_t chunks = 0;
  std::size_t encoded_nbytes = 0;
  std::size_t decoded_nbytes = 0;
  std::size_t wanted_nbytes = 0;  // of the decoded ones: what the host would copy
  bool from_device = false;       // where the encoded bytes lie
  bool to_device = true;          // where the decoded ones are wanted
};

struct DecodeCost {
  double host_us = 0;
  double device_us = 0;
  bool device_is_faster() const { return device_us < host_us; }
};

// The decoding steps of each chunk, and how many threads the host would use.
DecodeCost decode_cost(std::span<const DeviceStage::Kind> steps,
                       const DecodeWork& work,
                       int threads,
                       const DecodeRates& rates = {});

// The choice: by the model, or by the limit of decoded bytes that the configuration sets instead.
bool device_decodes(std::span<const DeviceStage::Kind> steps,
                    const DecodeWork& work,
                    int threads,
                    std::optional<std::size_t> min_decoded_nbytes,
                    const DecodeRates& rates = {});

// From how many decoded bytes in `chunks` chunks, half as many encoded, the device decodes what a
// read wants there; nothing when it never does.
std::optional<std::size_t> least_on_device(DeviceStage::Kind kind,
                                           std::size_t chunks,
                                           int threads,
                                           const DecodeRates& rates = {});

}  // namespace headrace
