#pragma once

// Good metadata documents, and bad ones made of them.

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "format/metadata.h"
#include "headrace/error.h"

namespace headrace::test {

struct Failure {
  ErrorCode code;
  std::string message;
};

inline Failure failure_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return {e.code(), e.what()};
  }
  return {ErrorCode::io, "nothing was thrown"};
}

inline bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

// A document made from a good one by replacing (or, with an empty value, dropping) fields.
using Fields = std::vector<std::pair<std::string, std::string>>;

inline std::string document(Fields fields, const Fields& changes) {
  for (const auto& [key, value] : changes) {
    bool found = false;
    for (auto& field : fields) {
      if (field.first != key) continue;
      field.second = value;
      found = true;
    }
    if (!found) fields.emplace_back(key, value);
  }
  std::string text;
  for (const auto& [key, value] : fields) {
    if (!value.empty()) text += (text.empty() ? "\"" : ",\n \"") + key + "\": " + value;
  }
  return "{" + text + "}";
}

inline std::string v3(const Fields& changes = {}) {
  return document(
      {{"zarr_format", "3"},
       {"node_type", "\"array\""},
       {"shape", "[10, 7]"},
       {"data_type", "\"int16\""},
       {"chunk_grid", R"({"name": "regular", "configuration": {"chunk_shape": [4, 3]}})"},
       {"chunk_key_encoding", R"({"name": "default", "configuration": {"separator": "/"}})"},
       {"fill_value", "0"},
       {"codecs", R"([{"name": "bytes", "configuration": {"endian": "little"}}])"}},
      changes);
}

inline std::string v2(const Fields& changes = {}) {
  return document({{"zarr_format", "2"},
                   {"shape", "[10, 7]"},
                   {"chunks", "[4, 3]"},
                   {"dtype", "\"<i2\""},
                   {"compressor", "null"},
                   {"fill_value", "0"},
                   {"order", "\"C\""},
                   {"filters", "null"}},
                  changes);
}

inline Failure v3_failure(const Fields& changes) {
  return failure_of([&] { parse_array_v3(v3(changes)); });
}
inline Failure v2_failure(const Fields& changes) {
  return failure_of([&] { parse_array_v2(v2(changes), ""); });
}

}  // namespace headrace::test
