// Chunk keys: https://zarr-specs.readthedocs.io/en/latest/v3/chunk-key-encodings
#include <charconv>
#include <limits>

#include "format/metadata.h"

namespace headrace {
namespace {

void append_number(std::string& out, std::int64_t value) {
  char digits[20];
  const auto result = std::to_chars(digits, digits + sizeof digits, value);
  out.append(digits, result.ptr);
}

// Takes a number from the front of `key`, in the one way it is written: no sign, no leading zero.
std::optional<std::int64_t> take_number(std::string_view& key) {
  if (key.empty() || key[0] < '0' || key[0] > '9') return std::nullopt;
  if (key[0] == '0' && key.size() > 1 && key[1] >= '0' && key[1] <= '9') return std::nullopt;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), value);
  if (error != std::errc{}) return std::nullopt;
  key.remove_prefix(static_cast<std::size_t>(end - key.data()));
  return value;
}

}  // namespace

void ChunkKeyEncoding::append(std::string& out,
                              const std::int64_t* coordinates,
                              std::size_t ndim) const {
  if (default_prefix) out += 'c';
  if (!default_prefix && ndim == 0) out += '0';
  for (std::size_t d = 0; d < ndim; ++d) {
    if (default_prefix || d > 0) out += separator;
    append_number(out, coordinates[d]);
  }
}

std::optional<std::vector<std::int64_t>> ChunkKeyEncoding::parse(std::string_view key,
                                                                 std::size_t ndim) const {
  std::vector<std::int64_t> coordinates;
  if (default_prefix) {
    if (key.substr(0, 1) != "c") return std::nullopt;
    key.remove_prefix(1);
  } else if (ndim == 0) {
    if (key != "0") return std::nullopt;
    return coordinates;
  }
  coordinates.reserve(ndim);
  for (std::size_t d = 0; d < ndim; ++d) {
    if (default_prefix || d > 0) {
      if (key.empty() || key[0] != separator) return std::nullopt;
      key.remove_prefix(1);
    }
    const std::optional<std::int64_t> number = take_number(key);
    if (!number) return std::nullopt;
    coordinates.push_back(*number);
  }
  if (!key.empty()) return std::nullopt;
  return coordinates;
}

}  // namespace headrace
