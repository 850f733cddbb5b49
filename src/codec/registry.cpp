#include "codec/registry.h"

#include <algorithm>
#include <array>
#include <utility>

#include "codec/codecs.h"
#include "codec/custom.h"
#include "headrace/error.h"

namespace headrace {
namespace {

// Of what is no number here, complex ones, the codec that the application has of the name.
template <auto make>
CodecPtr of_numbers(const CodecSpec& spec, const CodecSite& site) {
  try {
    return make(spec, site);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    if (CodecPtr custom = make_custom(spec, site)) return custom;
    throw;
  }
}

// In order of preference within a codec.
constexpr CodecEntry kEntries[] = {
    {"bytes", "headrace", "cpu", make_bytes},
    {"transpose", "headrace", "cpu", make_transpose},
    {"zstd", "libzstd", "cpu", make_zstd},
    {"blosc", "headrace", "cpu", make_blosc},
    {"blosc", "c-blosc", "cpu", make_c_blosc},
    {"gzip", "isa-l", "cpu", make_gzip_isal},
    {"gzip", "libdeflate", "cpu", make_gzip_libdeflate},
    {"zlib", "isa-l", "cpu", make_zlib_isal},
    {"zlib", "libdeflate", "cpu", make_zlib_libdeflate},
    {"lz4", "headrace", "cpu", make_lz4},
    {"bz2", "libbz2", "cpu", make_bz2},
    {"lzma", "liblzma", "cpu", make_lzma},
#ifdef HEADRACE_HAVE_ZFP
    {"zfp", "libzfp", "cpu", make_zfp},
    {"zfpy", "libzfp", "cpu", make_zfpy},
#endif
    {"crc32c", "headrace", "cpu", make_crc32c},
    {"crc32", "headrace", "cpu", make_crc32},
    {"adler32", "headrace", "cpu", make_adler32},
    {"fletcher32", "headrace", "cpu", make_fletcher32},
    {"jenkins_lookup3", "headrace", "cpu", make_jenkins_lookup3},
    {"delta", "headrace", "cpu", of_numbers<make_delta>},
    {"fixedscaleoffset", "headrace", "cpu", of_numbers<make_fixed_scale_offset>},
    {"quantize", "headrace", "cpu", make_quantize},
    {"bitround", "headrace", "cpu", make_bit_round},
    {"astype", "headrace", "cpu", of_numbers<make_as_type>},
    {"packbits", "headrace", "cpu", make_pack_bits},
    {"reshape", "headrace", "cpu", make_reshape},
    {"scale_offset", "headrace", "cpu", make_scale_offset},
    {"cast_value", "headrace", "cpu", make_cast_value},
    {"sharding_indexed", "headrace", "cpu", make_sharding},
    {"shuffle", "headrace", "cpu", make_shuffle},
    {"bitshuffle", "headrace", "cpu", make_bitshuffle},
    {"vlen-utf8", "headrace", "cpu", make_vlen_utf8},
    {"vlen-bytes", "headrace", "cpu", make_vlen_bytes},
    {"vlen-array", "headrace", "cpu", make_vlen_array},
    {"json2", "headrace", "cpu", make_json2},
    {"msgpack2", "headrace", "cpu", make_msgpack2},
    {"categorize", "headrace", "cpu", make_categorize},
    {"base64", "headrace", "cpu", make_base64},
#ifdef HEADRACE_HAVE_AEC
    {"hdf5_szip", "libaec", "cpu", make_hdf5_szip, false},
#endif
    {"hdf5_scaleoffset", "headrace", "cpu", make_hdf5_scaleoffset, false},
    {"hdf5_nbit", "headrace", "cpu", make_hdf5_nbit, false},
    {"lzf", "headrace", "cpu", make_lzf, false},
    {"imagecodecs_lzw", "headrace", "cpu", make_tiff_lzw, false},
    {"imagecodecs_packbits", "headrace", "cpu", make_tiff_packbits, false},
    {"imagecodecs_delta", "headrace", "cpu", make_tiff_delta, false},
    {"imagecodecs_floatpred", "headrace", "cpu", make_tiff_floatpred, false},
    {"grib", "headrace", "cpu", make_grib, false},
};

// Known names that have no body here, and why. A provider of the application may have one.
constexpr std::pair<std::string_view, std::string_view> kMissing[] = {
    {"zfp", "this build is without libzfp"},
    {"zfpy", "this build is without libzfp"},
    {"hdf5_szip", "this build is without libaec"},
    {"pcodec", "headrace has no decoder for it; in Python, numcodecs has with pcodec installed"},
    {"gdeflate", "this version has no decoder for it"},
};

constexpr std::string_view kNumcodecs = "numcodecs.";

[[noreturn]] void throw_no_implementation(std::string_view codec, std::string_view wanted) {
  std::string known;
  for (const CodecEntry& entry : kEntries) {
    if (entry.codec != codec) continue;
    if (!known.empty()) known += ", ";
    known += entry.implementation;
  }
  throw Error(ErrorCode::invalid_argument,
              "codec " + std::string(codec) + " has no implementation '" + std::string(wanted) +
                  "'; there are: " + known);
}

[[noreturn]] void throw_not_supported(const CodecSpec& spec, std::string_view why) {
  throw Error(ErrorCode::unsupported,
              "codec " + spec.name + " is not supported: " + std::string(why));
}

}  // namespace

std::span<const CodecEntry> codec_entries() { return kEntries; }

std::string_view canonical_codec_name(std::string_view name) {
  if (name.starts_with(kNumcodecs)) name.remove_prefix(kNumcodecs.size());
  if (name == "imagecodecs_bitshuffle") return "bitshuffle";
  if (name == "imagecodecs_lzf") return "lzf";
  if (name == "imagecodecs_zstd") return "zstd";
  if (name == "endian") return "bytes";  // its name in drafts of v3
  return name;
}

bool is_refused_codec(std::string_view name) { return name == "pickle"; }

bool is_sharding_codec(std::string_view name) { return name == "sharding_indexed"; }

CodecPtr resolve_codec(const CodecSpec& spec,
                       const CodecSite& site,
                       const Implementations& implementations) {
  const std::string_view name = canonical_codec_name(spec.name);
  const auto chosen = implementations.find(name);
  const std::string_view wanted =
      chosen == implementations.end() ? std::string_view() : chosen->second;
  bool known = false;
  for (const CodecEntry& entry : kEntries) {
    if (entry.codec != name) continue;
    known = true;
    if (wanted.empty() || entry.implementation == wanted) return entry.make(spec, site);
  }
  if (known) throw_no_implementation(name, wanted);
  if (is_refused_codec(name)) throw_not_supported(spec, "it runs code that the data brings along");
  if (CodecPtr custom = make_custom(spec, site)) return custom;
  for (const auto& [missing, why] : kMissing) {
    if (missing == name) throw_not_supported(spec, why);
  }
  throw Error(ErrorCode::unsupported, "codec " + spec.name + " is not known");
}

}  // namespace headrace
