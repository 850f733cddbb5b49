#include "store/cloud/environment.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>
#include <span>

#include "base/bytes.h"
#include "headrace/error.h"
#include "store/cloud/xml.h"
#include "store/posix.h"

namespace headrace {

Surroundings real_surroundings(const HttpOptions& options) {
  HttpOptions remote = options;
  remote.max_in_flight = 4;
  remote.hedge = false;
  HttpOptions local = remote;
  // Where there is no such service its address answers nothing: a second is what AWS's libraries
  // wait, too.
  using std::chrono::milliseconds;
  local.connect_timeout = std::min(options.connect_timeout, milliseconds(1'000));
  local.idle_timeout = std::min(options.idle_timeout, milliseconds(5'000));
  local.timeout = std::min(options.timeout, milliseconds(15'000));
  local.max_attempts = 2;
  local.no_proxy = "*";
  return {[](const char* name) -> std::optional<std::string> {
            const char* value = std::getenv(name);
            if (value == nullptr || *value == '\0') return std::nullopt;
            return value;
          },
          make_http_client(remote),
          make_http_client(local)};
}

std::optional<std::string> read_small_file(const std::string& path) {
  constexpr std::size_t kMost = std::size_t{1} << 20;
  // A pipe that nobody writes to would be waited for.
  const FileDescriptor file(open_retrying(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) {
    if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
    throw_io(errno, "open", path);
  }
  std::string text(kMost + 1, '\0');
  const std::size_t nbytes =
      read_at(file.get(), 0, std::as_writable_bytes(std::span(text.data(), text.size())), path);
  if (nbytes > kMost) {
    throw Error(ErrorCode::corrupt, path + " is no file of credentials: it has more than 1 MiB");
  }
  text.resize(nbytes);
  return text;
}

std::string in_home(const Surroundings& around, std::string_view path) {
  return around.variable("HOME").value_or("") + "/" + std::string(path);
}

namespace {

// The name of the error in JSON of OAuth, or in XML of AWS.
std::string error_name(std::string_view body) {
  const nlohmann::json answer = nlohmann::json::parse(body, nullptr, false);
  if (answer.is_object()) {
    for (const char* name : {"error", "code", "Code"}) {
      const auto found = answer.find(name);
      if (found != answer.end() && found->is_string()) return *found;
    }
    return "";
  }
  try {
    XmlReader xml(body);
    while (xml.next()) {
      if (xml.name() == "Code") return xml.text();
    }
  } catch (const Error&) {
    // A page in HTML says nothing here.
  }
  return "";
}

}  // namespace

std::string expect_answer(const HttpResponse& response, const std::string& who) {
  if (response.error) {
    try {
      std::rethrow_exception(response.error);
    } catch (const Error& error) {
      throw error.with_context(who);
    }
  }
  const std::string_view body = text_of(response.body.bytes());
  if (response.ok()) return std::string(body);
  const std::string name = error_name(body);
  throw Error(response.status >= 500 ? ErrorCode::io : ErrorCode::permission_denied,
              who + " gave no credentials: it answered " + std::to_string(response.status) +
                  (name.empty() ? "" : " " + name));
}

void expect_service(const HttpResponse& response,
                    const std::string& who,
                    const std::string& none_found) {
  constexpr std::array kNotHere{400, 403, 404, 405};  // of another cloud, or without a role
  const bool there = std::ranges::find(kNotHere, response.status) == kNotHere.end();
  if (!response.error && there) return;
  try {
    expect_answer(response, who);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::cancelled) throw;
    throw Error(ErrorCode::permission_denied, none_found + " (" + error.what() + ")");
  }
}

std::optional<std::chrono::system_clock::time_point> read_time(const std::string& text) {
  std::tm parts{};
  const char* end = strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
  if (end != nullptr && *end == '.') end += 1 + std::strspn(end + 1, "0123456789");
  // "Z", "+02:00", "+0200", or nothing.
  std::tm shift{};
  const bool shifted = end != nullptr && (*end == '+' || *end == '-');
  const char* rest = end;
  if (shifted) rest = strptime(end + 1, std::strchr(end, ':') ? "%H:%M" : "%H%M", &shift);
  if (rest != nullptr && !shifted && *rest == 'Z') ++rest;
  if (rest == nullptr || *rest != '\0') return std::nullopt;
  const std::int64_t ahead = shift.tm_hour * 3600 + shift.tm_min * 60;
  return time_at(timegm(&parts) - (shifted && *end == '-' ? -ahead : ahead));
}

std::chrono::system_clock::time_point parse_time(const std::string& text) {
  const auto time = read_time(text);
  if (time) return *time;
  throw Error(ErrorCode::corrupt, "credentials end at \"" + text + "\", which is no time");
}

std::chrono::system_clock::time_point time_at(std::int64_t seconds) {
  using Time = std::chrono::system_clock::time_point;
  // What the clock can not count to: "9999-12-31T23:59:59Z" says that something does not end.
  constexpr std::int64_t kLast =
      std::chrono::duration_cast<std::chrono::seconds>(Time::max().time_since_epoch()).count();
  if (seconds >= kLast) return Time::max();
  return std::chrono::system_clock::from_time_t(std::max<std::int64_t>(seconds, 0));
}

}  // namespace headrace
