#include "engine/device/rates.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "base/fork_mutex.h"
#include "base/processors.h"
#include "base/trace.h"
#include "base/unnamed_memory.h"
#include "codec/chain.h"
#include "engine/device/rates_file.h"
#include "engine/device/stages.h"
#include "engine/layout/device_plan.h"
#include "headrace/error.h"
#include "store/posix.h"

namespace headrace {
namespace {

// Of each sample, decoded; and what is fetched and copied, as the blocks of reads are.
constexpr std::size_t kSampleElements = std::size_t{32} << 10;
constexpr std::size_t kBlockNbytes = std::size_t{8} << 20;
// The least counts: others of the machine only make it longer.
constexpr int kHostRuns = 3, kDeviceRuns = 4;
constexpr double kBound = 8;

double system_us() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

template <typename Body>
double least_us(int runs, Clock now_us, Body body) {
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < runs; ++i) {
    const double begin = now_us();
    body();
    least = std::min(least, now_us() - begin);
  }
  // A clock may stand still for less.
  return std::max(least, 0.01);
}

// As a packed field of weather is: smooth, with small eddies, in steps of 2^-9. In zstd, LZ4, blosc
// and gzip it compresses by 1.7, 1.1, 2.2 and 1.9, and the host decodes it at 1.2, 7.4, 3.6 and
// 0.61 GB/s; 128 KiB of a field (bench/device/field.py) by 1.8, 1.1, 2.1 and 1.9 at 1.1, 6.2, 3.4
// and 0.62. Noise in the last bits instead is copied by the LZ codecs: 14 and 8.5, and the host was
// chosen where it took twice as long.
std::vector<float> sample() {
  std::vector<float> values(kSampleElements);
  std::uint32_t state = 1;
  double eddy = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    state = state * 1664525 + 1013904223;
    eddy = 0.97 * eddy + 0.1 * (static_cast<double>(state >> 16) / 65536 - 0.5);
    const double smooth = 280 + 20 * std::sin(static_cast<double>(i) * 0.003);
    values[i] = static_cast<float>(std::round((smooth + eddy) * 512) / 512);
  }
  return values;
}

// One codec on both sides.
class Timed {
 public:
  Timed(Backend& devices, int index, Queue& queue, const CodecSpec& codec)
      : devices_(devices), index_(index), queue_(queue), chain_(specs(codec), chunk_of(codec), {}) {
    const std::vector<float> values = sample();
    decoded_.resize(chain_.decoded_nbytes());
    chain_.encode(std::as_bytes(std::span(values)), encoded_);
  }

  // What the host takes is from the page cache on, as it is built in.
  DecodeRates::OfCodec measure(Clock now_us, double fetch_gb_s) {
    DecodeRates::OfCodec rates{};
    const double decode_us =
        least_us(kHostRuns, now_us, [&] { chain_.decode(encoded_.bytes(), decoded_, {1}); });
    const double host_us = decode_us + static_cast<double>(encoded_.size()) / (fetch_gb_s * 1e3);
    rates.host_gb_s = static_cast<double>(decoded_.size()) / (host_us * 1e3);
    rates.device_us = device_us(now_us);
    return rates;
  }

 private:
  static std::vector<CodecSpec> specs(const CodecSpec& codec) {
    if (codec.name == "numcodecs.delta") return {codec, codec::bytes()};
    return {codec::bytes(), codec};
  }

  static ChunkSpec chunk_of(const CodecSpec& codec) {
    ChunkSpec chunk;
    chunk.dtype = codec.name == "numcodecs.delta" ? DType::int32 : DType::float32;
    chunk.shape = {static_cast<std::int64_t>(kSampleElements)};
    return chunk;
  }

  // From encoded bytes on the host to the faults. The first time loads kernels, and is left out.
  double device_us(Clock now_us) {
    const DevicePlan plan = make_device_plan(chain_);
    const std::size_t n = encoded_.size();
    const auto pinned = devices_.allocate_pinned(index_, n);
    std::copy_n(encoded_.data(), n, pinned.get());
    const Scratch<std::uint8_t> source(queue_, (n + 15) / 16 * 16 + kSourcePadding);
    const Scratch<std::uint8_t> target(queue_, decoded_.size());
    const Scratch<std::uint32_t> faults(queue_, plan.steps.size());
    std::vector<std::uint32_t> found(plan.steps.size());
    double least = std::numeric_limits<double>::infinity();
    for (int i = 0; i < kDeviceRuns; ++i) {
      const double begin = now_us();
      queue_.upload_pinned(source.data(), pinned.get(), n);
      queue_.fill(faults.data(), 0, faults.size() * sizeof(std::uint32_t));
      const auto headers = read_headers(devices_, plan, {pinned.get(), n});
      const DeviceChunk chunk{n, headers.get(), source.data(), target.data()};
      DeviceDecoder decoder(queue_, devices_, {&chunk, 1});
      decoder.run(plan, faults.data());
      queue_.download(found.data(), faults.data(), faults.size() * sizeof(std::uint32_t));
      queue_.synchronize();
      if (i > 0) least = std::min(least, now_us() - begin);
    }
    for (std::size_t step = 0; step < found.size(); ++step)
      if (found[step] != 0) throw fault_error(plan.steps[step], static_cast<Fault>(found[step]));
    return std::max(least, 0.01);
  }

  Backend& devices_;
  const int index_;
  Queue& queue_;
  const CodecChain chain_;
  Buffer encoded_;
  std::vector<std::byte> decoded_;
};

// Out of the page cache into pinned memory, and from there to the device.
void measure_copies(Backend& devices, int index, Queue& queue, Clock now_us, DecodeRates& rates) {
  const auto pinned = devices.allocate_pinned(index, kBlockNbytes);
  const FileDescriptor file(open_unnamed_memory("headrace-rates"));
  if (!file) throw_io(errno, "measure", "memory");
  const ConstBytes bytes(pinned.get(), kBlockNbytes);
  std::fill_n(pinned.get(), kBlockNbytes, std::byte{1});
  write_at(file.get(), 0, {&bytes, 1}, "memory");
  const auto gb_s = [](double us) { return static_cast<double>(kBlockNbytes) / (us * 1e3); };
  rates.fetch_gb_s = gb_s(least_us(kHostRuns, now_us, [&] {
    if (read_at(file.get(), 0, {pinned.get(), kBlockNbytes}, "memory") != kBlockNbytes)
      throw_io(EIO, "measure", "memory");
  }));
  const Scratch<std::uint8_t> target(queue, kBlockNbytes);
  rates.copy_gb_s = gb_s(least_us(kHostRuns, now_us, [&] {
    queue.upload_pinned(target.data(), pinned.get(), kBlockNbytes);
    queue.synchronize();
  }));
}

std::string host_name() {
  const std::string model = processor_model();
  return (model.empty() ? "unknown" : model) + ", " + std::to_string(allowed_processors()) +
         " processors";
}

// What the process knows.
struct Known {
  enum class State : std::uint8_t { nothing, looking, no_file, good };
  State state = State::nothing;
  RatesInForce rates{};
};

struct AllKnown {
  using Key = std::pair<std::string_view, int>;  // own_name() of the backend, and the device
  ForkMutex mutex;
  std::map<Key, Known> known GUARDED_BY(mutex);
  double (*now_us)() GUARDED_BY(mutex) = nullptr;

  static AllKnown& get() {
    static auto* all = new AllKnown;  // never destroyed: threads may outlive statics
    return *all;
  }
};

RatesInForce built_in(const std::string& why) {
  return {{}, why.empty() ? "built in" : "built in: " + why};
}

// A child of fork may find that a thread of its parent was at it; it stays with what is built in.
bool begin(const AllKnown::Key& key, Known::State from) {
  AllKnown& all = AllKnown::get();
  ForkLock lock(all.mutex);
  Known& known = all.known[key];
  if (known.state != from) return false;
  known.state = Known::State::looking;
  return true;
}

void end(const AllKnown::Key& key, Known::State state, RatesInForce rates) {
  AllKnown& all = AllKnown::get();
  ForkLock lock(all.mutex);
  all.known[key] = {state, std::move(rates)};
}

RatesInForce look_for_file(const AllKnown::Key& key, const RatesKey& of) {
  const std::string path = rates_path(of);
  if (const auto found = load_rates(path, of)) {
    const RatesInForce rates{within_bounds(*found), path};
    end(key, Known::State::good, rates);
    return rates;
  }
  const RatesInForce rates = built_in("nothing was measured yet");
  end(key, Known::State::no_file, rates);
  return rates;
}

std::optional<RatesKey> key_of(Backend& devices, int index) {
  const std::string driver = devices.driver(index);
  if (driver.empty()) return std::nullopt;
  return RatesKey{host_name(), devices.device_name(index), driver, version()};
}

void measure(Backend& devices, int index, const AllKnown::Key& key) {
  double (*clock)() = nullptr;
  {
    AllKnown& all = AllKnown::get();
    ForkLock lock(all.mutex);
    clock = all.now_us ? all.now_us : system_us;
  }
  RatesInForce rates;
  try {
    const Span span("measure");
    const auto of = key_of(devices, index);
    rates.rates = within_bounds(measure_rates(devices, index, clock));
    const std::string path = of ? rates_path(*of) : std::string();
    const std::string problem = of ? store_rates(path, *of, rates.rates) : std::string();
    rates.source =
        problem.empty() ? "measured, and kept in " + path : "measured, and not kept: " + problem;
  } catch (const std::exception& error) {
    rates = built_in(std::string("measuring failed: ") + error.what());
  }
  end(key, Known::State::good, std::move(rates));
}

}  // namespace

DecodeRates measure_rates(Backend& devices, int index, Clock now_us) {
  const auto queue = devices.make_queue(index);
  DecodeRates rates;
  measure_copies(devices, index, *queue, now_us, rates);
  const auto of = [&](const CodecSpec& codec) {
    return Timed(devices, index, *queue, codec).measure(now_us, rates.fetch_gb_s);
  };
  rates.zstd = of(codec::zstd(3));
  rates.lz4 = of(codec::lz4());
  rates.blosc = of(codec::blosc());
  rates.deflate = of(codec::gzip(5));
  rates.delta = of({"numcodecs.delta", R"({"dtype": "<i4"})"});
  rates.other = of({"numcodecs.shuffle", R"({"elementsize": 4})"});
  return rates;
}

DecodeRates within_bounds(const DecodeRates& measured) {
  static constexpr DecodeRates kBuiltIn;
  const auto clamp = [](double value, double built_in) {
    return std::clamp(value, built_in / kBound, built_in * kBound);
  };
  DecodeRates rates;
  for (const auto& [name, codec] : kRatedCodecs) {
    const DecodeRates::OfCodec& found = measured.*codec;
    const DecodeRates::OfCodec& known = kBuiltIn.*codec;
    rates.*
        codec = {clamp(found.host_gb_s, known.host_gb_s), clamp(found.device_us, known.device_us)};
  }
  rates.fetch_gb_s = clamp(measured.fetch_gb_s, kBuiltIn.fetch_gb_s);
  rates.copy_gb_s = clamp(measured.copy_gb_s, kBuiltIn.copy_gb_s);
  return rates;
}

RatesInForce rates_in_force(Backend& devices, int index, const Config& config) {
  if (config.device_rates == "built-in") return built_in("as configured");
  const AllKnown::Key key{devices.own_name(), index};
  {
    AllKnown& all = AllKnown::get();
    ForkLock lock(all.mutex);
    const auto known = all.known.find(key);
    if (known != all.known.end() && known->second.state != Known::State::nothing) {
      if (known->second.state == Known::State::looking)
        return built_in("others are being looked for");
      return known->second.rates;
    }
  }
  const auto of = key_of(devices, index);
  if (!of) return built_in("nothing is measured on this type of device");
  if (!begin(key, Known::State::nothing)) return built_in("others are being looked for");
  return look_for_file(key, *of);
}

bool chooses_device(Backend& devices,
                    int index,
                    std::span<const DeviceStage::Kind> steps,
                    const DecodeWork& work,
                    int threads,
                    const Config& config) {
  if (config.device_min_decode_nbytes)
    return device_decodes(steps, work, threads, config.device_min_decode_nbytes);
  RatesInForce rates = rates_in_force(devices, index, config);
  const AllKnown::Key key{devices.own_name(), index};
  const auto cost = [&] { return decode_cost(steps, work, threads, rates.rates); };
  const auto depends = [&] {
    const DecodeCost found = cost();
    return found.host_us < kBound * found.device_us && found.device_us < kBound * found.host_us;
  };
  if (config.device_rates == "measured" && depends() && begin(key, Known::State::no_file)) {
    measure(devices, index, key);
    rates = rates_in_force(devices, index, config);
  }
  return cost().device_is_faster();
}

void forget_rates(double (*now_us)()) {
  AllKnown& all = AllKnown::get();
  ForkLock lock(all.mutex);
  all.known.clear();
  all.now_us = now_us;
}

}  // namespace headrace
