#include "engine/layout/encode_plan.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "kernels/kernels.h"
#include "kernels/tuning.h"

namespace headrace {
namespace {

using Kind = DeviceStage::Kind;

bool is_shuffle(Kind kind) { return kind == Kind::unshuffle || kind == Kind::bit_unshuffle; }

// Done by the kernel that puts the elements together, when it comes first.
bool is_placing(Kind kind) { return kind == Kind::swap || kind == Kind::transpose; }

// Whether chunks are stored as their elements lie once they are put together, but for checksums.
bool stores_elements(const CodecChain& chain, const DevicePlan& plan) {
  const auto encodes = [](const CodecChain::Step& step) {
    const Kind kind = step.codec->device_stage().value().kind;
    return !is_placing(kind) && !is_checksum(kind);
  };
  const auto decodes = [](const DeviceStep& step) { return !is_checksum(step.stage.kind); };
  return std::ranges::none_of(chain.steps(), encodes) && std::ranges::none_of(plan.steps, decodes);
}

}  // namespace

bool device_encodes(bool thorough,
                    std::size_t nbytes,
                    std::optional<std::size_t> device_min_decode_nbytes) {
  return !thorough && nbytes >= device_min_decode_nbytes.value_or(kMinEncodeNbytes);
}

std::string missing_encoder(const std::optional<DeviceStage>& stage, std::size_t nbytes) {
  if (!stage || !(stage->encoding || is_shuffle(stage->kind)))
    return "has no encoder for devices as it is set";
  const std::size_t most = stage->encoding.value_or(DeviceEncoding{}).max_nbytes;
  return nbytes > most ? std::to_string(nbytes) + " bytes, at most " + std::to_string(most) : "";
}

std::size_t prefix_nbytes(const DeviceStage& stage) {
  return stage.kind == Kind::lz4 ? kLz4SizeNbytes : 0;
}

EncodePlan make_encode_plan(const CodecChain& chain, const DevicePlan& plan) {
  EncodePlan encode;
  encode.why_not = plan.why_not;
  if (!encode.why_not.empty()) return encode;
  const auto refuse = [&](std::string_view codec, const std::string& why) {
    encode.why_not = "codec " + std::string(codec) + ": " + why;
    return encode;
  };
  const bool is_plain = stores_elements(chain, plan);
  const Codec* compressor = nullptr;
  for (const CodecChain::Step& step : chain.steps()) {
    if (compressor) {
      encode.behind.push_back(step.codec);
      continue;
    }
    const DeviceStage stage = step.codec->device_stage().value();
    if (is_placing(stage.kind)) continue;
    if (is_plain) {
      encode.behind.push_back(step.codec);
      continue;
    }
    const std::string missing = missing_encoder(stage, step.nbytes.value_or(0));
    if (!missing.empty()) return refuse(step.codec->name(), missing);
    if (!is_compressor(stage.kind)) continue;
    compressor = step.codec;
    encode.max_nbytes = compressor->encoded_nbytes(step.nbytes.value()).most;
    encode.prefix_nbytes = prefix_nbytes(stage);
    encode.thorough = stage.encoding->thorough;
  }
  if (!compressor) {
    if (!is_plain) encode.why_not = "there is no compressor";
    return encode;
  }
  // Of swaps and transposes, those that are left come behind a filter.
  for (auto step = plan.steps.rbegin(); !is_compressor(step->stage.kind); ++step) {
    if (is_placing(step->stage.kind)) return refuse(step->codec, "has no encoder behind a filter");
    encode.filters.push_back(*step);
  }
  encode.compressor = plan.steps[plan.steps.size() - 1 - encode.filters.size()];
  return encode;
}

std::string EncodePlan::missing(const Kernels& kernels) const {
  if (!why_not.empty() || !compressor) return why_not;
  // A device has all kernels or, in a build without it, none.
  return kernels.zstd_encode ? std::string() : "codec " + compressor->codec + ": has no kernel";
}

ConstBytes finish_encoding(const EncodePlan& plan, MutableBytes encoded, Buffer& scratch) {
  if (plan.prefix_nbytes > 0)
    store_le(encoded.data(), static_cast<std::uint32_t>(plan.compressor->nbytes.value()));
  ConstBytes bytes = encoded;
  Buffer next;
  for (const Codec* codec : plan.behind) {
    codec->encode(bytes, next);
    std::swap(next, scratch);
    bytes = scratch.bytes();
  }
  return bytes;
}

}  // namespace headrace
