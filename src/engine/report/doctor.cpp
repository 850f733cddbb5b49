#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/processors.h"
#include "base/system.h"
#include "base/thread_pool.h"
#include "device/backend.h"
#include "device/mapped_files.h"
#include "engine/device/rates.h"
#include "engine/device/rates_file.h"
#include "engine/report/device_rows.h"
#include "engine/report/machine.h"
#include "engine/request/config.h"
#include "headrace/codec.h"
#include "headrace/config.h"
#include "headrace/error.h"
#include "store/uring.h"

namespace headrace {
namespace {

using Json = nlohmann::ordered_json;

Json text_or_null(const std::optional<std::string>& text) {
  return text ? Json(*text) : Json(nullptr);
}

Json compiler() {
#if defined(__clang__)
  return {{"name", "clang"}, {"version", __clang_version__}};
#else
  return {{"name", "gcc"}, {"version", __VERSION__}};
#endif
}

Json cpu_features() {
  Json features = Json::array();
#if defined(__x86_64__)
  const auto add = [&](const char* name, int supported) {
    if (supported) features.push_back(name);
  };
  __builtin_cpu_init();
  add("sse4.2", __builtin_cpu_supports("sse4.2"));
  add("pclmul", __builtin_cpu_supports("pclmul"));
  add("avx2", __builtin_cpu_supports("avx2"));
  add("bmi2", __builtin_cpu_supports("bmi2"));
  add("avx512f", __builtin_cpu_supports("avx512f"));
  add("avx512bw", __builtin_cpu_supports("avx512bw"));
  add("avx512vbmi", __builtin_cpu_supports("avx512vbmi"));
#elif defined(__aarch64__)
  features.push_back("neon");
#endif
  return features;
}

Json cgroup() {
  const GroupLimits limits = group_limits();
  return {{"cpu_max", text_or_null(limits.cpu_max)},
          {"memory_max", text_or_null(limits.memory_max)}};
}

Json limit(int resource) {
  rlimit limits{};
  if (getrlimit(resource, &limits) != 0 || limits.rlim_cur == RLIM_INFINITY) {
    return nullptr;
  }
  return limits.rlim_cur;
}

Json devices() {
  Json result = Json::array({{{"device", "cpu"}, {"available", true}, {"why_not", ""}}});
  for (const Device::Type type : kDeviceTypes) {
    for (const DeviceRow& found : device_rows(type, backend(type))) {
      Json row = {{"device", found.device.to_string()},
                  {"available", found.why_not.empty()},
                  {"why_not", found.why_not}};
      if (found.why_not.empty()) {
        row["name"] = found.name;
        row["nbytes"] = found.nbytes;
      }
      result.push_back(std::move(row));
    }
  }
  return result;
}

Json codecs() {
  Json result = Json::array();
  for (const CodecInfo& row : codec_table()) {
    result.push_back({{"codec", row.codec},
                      {"implementation", row.implementation},
                      {"device", row.device},
                      {"available", row.available},
                      {"why_not", row.why_not},
                      {"used", row.used},
                      {"encodes", row.encodes},
                      {"used_to_encode", row.used_to_encode}});
  }
  return result;
}

Json io_uring() {
  std::string why_not;
  const bool available = uring_available(why_not);
  return {{"available", available}, {"why_not", why_not}};
}

// cuFile needs a GPU: without one it is not even looked for. The library of tests comes first.
Json gds() {
  const bool of_tests = !simt_backend().direct_files().library.empty();
  const Backend& devices = of_tests ? simt_backend() : cuda_backend();
  const std::string no_device = devices.why_none();
  const DirectFiles found =
      no_device.empty() ? devices.direct_files() : DirectFiles{.why_not = no_device};
  const bool available = found.why_not.empty();
  const char* used = "no: files are read through pinned memory of the host";
  if (available && config().gds != "off") used = "for files of chunks without a compressor";
  return {{"available", available},
          {"why_not", found.why_not},
          {"device", of_tests ? "simt" : "cuda"},
          {"library", found.library},
          {"driver", found.driver},
          {"used", used}};
}

// Of each device that has any: what choices are made by, and whence it is.
Json rates() {
  Json result = Json::array();
  for (const Device::Type type : kDeviceTypes) {
    Backend& devices = backend(type);
    for (const DeviceRow& found : device_rows(type, devices)) {
      if (!found.why_not.empty()) continue;
      const RatesInForce force = rates_in_force(devices, found.device.index, config());
      Json row = {{"device", found.device.to_string()}, {"source", force.source}};
      for (const auto& [name, codec] : kRatedCodecs) {
        const DecodeRates::OfCodec& of = force.rates.*codec;
        row[name] = {{"host_gb_s", of.host_gb_s}, {"device_us", of.device_us}};
      }
      row["fetch_gb_s"] = force.rates.fetch_gb_s;
      row["copy_gb_s"] = force.rates.copy_gb_s;
      result.push_back(std::move(row));
    }
  }
  return result;
}

Json mapped() {
  const MappedFiles::Stats stats = MappedFiles::get().stats();
  return {{"nbytes", stats.nbytes},
          {"most_nbytes", mapped_nbytes(config())},
          {"windows", stats.windows},
          {"mapped", stats.mapped},
          {"reused", stats.reused},
          {"evicted", stats.evicted},
          {"dropped", stats.dropped},
          {"refused", stats.refused},
          {"why_not", stats.why_not}};
}

Json configuration() {
  const Config c = config();
  return {{"threads", thread_count()},
          {"memory_budget", memory_budget(c)},
          {"coalesce_gap", c.coalesce_gap},
          {"coalesce_run", c.coalesce_run},
          {"io_depth", c.io_depth},
          {"io_nbytes", c.io_nbytes},
          {"lock_timeout", c.lock_timeout},
          {"implementations", c.implementations},
          {"device", c.device},
          {"device_min_decode_nbytes",
           c.device_min_decode_nbytes ? Json(*c.device_min_decode_nbytes) : Json(nullptr)},
          {"device_slab_nbytes", c.device_slab_nbytes},
          {"device_zstd_block_nbytes", c.device_zstd_block_nbytes},
          {"gds", c.gds},
          {"device_rates", c.device_rates},
          {"device_mapped", c.device_mapped},
          {"device_mapped_nbytes", c.device_mapped_nbytes}};
}

}  // namespace

std::string doctor_json() {
  const long page_size = sysconf(_SC_PAGESIZE);
  const Json report = {
      {"version", version()},
      {"compiler", compiler()},
      {"portable", is_portable()},
      {"cpu",
       {{"model", processor_model()},
        {"features", cpu_features()},
        {"processors", sysconf(_SC_NPROCESSORS_ONLN)},
        {"allowed_processors", allowed_processors()}}},
      {"cgroup", cgroup()},
      {"memory",
       {{"nbytes", sysconf(_SC_PHYS_PAGES) * page_size},
        {"page_size", page_size},
        {"transparent_huge_pages", text_or_null(transparent_huge_pages())}}},
      {"devices", devices()},
      {"codecs", codecs()},
      {"io_uring", io_uring()},
      {"gds", gds()},
      {"rates", rates()},
      {"mapped", mapped()},
      {"limits",
       {{"open_files", limit(RLIMIT_NOFILE)},
        {"address_space", limit(RLIMIT_AS)},
        {"locked_memory", limit(RLIMIT_MEMLOCK)}}},
      {"config", configuration()},
  };
  // Names of the system's files are not ours to vouch for: what is not UTF-8 is replaced.
  return report.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace headrace
