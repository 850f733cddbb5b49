// A read to a device goes through it slab by slab, a slab being as many chunks as decode to a
// bounded size:
//
//   walk -> fetch, copy (threads) -> plan, decode, place (one thread) -> wait
//
// Threads fetch encoded bytes into pinned blocks, which are copied as they fill, or from files
// straight into the device's memory (engine/device/gds.h). Then one call a decoding step is given
// to the slab's queue for all its chunks, and one that places the elements, while the other threads
// fetch the next slab. Nothing waits for the device but the reuse of a slab's memory, kSlabs later,
// and the end. Then faults that the decoders found are turned into errors, and what no kernel takes
// is decoded by the host.

#include "engine/device/to_device.h"

#include <deque>
#include <optional>

#include "base/checked.h"
#include "base/thread_pool.h"
#include "base/trace.h"
#include "device/device.h"
#include "engine/device/decode_cost.h"
#include "engine/device/drain.h"
#include "engine/device/placement.h"
#include "engine/device/slab.h"
#include "engine/device/slab_fetch.h"
#include "engine/device/stages.h"

namespace headrace {
namespace {

constexpr std::size_t kSlabs = 3;
constexpr std::size_t kSlabItems = 16384;
// Measured on one H200, pinned host to device: 49 GB/s in pieces of 1 MiB, 54 of 4, 55 of 16.
constexpr std::size_t kBlockNbytes = std::size_t{8} << 20;
constexpr std::size_t kMinBlockNbytes = std::size_t{64} << 10;

template <typename Query>
class DeviceReader {
 public:
  DeviceReader(RequestContext& context, Backend& backend, Queue& queue, Device device)
      : context_(context),
        layout_(context.layout),
        plan_(context.layout.device_plan),
        backend_(backend),
        device_(device),
        kernels_(backend.kernels()),
        pinned_(backend, device.index) {
    queues_.push_back(&queue);
    fill_ = Scratch<std::uint8_t>::of(*queues_[0],
                                      reinterpret_cast<const std::uint8_t*>(layout_.fill.data()),
                                      layout_.itemsize());
  }

  // After an error, work may still be on its way into the caller's memory.
  ~DeviceReader() {
    for (Queue* queue : queues_) const Drain drain(*queue);
  }

  void read(std::vector<RegionPart<Query>>& parts, bool on_host) {
    on_host_ = on_host;
    gds_ = Gds::of(context_, backend_, device_, on_host);
    ChunkWalk<Query> walk(context_);
    for (RegionPart<Query>& part : parts) {
      walk.each(std::move(part), [&](Chunk<Query> chunk) { add(std::move(chunk)); });
    }
    if (!pending_.empty()) run_slab();
    submit_fetched();
    while (!in_flight_.empty()) finish_oldest();
  }

 private:
  struct Slab {
    Slab(PinnedBlocks& pinned, Queue& q, std::size_t block_nbytes, bool keeps_host)
        : queue(q), memory(pinned, q, block_nbytes, keeps_host) {}

    Queue& queue;
    std::vector<Chunk<Query>> chunks;
    std::vector<std::size_t> decoded;  // those that are decoded on the device
    SlabMemory memory;
    std::shared_ptr<std::byte> faults;  // pinned, once `done`: of each step and decoded chunk
    std::unique_ptr<Mark> done;         // null until it is submitted
  };

  void add(Chunk<Query> chunk) {
    if (!chunk.missing) pending_nbytes_ += nbytes_of(chunk);
    pending_.push_back(std::move(chunk));
    if (pending_nbytes_ < context_.config.device_slab_nbytes && pending_.size() < kSlabItems)
      return;
    add_queues();
    run_slab();
  }

  std::size_t nbytes_of(const Chunk<Query>& chunk) const {
    const bool packed = SlabFetch<Query>::is_for_host(layout_, on_host_, chunk.query);
    return packed ? chunk.query.size() * layout_.itemsize() : layout_.chain.decoded_nbytes();
  }

  // Fetches what is pending while the slab that was fetched before is submitted.
  void run_slab() {
    while (in_flight_.size() >= kSlabs) finish_oldest();
    Slab* const fetched = fetched_;
    fetched_ = &add_slab(*queues_[turn_++ % queues_.size()], pending_nbytes_);
    fetched_->chunks = std::exchange(pending_, {});
    pending_nbytes_ = 0;
    SlabFetch<Query> fetch(context_, on_host_, gds_.get(), fetched_->chunks, fetched_->memory);
    const auto take_turn = [&](std::size_t i) {
      if (i > 0) {
        fetch.work();
      } else if (fetched) {
        submit(*fetched);
      }
    };
    context_.parallel(1 + fetch.threads(), take_turn, 0);
    fetched_->memory.finish();
    for (const Chunk<Query>& chunk : fetched_->chunks)
      if (!chunk.missing) context_.count_encoded(chunk.range.nbytes);
  }

  void submit_fetched() {
    if (fetched_) submit(*std::exchange(fetched_, nullptr));
  }

  // Decoders read headers from host memory.
  Slab& add_slab(Queue& queue, std::size_t nbytes) {
    const bool keeps_host = !on_host_ && !plan_.steps.empty();
    in_flight_.push_back(std::make_unique<Slab>(
        pinned_, queue, std::clamp(nbytes, kMinBlockNbytes, kBlockNbytes), keeps_host));
    return *in_flight_.back();
  }

  // Before the first slab, if others follow.
  void add_queues() {
    while (queues_.size() < kSlabs) {
      own_queues_.push_back(backend_.make_queue(device_.index));
      queues_.push_back(own_queues_.back().get());
      queues_.back()->wait_for(*queues_[0]);
    }
  }

  void submit(Slab& slab) {
    std::vector<DeviceChunk> chunks;
    {
      const Span span("plan");
      for (std::size_t i = 0; i < slab.chunks.size(); ++i) {
        const Chunk<Query>& chunk = slab.chunks[i];
        if (chunk.missing || chunk.packed) continue;
        slab.decoded.push_back(i);
        chunks.push_back(
            {chunk.encoded_nbytes(), chunk.host, chunk.device, direct_target(chunk.query)});
      }
    }
    DeviceRun run(slab.queue, backend_, chunks);
    decode(slab, run);
    place(slab, chunks, run);
    slab.done = slab.queue.mark();
  }

  void decode(Slab& slab, DeviceRun& run) {
    const std::size_t n = plan_.steps.size() * slab.decoded.size();
    if (n == 0) return;
    const Span span("decode", slab.decoded.size() * layout_.chain.decoded_nbytes());
    const Scratch<std::uint32_t> faults(slab.queue, n);
    slab.queue.fill(faults.data(), 0, n * sizeof(std::uint32_t));
    run.run(plan_, faults.data());
    slab.faults = backend_.allocate_pinned(device_.index, n * sizeof(std::uint32_t));
    slab.queue.download(slab.faults.get(), faults.data(), n * sizeof(std::uint32_t));
  }

  void place(Slab& slab, const std::vector<DeviceChunk>& chunks, const DeviceRun& run) {
    const Span span("place");
    PlacementList native(layout_.itemsize(), 0);
    PlacementList stored(layout_.itemsize(), plan_.swap_nbytes);
    for (const Chunk<Query>& chunk : slab.chunks) {
      if (chunk.missing) native.add_fill(chunk.query, fill_.data());
      if (chunk.packed) native.add_packed(chunk.query, chunk.device);
    }
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      if (chunks[i].target) continue;
      stored.add_chunk(slab.chunks[slab.decoded[i]].query, run.result(i), plan_.strides);
    }
    native.run(slab.queue, kernels_);
    stored.run(slab.queue, kernels_);
  }

  // The caller's memory, when the chunk lies there as its last step gives it.
  std::uint8_t* direct_target(const Query& query) const {
    if (!plan_.c_order || plan_.swap_nbytes != 0 || plan_.steps.empty() ||
        is_checksum(plan_.steps.back().stage.kind))
      return nullptr;
    auto sink = make_sink(query, layout_.chunk_shape, layout_.itemsize());
    if (!sink.ordered()) return nullptr;
    return reinterpret_cast<std::uint8_t*>(sink.direct(0, layout_.chain.decoded_nbytes()));
  }

  void finish_oldest() {
    if (in_flight_.front().get() == fetched_) submit_fetched();
    const std::unique_ptr<Slab> slab = std::move(in_flight_.front());
    in_flight_.pop_front();
    {
      const Span span("wait");
      slab->done->wait();
    }
    std::vector<std::size_t> refused;
    for (std::size_t i = 0; i < slab->decoded.size(); ++i) {
      const std::optional<Error> error = fault_of(*slab, i);
      if (!error) continue;
      const std::size_t chunk = slab->decoded[i];
      const bool forced = !layout_.on_device.empty();
      if (error->code() != ErrorCode::unsupported || forced)
        throw located(context_, *slab->chunks[chunk].level, slab->chunks[chunk].position, *error);
      refused.push_back(chunk);
    }
    if (!refused.empty()) decode_refused(*slab, refused);
  }

  // Of the i-th decoded chunk: what the first step that failed found.
  std::optional<Error> fault_of(const Slab& slab, std::size_t i) const {
    const auto* faults = reinterpret_cast<const Fault*>(slab.faults.get());
    for (std::size_t step = 0; step < plan_.steps.size(); ++step) {
      const Fault fault = faults[step * slab.decoded.size() + i];
      if (fault != Fault::none) return fault_error(plan_.steps[step], fault);
    }
    return std::nullopt;
  }

  // Chunks that the kernels do not take and the host may.
  void decode_refused(Slab& slab, const std::vector<std::size_t>& refused) {
    Slab& again = add_slab(slab.queue, refused.size() * layout_.chain.decoded_nbytes());
    for (const std::size_t chunk : refused) again.chunks.push_back(std::move(slab.chunks[chunk]));
    const DecodeContext decode_context{
        again.chunks.size() < 2 * static_cast<std::size_t>(context_.threads) ? context_.threads
                                                                             : 1};
    context_.parallel(
        again.chunks.size(),
        [&](std::size_t i) {
          context_.check();
          Chunk<Query>& chunk = again.chunks[i];
          try {
            const ConstBytes encoded(chunk.host, chunk.encoded_nbytes());
            decode_packed(layout_, chunk, encoded, again.memory, decode_context);
          } catch (const Error& error) {
            throw located(context_, *chunk.level, chunk.position, error);
          }
        },
        context_.threads);
    again.memory.finish();
    submit(again);
  }

  RequestContext& context_;
  const ArrayLayout& layout_;
  const DevicePlan& plan_;
  Backend& backend_;
  const Device device_;
  const Kernels& kernels_;
  std::vector<std::unique_ptr<Queue>> own_queues_;
  std::vector<Queue*> queues_;  // the caller's, then these
  PinnedBlocks pinned_;
  Scratch<std::uint8_t> fill_;
  bool on_host_ = false;
  std::unique_ptr<Gds> gds_;  // null: chunks come through the host
  std::size_t turn_ = 0;
  std::vector<Chunk<Query>> pending_;
  std::size_t pending_nbytes_ = 0;
  std::deque<std::unique_ptr<Slab>> in_flight_;
  Slab* fetched_ = nullptr;  // the last of them, when it is not submitted
};

// What decoding the chunks takes that a selection touches; of points, at most so much. How far
// they are compressed is known when they are fetched: half is a guess.
DecodeWork decode_work(const ArrayLayout& layout, const ResolvedSelection& selection) {
  DecodeWork work;
  work.chunks = selection.size();
  if (!selection.pointwise) {
    const TensorView nowhere{nullptr, selection.result_shape, {}, layout.metadata->dtype, {}};
    const Box box(selection, nowhere);
    work.chunks = BoxCut(box, layout.chunk_shape).size();
  }
  const auto total = [&](std::size_t nbytes) {
    std::size_t product = 0;
    return __builtin_mul_overflow(work.chunks, nbytes, &product) ? SIZE_MAX : product;
  };
  const std::size_t chunk_nbytes = layout.chain.decoded_nbytes();
  work.decoded_nbytes = total(chunk_nbytes);
  work.encoded_nbytes = total(layout.chain.fixed_encoded_nbytes().value_or(chunk_nbytes / 2));
  work.wanted_nbytes = std::min(work.decoded_nbytes, selection.size() * layout.itemsize());
  return work;
}

std::size_t saturated_sum(std::size_t a, std::size_t b) {
  std::size_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? SIZE_MAX : sum;
}

DecodeWork decode_work(const ArrayLayout& layout, std::span<const DeviceTarget> targets) {
  DecodeWork sum;
  for (const DeviceTarget& target : targets) {
    const DecodeWork work = decode_work(layout, *target.selection);
    sum.chunks = saturated_sum(sum.chunks, work.chunks);
    sum.decoded_nbytes = saturated_sum(sum.decoded_nbytes, work.decoded_nbytes);
    sum.encoded_nbytes = saturated_sum(sum.encoded_nbytes, work.encoded_nbytes);
    sum.wanted_nbytes = saturated_sum(sum.wanted_nbytes, work.wanted_nbytes);
  }
  return sum;
}

// Whether chunks are decoded by the host's threads and copied.
bool decodes_on_host(const RequestContext& context,
                     const Backend& devices,
                     std::span<const DeviceTarget> targets) {
  const ArrayLayout& layout = context.layout;
  const std::string missing = missing_decoder(devices, layout.device_plan);
  const bool forced = !layout.on_device.empty();
  if (forced && !missing.empty()) {
    throw Error(ErrorCode::unsupported,
                "[read] " + context.state.path() + ": " + layout.on_device.begin()->second +
                    " cannot decode the chunks: " + missing);
  }
  if (forced || !missing.empty()) return !forced;
  std::vector<DeviceStage::Kind> kinds;
  for (const DeviceStep& step : layout.device_plan.steps) kinds.push_back(step.stage.kind);
  if (context.config.gds == "on") return false;  // or nothing could go past the host
  // Without a step nothing is decoded by either: fetching sees to it chunk by chunk.
  if (kinds.empty() && !context.config.device_min_decode_nbytes) return false;
  return !device_decodes(kinds,
                         decode_work(layout, targets),
                         context.threads,
                         context.config.device_min_decode_nbytes);
}

template <typename Query>
void read_query(RequestContext& context,
                Query query,
                Backend& backend,
                Queue& queue,
                Device device,
                bool on_host) {
  each_chunk_shape(context,
                   std::move(query),
                   [&](RequestContext& inside, std::vector<RegionPart<Query>>& parts) {
                     DeviceReader<Query>(inside, backend, queue, device).read(parts, on_host);
                   });
}

}  // namespace

void read_on_queue(RequestContext& context,
                   const ResolvedSelection& selection,
                   const TensorView& out,
                   Backend& backend,
                   std::unique_ptr<Queue> queue) {
  check_on_device(context.layout, out.device.type);
  const DeviceTarget target{&selection, out};
  const bool on_host = decodes_on_host(context, backend, {&target, 1});
  if (selection.pointwise) {
    read_query(context, Points(selection, out), backend, *queue, out.device, on_host);
  } else {
    read_query(context, Box(selection, out), backend, *queue, out.device, on_host);
  }
}

void read_selection_to_device(const ArrayState& state,
                              std::shared_ptr<const ArrayLayout> layout,
                              const ResolvedSelection& selection,
                              const TensorView& out,
                              const ReadOptions& options,
                              const std::atomic<bool>* cancel) {
  again_when_changed([&] {
    RequestContext context(state, layout, options, cancel);
    if (selection.size() == 0) return;
    Backend& devices = backend(out.device.type);
    auto queue = devices.make_queue(out.device.index);
    queue->wait_for(*devices.wrap_stream(out.device.index, options.stream.raw()));
    read_on_queue(context, selection, out, devices, std::move(queue));
  });
}

void read_selections_to_device(const ArrayState& state,
                               std::shared_ptr<const ArrayLayout> layout,
                               std::span<const DeviceTarget> targets,
                               const ReadOptions& options) {
  const bool has_points = std::any_of(targets.begin(), targets.end(), [](const auto& target) {
    return target.selection->pointwise;
  });
  if (targets.size() == 1 || has_points || layout->regions) {
    for (const DeviceTarget& target : targets)
      read_selection_to_device(state, layout, *target.selection, target.out, options);
    return;
  }
  RequestContext context(state, std::move(layout), options, nullptr);
  const Device device = targets.front().out.device;
  check_on_device(context.layout, device.type);
  if (std::ranges::all_of(
          targets, [](const DeviceTarget& target) { return target.selection->size() == 0; })) {
    return;
  }
  Backend& devices = backend(device.type);
  again_when_changed([&] {
    std::vector<RegionPart<Box>> parts;  // of each attempt: to read is to take them
    for (const DeviceTarget& target : targets) {
      if (target.selection->size() > 0)
        parts.push_back({nullptr, {}, Box(*target.selection, target.out)});
    }
    const auto queue = devices.make_queue(device.index);
    queue->wait_for(*devices.wrap_stream(device.index, options.stream.raw()));
    DeviceReader<Box>(context, devices, *queue, device)
        .read(parts, decodes_on_host(context, devices, targets));
  });
}

Tensor read_new_on_device(const ArrayState& state,
                          std::shared_ptr<const ArrayLayout> layout,
                          const ResolvedSelection& selection,
                          const ReadOptions& options,
                          const std::atomic<bool>* cancel) {
  const Device device = state.choice().device;
  return again_when_changed([&] {
    RequestContext context(state, layout, options, cancel);
    const DType& dtype = context.layout.metadata->dtype;
    const std::size_t nbytes =
        checked_nbytes(selection.result_shape, dtype.itemsize(), "size of the result");
    Backend& devices = backend(device.type);
    auto queue = devices.make_queue(device.index);
    Tensor result(devices.allocate(*queue, nbytes), selection.result_shape, dtype, device);
    if (nbytes == 0) {
      queue->synchronize();
    } else {
      read_on_queue(context, selection, result.view(), devices, std::move(queue));
    }
    return result;
  });
}

}  // namespace headrace
