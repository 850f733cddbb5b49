// A read to a device goes through it slab by slab, a slab being as many chunks as decode to a
// bounded size:
//
//   walk -> fetch, copy (threads) -> plan, decode, place (one thread) -> wait
//
// Threads fetch encoded bytes into pinned blocks, which are copied as they fill and then filled
// anew, or from files straight into the device's memory (engine/device/gds.h). What decoders want
// to know of headers is read on the way. Then one call a decoding step is given
// to the slab's queue for all its chunks, and one that places the elements, while the other threads
// fetch the next slab (engine/device/slabs_in_flight.h). Nothing waits for the device but the reuse
// of a queue and of what a slab had there, and the end. When a slab is done, faults that the
// decoders found are turned into errors. What no kernel takes is fetched again after all others and
// decoded by the host.

#include "engine/device/to_device.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include "base/checked.h"
#include "base/memory_nodes.h"
#include "base/thread_pool.h"
#include "base/trace.h"
#include "codec/vlen.h"
#include "device/device.h"
#include "engine/device/drain.h"
#include "engine/device/placement.h"
#include "engine/device/rates.h"
#include "engine/device/slab.h"
#include "engine/device/slab_fetch.h"
#include "engine/device/slab_from_network.h"
#include "engine/device/slabs_in_flight.h"
#include "engine/device/stages.h"

namespace headrace {
namespace {

// Measured on one H200, pinned host to device: 49 GB/s in pieces of 1 MiB, 54 of 4, 55 of 16.
// With room for what pads two chunks of 4 MiB.
constexpr std::size_t kBlockNbytes = (std::size_t{8} << 20) + (std::size_t{64} << 10);
constexpr std::size_t kMinBlockNbytes = std::size_t{64} << 10;
// As many as a walk opens at a time (engine/device/chunks.h).
constexpr std::size_t kRefusedShards = 64;

template <typename Query>
class DeviceReader final : private SlabsInFlight::Source {
 public:
  DeviceReader(Request& request,
               const StoredArray& array,
               Backend& backend,
               Queue& queue,
               Device device,
               std::vector<RegionPart<Query>>& parts,
               FetchFor purpose,
               KeptMemory* kept = nullptr)
      : request_(request),
        array_(array),
        layout_(array.layout),
        plan_(array.layout.devices.decode),
        backend_(backend),
        device_(device),
        kernels_(backend.kernels()),
        pinned_(backend, device.index),
        walk_(request, array, parts),
        purpose_(purpose),
        kept_(kept),
        gds_(Gds::of(request.config(), array, backend, device, purpose)) {
    queues_.push_back(&queue);
  }

  void read() {
    while (!is_walked_) {
      run();
      if (!refused_.empty()) read_refused();
    }
  }

 private:
  class Slab final : public SlabsInFlight::Slab {
   public:
    Slab(DeviceReader& reader,
         Queue& q,
         std::vector<Chunk<Query>> slab_chunks,
         std::size_t nbytes,
         std::size_t n_sharers)
        : queue(q),
          sharers(n_sharers),
          chunks(std::move(slab_chunks)),
          memory(reader.pinned_,
                 q,
                 std::clamp(nbytes, kMinBlockNbytes, kBlockNbytes),
                 reader.mapped_copies_.get()),
          reader_(reader),
          source_(reader.source_of(chunks, memory)) {}

    std::size_t threads() const override { return source_->threads(); }
    void fetch() override {
      const RunsOn near(reader_.near_processors());
      source_->work();
    }
    void submit() override { reader_.submit(*this); }
    void finish() override { reader_.finish(*this); }

    Queue& queue;
    const std::size_t sharers;  // slabs that are decoded at one time, this and those before it
    std::vector<Chunk<Query>> chunks;
    std::vector<std::size_t> decoded;  // those that are decoded on the device
    SlabMemory memory;
    std::shared_ptr<std::byte> faults;  // pinned, once `done`: of each step and decoded chunk
    std::unique_ptr<Mark> done;

   private:
    DeviceReader& reader_;
    const std::unique_ptr<SlabSource> source_;
  };

  // After an error, work may still be on its way from and to the memory of slabs, and into the
  // caller's.
  struct DrainAll {
    DrainAll(const std::vector<Queue*>& all, const std::unique_ptr<Queue>& of_mapped)
        : queues(all), copies(of_mapped) {}
    ~DrainAll() {
      for (Queue* queue : queues) const Drain drain(*queue);
      if (copies) const Drain drain(*copies);
    }
    const std::vector<Queue*>& queues;
    const std::unique_ptr<Queue>& copies;
  };

  // Kernels that take less of the device in all are better for one of several slabs than those that
  // are done sooner when they have it to themselves. The queue may be the next reader's, too.
  class TunedForShare {
   public:
    TunedForShare(Queue& queue, std::size_t sharers) : queue_(queue), whole_(queue.tuned_for()) {
      queue.tune_for(static_cast<unsigned>(whole_ / sharers));
    }
    ~TunedForShare() { queue_.tune_for(whole_); }
    TunedForShare(const TunedForShare&) = delete;
    TunedForShare& operator=(const TunedForShare&) = delete;

   private:
    Queue& queue_;
    const unsigned whole_;
  };

  void read_refused() {
    const FetchFor purpose = std::exchange(purpose_, FetchFor::packing);
    std::unique_ptr<Gds> gds = std::move(gds_);
    again_ = true;
    run();
    again_ = false;
    gds_ = std::move(gds);
    purpose_ = purpose;
    refused_shards_ = 0;
  }

  void run() {
    SlabsInFlight slabs(*this, request_, array_.driver.async_reads() == nullptr);
    const DrainAll drain(queues_, mapped_copies_);
    slabs_ = &slabs;
    slabs.run(threads());
  }

  // For slabs that others follow: with few chunks a slab, threads are left to read parts of one. Of
  // what the host packs a slab has as many chunks as there are wanted elements for.
  std::size_t threads() const {
    if (purpose_ == FetchFor::packing) return threads_of_slab(request_, array_, purpose_);
    const std::size_t chunk_nbytes = std::max<std::size_t>(layout_.chain.decoded_nbytes(), 1);
    const std::size_t full = request_.config().device_slab_nbytes / chunk_nbytes;
    const std::size_t chunks = std::clamp<std::size_t>(full, 1, kSlabChunks);
    return std::min(threads_of_slab(request_, array_, purpose_), SlabsInFlight::kOpen * chunks);
  }

  // For a thread to run on that fills pinned memory. The caller's stays where it is, and who
  // decodes has use for all processors.
  std::span<const int> near_processors() const {
    if (purpose_ == FetchFor::packing || std::this_thread::get_id() == caller_) return {};
    return backend_.near_processors(device_.index);
  }

  std::unique_ptr<SlabsInFlight::Slab> next() override {
    std::vector<Chunk<Query>> chunks;
    std::size_t nbytes = 0;
    while (nbytes < request_.config().device_slab_nbytes && chunks.size() < kSlabChunks) {
      std::optional<Chunk<Query>> chunk = next_chunk();
      if (!chunk) break;
      if (!chunk->missing) nbytes += nbytes_of(*chunk);
      chunks.push_back(std::move(*chunk));
    }
    if (chunks.empty()) return nullptr;
    const bool is_full =
        nbytes >= request_.config().device_slab_nbytes || chunks.size() == kSlabChunks;
    if (turn_ == 0 && is_full) add_mapped_copies();
    if (turn_ == 1) add_queues();
    Queue& queue = *queues_[turn_++ % queues_.size()];
    const std::size_t sharers = std::min(turn_, SlabsInFlight::kOpen);
    return std::make_unique<Slab>(*this, queue, std::move(chunks), nbytes, sharers);
  }

  std::optional<Chunk<Query>> next_chunk() {
    if (!again_) {
      // Each is kept open until what was refused of it is read.
      if (refused_shards_ >= kRefusedShards) return std::nullopt;
      std::optional<Chunk<Query>> chunk = walk_.next();
      is_walked_ = !chunk;
      return chunk;
    }
    if (refused_.empty()) return std::nullopt;
    Chunk<Query> chunk = std::move(refused_.front());
    refused_.pop_front();
    return chunk;
  }

  std::size_t nbytes_of(const Chunk<Query>& chunk) const {
    const bool packed = is_packed(layout_, purpose_, chunk.query);
    return packed ? chunk.query.size() * layout_.itemsize() : layout_.chain.decoded_nbytes();
  }

  // For the first slab that others may follow. The caller's queue has nothing yet that it would
  // have to wait for.
  void add_mapped_copies() {
    if (purpose_ != FetchFor::device || request_.config().device_mapped != "on") return;
    mapped_copies_ = backend_.make_queue(device_.index);
    mapped_copies_->wait_for(*queues_[0]);
  }

  // For the second slab, when the first queue has nothing yet that it would have to wait for.
  void add_queues() {
    while (queues_.size() < SlabsInFlight::kOpen) {
      own_queues_.push_back(backend_.make_queue(device_.index));
      queues_.push_back(own_queues_.back().get());
      queues_.back()->wait_for(*queues_[0]);
    }
  }

  std::unique_ptr<SlabSource> source_of(std::vector<Chunk<Query>>& chunks, SlabMemory& memory) {
    AsyncReads* const store = array_.driver.async_reads();
    if (store && !(gds_ && gds_->forced())) {
      return std::make_unique<SlabFromNetwork<Query>>(
          request_, check_, array_, backend_, purpose_, *store, chunks, memory);
    }
    return std::make_unique<SlabFetch<Query>>(
        request_, check_, array_, backend_, device_.index, purpose_, gds_.get(), chunks, memory);
  }

  void submit(Slab& slab) {
    slab.memory.finish();
    std::vector<DeviceChunk> chunks;
    {
      const Span span("plan");
      for (std::size_t i = 0; i < slab.chunks.size(); ++i) {
        const Chunk<Query>& chunk = slab.chunks[i];
        if (chunk.missing) continue;
        if (!again_) request_.count_encoded(chunk.range.nbytes);
        if (chunk.packed || chunk.in_place) continue;
        slab.decoded.push_back(i);
        chunks.push_back({chunk.encoded_nbytes(),
                          chunk.headers.get(),
                          chunk.device,
                          target_of(chunk.query),
                          chunk.said_nbytes});
      }
    }
    DeviceDecoder decoder(slab.queue, backend_, chunks, kept_);
    decode(slab, decoder);
    place(slab, chunks, decoder);
    for (const std::size_t i : slab.decoded) slab.chunks[i].headers.reset();
    slab.done = slab.queue.mark();
  }

  void decode(Slab& slab, DeviceDecoder& decoder) {
    const std::size_t n = plan_.steps.size() * slab.decoded.size();
    if (n == 0) return;
    const Span span("decode", slab.decoded.size() * layout_.chain.decoded_nbytes());
    const Scratch<std::uint32_t> faults(slab.queue, n);
    slab.queue.fill(faults.data(), 0, n * sizeof(std::uint32_t));
    {
      const TunedForShare share(slab.queue, slab.sharers);
      decoder.run(plan_, faults.data());
    }
    slab.faults = backend_.allocate_pinned(device_.index, n * sizeof(std::uint32_t));
    slab.queue.download(slab.faults.get(), faults.data(), n * sizeof(std::uint32_t));
  }

  void place(Slab& slab, const std::vector<DeviceChunk>& chunks, const DeviceDecoder& decoder) {
    const Span span("place");
    PlacementList native(layout_.itemsize(), 0);
    PlacementList stored(layout_.itemsize(), plan_.swap_nbytes);
    Scratch<std::uint8_t> fill;  // most reads have no use for it
    for (const Chunk<Query>& chunk : slab.chunks) {
      if (chunk.missing) {
        if (!chunk.level->parent) request_.note_missing(array_.state);
        if (!fill.data()) fill = fill_on(slab.queue);
        native.add_fill(chunk.query, fill.data());
      }
      if (chunk.packed) native.add_packed(chunk.query, chunk.device);
    }
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      if (chunks[i].target) continue;
      stored.add_chunk(slab.chunks[slab.decoded[i]].query, decoder.result(i), plan_.strides);
    }
    native.run(slab.queue, kernels_);
    stored.run(slab.queue, kernels_);
  }

  Scratch<std::uint8_t> fill_on(Queue& queue) const {
    if (kept_) return ragged_fill_on(queue);
    return Scratch<std::uint8_t>::of(
        queue, reinterpret_cast<const std::uint8_t*>(layout_.fill.data()), layout_.itemsize());
  }

  Scratch<std::uint8_t> ragged_fill_on(Queue& queue) const {
    const VlenElement& fill = vlen_elements(ConstBytes(layout_.fill))[0];
    std::uint8_t* const bytes = kept_->add(backend_.allocate(queue, fill.nbytes));
    if (fill.nbytes > 0) queue.upload(bytes, fill.data, fill.nbytes);
    const RaggedElement element{bytes, fill.nbytes};
    return Scratch<std::uint8_t>::of(
        queue, reinterpret_cast<const std::uint8_t*>(&element), sizeof element);
  }

  // The caller's memory, when the chunk lies there as its last step gives it.
  std::uint8_t* target_of(const Query& query) const {
    if (plan_.steps.empty() || is_checksum(plan_.steps.back().stage.kind)) return nullptr;
    return direct_target(layout_, query);
  }

  void finish(Slab& slab) {
    {
      const Span span("wait");
      slab.done->wait();
    }
    for (std::size_t i = 0; i < slab.decoded.size(); ++i) {
      const std::optional<Error> error = fault_of(slab, i);
      if (!error) continue;
      Chunk<Query>& chunk = slab.chunks[slab.decoded[i]];
      // Elements of variable length are decoded by one side, all of a read.
      const bool is_device = layout_.devices.is_forced() || kept_;
      if (error->code() != ErrorCode::unsupported || is_device)
        throw located(array_, *chunk.level, chunk.position, *error);
      if (chunk.level->parent && (refused_.empty() || refused_.back().level != chunk.level))
        ++refused_shards_;
      refused_.push_back(std::move(chunk));
    }
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

  Request& request_;
  const StoredArray& array_;
  const ArrayLayout& layout_;
  const DevicePlan& plan_;
  Backend& backend_;
  const Device device_;
  const Kernels& kernels_;
  std::vector<std::unique_ptr<Queue>> own_queues_;
  std::vector<Queue*> queues_;  // the caller's, then these
  // Of all slabs: one is there before the next. Null where nothing is mapped, or there is one slab.
  std::unique_ptr<Queue> mapped_copies_;
  const std::thread::id caller_ = std::this_thread::get_id();
  PinnedBlocks pinned_;
  ChunkWalk<Query> walk_;
  FetchFor purpose_;
  KeptMemory* const kept_;    // for elements of variable length, else null
  std::unique_ptr<Gds> gds_;  // null: chunks come through the host
  std::size_t turn_ = 0;
  // Chunks that the kernels do not take and the host may: fetched once more, for what the host had
  // of them is gone.
  std::deque<Chunk<Query>> refused_;
  std::atomic<std::size_t> refused_shards_{0};  // that they are of
  bool again_ = false;                          // they are being read
  bool is_walked_ = false;                      // nothing is left but them
  SlabsInFlight* slabs_ = nullptr;              // that are under way
  const std::function<void()> check_ = [this] { slabs_->check(); };
};

// Encoded, a chunk of variable length: as the first object that is wanted has it, where asking its
// size is no request.
std::size_t encoded_nbytes_of_first(const StoredArray& array, const ResolvedSelection& selection) {
  const ArrayLayout& layout = array.layout;
  if (!array.driver.local() || layout.regions || selection.size() == 0) return 0;
  Coordinates first;
  for (std::size_t d = 0; d < selection.dims.size(); ++d)
    first.at[d] = selection.dims[d].index(0) / layout.stored_shape()[d];
  std::int64_t chunks = 1;
  for (const ShardLevel& level : layout.shards)
    for (const std::int64_t n : level.inner_grid) chunks *= n;
  const std::string key = array.key(first.at);
  try {
    const auto object = array.driver.open(key);
    return object ? static_cast<std::size_t>(object->size()) / static_cast<std::size_t>(chunks) : 0;
  } catch (const Error& error) {
    throw error.with_context(array.where("read", key));
  }
}

// What decoding the chunks takes that a selection touches; of points, at most so much. How far
// they are compressed is known when they are fetched: half is a guess.
DecodeWork decode_work(const StoredArray& array, const ResolvedSelection& selection) {
  const ArrayLayout& layout = array.layout;
  DecodeWork work;
  work.chunks = selection.size();
  if (!selection.pointwise) {
    const TensorView nowhere{nullptr, selection.result_shape, {}, layout.metadata->dtype, {}};
    const Box box(selection, nowhere);
    work.chunks = BoxCut(box, layout.chunk_shape).size();
  }
  const auto total = [](std::size_t count, std::size_t nbytes) {
    std::size_t product = 0;
    return __builtin_mul_overflow(count, nbytes, &product) ? SIZE_MAX : product;
  };
  std::size_t chunk_nbytes = layout.chain.decoded_nbytes();
  std::size_t elements = 1;
  for (const std::int64_t n : layout.chunk_shape) elements *= static_cast<std::size_t>(n);
  if (layout.devices.decode.is_ragged())
    chunk_nbytes = std::max(chunk_nbytes, total(2, encoded_nbytes_of_first(array, selection)));
  work.decoded_nbytes = total(work.chunks, chunk_nbytes);
  work.encoded_nbytes =
      total(work.chunks, layout.chain.fixed_encoded_nbytes().value_or(chunk_nbytes / 2));
  work.wanted_nbytes =
      std::min(work.decoded_nbytes, total(selection.size(), chunk_nbytes / elements));
  return work;
}

std::size_t saturated_sum(std::size_t a, std::size_t b) {
  std::size_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? SIZE_MAX : sum;
}

DecodeWork decode_work(const StoredArray& array, std::span<const DeviceTarget> targets) {
  DecodeWork sum;
  for (const DeviceTarget& target : targets) {
    const DecodeWork work = decode_work(array, *target.selection);
    sum.chunks = saturated_sum(sum.chunks, work.chunks);
    sum.decoded_nbytes = saturated_sum(sum.decoded_nbytes, work.decoded_nbytes);
    sum.encoded_nbytes = saturated_sum(sum.encoded_nbytes, work.encoded_nbytes);
    sum.wanted_nbytes = saturated_sum(sum.wanted_nbytes, work.wanted_nbytes);
  }
  return sum;
}

// Who decodes: the host's threads, which pack what is wanted to be copied, or the device.
FetchFor purpose_of(const Request& request,
                    const StoredArray& array,
                    Backend& devices,
                    std::span<const DeviceTarget> targets) {
  const ArrayLayout& layout = array.layout;
  const std::string missing = missing_decoder(devices, layout.devices.decode);
  const bool forced = layout.devices.is_forced();
  if (forced && !missing.empty()) {
    throw Error(ErrorCode::unsupported,
                "[read] " + array.state.path() + ": " + layout.devices.forced.begin()->second +
                    " cannot decode the chunks: " + missing);
  }
  if (forced) return FetchFor::device;
  if (!missing.empty()) return FetchFor::packing;
  std::vector<DeviceStage::Kind> kinds;
  for (const DeviceStep& step : layout.devices.decode.steps) kinds.push_back(step.stage.kind);
  if (request.config().gds == "on") return FetchFor::device;  // or nothing could go past the host
  // Without a step nothing is decoded by either: fetching sees to it chunk by chunk.
  if (kinds.empty() && !request.config().device_min_decode_nbytes) return FetchFor::device;
  const bool sooner = chooses_device(devices,
                                     targets.front().out.device.index,
                                     kinds,
                                     decode_work(array, targets),
                                     request.threads_for(layout),
                                     request.config());
  return sooner ? FetchFor::device : FetchFor::packing;
}

template <typename Query>
void read_query(Request& request,
                const StoredArray& array,
                Query query,
                Backend& backend,
                Queue& queue,
                Device device,
                FetchFor purpose,
                KeptMemory* kept) {
  each_chunk_shape(
      array,
      std::move(query),
      [&](const StoredArray& inside, std::vector<RegionPart<Query>>& parts) {
        DeviceReader<Query>(request, inside, backend, queue, device, parts, purpose, kept).read();
      });
}

void read_selected(Request& request,
                   const StoredArray& array,
                   const ResolvedSelection& selection,
                   const TensorView& out,
                   Backend& backend,
                   Queue& queue,
                   FetchFor purpose,
                   KeptMemory* kept = nullptr) {
  if (selection.pointwise) {
    read_query(request, array, Points(selection, out), backend, queue, out.device, purpose, kept);
  } else {
    read_query(request, array, Box(selection, out), backend, queue, out.device, purpose, kept);
  }
}

}  // namespace

void read_on_queue(Request& request,
                   const StoredArray& array,
                   const ResolvedSelection& selection,
                   const TensorView& out,
                   Backend& backend,
                   std::unique_ptr<Queue> queue) {
  check_forced(array.layout.devices, out.device.type);
  const DeviceTarget target{&selection, out};
  const FetchFor purpose = purpose_of(request, array, backend, {&target, 1});
  read_selected(request, array, selection, out, backend, *queue, purpose);
}

bool read_elements_on_queue(Request& request,
                            const StoredArray& array,
                            const ResolvedSelection& selection,
                            const TensorView& out,
                            Backend& backend,
                            Queue& queue,
                            KeptMemory& kept) {
  check_forced(array.layout.devices, out.device.type);
  const DeviceTarget target{&selection, out};
  const FetchFor purpose = purpose_of(request, array, backend, {&target, 1});
  if (purpose == FetchFor::packing) return false;
  read_selected(request, array, selection, out, backend, queue, purpose, &kept);
  return true;
}

void read_selection_to_device(const ArrayState& state,
                              std::shared_ptr<const ArrayLayout> layout,
                              const ResolvedSelection& selection,
                              const TensorView& out,
                              const ReadOptions& options,
                              const std::atomic<bool>* cancel,
                              Mark* behind) {
  again_when_changed([&](int attempt) {
    Request request(options, cancel, attempt);
    const StoredArray array(state, layout);
    if (selection.size() == 0) return;
    Backend& devices = backend(out.device.type);
    auto queue = devices.make_queue(out.device.index);
    if (behind)
      queue->wait_for(*behind);
    else
      queue->wait_for(*devices.wrap_stream(out.device.index, options.stream.raw()));
    read_on_queue(request, array, selection, out, devices, std::move(queue));
    request.check_array_is_there();
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
  const StoredArray array(state, std::move(layout));
  const Device device = targets.front().out.device;
  check_forced(array.layout.devices, device.type);
  if (std::ranges::all_of(
          targets, [](const DeviceTarget& target) { return target.selection->size() == 0; })) {
    return;
  }
  Backend& devices = backend(device.type);
  again_when_changed([&](int attempt) {
    Request request(options, nullptr, attempt);
    std::vector<RegionPart<Box>> parts;  // of each attempt: to read is to take them
    for (const DeviceTarget& target : targets) {
      if (target.selection->size() > 0)
        parts.push_back({nullptr, {}, Box(*target.selection, target.out)});
    }
    const auto queue = devices.make_queue(device.index);
    queue->wait_for(*devices.wrap_stream(device.index, options.stream.raw()));
    const FetchFor purpose = purpose_of(request, array, devices, targets);
    DeviceReader<Box>(request, array, devices, *queue, device, parts, purpose).read();
    request.check_array_is_there();
  });
}

Tensor read_new_on_device(const ArrayState& state,
                          std::shared_ptr<const ArrayLayout> layout,
                          const ResolvedSelection& selection,
                          const ReadOptions& options,
                          const std::atomic<bool>* cancel) {
  const Device device = state.choice().device;
  return again_when_changed([&](int attempt) {
    Request request(options, cancel, attempt);
    const StoredArray array(state, layout);
    const DType& dtype = array.layout.metadata->dtype;
    const std::size_t nbytes =
        checked_nbytes(selection.result_shape, dtype.itemsize(), "size of the result");
    Backend& devices = backend(device.type);
    auto queue = devices.make_queue(device.index);
    Tensor result(devices.allocate(*queue, nbytes), selection.result_shape, dtype, device);
    if (nbytes == 0) {
      queue->synchronize();
    } else {
      read_on_queue(request, array, selection, result.view(), devices, std::move(queue));
      request.check_array_is_there();
    }
    return result;
  });
}

}  // namespace headrace
