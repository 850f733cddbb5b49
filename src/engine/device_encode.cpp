#include "engine/device_encode.h"

#include <utility>

#include "engine/device_stages.h"

namespace headrace {
namespace {

using Kind = DeviceStage::Kind;

BloscFormat blosc_format(const DeviceStage& stage) {
  const DeviceEncoding& encoding = stage.encoding.value();
  return {encoding.zstd_inside ? BloscFormat::Inner::zstd : BloscFormat::Inner::lz4,
          static_cast<BloscFormat::Filter>(encoding.shuffle),
          stage.itemsize,
          static_cast<std::uint32_t>(encoding.clevel),
          static_cast<std::uint32_t>(encoding.blocksize)};
}

}  // namespace

DeviceEncoder::DeviceEncoder(Queue& queue,
                             const Kernels& kernels,
                             std::span<const std::uint8_t* const> chunks,
                             std::size_t nbytes)
    : queue_(queue), kernels_(kernels), frames_(chunks.size()) {
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    frames_[i].source = chunks[i];
    frames_[i].source_nbytes = nbytes;
    frames_[i].chunk = static_cast<std::uint32_t>(i);
  }
}

void DeviceEncoder::run(const EncodePlan& plan,
                        std::uint32_t zstd_block_nbytes,
                        std::uint64_t* nbytes) {
  for (const DeviceStep& step : plan.filters) filter(step);
  compress(plan, zstd_block_nbytes, nbytes);
}

// New memory that the next step writes to.
Scratch<std::uint8_t> DeviceEncoder::place_targets(std::size_t nbytes) {
  const std::size_t stride = aligned_nbytes(nbytes);
  Scratch<std::uint8_t> next(queue_, frames_.size() * stride);
  for (std::size_t i = 0; i < frames_.size(); ++i) {
    frames_[i].target = next.data() + i * stride;
    frames_[i].target_nbytes = nbytes;
  }
  return next;
}

void DeviceEncoder::filter(const DeviceStep& step) {
  const DeviceStage& stage = step.stage;
  Scratch<std::uint8_t> next = place_targets(frames_.empty() ? 0 : frames_[0].source_nbytes);
  if (stage.kind == Kind::unshuffle)
    kernels_.shuffle(queue_, {frames_, stage.itemsize});
  else
    kernels_.bit_shuffle(queue_, {filter_blocks(stage, frames_), stage.itemsize});
  for (Frame& frame : frames_) frame.source = frame.target;
  current_ = std::move(next);
}

void DeviceEncoder::compress(const EncodePlan& plan,
                             std::uint32_t zstd_block_nbytes,
                             std::uint64_t* nbytes) {
  Scratch<std::uint8_t> next = place_targets(plan.max_nbytes);
  const Scratch<std::uint32_t> faults(queue_, frames_.size());
  queue_.fill(faults.data(), 0, faults.size() * sizeof(std::uint32_t));
  const EncodeBatch batch{frames_, nbytes, faults.data()};
  const DeviceStage& stage = plan.compressor.stage;
  switch (stage.kind) {
    case Kind::lz4:
      kernels_.lz4_encode(queue_, batch);
      break;
    case Kind::blosc:
      kernels_.blosc_encode(queue_, batch, blosc_format(stage));
      break;
    default:
      kernels_.zstd_encode(queue_, batch, {zstd_block_nbytes, stage.encoding->checksum});
  }
  current_ = std::move(next);
}

}  // namespace headrace
