#include "engine/device/batch.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "base/bytes.h"
#include "base/thread_pool.h"
#include "base/trace.h"
#include "engine/device/drain.h"
#include "engine/device/encode.h"
#include "engine/device/stages.h"
#include "headrace/config.h"

namespace headrace {
namespace {

using Kind = DeviceStage::Kind;

[[noreturn]] void refuse(std::size_t i, const Error& error) {
  throw error.with_context("input " + std::to_string(i));
}

// What the sizes alone tell. Of elements that change their size, kernels see what is left over.
void check_sizes(const Codec& codec,
                 std::size_t first,
                 std::span<const BatchBuffer> inputs,
                 std::span<const BatchBuffer> outputs) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto wanted = codec.encoded_nbytes(outputs[i].nbytes).fixed;
    if (!wanted || *wanted == inputs[i].nbytes) continue;
    refuse(first + i,
           Error(ErrorCode::corrupt,
                 "codec " + std::string(codec.name()) + ": expected " + std::to_string(*wanted) +
                     " bytes for " + std::to_string(outputs[i].nbytes) + " decoded ones, got " +
                     std::to_string(inputs[i].nbytes)));
  }
}

// The first 4 bytes of each input, little-endian; nothing for shorter ones. From the device: one
// copy for all of them.
std::vector<std::optional<std::uint32_t>> first_words(Queue& queue,
                                                      const Kernels& kernels,
                                                      const Sources& sources,
                                                      std::span<const BatchBuffer> inputs) {
  constexpr std::size_t kWord = sizeof(std::uint32_t);
  const std::size_t n = inputs.size();
  std::vector<std::byte> words(kWord * n);
  if (!sources.on_host.empty()) {
    for (std::size_t i = 0; i < n; ++i)
      if (inputs[i].nbytes >= kWord) std::memcpy(&words[kWord * i], inputs[i].data, kWord);
  } else {
    const Scratch<std::uint8_t> gathered(queue, words.size());
    std::vector<Frame> copies;
    for (std::size_t i = 0; i < n; ++i)
      copies.push_back(copy_of(sources.frames[i], gathered.data() + kWord * i, kWord));
    kernels.copy(queue, copies);
    queue.download(words.data(), gathered.data(), words.size());
    queue.synchronize();
  }
  std::vector<std::optional<std::uint32_t>> values(n);
  for (std::size_t i = 0; i < n; ++i)
    if (inputs[i].nbytes >= kWord) values[i] = load_le<std::uint32_t>(&words[kWord * i]);
  return values;
}

// Bytes of the host come in two slices, that one is copied while the other is decoded: 4096 x 64
// KiB of zstd took 10.0 ms in place of 12.7 (H100), and no less in four. What lies on the device
// gains nothing.
std::size_t slice_nbytes(std::size_t total, bool on_device) {
  constexpr std::size_t kLeast = std::size_t{16} << 20;
  const std::size_t most = config().device_slab_nbytes;
  return std::clamp(on_device ? total : total / 2 + 1, std::min(kLeast, most), most);
}

// What kernels are given to decode; `staged` becomes memory for outputs that lie on the host.
std::vector<Frame> frames_to_decode(Queue& queue,
                                    const Sources& sources,
                                    std::span<const BatchBuffer> inputs,
                                    std::span<const BatchBuffer> outputs,
                                    Scratch<std::uint8_t>& staged) {
  std::size_t nbytes = 0;
  for (const BatchBuffer& output : outputs)
    nbytes += output.on_device ? 0 : aligned_nbytes(output.nbytes);
  staged = Scratch<std::uint8_t>(queue, nbytes);
  std::uint8_t* next = staged.data();
  std::vector<Frame> frames(inputs.size());
  for (std::size_t i = 0; i < frames.size(); ++i) {
    Frame& frame = frames[i];
    frame.source = sources.frames[i];
    frame.source_nbytes = inputs[i].nbytes;
    frame.target_nbytes = outputs[i].nbytes;
    frame.chunk = static_cast<std::uint32_t>(i);
    if (outputs[i].on_device) {
      frame.target = reinterpret_cast<std::uint8_t*>(outputs[i].data);
    } else {
      frame.target = std::exchange(next, next + aligned_nbytes(outputs[i].nbytes));
    }
  }
  return frames;
}

// The same to encode, into `encoded`, new memory.
std::vector<Frame> frames_to_encode(Queue& queue,
                                    const Codec& codec,
                                    const Sources& sources,
                                    std::span<const BatchBuffer> inputs,
                                    Scratch<std::uint8_t>& encoded) {
  std::vector<Frame> frames(inputs.size());
  std::size_t nbytes = 0;
  for (std::size_t i = 0; i < frames.size(); ++i) {
    const std::size_t most = codec.encoded_nbytes(inputs[i].nbytes).most;
    frames[i] = {sources.frames[i], inputs[i].nbytes, nullptr, most, static_cast<std::uint32_t>(i)};
    nbytes += aligned_nbytes(most);
  }
  encoded = Scratch<std::uint8_t>(queue, nbytes);
  std::uint8_t* next = encoded.data();
  for (Frame& frame : frames)
    frame.target = std::exchange(next, next + aligned_nbytes(frame.target_nbytes));
  return frames;
}

}  // namespace

DeviceBatch::DeviceBatch(Device device, Stream stream)
    : device_(device), backend_(backend(device.type)), queue_(backend_.make_queue(device.index)) {
  queue_->wait_for(*backend_.wrap_stream(device.index, stream.raw()));
}

DeviceBatch::~DeviceBatch() {
  const Drain drain(*queue_);
  if (second_queue_) const Drain second(*second_queue_);
}

std::string DeviceBatch::why_not_decoded(const Codec& codec,
                                         const Backend& devices,
                                         std::string_view library,
                                         Buffers outputs) {
  const auto stage = codec.device_stage();
  if (!stage || stage->kind == Kind::transpose) return "has no decoder for devices";
  if (stage->kind != Kind::none) {
    const std::string missing = missing_decoder(devices, stage->kind, library);
    if (!missing.empty()) return missing;
  }
  for (const BatchBuffer& output : outputs) {
    if (output.nbytes > std::numeric_limits<std::uint32_t>::max())
      return "chunks of 4 GiB and more";
  }
  return {};
}

std::string DeviceBatch::why_not_encoded(const Codec& codec,
                                         const Backend& devices,
                                         Buffers inputs) {
  if (!devices.kernels().zstd_encode) return "has no kernel";  // all kernels, or none
  std::size_t most = 0;
  for (const BatchBuffer& input : inputs) most = std::max(most, input.nbytes);
  return missing_encoder(codec.device_stage(), most);
}

void DeviceBatch::decode(const Codec& codec,
                         std::string_view library,
                         Buffers inputs,
                         Buffers outputs) {
  const Kernels& kernels = kernels_of(backend_, library);
  const auto staged_nbytes = [&](std::size_t i) {
    const std::size_t to_host = outputs[i].on_device ? 0 : aligned_nbytes(outputs[i].nbytes);
    return aligned_nbytes(inputs[i].nbytes) + to_host;
  };
  std::size_t total = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) total += staged_nbytes(i);
  const std::size_t limit = slice_nbytes(total, inputs[0].on_device);
  if (total > limit) {
    second_queue_ = backend_.make_queue(device_.index);
    second_queue_->wait_for(*queue_);
  }
  Queue* next = queue_.get();
  Queue* after = second_queue_.get();
  each_slice(inputs.size(), limit, staged_nbytes, [&](std::size_t first, std::size_t n) {
    if (slices_.size() == kSlicesInFlight) finish_oldest();
    decode_slice(*next, codec, kernels, first, inputs.subspan(first, n), outputs.subspan(first, n));
    std::swap(next, after);
  });
  if (second_queue_) queue_->wait_for(*second_queue_);
}

void DeviceBatch::finish() {
  while (is_under_way()) finish_oldest();
}

void DeviceBatch::finish_oldest() {
  const Span span("wait");
  slices_.front().done->wait();  // where this fails, its memory stays until the queue is drained
  const Slice slice = std::move(slices_.front());
  slices_.pop_front();
  const auto* found = reinterpret_cast<const Fault*>(slice.found.get());
  for (std::size_t i = 0; i < slice.decoded_nbytes.size(); ++i)
    if (found[i] != Fault::none) refuse(slice.first + i, slice.error(i, found[i]));
}

std::vector<Tensor> DeviceBatch::encode(const Codec& codec, Buffers inputs) {
  std::vector<Tensor> results;
  const auto staged_nbytes = [&](std::size_t i) {
    const std::size_t nbytes = inputs[i].nbytes;
    return aligned_nbytes(nbytes) + aligned_nbytes(codec.encoded_nbytes(nbytes).most);
  };
  const std::size_t limit = config().device_slab_nbytes;
  each_slice(inputs.size(), limit, staged_nbytes, [&](std::size_t first, std::size_t n) {
    encode_slice(codec, first, inputs.subspan(first, n), results);
  });
  return results;
}

void DeviceBatch::each_slice(std::size_t count,
                             std::size_t limit,
                             FunctionRef<std::size_t(std::size_t i)> staged_nbytes,
                             FunctionRef<void(std::size_t first, std::size_t n)> body) {
  for (std::size_t first = 0, last = 0; first < count; first = last) {
    for (std::size_t nbytes = 0; last < count && (last == first || nbytes < limit); ++last)
      nbytes += staged_nbytes(last);
    body(first, last - first);
    pinned_.clear();
  }
}

void DeviceBatch::decode_slice(Queue& queue,
                               const Codec& codec,
                               const Kernels& kernels,
                               std::size_t first,
                               Buffers inputs,
                               Buffers outputs) {
  const Span span("plan");
  check_sizes(codec, first, inputs, outputs);
  const DeviceStage stage = *codec.device_stage();
  const std::size_t n = inputs.size();
  Slice slice;
  slice.first = first;
  slice.stage = stage;
  slice.codec = codec.name();
  for (const BatchBuffer& output : outputs) slice.decoded_nbytes.push_back(output.nbytes);
  slice.found = backend_.allocate_pinned(device_.index, n * sizeof(Fault));
  Sources sources = copy_sources(queue, backend_, device_.index, inputs);
  slice.sources = sources.pinned;
  Drain drain(queue);
  if (stage.kind == Kind::lz4) {
    const auto sizes = first_words(queue, backend_.kernels(), sources, inputs);
    for (std::size_t i = 0; i < n; ++i) {
      if (!sizes[i]) refuse(first + i, slice.error(i, Fault::truncated));
      if (sizes[i] != outputs[i].nbytes) refuse(first + i, slice.error(i, Fault::wrong_size));
    }
  }
  Scratch<std::uint8_t> staged;  // of the outputs on the host
  std::vector<Frame> frames = frames_to_decode(queue, sources, inputs, outputs, staged);
  const Scratch<std::uint32_t> faults(queue, n);
  queue.fill(faults.data(), 0, n * sizeof(std::uint32_t));
  if (stage.kind == Kind::none) {
    backend_.kernels().copy(queue, frames);
  } else {
    const Span decoding("decode");
    run_stage(queue, kernels, stage, frames, {sources.on_host}, faults.data());
  }
  queue.download(slice.found.get(), faults.data(), n * sizeof(std::uint32_t));
  for (std::size_t i = 0; i < n; ++i) {
    if (!outputs[i].on_device) queue.download(outputs[i].data, frames[i].target, outputs[i].nbytes);
  }
  slice.done = queue.mark();
  slices_.push_back(std::move(slice));
  drain.dismiss();
}

void DeviceBatch::encode_slice(const Codec& codec,
                               std::size_t first,
                               Buffers inputs,
                               std::vector<Tensor>& results) {
  const DeviceStage stage = *codec.device_stage();
  const Sources sources = copy_sources(*queue_, backend_, device_.index, inputs);
  const Drain drain(*queue_);
  Scratch<std::uint8_t> encoded;
  const std::vector<Frame> frames = frames_to_encode(*queue_, codec, sources, inputs, encoded);
  const Scratch<std::uint64_t> counted(*queue_, inputs.size());
  encode_stage(*queue_,
               backend_.kernels(),
               stage,
               frames,
               static_cast<std::uint32_t>(config().device_zstd_block_nbytes),
               counted.data());
  const std::vector<std::size_t> sizes = encoded_sizes(codec, first, inputs, counted.data());

  const std::size_t prefix = prefix_nbytes(stage);
  std::vector<std::uint32_t> decoded_sizes;
  for (const BatchBuffer& input : inputs)
    decoded_sizes.push_back(static_cast<std::uint32_t>(input.nbytes));
  const auto prefixes =
      Scratch<std::uint32_t>::of(*queue_, decoded_sizes.data(), decoded_sizes.size());
  std::vector<Frame> copies;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    results.push_back(allocate(prefix + sizes[i]));
    auto* const result = static_cast<std::uint8_t*>(results.back().data());
    if (prefix > 0)
      copies.push_back(
          copy_of(reinterpret_cast<const std::uint8_t*>(prefixes.data() + i), result, prefix));
    copies.push_back(copy_of(frames[i].target, result + prefix, sizes[i]));
  }
  backend_.kernels().copy(*queue_, copies);
  queue_->synchronize();
}

// Of what a stage gave, without its prefix. Waits for it.
std::vector<std::size_t> DeviceBatch::encoded_sizes(const Codec& codec,
                                                    std::size_t first,
                                                    Buffers inputs,
                                                    const std::uint64_t* counted) {
  const std::size_t nbytes = inputs.size() * sizeof(*counted);
  const std::shared_ptr<std::byte> found = backend_.allocate_pinned(device_.index, nbytes);
  queue_->download(found.get(), counted, nbytes);
  queue_->synchronize();
  std::vector<std::size_t> sizes;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto known = codec.encoded_nbytes(inputs[i].nbytes).fixed;
    sizes.push_back(known.value_or(reinterpret_cast<const std::uint64_t*>(found.get())[i]));
    if (!known && sizes.back() == 0)
      refuse(first + i,
             Error(ErrorCode::device,
                   "codec " + std::string(codec.name()) + ": the device's encoder failed"));
  }
  return sizes;
}

std::vector<MutableBytes> DeviceBatch::stage(Buffers buffers) {
  std::size_t nbytes = 0;
  for (const BatchBuffer& buffer : buffers)
    nbytes += buffer.on_device ? aligned_nbytes(buffer.nbytes) : 0;
  std::byte* next = nullptr;
  if (nbytes > 0) {
    pinned_.push_back(backend_.allocate_pinned(device_.index, nbytes));
    next = pinned_.back().get();
  }
  std::vector<MutableBytes> staged;
  for (const BatchBuffer& buffer : buffers) {
    std::byte* at =
        buffer.on_device ? std::exchange(next, next + aligned_nbytes(buffer.nbytes)) : buffer.data;
    staged.emplace_back(at, buffer.nbytes);
  }
  return staged;
}

std::vector<MutableBytes> DeviceBatch::download(Buffers buffers) {
  std::vector<MutableBytes> staged = stage(buffers);
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i].on_device)
      queue_->download(staged[i].data(), buffers[i].data, buffers[i].nbytes);
  }
  queue_->synchronize();
  return staged;
}

void DeviceBatch::upload(std::span<const MutableBytes> staged, Buffers buffers) {
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i].on_device)
      queue_->upload_pinned(buffers[i].data, staged[i].data(), buffers[i].nbytes);
  }
  queue_->synchronize();
}

Tensor DeviceBatch::allocate(std::size_t nbytes) {
  return {backend_.allocate(*queue_, nbytes),
          {static_cast<std::int64_t>(nbytes)},
          DType::uint8,
          device_};
}

}  // namespace headrace
