#pragma once

// Typed access to the JSON configuration of one codec. Every mistake is `invalid_argument` and
// names codec and field; so are fields that nobody asked for.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/codec.h"

namespace headrace {

// How hard an encoder is to try. It means nothing to a decoder, so that a value that no library
// has is the encoder's fault alone: check() throws it.
struct EncoderLevel {
  int value = 0;
  std::string problem;  // empty: there is none; without the codec's name, as what encode() throws

  void check() const;
};

// What a level beyond the range is: a problem of the encoder's, or the nearest one within.
enum class BeyondRange : std::uint8_t { problem, clamped };

class CodecConfig {
 public:
  explicit CodecConfig(const CodecSpec& spec);
  ~CodecConfig();
  CodecConfig(const CodecConfig&) = delete;
  CodecConfig& operator=(const CodecConfig&) = delete;

  // Absent and null count as the same.
  bool has(std::string_view field);
  bool is_string(std::string_view field);

  std::int64_t integer(std::string_view field, std::int64_t min, std::int64_t max);
  std::int64_t integer(std::string_view field,
                       std::int64_t min,
                       std::int64_t max,
                       std::int64_t fallback);
  EncoderLevel level(std::string_view field,
                     int min,
                     int max,
                     int fallback,
                     BeyondRange beyond = BeyondRange::problem);
  double number(std::string_view field);
  bool boolean(std::string_view field, bool fallback);
  std::string string(std::string_view field);
  std::string string(std::string_view field, std::string_view fallback);
  std::vector<std::int64_t> integers(std::string_view field);
  std::vector<CodecSpec> codecs(std::string_view field);
  // A list of objects, none when absent, each to be read by a CodecConfig of its own.
  std::vector<CodecSpec> objects(std::string_view field);
  // The field as compact JSON; empty when absent.
  std::string json(std::string_view field);
  // The field is known and means nothing to the decoder or encoder.
  void ignore(std::string_view field);

  // Throws for the fields that were not asked for. "id", which v2 names the codec by, is fine.
  void finish() const;

  [[noreturn]] void fail(std::string_view field, const std::string& problem) const;
  // `unsupported`: it is right, and not for this codec here.
  [[noreturn]] void refuse(std::string_view field, const std::string& problem) const;

 private:
  // Empty: it is an integer of the range.
  std::string problem_of(std::string_view field, std::int64_t min, std::int64_t max);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace headrace
