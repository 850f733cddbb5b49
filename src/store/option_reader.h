#pragma once

// Options of a store by name. What nobody has asked for when a store is made is unknown to it.
//
//   OptionReader options(given, url);
//   file.direct = options.take_bool("direct");
//   options.finish("a file");

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "headrace/error.h"
#include "headrace/store.h"

namespace headrace {

// Messages name the place, which must have no secrets, and no value of an option but where that
// cannot be one.
class OptionReader {
 public:
  OptionReader(const StorageOptions& options, std::string place);

  std::optional<std::string> take(std::string_view name);
  // Of names for one thing; `invalid_argument` when more than one is given.
  std::optional<std::string> take_any(std::initializer_list<std::string_view> names);
  bool take_bool(std::string_view name, bool otherwise = false);
  std::optional<std::uint64_t> take_number(std::string_view name,
                                           std::uint64_t least,
                                           std::uint64_t most);
  // "30", "1.5", "30s", "250ms", "2m", "1h".
  std::optional<std::chrono::milliseconds> take_duration(
      std::initializer_list<std::string_view> names);

  // `invalid_argument` for what is left; `kind` is "a file", "an HTTP".
  void finish(const char* kind) const;
  [[noreturn]] void refuse(const std::string& why) const;
  const std::string& place() const { return place_; }

 private:
  StorageOptions left_;
  std::string place_;
};

[[noreturn]] void refuse_place(ErrorCode code, std::string_view place, const std::string& why);

}  // namespace headrace
