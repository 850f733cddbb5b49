#include "store/http/network.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/system.h"
#include "headrace/config.h"
#include "headrace/error.h"

namespace headrace {

namespace {

// Debian, Fedora and RHEL, SUSE, older RHEL, Alpine, macOS and the BSDs. A library that was built
// on one of them looks for its certificates there, wherever it runs.
constexpr std::array<const char*, 7> kBundles = {
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
    "/usr/local/etc/ssl/cert.pem",
    "/opt/homebrew/etc/ca-certificates/cert.pem",
};

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string first_of(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (std::string value = variable(name); !value.empty()) return value;
  }
  return "";
}

bool is_file(const std::string& path) {
  struct stat st;
  return os().stat(path.c_str(), &st) == 0 && S_ISREG(st.st_mode);
}

std::string find_ca_bundle(const HttpOptions& options) {
  if (!options.verify_tls) return "";
  if (!options.ca_bundle.empty()) {
    if (is_file(options.ca_bundle)) return options.ca_bundle;
    throw Error(ErrorCode::invalid_argument,
                "ca_bundle " + options.ca_bundle + ": there is no such file");
  }
  // What a variable names counts though it is missing: the first TLS connection says so.
  if (std::string path = first_of({"SSL_CERT_FILE", "CURL_CA_BUNDLE"}); !path.empty()) return path;
  for (const char* path : kBundles) {
    if (is_file(path)) return path;
  }
  return "";
}

void check(bool good, const char* what) {
  if (!good) throw Error(ErrorCode::invalid_argument, std::string("HTTP options: ") + what);
}

int usual_in_flight() {
  constexpr rlim_t kUsual = 256;
  rlimit descriptors{};
  if (getrlimit(RLIMIT_NOFILE, &descriptors) != 0) return static_cast<int>(kUsual);
  return static_cast<int>(std::clamp<rlim_t>(descriptors.rlim_cur / 4, 1, kUsual));
}

}  // namespace

NetworkSettings network_settings(const HttpOptions& options) {
  using std::chrono::milliseconds;
  check(options.max_in_flight >= 0 && options.max_in_flight <= 4096, "max_in_flight: 0 to 4096");
  check(options.max_attempts >= 1, "max_attempts: at least 1");
  check(options.connect_timeout > milliseconds(0) && options.idle_timeout > milliseconds(0) &&
            options.timeout > milliseconds(0),
        "timeouts: more than 0");
  check(options.backoff >= milliseconds(0) && options.max_backoff >= options.backoff,
        "max_backoff: at least backoff, which is at least 0");
  NetworkSettings settings{.options = options,
                           .ca_bundle = find_ca_bundle(options),
                           .http_proxy = options.proxy,
                           .https_proxy = options.proxy,
                           .no_proxy = options.no_proxy,
                           .user_agent = options.user_agent};
  if (options.max_in_flight == 0) settings.options.max_in_flight = usual_in_flight();
  if (options.proxy.empty()) {
    // Not HTTP_PROXY: a CGI script has it of whoever asks (https://httpoxy.org).
    settings.http_proxy = first_of({"http_proxy", "all_proxy", "ALL_PROXY"});
    settings.https_proxy = first_of({"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"});
  }
  if (options.no_proxy.empty()) settings.no_proxy = first_of({"no_proxy", "NO_PROXY"});
  if (options.user_agent.empty()) settings.user_agent = "headrace/" + version();
  return settings;
}

}  // namespace headrace
