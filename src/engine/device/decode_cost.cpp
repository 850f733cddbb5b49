#include "engine/device/decode_cost.h"

#include <algorithm>

#include "kernels/tuning.h"

namespace headrace {
namespace {

using Kind = DeviceStage::Kind;

constexpr DecodeRates kRates;

DecodeRates::OfCodec rates_of(Kind kind) {
  switch (kind) {
    case Kind::zstd:
      return kRates.zstd;
    case Kind::lz4:
      return kRates.lz4;
    case Kind::blosc:
      return kRates.blosc;
    case Kind::gzip:
    case Kind::zlib:
      return kRates.deflate;
    case Kind::delta:
      return kRates.delta;
    default:
      return kRates.other;
  }
}

// 1 GB/s is 1e3 bytes a microsecond.
double us(std::size_t nbytes, double gb_s) { return static_cast<double>(nbytes) / (gb_s * 1e3); }

}  // namespace

DecodeCost decode_cost(std::span<const Kind> steps, const DecodeWork& work, int threads) {
  const auto busy = static_cast<double>(
      std::clamp<std::size_t>(work.chunks, 1, static_cast<std::size_t>(std::max(threads, 1))));
  const double shared_us = kRates.call_us + us(work.decoded_nbytes, kRates.memory_gb_s);
  DecodeCost cost{shared_us, shared_us};
  for (const Kind kind : steps) {
    const DecodeRates::OfCodec rates = rates_of(kind);
    cost.host_us += us(work.decoded_nbytes, rates.host_gb_s * busy);
    cost.device_us += rates.device_us;
  }
  if (work.from_device) {
    cost.host_us += us(work.encoded_nbytes, kRates.copy_gb_s);
  } else {
    cost.device_us += us(work.encoded_nbytes, kRates.copy_gb_s) +
                      us(work.encoded_nbytes, kRates.fetch_gb_s * busy);
  }
  if (work.to_device) {
    cost.host_us += us(work.wanted_nbytes, kRates.copy_gb_s);
  } else {
    cost.device_us += us(work.decoded_nbytes, kRates.copy_gb_s);
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
