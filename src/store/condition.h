#pragma once

// When a write may replace what is there.

#include <cstdint>
#include <string>
#include <utility>

namespace headrace {

struct WriteCondition {
  enum class Kind : std::uint8_t {
    none,
    missing,  // no such object
    version,  // as the object was when a read told this version
  };
  Kind kind = Kind::none;
  std::string version{};

  static WriteCondition if_missing() { return {Kind::missing, {}}; }
  static WriteCondition if_version(std::string version) {
    return {Kind::version, std::move(version)};
  }
};

// Which of them a store knows.
struct WriteConditions {
  bool missing = false;
  bool version = false;
};

}  // namespace headrace
