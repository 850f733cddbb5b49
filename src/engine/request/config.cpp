#include "engine/request/config.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <system_error>
#include <utility>

#include "base/checked.h"
#include "base/fork_mutex.h"
#include "base/thread_pool.h"
#include "codec/registry.h"
#include "device/backend.h"
#include "device/mapped_files.h"
#include "engine/layout/device_codecs.h"

namespace headrace {
namespace {

constexpr int kMaxThreads = 4096;
constexpr std::size_t kMaxDepth = 65536;
constexpr std::size_t kMaxLockTimeout = 1'000'000'000;  // seconds: some 30 years

// Two chunks of 16 MiB. A budget for all threads together would leave processors idle on machines
// that have many: with 64 MiB, 8 of 16 read chunks of 4 MiB.
constexpr std::size_t kBudgetPerThread = std::size_t{32} << 20;
constexpr std::size_t kLeastBudget = std::size_t{64} << 20;

[[noreturn]] void throw_invalid(const std::string& where,
                                std::string_view wanted,
                                std::string_view got) {
  throw Error(ErrorCode::invalid_argument,
              where + ": expected " + std::string(wanted) + ", got \"" + std::string(got) + '"');
}

// "4096", "64MiB".
std::size_t parse_nbytes(const char* where, std::string_view text) {
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  std::size_t scale = 1;
  if (unit == "KiB") {
    scale = std::size_t{1} << 10;
  } else if (unit == "MiB") {
    scale = std::size_t{1} << 20;
  } else if (unit == "GiB") {
    scale = std::size_t{1} << 30;
  } else if (!unit.empty()) {
    throw_invalid(where, "bytes, as in 67108864 or 64MiB", text);
  }
  if (error != std::errc()) throw_invalid(where, "bytes, as in 67108864 or 64MiB", text);
  return checked_mul(value, scale, where);
}

template <typename Number>
Number parse_number(const char* where, const char* wanted, std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) throw_invalid(where, wanted, text);
  return value;
}

// "zstd:libzstd,gzip:isa-l"
Implementations parse_implementations(const char* where, std::string_view text) {
  Implementations result;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    const std::string_view pair = text.substr(0, comma);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
    const std::size_t colon = pair.find(':');
    if (colon == std::string_view::npos || colon == 0 || colon + 1 == pair.size()) {
      throw_invalid(where, "codec:implementation pairs, as in zstd:libzstd,gzip:isa-l", pair);
    }
    result[std::string(pair.substr(0, colon))] = std::string(pair.substr(colon + 1));
  }
  return result;
}

void check_config(const Config& config, const char* where) {
  const std::string place = where;
  if (config.threads < 0 || config.threads > kMaxThreads) {
    throw_invalid(
        place + " threads", "0 to " + std::to_string(kMaxThreads), std::to_string(config.threads));
  }
  if (config.device_slab_nbytes == 0)
    throw_invalid(place + " device_slab_nbytes", "at least one byte", "0");
  if (config.device_zstd_block_nbytes < 1024 || config.device_zstd_block_nbytes > 128 * 1024)
    throw_invalid(place + " device_zstd_block_nbytes",
                  "1024 to 131072",
                  std::to_string(config.device_zstd_block_nbytes));
  if (config.coalesce_run == 0) throw_invalid(place + " coalesce_run", "at least one byte", "0");
  if (config.io_depth == 0 || config.io_depth > kMaxDepth) {
    throw_invalid(
        place + " io_depth", "1 to " + std::to_string(kMaxDepth), std::to_string(config.io_depth));
  }
  if (config.lock_timeout > kMaxLockTimeout)
    throw_invalid(place + " lock_timeout",
                  "0 to " + std::to_string(kMaxLockTimeout) + " seconds",
                  std::to_string(config.lock_timeout));
  if (config.io_nbytes == 0) throw_invalid(place + " io_nbytes", "at least one byte", "0");
  if (config.gds != "auto" && config.gds != "on" && config.gds != "off")
    throw_invalid(place + " gds", "\"auto\", \"on\" or \"off\"", config.gds);
  if (config.device_rates != "measured" && config.device_rates != "built-in")
    throw_invalid(place + " device_rates", "\"measured\" or \"built-in\"", config.device_rates);
  if (config.device_mapped != "on" && config.device_mapped != "off")
    throw_invalid(place + " device_mapped", "\"on\" or \"off\"", config.device_mapped);
  static_cast<void>(Device::parse(config.device));
  check_implementations(config.implementations, where);
}

struct Installed {
  ForkMutex mutex;
  std::shared_ptr<const Config> config GUARDED_BY(mutex);  // null until somebody asks

  static Installed& get() {
    static auto* installed = new Installed;  // never destroyed: threads may outlive statics
    return *installed;
  }
};

void overlay(Implementations& below, const Implementations& above) {
  for (const auto& [codec, implementation] : above) {
    below[std::string(canonical_codec_name(codec))] = implementation;
  }
}

}  // namespace

std::shared_ptr<const Config> current_config() {
  Installed& installed = Installed::get();
  {
    ForkLock lock(installed.mutex);
    if (installed.config) return installed.config;
  }
  auto made = std::make_shared<const Config>(config_from_environment());
  ForkLock lock(installed.mutex);
  if (!installed.config) {
    set_thread_count(made->threads);
    installed.config = std::move(made);
  }
  return installed.config;
}

Config config_from_environment() {
  Config result;
  if (const char* text = std::getenv("HEADRACE_THREADS")) {
    result.threads = parse_number<int>("HEADRACE_THREADS", "a number of threads", text);
  }
  if (const char* text = std::getenv("HEADRACE_IO_DEPTH")) {
    result.io_depth = parse_number<std::size_t>("HEADRACE_IO_DEPTH", "a number of requests", text);
  }
  if (const char* text = std::getenv("HEADRACE_MEMORY_BUDGET")) {
    result.memory_budget = parse_nbytes("HEADRACE_MEMORY_BUDGET", text);
  }
  if (const char* text = std::getenv("HEADRACE_DEVICE")) result.device = text;
  if (const char* text = std::getenv("HEADRACE_FORCE_CODEC")) {
    result.implementations = parse_implementations("HEADRACE_FORCE_CODEC", text);
  }
  check_config(result, "[environment]");
  return result;
}

void check_implementations(const Implementations& implementations, const char* where) {
  for (const auto& [codec, implementation] : implementations) {
    const std::string_view name = canonical_codec_name(codec);
    std::string known;
    bool found = false;
    for (const CodecEntry& entry : codec_entries()) {
      if (entry.codec != name) continue;
      found |= entry.implementation == implementation;
      known += (known.empty() ? "" : ", ") + std::string(entry.implementation);
    }
    for (const DeviceCodec& entry : device_codecs()) {
      if (entry.codec != name) continue;
      for (const Device::Type type : kDeviceTypes) {
        found |= implementation == backend(type).own_name();
        known += ", " + std::string(backend(type).own_name());
      }
    }
    for (const Device::Type type : kDeviceTypes) {
      for (const DecoderLibrary& library : backend(type).libraries()) {
        if (std::ranges::find(library.codecs, name) == library.codecs.end()) continue;
        found |= implementation == library.name;
        known += ", " + std::string(library.name);
      }
    }
    if (found) continue;
    if (known.empty()) {
      throw Error(ErrorCode::invalid_argument,
                  std::string(where) + " implementations: there is no codec \"" + codec + '"');
    }
    throw_invalid(
        std::string(where) + " implementation of " + codec, "one of " + known, implementation);
  }
}

Config config() { return *current_config(); }

void set_config(const Config& config) {
  check_config(config, "[set_config]");
  auto made = std::make_shared<const Config>(config);
  const std::size_t mapped = mapped_nbytes(config);
  Installed& installed = Installed::get();
  {
    ForkLock lock(installed.mutex);
    set_thread_count(made->threads);
    installed.config = std::move(made);
  }
  MappedFiles::limit_process(mapped);
}

std::size_t mapped_nbytes(const Config& config) {
  if (config.device_mapped == "off") return 0;
  return config.device_mapped_nbytes ? config.device_mapped_nbytes : default_mapped_nbytes();
}

std::size_t memory_budget(const Config& config) {
  if (config.memory_budget != 0) return config.memory_budget;
  return std::max(kLeastBudget, kBudgetPerThread * static_cast<std::size_t>(thread_count()));
}

Implementations merged_implementations(const Implementations& handle, const Implementations& call) {
  Implementations result;
  overlay(result, current_config()->implementations);
  overlay(result, handle);
  overlay(result, call);
  return result;
}

}  // namespace headrace
