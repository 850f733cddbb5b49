#pragma once

// What references lead to: URLs as objects of stores, each of which is opened once, and which of
// them may be reached. References may come from anybody; what they name is read with the rights of
// who opens them, so that they lead nowhere but
//   - below the folder that they lie in, or to their bucket or host,
//   - to what the option "allow" names.

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/fork_mutex.h"
#include "headrace/store.h"
#include "store/store.h"

namespace headrace {

// An object of a store.
struct Target {
  std::shared_ptr<StoreDriver> store;
  std::string key;
};

struct TargetRules {
  std::string home{};                // the folder, "file:///data" or "s3://bucket/data"; or none
  std::vector<std::string> allow{};  // prefixes of URLs, paths; "*" for all
  std::string protocol{};            // of a URL that has none: "" is that of the home
  StorageOptions options{};          // of stores that are not of this machine
  // Those are the home's: a token in them is sent to no other host, nor to another cloud.
  bool options_are_of_home = false;
};

// The list that an option has: as JSON, or with commas between.
std::vector<std::string> parse_allow(std::string_view text);

class Targets {
 public:
  explicit Targets(TargetRules rules);

  // permission_denied with the name of the option for what may not be reached; `corrupt` for what
  // is no URL.
  Target open(std::string_view url) EXCLUDES(mutex_);
  // Whether URLs may be reached that are not of this machine.
  bool may_be_remote() const;

 private:
  struct Place {
    std::string place;  // "/data" of this machine, else "s3://bucket"
    std::string key;
    bool is_local = false;
  };
  Place place_of(std::string_view url) const;
  bool is_allowed(const Place& place) const;
  std::shared_ptr<StoreDriver> store_at(const Place& place) EXCLUDES(mutex_);
  bool has_options(const Place& place) const;

  TargetRules rules_;
  std::vector<std::string> folders_;   // that may be reached, by their real paths
  std::vector<std::string> prefixes_;  // "s3://bucket/data"
  bool all_ = false;
  ForkMutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<StoreDriver>> stores_ GUARDED_BY(mutex_);
  std::unordered_map<std::string, Target> found_ GUARDED_BY(mutex_);  // by URL
};

// "s3" of "s3://bucket/key", lower case; empty for a path.
std::string scheme_of_url(std::string_view url);
// Whether it has a scheme that is not of this machine.
bool is_remote_url(std::string_view url);

}  // namespace headrace
