#pragma once

#include <span>
#include <string_view>

#include "codec/codec.h"

namespace headrace {

using CodecFactory = CodecPtr (*)(const CodecSpec& spec, const CodecSite& site);

// One implementation of one codec. `configuration` is checked by the factory.
struct CodecEntry {
  std::string_view codec;           // the v3 name, "zstd"
  std::string_view implementation;  // "libzstd"
  std::string_view device;          // "cpu"
  CodecFactory make;
  bool encodes = true;  // as well
};

// All implementations in order of preference. The one table: a codec is added here and nowhere
// else.
std::span<const CodecEntry> codec_entries();

// The v3 name of a v3 codec, a "numcodecs.*" name or a registry alias ("numcodecs.zstd" -> "zstd").
std::string_view canonical_codec_name(std::string_view name);

// True for codecs that nobody may serve, by their canonical names.
bool is_refused_codec(std::string_view name);

}  // namespace headrace
