#include "engine/encode_plan.h"

#include <string_view>
#include <utility>

#include "kernels/kernels.h"

namespace headrace {
namespace {

using Kind = DeviceStage::Kind;

constexpr std::size_t kLz4Header = 4;  // the decoded size

// What kernels do, or the kernel that puts the elements together.
bool is_encoded(Kind kind) {
  return kind == Kind::swap || kind == Kind::transpose || kind == Kind::unshuffle ||
         kind == Kind::bit_unshuffle;
}

}  // namespace

EncodePlan make_encode_plan(const CodecChain& chain, const DevicePlan& plan) {
  EncodePlan encode;
  encode.why_not = plan.why_not;
  if (!encode.why_not.empty()) return encode;
  const auto refuse = [&](std::string_view codec, const char* why) {
    encode.why_not = "codec " + std::string(codec) + ": " + why;
    return encode;
  };
  const Codec* compressor = nullptr;
  for (const CodecChain::Step& step : chain.steps()) {
    if (compressor) {
      encode.behind.push_back(step.codec);
      continue;
    }
    const DeviceStage stage = step.codec->device_stage().value();
    if (is_compressor(stage.kind)) {
      if (!stage.encoding) return refuse(step.codec->name(), "has no encoder as it is set");
      compressor = step.codec;
      encode.max_nbytes = compressor->max_encoded_nbytes(step.nbytes.value());
      encode.thorough = stage.encoding->thorough;
    } else if (!is_encoded(stage.kind)) {
      return refuse(step.codec->name(), "has no encoder");
    }
  }
  if (!compressor) {
    encode.why_not = "there is no compressor";
    return encode;
  }
  // Of swaps and transposes, those that are left come behind a filter.
  for (auto step = plan.steps.rbegin(); !is_compressor(step->stage.kind); ++step) {
    if (step->stage.kind == Kind::swap || step->stage.kind == Kind::transpose)
      return refuse(step->codec, "has no encoder behind a filter");
    encode.filters.push_back(*step);
  }
  encode.compressor = plan.steps[plan.steps.size() - 1 - encode.filters.size()];
  return encode;
}

std::size_t EncodePlan::prefix_nbytes() const {
  return compressor.stage.kind == Kind::lz4 ? kLz4Header : 0;
}

std::string EncodePlan::missing(const Kernels& kernels) const {
  if (!why_not.empty()) return why_not;
  // A device has all kernels or, in a build without it, none.
  return kernels.zstd_encode ? std::string() : "codec " + compressor.codec + ": has no kernel";
}

ConstBytes finish_encoding(const EncodePlan& plan, MutableBytes encoded, Buffer& scratch) {
  if (plan.compressor.stage.kind == Kind::lz4)
    store_le(encoded.data(), static_cast<std::uint32_t>(plan.compressor.nbytes.value()));
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
