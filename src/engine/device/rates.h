#pragma once

// What decoding takes on this machine, by the host's threads and by a device:
//  1. Who has to choose asks rates_in_force(), or chooses_device(). Until something has been
//     measured these are the rates built in (kernels/tuning.h), of one H200 and its host.
//  2. Before the first choice that could turn out otherwise, some 60 ms are taken to measure them,
//     once for each device; other threads go by the rates built in meanwhile.
//  3. They are kept in a file for later processes (engine/device/rates_file.h).
// Not measured are the shares of both sides, which cancel out, and how fast a device's decoders are
// with much to do: large batches are bound by fetching and copying.

#include <cstddef>
#include <span>
#include <string>

#include "base/function_ref.h"
#include "device/backend.h"
#include "engine/device/decode_cost.h"
#include "headrace/config.h"
#include "kernels/tuning.h"

namespace headrace {

struct RatesInForce {
  DecodeRates rates{};
  std::string source;  // "built in", "measured", a file; with a reason where there is one
};

// Microseconds since whenever.
using Clock = FunctionRef<double()>;

// Decodes samples on both sides and copies: what `now_us` says each took. Throws what the device
// does.
DecodeRates measure_rates(Backend& devices, int index, Clock now_us);

// No less and no more than eight times what is built in: beyond, something was measured wrong.
DecodeRates within_bounds(const DecodeRates& measured);

// Of devices of a backend whose driver() is empty, always those built in. Measures nothing; looks
// for the file once.
RatesInForce rates_in_force(Backend& devices, int index, const Config& config);

// Whether the device decodes. Measures first, where that could matter.
bool chooses_device(Backend& devices,
                    int index,
                    std::span<const DeviceStage::Kind> steps,
                    const DecodeWork& work,
                    int threads,
                    const Config& config);

// For tests: as if the process had just begun, with another clock than the system's (null: that).
void forget_rates(double (*now_us)());

}  // namespace headrace
