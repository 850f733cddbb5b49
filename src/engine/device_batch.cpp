#include "engine/device_batch.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "base/bytes.h"
#include "base/thread_pool.h"
#include "engine/device_stages.h"
#include "engine/drain.h"
#include "headrace/config.h"

namespace headrace {
namespace {

using Kind = DeviceStage::Kind;

constexpr std::size_t kAlignment = 16;

std::size_t padded(std::size_t nbytes) {
  return (nbytes + kSourcePadding + kAlignment - 1) / kAlignment * kAlignment;
}

// Copies of runs of bytes within the device, all by one call.
class ByteCopies {
 public:
  void add(const std::uint8_t* source, std::uint8_t* target, std::size_t nbytes) {
    Placement placement;
    placement.source = source;
    placement.target = target;
    placement.count[0] = static_cast<std::int64_t>(nbytes);
    placement.from[0].stride = placement.to[0].stride = 1;
    placements_.push_back(placement);
  }
  void run(Queue& queue, const Kernels& kernels) const {
    if (placements_.empty()) return;
    PlaceBatch batch;
    batch.placements = placements_;
    batch.axes = 1;
    kernels.place(queue, batch);
  }

 private:
  std::vector<Placement> placements_;
};

// The encoded bytes in one block of device memory, padded as kernels want them.
struct Sources {
  Scratch<std::uint8_t> memory;
  std::shared_ptr<std::byte> pinned;         // what came from the host
  std::vector<const std::uint8_t*> frames;   // on the device
  std::vector<const std::uint8_t*> on_host;  // of all inputs; empty when one lies on the device
};

Sources copy_sources(Queue& queue,
                     Backend& backend,
                     int index,
                     std::span<const BatchBuffer> inputs) {
  // Those of the host come first, to be one copy.
  std::vector<std::size_t> offsets(inputs.size());
  std::size_t nbytes = 0, from_host = 0;
  for (const bool on_device : {false, true}) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].on_device != on_device) continue;
      offsets[i] = nbytes;
      nbytes += padded(inputs[i].nbytes);
    }
    if (!on_device) from_host = nbytes;
  }
  Sources sources;
  sources.memory = Scratch<std::uint8_t>(queue, nbytes);
  for (std::size_t offset : offsets) sources.frames.push_back(sources.memory.data() + offset);
  if (from_host > 0) {
    sources.pinned = backend.allocate_pinned(index, from_host);
    parallel_for(inputs.size(), [&](std::size_t i) {
      const BatchBuffer& input = inputs[i];
      if (!input.on_device && input.nbytes > 0)
        std::memcpy(sources.pinned.get() + offsets[i], input.data, input.nbytes);
    });
    queue.upload_pinned(sources.memory.data(), sources.pinned.get(), from_host);
  }
  ByteCopies copies;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].on_device) continue;
    copies.add(reinterpret_cast<const std::uint8_t*>(inputs[i].data),
               sources.memory.data() + offsets[i],
               inputs[i].nbytes);
  }
  copies.run(queue, backend.kernels());
  if (from_host == nbytes) {
    for (const BatchBuffer& input : inputs)
      sources.on_host.push_back(reinterpret_cast<const std::uint8_t*>(input.data));
  }
  return sources;
}

[[noreturn]] void refuse(std::size_t i, const Error& error) {
  throw error.with_context("input " + std::to_string(i));
}

// What the sizes alone tell. Of elements that change their size, kernels see what is left over.
void check_sizes(const Codec& codec,
                 std::size_t first,
                 std::span<const BatchBuffer> inputs,
                 std::span<const BatchBuffer> outputs) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto wanted = codec.encoded_nbytes(outputs[i].nbytes);
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
    ByteCopies copies;
    for (std::size_t i = 0; i < n; ++i)
      copies.add(sources.frames[i], gathered.data() + kWord * i, kWord);
    copies.run(queue, kernels);
    queue.download(words.data(), gathered.data(), words.size());
    queue.synchronize();
  }
  std::vector<std::optional<std::uint32_t>> values(n);
  for (std::size_t i = 0; i < n; ++i)
    if (inputs[i].nbytes >= kWord) values[i] = load_le<std::uint32_t>(&words[kWord * i]);
  return values;
}

// What kernels are given; `staged` becomes memory for outputs that lie on the host.
std::vector<Frame> frames_of(Queue& queue,
                             const Sources& sources,
                             std::span<const BatchBuffer> inputs,
                             std::span<const BatchBuffer> outputs,
                             Scratch<std::uint8_t>& staged) {
  std::size_t nbytes = 0;
  for (const BatchBuffer& output : outputs) nbytes += output.on_device ? 0 : padded(output.nbytes);
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
      frame.target = std::exchange(next, next + padded(outputs[i].nbytes));
    }
  }
  return frames;
}

}  // namespace

DeviceBatch::DeviceBatch(Device device, Stream stream)
    : device_(device), backend_(backend(device.type)), queue_(backend_.make_queue(device.index)) {
  queue_->wait_for(*backend_.wrap_stream(device.index, stream.raw()));
}

DeviceBatch::~DeviceBatch() { const Drain drain(*queue_); }

std::string DeviceBatch::why_not(const Codec& codec,
                                 const Backend& devices,
                                 bool nvcomp,
                                 std::span<const BatchBuffer> outputs) {
  const auto stage = codec.device_stage();
  if (!stage || stage->kind == Kind::transpose) return "has no decoder for devices";
  if (stage->kind != Kind::none) {
    const std::string missing = missing_decoder(devices, stage->kind, nvcomp);
    if (!missing.empty()) return missing;
  }
  for (const BatchBuffer& output : outputs) {
    if (output.nbytes > std::numeric_limits<std::uint32_t>::max())
      return "chunks of 4 GiB and more";
  }
  return {};
}

void DeviceBatch::decode(const Codec& codec,
                         bool nvcomp,
                         std::span<const BatchBuffer> inputs,
                         std::span<const BatchBuffer> outputs) {
  const Kernels& kernels = nvcomp ? backend_.nvcomp_kernels() : backend_.kernels();
  const auto staged_nbytes = [](const BatchBuffer& input, const BatchBuffer& output) {
    return input.nbytes + (output.on_device ? 0 : output.nbytes);
  };
  each_slice(inputs, outputs, staged_nbytes, [&](std::size_t first, Buffers in, Buffers out) {
    decode_slice(codec, kernels, first, in, out);
  });
}

void DeviceBatch::each_slice(
    Buffers inputs,
    Buffers outputs,
    FunctionRef<std::size_t(const BatchBuffer& input, const BatchBuffer& output)> staged_nbytes,
    FunctionRef<void(std::size_t first, Buffers inputs, Buffers outputs)> body) {
  const std::size_t limit = config().device_slab_nbytes;
  for (std::size_t first = 0, last = 0; first < inputs.size(); first = last) {
    for (std::size_t nbytes = 0; last < inputs.size() && (last == first || nbytes < limit); ++last)
      nbytes += staged_nbytes(inputs[last], outputs[last]);
    body(first, inputs.subspan(first, last - first), outputs.subspan(first, last - first));
    pinned_.clear();
  }
}

void DeviceBatch::decode_slice(const Codec& codec,
                               const Kernels& kernels,
                               std::size_t first,
                               std::span<const BatchBuffer> inputs,
                               std::span<const BatchBuffer> outputs) {
  check_sizes(codec, first, inputs, outputs);
  const DeviceStage stage = *codec.device_stage();
  const auto step = [&](std::size_t i) {
    return DeviceStep{stage, std::string(codec.name()), outputs[i].nbytes};
  };
  const std::size_t n = inputs.size();
  const std::shared_ptr<std::byte> found =
      backend_.allocate_pinned(device_.index, n * sizeof(Fault));
  Sources sources = copy_sources(*queue_, backend_, device_.index, inputs);
  const Drain drain(*queue_);
  if (stage.kind == Kind::lz4) {
    const auto sizes = first_words(*queue_, backend_.kernels(), sources, inputs);
    for (std::size_t i = 0; i < n; ++i) {
      if (!sizes[i]) refuse(first + i, fault_error(step(i), Fault::truncated));
      if (sizes[i] != outputs[i].nbytes) refuse(first + i, fault_error(step(i), Fault::wrong_size));
    }
  }
  Scratch<std::uint8_t> staged;  // of the outputs on the host
  std::vector<Frame> frames = frames_of(*queue_, sources, inputs, outputs, staged);
  const Scratch<std::uint32_t> faults(*queue_, n);
  queue_->fill(faults.data(), 0, n * sizeof(std::uint32_t));
  if (stage.kind == Kind::none) {
    ByteCopies copies;
    for (const Frame& frame : frames) copies.add(frame.source, frame.target, frame.target_nbytes);
    copies.run(*queue_, backend_.kernels());
  } else {
    run_stage(*queue_, kernels, stage, frames, sources.on_host, faults.data());
  }
  queue_->download(found.get(), faults.data(), n * sizeof(std::uint32_t));
  for (std::size_t i = 0; i < n; ++i) {
    if (!outputs[i].on_device)
      queue_->download(outputs[i].data, frames[i].target, outputs[i].nbytes);
  }
  queue_->synchronize();
  for (std::size_t i = 0; i < n; ++i) {
    const Fault fault = reinterpret_cast<const Fault*>(found.get())[i];
    if (fault != Fault::none) refuse(first + i, fault_error(step(i), fault));
  }
}

std::vector<MutableBytes> DeviceBatch::stage(std::span<const BatchBuffer> buffers) {
  std::size_t nbytes = 0;
  for (const BatchBuffer& buffer : buffers) nbytes += buffer.on_device ? padded(buffer.nbytes) : 0;
  std::byte* next = nullptr;
  if (nbytes > 0) {
    pinned_.push_back(backend_.allocate_pinned(device_.index, nbytes));
    next = pinned_.back().get();
  }
  std::vector<MutableBytes> staged;
  for (const BatchBuffer& buffer : buffers) {
    std::byte* at =
        buffer.on_device ? std::exchange(next, next + padded(buffer.nbytes)) : buffer.data;
    staged.emplace_back(at, buffer.nbytes);
  }
  return staged;
}

std::vector<MutableBytes> DeviceBatch::download(std::span<const BatchBuffer> buffers) {
  std::vector<MutableBytes> staged = stage(buffers);
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i].on_device)
      queue_->download(staged[i].data(), buffers[i].data, buffers[i].nbytes);
  }
  queue_->synchronize();
  return staged;
}

void DeviceBatch::upload(std::span<const MutableBytes> staged,
                         std::span<const BatchBuffer> buffers) {
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
