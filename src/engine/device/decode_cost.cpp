#include "engine/device/decode_cost.h"

#include <algorithm>
namespace headrace {
namespace {

using Kind = DeviceStage::Kind;

DecodeRates::OfCodec rates_of(const DecodeRates& rates, Kind kind) {
  switch (kind) {
    case Kind::zstd:
      return rates.zstd;
    case Kind::lz4:
      return rates.lz4;
    case Kind::blosc:
      return rates.blosc;
    case Kind::gzip:
    case Kind::zlib:
      return rates.deflate;
    case Kind::delta:
      return rates.delta;
    default:
      return rates.other;
  }
}

// 1 GB/s is 1e3 bytes a microsecond.
double us(std::size_t nbytes, double gb_s) { return static_cast<double>(nbytes) / (gb_s * 1e3); }

}  // namespace

DecodeCost decode_cost(std::span<const Kind> steps,
                       const DecodeWork& work,
                       int threads,
                       const DecodeRates& rates) {
  const auto busy = static_cast<double>(
      std::clamp<std::size_t>(work.chunks, 1, static_cast<std::size_t>(std::max(threads, 1))));
  const double shared_us = rates.call_us + us(work.decoded_nbytes, rates.memory_gb_s);
  DecodeCost cost{shared_us, shared_us};
  for (const Kind kind : steps) {
    const DecodeRates::OfCodec of_kind = rates_of(rates, kind);
    cost.host_us += us(work.decoded_nbytes, of_kind.host_gb_s * busy);
    cost.device_us += of_kind.device_us;
  }
  if (work.from_device) {
    cost.host_us += us(work.encoded_nbytes, rates.copy_gb_s);
  } else {
    cost.device_us +=
        us(work.encoded_nbytes, rates.copy_gb_s) + us(work.encoded_nbytes, rates.fetch_gb_s * busy);
  }
  if (work.to_device) {
    cost.host_us += us(work.wanted_nbytes, rates.copy_gb_s);
  } else {
    cost.device_us += us(work.decoded_nbytes, rates.copy_gb_s);
  }
  return cost;
}

bool device_decodes(std::span<const Kind> steps,
                    const DecodeWork& work,
                    int threads,
                    std::optional<std::size_t> min_decoded_nbytes,
                    const DecodeRates& rates) {
  if (min_decoded_nbytes) return work.decoded_nbytes >= *min_decoded_nbytes;
  return decode_cost(steps, work, threads, rates).device_is_faster();
}

std::optional<std::size_t> least_on_device(Kind kind,
                                           std::size_t chunks,
                                           int threads,
                                           const DecodeRates& rates) {
  const auto faster = [&](std::size_t nbytes) {
    const DecodeWork work{chunks, nbytes / 2, nbytes, nbytes};
    return decode_cost({&kind, 1}, work, threads, rates).device_is_faster();
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
