#include "engine/device/encode.h"

#include <utility>

#include "engine/device/stages.h"

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

void compress(Queue& queue,
              const Kernels& kernels,
              const DeviceStage& stage,
              std::span<const Frame> frames,
              std::uint32_t zstd_block_nbytes,
              std::uint64_t* nbytes) {
  const Scratch<std::uint32_t> faults(queue, frames.size());
  queue.fill(faults.data(), 0, faults.size() * sizeof(std::uint32_t));
  const EncodeBatch batch{frames, nbytes, faults.data()};
  switch (stage.kind) {
    case Kind::lz4:
      return kernels.lz4_encode(queue, batch);
    case Kind::blosc:
      return kernels.blosc_encode(queue, batch, blosc_format(stage));
    default:
      return kernels.zstd_encode(queue, batch, {zstd_block_nbytes, stage.encoding->checksum});
  }
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
  const auto stage_into_new = [&](const DeviceStage& stage, std::size_t target_nbytes) {
    Scratch<std::uint8_t> next = place_targets(target_nbytes);
    encode_stage(queue_, kernels_, stage, frames_, zstd_block_nbytes, nbytes);
    for (Frame& frame : frames_) frame.source = frame.target;
    current_ = std::move(next);
  };
  for (const DeviceStep& step : plan.filters) stage_into_new(step.stage, step.nbytes.value());
  stage_into_new(plan.compressor.value().stage, plan.max_nbytes);
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

void encode_stage(Queue& queue,
                  const Kernels& kernels,
                  const DeviceStage& stage,
                  std::span<const Frame> frames,
                  std::uint32_t zstd_block_nbytes,
                  std::uint64_t* nbytes) {
  switch (stage.kind) {
    case Kind::unshuffle:
      return kernels.shuffle(queue, {frames, stage.itemsize});
    case Kind::bit_unshuffle:
      return kernels.bit_shuffle(queue, {filter_blocks(stage, frames), stage.itemsize});
    default:
      compress(queue, kernels, stage, frames, zstd_block_nbytes, nbytes);
  }
}

}  // namespace headrace
