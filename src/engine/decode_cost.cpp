#include "engine/decode_cost.h"

#include <algorithm>

namespace headrace {
namespace {

using Kind = DeviceStage::Kind;

// Bytes are decoded ones; 1 GB/s is 1e3 bytes a microsecond.
struct Rates {
  Kind kind;
  double host_gb_s;    // one thread
  double device_us;    // of the smallest batch
  double device_gb_s;  // of a large one
};

// What bench/results/device-choice.json gives: one NVIDIA H200, its host's 16 threads; ERA5-like
// float32. Formats vary by data and level by a factor of three; these are of zstd 3, lz4 and blosc
// with lz4 and shuffle, deflate 5.
constexpr Rates kRates[] = {
    {Kind::zstd, 0.98, 1200, 84},
    {Kind::lz4, 2.5, 150, 100},
    {Kind::gzip, 0.45, 600, 40},
    {Kind::zlib, 0.45, 600, 40},
    {Kind::blosc, 2.0, 170, 110},
    {Kind::packbits, 2.0, 30, 500},
    {Kind::delta, 2.0, 30, 300},
    {Kind::fixed_scale_offset, 2.0, 30, 500},
    {Kind::cast, 2.0, 30, 500},
};
// Shuffles, swaps, transposes and checksums: memory's speed on both sides.
constexpr Rates kSimple{Kind::none, 5, 30, 1000};

constexpr double kCopyGbs = 45;   // between host and device, pinned
constexpr double kCallUs = 60;    // of a batch to the device, either way
constexpr double kHostGbs = 40;   // all threads of the host together, whatever they do
constexpr std::size_t kBlockNbytes = std::size_t{256} << 10;  // of blosc: decoded by a thread each

Rates rates_of(Kind kind) {
  const auto found = std::ranges::find(kRates, kind, &Rates::kind);
  return found == std::end(kRates) ? kSimple : *found;
}

double us(std::size_t nbytes, double gb_s) { return static_cast<double>(nbytes) / (gb_s * 1e3); }

}  // namespace

DecodeCost decode_cost(std::span<const Kind> steps, const DecodeWork& work, int threads) {
  DecodeCost cost{kCallUs, kCallUs};
  for (const Kind kind : steps) {
    const Rates rates = rates_of(kind);
    const std::size_t tasks =
        kind == Kind::blosc ? std::max(work.chunks, work.decoded_nbytes / kBlockNbytes) : work.chunks;
    const double busy = static_cast<double>(
        std::clamp<std::size_t>(tasks, 1, static_cast<std::size_t>(std::max(threads, 1))));
    cost.host_us += us(work.decoded_nbytes, std::min(rates.host_gb_s * busy, kHostGbs));
    cost.device_us += rates.device_us + us(work.decoded_nbytes, rates.device_gb_s);
  }
  if (work.from_device) {
    cost.host_us += us(work.encoded_nbytes, kCopyGbs);
  } else {
    cost.device_us += us(work.encoded_nbytes, kCopyGbs);
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
