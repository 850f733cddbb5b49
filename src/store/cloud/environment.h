#pragma once

// What credentials are looked for in: the environment, files of other programs, services that give
// them out. One place, so that tests say what is there.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "store/http/client.h"

namespace headrace {

struct Surroundings {
  // A variable of the environment; nothing: unset or empty.
  std::function<std::optional<std::string>(const char*)> variable;
  // Of services across the internet.
  std::shared_ptr<HttpClient> client;
  // Of those that answer at once or are not there, past any proxy.
  std::shared_ptr<HttpClient> local_client;
};

// Of this process; clients of their own that are like `options` but for what these say.
Surroundings real_surroundings(const HttpOptions& options);

// Nothing: there is no such file. At most 1 MiB: `corrupt`.
std::optional<std::string> read_small_file(const std::string& path);
// The home folder's "~/..." by HOME.
std::string in_home(const Surroundings& around, std::string_view path);

// Of an answer that gives out credentials, by whom for the message; throws where it is an error, in
// which nothing of the body stands but what names the error.
std::string expect_answer(const HttpResponse& response, const std::string& who);

// Of a service that only some machines have, `who` for the message, the last that is asked: where
// it does not answer, or not as one that has credentials for this machine, throws
// `permission_denied` with `none_found` and why.
void expect_service(const HttpResponse& response,
                    const std::string& who,
                    const std::string& none_found);

// "2026-11-23T07:00:00Z", with a fraction, which is left out, or without, or with "+02:00"; nothing
// for another, and `corrupt` of credentials that end then.
std::optional<std::chrono::system_clock::time_point> read_time(const std::string& text);
std::chrono::system_clock::time_point parse_time(const std::string& text);
// Of so many seconds since 1970, of hostile ones too: max() where the clock does not reach.
std::chrono::system_clock::time_point time_at(std::int64_t seconds);

}  // namespace headrace
