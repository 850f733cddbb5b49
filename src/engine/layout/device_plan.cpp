#include "engine/layout/device_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "kernels/kernels.h"

namespace headrace {
namespace {

using Kind = DeviceStage::Kind;

// Bytes of each dimension of a dense array of `shape` whose dimensions lie in memory in `order`.
Shape strides_of(const Shape& shape, const std::vector<std::size_t>& order, std::size_t itemsize) {
  Shape strides(shape.size());
  auto stride = static_cast<std::int64_t>(itemsize);
  for (std::size_t i = order.size(); i-- > 0;) {
    strides[order[i]] = stride;
    stride *= shape[order[i]];
  }
  return strides;
}

// How many bytes come out is in the encoded ones, where the host finds it before they are decoded.
bool says_nbytes(Kind kind) {
  return kind == Kind::zstd || kind == Kind::lz4 || kind == Kind::blosc;
}

bool has_compressor(const DevicePlan& plan) {
  return std::ranges::any_of(plan.steps,
                             [](const DeviceStep& step) { return is_compressor(step.stage.kind); });
}

// Checksums in between leave the bytes as they are.
void mark_planes(std::vector<DeviceStep>& steps) {
  bool planes = false;
  for (std::size_t i = steps.size(); i-- > 0;) {
    DeviceStep& step = steps[i];
    if (is_checksum(step.stage.kind)) continue;
    step.gives_planes = planes;
    planes = step.stage.kind == Kind::unshuffle || step.stage.kind == Kind::bit_unshuffle;
  }
}

}  // namespace

DevicePlan make_device_plan(const CodecChain& chain) {
  DevicePlan plan;
  const Shape& shape = chain.chunk().shape;
  std::vector<std::size_t> order(shape.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto refuse = [&](const Codec& codec, const char* why) {
    plan.why_not = "codec " + std::string(codec.name()) + ": " + why;
    return plan;
  };

  const auto fold = [&](const DeviceStage& transpose) {
    std::vector<std::size_t> next(order.size());
    for (std::size_t i = 0; i < order.size(); ++i) next[i] = order[transpose.order[i]];
    order = std::move(next);
  };

  bool folding = true;
  ChunkSpec spec = chain.chunk();
  auto steps = chain.steps().begin();
  for (const CodecPtr& each : chain.codecs()) {
    const Codec& codec = *each;
    std::optional<DeviceStage> stage = codec.device_stage();
    const Shape before = spec.shape;
    if (codec.transform() == Transform::identity) {
      // Moves no byte, but those after it may see another shape.
      spec = codec.encoded_spec(spec);
      if (folding && stage && stage->kind == Kind::transpose) {
        fold(*stage);
      } else {
        folding = folding && spec.shape == before;
      }
      continue;
    }
    const CodecChain::Step& step = *steps++;
    if (!stage) return refuse(codec, "has no decoder for devices");
    if (stage->kind == Kind::none) continue;
    const bool is_said = !step.nbytes && says_nbytes(stage->kind) && !has_compressor(plan);
    if (!step.nbytes && !is_checksum(stage->kind) && !is_said)
      return refuse(codec, "gives bytes whose number only the host can find out");
    if (step.nbytes && *step.nbytes > std::numeric_limits<std::uint32_t>::max())
      return refuse(codec, "chunks of 4 GiB and more");
    const auto encoded_nbytes =
        step.nbytes ? codec.encoded_nbytes(*step.nbytes).fixed : std::nullopt;
    const std::size_t source_nbytes = encoded_nbytes.value_or(0);
    if (encoded_nbytes) spec = codec.encoded_spec(spec);
    if (folding && stage->kind == Kind::transpose) {
      fold(*stage);
      plan.c_order = false;
      continue;
    }
    if (folding && stage->kind == Kind::swap) {
      plan.swap_nbytes = stage->itemsize;
      folding = false;
      continue;
    }
    if (stage->kind == Kind::transpose && before.size() > kMaxAxes)
      return refuse(codec, "too many dimensions behind a filter");
    folding = false;
    plan.steps.insert(plan.steps.begin(),
                      {std::move(*stage),
                       std::string(codec.name()),
                       step.nbytes,
                       nullptr,
                       source_nbytes,
                       before});
    if (is_said) plan.steps.front().said_by = &codec;
  }
  // Elements of variable length point into what a compressor has given.
  if (plan.is_ragged() && !has_compressor(plan))
    return refuse(*chain.steps().front().codec, "of bytes that are not compressed");
  mark_planes(plan.steps);
  // A block of lz4 is found by the size before it, which the host reads.
  bool behind = false;
  for (const DeviceStep& step : plan.steps) {
    if (behind && step.stage.kind == Kind::lz4)
      plan.why_not = "codec lz4: its bytes are encoded once more by " + plan.steps.front().codec;
    behind |= !is_checksum(step.stage.kind);
  }
  plan.strides = strides_of(shape, order, chain.chunk().dtype.itemsize());
  return plan;
}

}  // namespace headrace
