#include "engine/device/decode_cost.h"

#include <algorithm>

namespace headrace {
namespace {

using Kind = DeviceStage::Kind;

struct Rates {
  Kind kind;
  double host_gb_s;  // one thread, decoded bytes
  double device_us;  // what the smallest batch takes: the longest chain of steps within a block
};

// Fits of whole reads (bench/results/device-choice.json): one NVIDIA H200 and 16 threads of its
// host, ERA5-like float32 in zstd 3, lz4, blosc with lz4 and shuffle, gzip 5, delta and shuffle.
// Large batches are bound by reading and copying on either side, so no rate of the device's
// decoders is here.
constexpr Rates kRates[] = {
    {Kind::zstd, 0.65, 550},
    {Kind::lz4, 2.2, 200},
    {Kind::blosc, 2.2, 150},
    {Kind::gzip, 0.40, 380},
    {Kind::zlib, 0.40, 380},
    {Kind::delta, 2.6, 140},
};
constexpr Rates kOther{Kind::none, 4, 30};  // shuffles, swaps, casts, checksums

constexpr double kCallUs = 60;     // of a batch, either way
constexpr double kFetchGbs = 5;    // of encoded bytes to the device, a thread
constexpr double kCopyGbs = 45;    // between host and device
constexpr double kMemoryGbs = 36;  // decoded bytes: what all threads or the device share

Rates rates_of(Kind kind) {
  const auto found = std::ranges::find(kRates, kind, &Rates::kind);
  return found == std::end(kRates) ? kOther : *found;
}

// 1 GB/s is 1e3 bytes a microsecond.
double us(std::size_t nbytes, double gb_s) { return static_cast<double>(nbytes) / (gb_s * 1e3); }

}  // namespace

DecodeCost decode_cost(std::span<const Kind> steps, const DecodeWork& work, int threads) {
  const auto busy = static_cast<double>(
      std::clamp<std::size_t>(work.chunks, 1, static_cast<std::size_t>(std::max(threads, 1))));
  const double shared_us = kCallUs + us(work.decoded_nbytes, kMemoryGbs);
  DecodeCost cost{shared_us, shared_us};
  for (const Kind kind : steps) {
    const Rates rates = rates_of(kind);
    cost.host_us += us(work.decoded_nbytes, rates.host_gb_s * busy);
    cost.device_us += rates.device_us;
  }
  if (work.from_device) {
    cost.host_us += us(work.encoded_nbytes, kCopyGbs);
  } else {
    cost.device_us += us(work.encoded_nbytes, kCopyGbs) + us(work.encoded_nbytes, kFetchGbs * busy);
  }
  if (work.to_device) {
    cost.host_us += us(work.wanted_nbytes, kCopyGbs);
  } else {
    cost.device_us += us(work.decoded_nbytes, kCopyGbs);
  }
  return cost;
}

bool device_decodes(std::span<const Kind> steps,
                    const DecodeWork& work,
                    int threads,
                    std::optional<std::size_t> min_decoded_nbytes) {
  if (min_decoded_nbytes) return work.decoded_nbytes >= *min_decoded_nbytes;
  return decode_cost(steps, work, threads).device_is_faster();
}

std::optional<std::size_t> least_on_device(Kind kind, std::size_t chunks, int threads) {
  const auto faster = [&](std::size_t nbytes) {
    const DecodeWork work{chunks, nbytes / 2, nbytes, nbytes};
    return decode_cost({&kind, 1}, work, threads).device_is_faster();
  };
  // Both sides grow with the bytes, the host's faster or never.
  constexpr std::size_t kMost = std::size_t{1} << 40;
  std::size_t low = 0, high = kMost;
  if (!faster(high)) return std::nullopt;
  while (high - low > 1) {
    const std::size_t middle = low + (high - low) / 2;
    (faster(middle) ? high : low) = middle;
  }
  return high;
}

}  // namespace headrace
