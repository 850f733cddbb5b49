#include "engine/device/rates_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/system.h"
#include "headrace/error.h"
#include "store/posix.h"
#include "store/temporary_file.h"

namespace headrace {
namespace {

using Json = nlohmann::ordered_json;

// What this version writes has some 700.
constexpr std::size_t kMostNbytes = std::size_t{64} << 10;

// Of other samples, or measured in another way, rates are others.
constexpr int kWay = 2;

Json to_json(const RatesKey& key) {
  return {{"host", key.host},
          {"device", key.device},
          {"driver", key.driver},
          {"version", key.version},
          {"way", kWay}};
}

// FNV-1a: names of files need not be hard to guess, and the key is in the file.
std::string hash_of(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
  return digits;
}

std::string whole_file(const std::string& path) {
  const FileDescriptor fd(open_retrying(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY));
  struct stat st {};
  if (!fd || os().fstat(fd.get(), &st) != 0 || !S_ISREG(st.st_mode)) return {};
  std::string text(kMostNbytes, '\0');
  const std::size_t n = read_at(fd.get(), 0, std::as_writable_bytes(std::span(text)), path);
  text.resize(n);
  return text;
}

double number(const Json& of, const char* name) {
  const auto value = of.at(name).get<double>();
  if (!std::isfinite(value) || value <= 0) throw Error(ErrorCode::corrupt, name);
  return value;
}

}  // namespace

std::string rates_path(const RatesKey& key) {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  const char* const home = std::getenv("HOME");
  std::string folder;
  // The specification has relative ones ignored.
  if (cache && cache[0] == '/') {
    folder = cache;
  } else if (home && home[0] == '/') {
    folder = std::string(home) + "/.cache";
  } else {
    return {};
  }
  return folder + "/headrace/rates-" +
         hash_of(to_json(key).dump(-1, ' ', true, Json::error_handler_t::replace)) + ".json";
}

std::optional<DecodeRates> load_rates(const std::string& path, const RatesKey& key) {
  if (path.empty()) return std::nullopt;
  try {
    const Json file = Json::parse(whole_file(path));
    if (file.at("key") != to_json(key)) return std::nullopt;
    DecodeRates rates;
    const Json& found = file.at("rates");
    for (const auto& [name, codec] : kRatedCodecs)
      rates.*codec = {number(found.at(name), "host_gb_s"), number(found.at(name), "device_us")};
    rates.fetch_gb_s = number(found, "fetch_gb_s");
    rates.copy_gb_s = number(found, "copy_gb_s");
    return rates;
  } catch (const Json::exception&) {
  } catch (const Error&) {
  }
  return std::nullopt;  // it is measured anew, and written over
}

std::string store_rates(const std::string& path, const RatesKey& key, const DecodeRates& rates) {
  if (path.empty()) return "neither XDG_CACHE_HOME nor HOME names a folder";
  Json found = Json::object();
  for (const auto& [name, codec] : kRatedCodecs) {
    const DecodeRates::OfCodec& of = rates.*codec;
    found[name] = {{"host_gb_s", of.host_gb_s}, {"device_us", of.device_us}};
  }
  found["fetch_gb_s"] = rates.fetch_gb_s;
  found["copy_gb_s"] = rates.copy_gb_s;
  const Json file = {{"key", to_json(key)}, {"rates", std::move(found)}};
  const std::string text = file.dump(1, ' ', true, Json::error_handler_t::replace) + '\n';
  const ConstBytes bytes = std::as_bytes(std::span(text));
  try {
    TemporaryFile made(path, false);
    write_at(made.fd(), 0, {&bytes, 1}, path);
    return made.publish() ? "" : path + ": somebody removed it";
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace headrace
