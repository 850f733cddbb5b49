// Batches of buffers for one codec: decoded or encoded by the host's threads or by a device,
// wherever the buffers lie. Whoever is asked for does it, else to decode the one that takes less
// time, and to encode a device what lies there.

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include "base/buffer.h"
#include "base/checked.h"
#include "base/thread_pool.h"
#include "codec/registry.h"
#include "device/device.h"
#include "device/device_work.h"
#include "device/kept_frees.h"
#include "engine/device/batch.h"
#include "engine/device/rates.h"
#include "engine/layout/device_codecs.h"
#include "engine/layout/encode_plan.h"
#include "engine/request/config.h"
#include "headrace/codec.h"
#include "headrace/error.h"

namespace headrace {
namespace {

struct PreparedCodec {
  CodecPtr codec;              // its body on the host
  std::string implementation;  // asked for by the call or the configuration; may be empty

  // When it is one that a backend offers.
  std::string_view library() const {
    return only_decodes(implementation) ? std::string_view(implementation) : std::string_view();
  }
};

PreparedCodec prepare(std::string_view codec, const BatchOptions& options, const char* where) {
  const std::string name(canonical_codec_name(codec));
  Implementations of_call;
  if (!options.implementation.empty()) of_call.emplace(name, options.implementation);
  check_implementations(of_call, where);
  Implementations implementations = merged_implementations({}, of_call);
  PreparedCodec prepared;
  if (const auto chosen = implementations.find(name); chosen != implementations.end())
    prepared.implementation = chosen->second;
  std::erase_if(implementations,
                [](const auto& choice) { return device_of_implementation(choice.second); });
  const ChunkSpec any_bytes{DType::uint8, {0}, {}};
  const CodecSite site{any_bytes, CodecPosition::after_bytes, &implementations, any_bytes};
  prepared.codec =
      resolve_codec({std::string(codec), options.configuration}, site, implementations);
  return prepared;
}

// The configuration's choice of a device counts where a device is to encode.
PreparedCodec prepare_to_encode(std::string_view codec, const BatchOptions& options) {
  PreparedCodec prepared = prepare(codec, options, "[encode_batch]");
  std::string& wanted = prepared.implementation;
  if (options.device.is_cpu() && options.implementation.empty() && device_of_implementation(wanted))
    wanted.clear();
  if (only_decodes(wanted))
    throw Error(ErrorCode::unsupported,
                "encode_batch: implementation " + wanted + " only decodes " + std::string(codec));
  return prepared;
}

template <typename Function>
void at_input(std::size_t i, const Codec& codec, Function&& function) {
  try {
    function();
  } catch (const Error& e) {
    throw e.with_context("codec " + std::string(codec.name()))
        .with_context("input " + std::to_string(i));
  }
}

void check_counts(std::size_t inputs, std::size_t outputs) {
  if (inputs == outputs) return;
  throw Error(ErrorCode::invalid_argument,
              "decode_batch: " + std::to_string(inputs) + " inputs for " + std::to_string(outputs) +
                  " outputs");
}

std::vector<MutableBytes> bytes_of(std::span<const BatchBuffer> buffers) {
  std::vector<MutableBytes> bytes;
  for (const BatchBuffer& buffer : buffers) bytes.emplace_back(buffer.data, buffer.nbytes);
  return bytes;
}

void decode_by_host(const Codec& codec,
                    std::size_t first,  // number of the first input
                    std::span<const MutableBytes> inputs,
                    std::span<const MutableBytes> outputs) {
  // Threads that inputs do not keep busy help within one.
  const auto threads = static_cast<std::size_t>(thread_count());
  const std::size_t taken = std::min(inputs.size(), threads);
  const DecodeContext context{
      std::max(1, static_cast<int>(threads / std::max<std::size_t>(taken, 1)))};
  parallel_for(inputs.size(), [&](std::size_t i) {
    at_input(first + i, codec, [&] { codec.decode(inputs[i], outputs[i], context); });
  });
}

std::vector<Buffer> encode_by_host(const Codec& codec,
                                   std::size_t first,
                                   std::span<const MutableBytes> inputs) {
  std::vector<Buffer> encoded(inputs.size());
  parallel_for(inputs.size(), [&](std::size_t i) {
    at_input(first + i, codec, [&] { codec.encode(inputs[i], encoded[i]); });
  });
  return encoded;
}

// The bytes of the views. `device` becomes the one where some lie.
std::vector<BatchBuffer> buffers_of(const BatchViews& batch, const char* what, Device& device) {
  const auto refuse = [&](std::size_t i, const std::string& problem) {
    throw Error(ErrorCode::invalid_argument, std::string(what) + ' ' + std::to_string(i) + problem);
  };
  const auto check_device = [&](std::size_t i, const Device& found) {
    if (found.is_cpu()) return;
    if (device.is_cpu()) device = found;
    if (device != found)
      refuse(i, " lies on " + found.to_string() + ", others on " + device.to_string());
  };
  std::vector<BatchBuffer> buffers;
  buffers.reserve(batch.size());
  if (const std::span<const std::size_t> offsets = batch.offsets(); !offsets.empty()) {
    const TensorView& all = batch.all();
    check_device(0, all.device);
    for (std::size_t i = 0; i + 1 < offsets.size(); ++i)
      buffers.push_back({static_cast<std::byte*>(all.data) + offsets[i],
                         offsets[i + 1] - offsets[i],
                         !all.device.is_cpu()});
    return buffers;
  }
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const TensorView& view = batch.views()[i];
    if (!view.is_c_contiguous()) refuse(i, " is not contiguous");
    check_device(i, view.device);
    buffers.push_back({static_cast<std::byte*>(view.data),
                       view.size() * view.dtype.itemsize(),
                       !view.device.is_cpu()});
  }
  return buffers;
}

std::shared_ptr<DeviceBatch> batch_on(const Device& device, const Stream& stream) {
  if (device.is_cpu()) return nullptr;
  check_device(device);
  return std::make_shared<DeviceBatch>(device, stream);
}

std::size_t total_nbytes(std::span<const BatchBuffer> buffers) {
  std::size_t nbytes = 0;
  for (const BatchBuffer& buffer : buffers) nbytes += buffer.nbytes;
  return nbytes;
}

// What a batch has in memory of the host and of the device in a mix counts as its first buffers do.
bool device_is_faster(DeviceStage::Kind kind,
                      const Device& device,
                      std::span<const BatchBuffer> inputs,
                      std::span<const BatchBuffer> outputs) {
  DecodeWork work;
  work.chunks = inputs.size();
  work.encoded_nbytes = total_nbytes(inputs);
  work.decoded_nbytes = work.wanted_nbytes = total_nbytes(outputs);
  work.from_device = inputs[0].on_device;
  work.to_device = outputs[0].on_device;
  return chooses_device(
      backend(device.type), device.index, {&kind, 1}, work, thread_count(), config());
}

// Whether an implementation for devices is asked for, which must be for options.device.
bool forces_device(const std::string& implementation,
                   const BatchOptions& options,
                   const char* call) {
  const auto forced = device_of_implementation(implementation);
  if (forced && *forced != options.device.type) {
    throw Error(ErrorCode::invalid_argument,
                std::string(call) + ": implementation " + implementation +
                    " is for devices of that type, not on " + options.device.to_string());
  }
  return forced.has_value();
}

[[noreturn]] void refuse(const PreparedCodec& prepared, const char* call, const std::string& why) {
  throw Error(ErrorCode::unsupported,
              std::string(call) + ": codec " + std::string(prepared.codec->name()) + " on " +
                  prepared.implementation + ": " + why);
}

// Whether options.device decodes. Throws when it is asked to and cannot.
bool decodes_on_device(const PreparedCodec& prepared,
                       const BatchOptions& options,
                       std::span<const BatchBuffer> inputs,
                       std::span<const BatchBuffer> outputs) {
  const std::string& wanted = prepared.implementation;
  const bool forced = forces_device(wanted, options, "decode_batch");
  if (options.device.is_cpu() || (!forced && !wanted.empty())) return false;
  const Codec& codec = *prepared.codec;
  const std::string missing = DeviceBatch::why_not_decoded(
      codec, backend(options.device.type), prepared.library(), outputs);
  if (forced && !missing.empty()) refuse(prepared, "decode_batch", missing);
  if (forced) return true;
  return missing.empty() &&
         device_is_faster(codec.device_stage()->kind, options.device, inputs, outputs);
}

// The same of encoding.
bool encodes_on_device(const PreparedCodec& prepared,
                       const BatchOptions& options,
                       std::span<const BatchBuffer> inputs) {
  const std::string& wanted = prepared.implementation;
  const bool forced = forces_device(wanted, options, "encode_batch");
  if (options.device.is_cpu() || (!forced && !wanted.empty())) return false;
  const Codec& codec = *prepared.codec;
  const std::string missing =
      DeviceBatch::why_not_encoded(codec, backend(options.device.type), inputs);
  if (forced && !missing.empty()) refuse(prepared, "encode_batch", missing);
  if (forced) return true;
  const auto on_device =
      static_cast<std::size_t>(std::ranges::count(inputs, true, &BatchBuffer::on_device));
  const auto encoding = codec.device_stage().value_or(DeviceStage{}).encoding;
  return missing.empty() && on_device == inputs.size() &&
         device_encodes(encoding && encoding->thorough,
                        total_nbytes(inputs),
                        config().device_min_decode_nbytes);
}

// `batch` is null when all memory is the host's. What a device decodes is left for batch->finish().
void decode(const PreparedCodec& prepared,
            const BatchOptions& options,
            DeviceBatch* batch,
            std::span<const BatchBuffer> inputs,
            std::span<const BatchBuffer> outputs) {
  const Codec& codec = *prepared.codec;
  if (decodes_on_device(prepared, options, inputs, outputs))
    return batch->decode(codec, prepared.library(), inputs, outputs);
  if (!batch) return decode_by_host(codec, 0, bytes_of(inputs), bytes_of(outputs));
  const auto staged_nbytes = [&](std::size_t i) {
    return (inputs[i].on_device ? inputs[i].nbytes : 0) +
           (outputs[i].on_device ? outputs[i].nbytes : 0);
  };
  const std::size_t limit = config().device_slab_nbytes;
  batch->each_slice(inputs.size(), limit, staged_nbytes, [&](std::size_t first, std::size_t n) {
    const auto out = outputs.subspan(first, n);
    const auto decoded = batch->stage(out);
    decode_by_host(codec, first, batch->download(inputs.subspan(first, n)), decoded);
    batch->upload(decoded, out);
  });
}

// A batch that the call may leave under way, and what it needs. They go in this order, whatever
// throws: the batch, which waits for the device; new memory; what the caller wants kept, among it
// the stream that the memory goes back behind.
struct QueuedBatch {
  std::shared_ptr<void> keep_alive;
  std::vector<std::shared_ptr<void>> memory;
  std::shared_ptr<DeviceBatch> batch;
};

// What batch->decode() left, as work that the caller's stream waits for.
Ready queued(const std::shared_ptr<QueuedBatch>& work,
             const BatchOptions& options,
             const Device& device) {
  return Ready(detail::DeviceWork::start(
      device, work->batch->queue(), options.stream, [work] { work->batch->finish(); }));
}

// Memory that goes back when all that the caller's stream was given until then is done with it.
std::shared_ptr<void> freed_behind(std::shared_ptr<void> memory, const BatchOptions& options) {
  void* const data = memory.get();
  return {data,
          [memory = std::move(memory),
           device = options.device,
           stream = options.stream,
           owner = options.stream_owner](void*) mutable {
            free_behind(
                device, stream, [memory = std::move(memory), owner]() mutable { memory.reset(); });
          }};
}

// Memory for buffers of these sizes, made by `make`. Small ones share blocks of up to 1 MiB, each
// of which lives as long as one of its buffers: to ask for thousands of their own would take longer
// than to decode them.
std::vector<std::shared_ptr<void>> allocate_all(
    std::span<const std::size_t> nbytes,
    FunctionRef<std::shared_ptr<void>(std::size_t nbytes)> make) {
  constexpr std::size_t kBlock = std::size_t{1} << 20, kAlignment = 256;
  std::vector<std::shared_ptr<void>> memory;
  memory.reserve(nbytes.size());
  std::vector<std::size_t> offsets;
  for (std::size_t i = 0; i < nbytes.size(); i += offsets.size()) {
    std::size_t used = 0;
    for (offsets.clear(); i + offsets.size() < nbytes.size();) {
      const std::size_t next = nbytes[i + offsets.size()];
      if (!offsets.empty() && (used > kBlock || next > kBlock - used)) break;
      offsets.push_back(used);
      if (next > kBlock) {
        used = next;
        break;
      }
      used += (next + kAlignment - 1) / kAlignment * kAlignment;
    }
    const std::shared_ptr<void> block = make(used);
    for (const std::size_t offset : offsets)
      memory.emplace_back(block, static_cast<std::byte*>(block.get()) + offset);
  }
  return memory;
}

Tensor new_bytes(const Device& device, DeviceBatch* batch, std::size_t nbytes) {
  if (!device.is_cpu()) return batch->allocate(nbytes);
  return Tensor::empty({checked_cast<std::int64_t>(nbytes, "size of a buffer")}, DType::uint8);
}

Tensor bytes_in(std::shared_ptr<void> memory,
                std::size_t nbytes,
                const Device& device,
                Ready ready = {}) {
  const auto n = checked_cast<std::int64_t>(nbytes, "size of a buffer");
  return {std::move(memory), {n}, DType::uint8, device, std::move(ready)};
}

BatchBuffer buffer_of(const Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data()), tensor.nbytes(), !tensor.device().is_cpu()};
}

// Appends the results of inputs from number `first` on.
void encode_slice_by_host(const Codec& codec,
                          const Device& to,
                          DeviceBatch* batch,  // null when all memory is the host's
                          std::size_t first,
                          std::span<const BatchBuffer> inputs,
                          std::vector<Tensor>& results) {
  const std::vector<Buffer> encoded =
      encode_by_host(codec, first, batch ? batch->download(inputs) : bytes_of(inputs));
  std::vector<BatchBuffer> targets;
  for (const Buffer& bytes : encoded) {
    results.push_back(new_bytes(to, batch, bytes.size()));
    targets.push_back(buffer_of(results.back()));
  }
  const auto staged = batch ? batch->stage(targets) : bytes_of(targets);
  parallel_for(encoded.size(), [&](std::size_t i) {
    if (!encoded[i].empty()) std::memcpy(staged[i].data(), encoded[i].data(), encoded[i].size());
  });
  if (batch) batch->upload(staged, targets);
}

// Inputs are only read.
template <typename Byte>
std::vector<TensorView> views_of(std::span<const std::span<Byte>> buffers) {
  std::vector<TensorView> views;
  for (const std::span<Byte> bytes : buffers) {
    views.push_back({const_cast<std::byte*>(bytes.data()),
                     {static_cast<std::int64_t>(bytes.size())},
                     {},
                     DType::uint8,
                     Device::cpu()});
  }
  return views;
}

}  // namespace

BatchViews::BatchViews(TensorView all, std::vector<std::size_t> offsets)
    : all_(std::move(all)), offsets_(std::move(offsets)) {
  if (!all_.is_c_contiguous()) {
    throw Error(ErrorCode::invalid_argument,
                "batch: pieces are those of one buffer that is C-contiguous");
  }
  const std::size_t nbytes = all_.size() * all_.dtype.itemsize();
  for (std::size_t i = 0; i < offsets_.size(); ++i) {
    if (offsets_[i] <= nbytes && (i == 0 || offsets_[i] >= offsets_[i - 1])) continue;
    throw Error(ErrorCode::invalid_argument,
                "offsets: expected sizes in bytes that do not fall, up to " +
                    std::to_string(nbytes) + ", got " + std::to_string(offsets_[i]) + " at " +
                    std::to_string(i));
  }
}

std::size_t BatchViews::size() const {
  return offsets_.empty() ? views_.size() : offsets_.size() - 1;
}

void decode_batch(std::string_view codec,
                  std::span<const std::span<const std::byte>> inputs,
                  std::span<const std::span<std::byte>> outputs,
                  const BatchOptions& options) {
  decode_batch(codec, BatchViews(views_of(inputs)), BatchViews(views_of(outputs)), options);
}

void decode_batch(std::string_view codec,
                  const BatchViews& inputs,
                  const BatchViews& outputs,
                  const BatchOptions& options) {
  check_counts(inputs.size(), outputs.size());
  if (inputs.empty()) return;
  const PreparedCodec prepared = prepare(codec, options, "[decode_batch]");
  Device device = options.device;
  const auto sources = buffers_of(inputs, "decode_batch: input", device);
  const auto targets = buffers_of(outputs, "decode_batch: output", device);
  const auto batch = batch_on(device, options.stream);
  decode(prepared, options, batch.get(), sources, targets);
  if (batch) batch->finish();
}

Ready decode_batch_async(std::string_view codec,
                         const BatchViews& inputs,
                         const BatchViews& outputs,
                         std::shared_ptr<void> keep_alive,
                         const BatchOptions& options) {
  check_counts(inputs.size(), outputs.size());
  if (inputs.empty()) return {};
  const PreparedCodec prepared = prepare(codec, options, "[decode_batch]");
  Device device = options.device;
  const auto sources = buffers_of(inputs, "decode_batch: input", device);
  const auto targets = buffers_of(outputs, "decode_batch: output", device);
  const auto work = std::make_shared<QueuedBatch>();
  work->keep_alive = std::move(keep_alive);
  work->batch = batch_on(device, options.stream);
  decode(prepared, options, work->batch.get(), sources, targets);
  if (!work->batch || !work->batch->is_under_way()) return {};
  if (!std::ranges::all_of(targets, &BatchBuffer::on_device)) {
    work->batch->finish();
    return {};
  }
  return queued(work, options, device);
}

std::vector<Tensor> decode_batch(std::string_view codec,
                                 const BatchViews& inputs,
                                 std::span<const std::size_t> nbytes,
                                 const BatchOptions& options) {
  check_counts(inputs.size(), nbytes.size());
  std::vector<Tensor> results;
  if (inputs.empty()) return results;
  const PreparedCodec prepared = prepare(codec, options, "[decode_batch]");
  Device device = options.device;
  const auto sources = buffers_of(inputs, "decode_batch: input", device);
  const auto batch = batch_on(device, options.stream);
  if (options.device.is_cpu()) {
    for (const std::size_t n : nbytes) results.push_back(new_bytes(options.device, nullptr, n));
  } else {
    const auto memory =
        allocate_all(nbytes, [&](std::size_t n) { return batch->allocate(n).release(); });
    for (std::size_t i = 0; i < nbytes.size(); ++i)
      results.push_back(bytes_in(memory[i], nbytes[i], options.device));
  }
  std::vector<BatchBuffer> targets;
  for (const Tensor& result : results) targets.push_back(buffer_of(result));
  decode(prepared, options, batch.get(), sources, targets);
  if (batch) batch->finish();
  return results;
}

std::vector<Tensor> decode_batch_async(std::string_view codec,
                                       const BatchViews& inputs,
                                       std::span<const std::size_t> nbytes,
                                       std::shared_ptr<void> keep_alive,
                                       const BatchOptions& options) {
  if (options.device.is_cpu()) return decode_batch(codec, inputs, nbytes, options);
  check_counts(inputs.size(), nbytes.size());
  std::vector<Tensor> results;
  if (inputs.empty()) return results;
  const PreparedCodec prepared = prepare(codec, options, "[decode_batch]");
  Device device = options.device;
  const auto sources = buffers_of(inputs, "decode_batch: input", device);
  const auto work = std::make_shared<QueuedBatch>();
  work->keep_alive = std::move(keep_alive);
  work->batch = batch_on(device, options.stream);
  work->memory = allocate_all(nbytes, [&](std::size_t n) {
    return freed_behind(work->batch->allocate(n).release(), options);
  });
  std::vector<BatchBuffer> buffers;
  for (std::size_t i = 0; i < nbytes.size(); ++i)
    buffers.push_back({static_cast<std::byte*>(work->memory[i].get()), nbytes[i], true});
  decode(prepared, options, work->batch.get(), sources, buffers);
  const std::vector<std::shared_ptr<void>> memory = work->memory;
  Ready ready;
  if (work->batch->is_under_way()) ready = queued(work, options, device);
  for (std::size_t i = 0; i < nbytes.size(); ++i)
    results.push_back(bytes_in(memory[i], nbytes[i], device, ready));
  return results;
}

std::vector<std::vector<std::byte>> encode_batch(std::string_view codec,
                                                 std::span<const std::span<const std::byte>> inputs,
                                                 const BatchOptions& options) {
  BatchOptions on_host = options;
  on_host.device = Device::cpu();
  std::vector<std::vector<std::byte>> results;
  for (const Tensor& encoded : encode_batch(codec, BatchViews(views_of(inputs)), on_host)) {
    const auto* data = static_cast<const std::byte*>(encoded.data());
    results.emplace_back(data, data + encoded.nbytes());
  }
  return results;
}

std::vector<Tensor> encode_batch(std::string_view codec,
                                 const BatchViews& inputs,
                                 const BatchOptions& options) {
  std::vector<Tensor> results;
  if (inputs.empty()) return results;
  const PreparedCodec prepared = prepare_to_encode(codec, options);
  Device device = options.device;
  const auto sources = buffers_of(inputs, "encode_batch: input", device);
  const auto batch = batch_on(device, options.stream);
  if (encodes_on_device(prepared, options, sources)) return batch->encode(*prepared.codec, sources);
  const auto encode_slice = [&](std::size_t first, std::size_t n) {
    encode_slice_by_host(*prepared.codec,
                         options.device,
                         batch.get(),
                         first,
                         std::span(sources).subspan(first, n),
                         results);
  };
  if (batch)
    batch->each_slice(
        sources.size(),
        config().device_slab_nbytes,
        [&](std::size_t i) { return sources[i].nbytes; },
        encode_slice);
  else
    encode_slice(0, sources.size());
  return results;
}

}  // namespace headrace
