// A read to a device goes through it slab by slab, a slab being as many chunks as decode to a
// bounded size. Threads fetch encoded bytes into pinned blocks, which are copied as they fill; then
// one call a decoding step is given to the queue for all chunks, and one that places the elements.
// Two queues take turns: while one slab is decoded, the next is fetched and copied. Nothing waits
// for the device but the reuse of a slab's memory, two slabs later, and the end. Then faults that
// the decoders found are turned into errors.

#include "engine/device_read.h"

#include <deque>
#include <optional>

#include "base/checked.h"
#include "base/thread_pool.h"
#include "device/device.h"
#include "engine/decode_cost.h"
#include "engine/device_chunks.h"
#include "engine/device_slab.h"
#include "engine/device_stages.h"
#include "engine/placement.h"
#include "engine/read_chunk.h"

namespace headrace {
namespace {

constexpr std::size_t kSlabItems = 16384;
// Measured on one H200, pinned host to device: 31 GB/s in pieces of 1 MiB, 45 of 4, 52 of 16.
constexpr std::size_t kBlockNbytes = std::size_t{16} << 20;
constexpr std::size_t kMinBlockNbytes = std::size_t{64} << 10;
constexpr std::size_t kReadPiece = std::size_t{4} << 20;
// A chunk that is encoded this much larger than decoded is left to the host: pinned memory is dear.
constexpr std::size_t kMaxExpansion = 2;
constexpr std::size_t kExpansionSlack = std::size_t{1} << 20;

template <typename Query>
class DeviceReader {
 public:
  DeviceReader(RequestContext& context, Backend& backend, std::unique_ptr<Queue> queue, int index)
      : context_(context),
        layout_(context.layout),
        plan_(context.layout.device_plan),
        backend_(backend),
        index_(index),
        kernels_(backend.kernels()) {
    queues_[0] = std::move(queue);
    queues_[1] = backend.make_queue(index);
    fill_ = Scratch<std::uint8_t>::of(*queues_[0],
                                      reinterpret_cast<const std::uint8_t*>(layout_.fill.data()),
                                      layout_.itemsize());
    queues_[1]->wait_for(*queues_[0]);
  }

  // After an error, work may still be on its way into the caller's memory.
  ~DeviceReader() {
    for (auto& queue : queues_) {
      try {
        queue->synchronize();
      } catch (const Error&) {
        // The request ends with its first error, or this one was thrown by finish() already.
      }
    }
  }

  void read(Query query, bool on_host) {
    on_host_ = on_host;
    ChunkWalk<Query> walk(context_);
    walk.each(std::move(query), [&](Chunk<Query> chunk) { add(std::move(chunk)); });
    run_slab();
    while (!in_flight_.empty()) finish_oldest();
  }

 private:
  struct Slab {
    Slab(Backend& backend, int index, Queue& q, std::size_t block_nbytes)
        : queue(q), memory(backend, index, q, block_nbytes) {}

    Queue& queue;
    std::vector<Chunk<Query>> chunks;
    std::vector<std::size_t> decoded;  // those that are decoded on the device
    SlabMemory memory;
    std::shared_ptr<std::byte> faults;  // pinned, once `done`: of each step and decoded chunk
    std::unique_ptr<Mark> done;
  };

  void add(Chunk<Query> chunk) {
    if (!chunk.missing) pending_nbytes_ += nbytes_of(chunk);
    pending_.push_back(std::move(chunk));
    if (pending_nbytes_ >= context_.config.device_slab_nbytes || pending_.size() == kSlabItems)
      run_slab();
  }

  std::size_t nbytes_of(const Chunk<Query>& chunk) const {
    if (!on_host_) return layout_.chain.decoded_nbytes();
    Coordinates coordinates;
    Query query;
    chunk.level->cut.child(chunk.position, coordinates.at, query);
    return query.size() * layout_.itemsize();
  }

  void run_slab() {
    if (pending_.empty()) return;
    if (in_flight_.size() == 2) finish_oldest();
    const std::size_t share = pending_nbytes_ / static_cast<std::size_t>(thread_count());
    turn_ ^= 1;
    in_flight_.push_back(std::make_unique<Slab>(
        backend_, index_, *queues_[turn_], std::clamp(share, kMinBlockNbytes, kBlockNbytes)));
    Slab& slab = *in_flight_.back();
    slab.chunks = std::exchange(pending_, {});
    pending_nbytes_ = 0;
    fetch(slab);
    decode(slab);
    slab.done = slab.queue.mark();
  }

  // Threads take chunks in turn, each into blocks of its own.
  void fetch(Slab& slab) {
    const std::size_t n = slab.chunks.size();
    const auto threads = static_cast<std::size_t>(on_host_ ? context_.threads : thread_count());
    const DecodeContext decode_context{n < 2 * threads ? context_.threads : 1};
    std::atomic<std::size_t> next{0};
    parallel_for(std::min(threads, n), [&](std::size_t) {
      SlabMemory::Filler filler(slab.memory);
      try {
        for (std::size_t i; (i = next.fetch_add(1)) < n;) {
          context_.check();
          fetch_chunk(slab.chunks[i], filler, decode_context);
        }
      } catch (...) {
        next = n;
        throw;
      }
      filler.flush();
    });
  }

  void fetch_chunk(Chunk<Query>& chunk,
                   SlabMemory::Filler& filler,
                   const DecodeContext& decode_context) {
    Coordinates coordinates;
    chunk.level->cut.child(chunk.position, coordinates.at, chunk.query);
    if (chunk.missing) return;
    try {
      const std::optional<StoredChunk> stored = find_stored(context_, *chunk.level, coordinates);
      if (!stored) {
        chunk.missing = true;
        return;
      }
      const std::size_t decoded = layout_.chain.decoded_nbytes();
      if (on_host_ || stored->nbytes > kMaxExpansion * decoded + kExpansionSlack) {
        const std::size_t nbytes = chunk.query.size() * layout_.itemsize();
        chunk.place(filler.reserve(nbytes), nbytes, /*packed=*/true);
        const Query packed = chunk.query.packed(chunk.host, layout_.itemsize());
        read_chunk(layout_, *stored->reader, stored->base, stored->nbytes, packed, decode_context);
      } else {
        const auto nbytes = static_cast<std::size_t>(stored->nbytes);
        chunk.place(filler.reserve(nbytes), nbytes, /*packed=*/false);
        read_bytes(*stored, {chunk.host, nbytes}, decode_context.threads);
        check_encoded(plan_, decoded, {chunk.host, nbytes});
      }
    } catch (const Error& error) {
      throw located(context_, *chunk.level, chunk.position, error);
    }
  }

  // By several threads when there are few chunks.
  static void read_bytes(const StoredChunk& stored, MutableBytes bytes, int threads) {
    const std::size_t piece = threads > 1 ? kReadPiece : std::max<std::size_t>(bytes.size(), 1);
    parallel_for((bytes.size() + piece - 1) / piece,
                 [&](std::size_t i) {
                   const std::size_t at = i * piece;
                   stored.reader->read(stored.base + at,
                                       bytes.subspan(at, std::min(piece, bytes.size() - at)));
                 },
                 threads);
  }

  void decode(Slab& slab) {
    std::vector<DeviceChunk> chunks;
    for (std::size_t i = 0; i < slab.chunks.size(); ++i) {
      const Chunk<Query>& chunk = slab.chunks[i];
      if (chunk.missing || chunk.packed) continue;
      slab.decoded.push_back(i);
      chunks.push_back({{chunk.host, chunk.nbytes}, chunk.device, direct_target(chunk.query)});
    }
    DeviceRun run(slab.queue, backend_, chunks);
    const std::size_t nbytes = plan_.steps.size() * chunks.size() * sizeof(std::uint32_t);
    if (nbytes > 0) {
      const Scratch<std::uint32_t> faults(slab.queue, nbytes / sizeof(std::uint32_t));
      slab.queue.fill(faults.data(), 0, nbytes);
      run.run(plan_, faults.data());
      slab.faults = backend_.allocate_pinned(index_, nbytes);
      slab.queue.download(slab.faults.get(), faults.data(), nbytes);
    }
    place(slab, chunks, run);
  }

  void place(Slab& slab, const std::vector<DeviceChunk>& chunks, const DeviceRun& run) {
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
    const std::unique_ptr<Slab> slab = std::move(in_flight_.front());
    in_flight_.pop_front();
    slab->done->wait();
    const auto* faults = reinterpret_cast<const Fault*>(slab->faults.get());
    const std::size_t n = slab->decoded.size();
    for (std::size_t step = 0; faults && step < plan_.steps.size(); ++step) {
      for (std::size_t i = 0; i < n; ++i) {
        const Fault fault = faults[step * n + i];
        if (fault == Fault::none) continue;
        const Chunk<Query>& chunk = slab->chunks[slab->decoded[i]];
        throw located(
            context_, *chunk.level, chunk.position, fault_error(plan_.steps[step], fault));
      }
    }
  }

  RequestContext& context_;
  const ArrayLayout& layout_;
  const DevicePlan& plan_;
  Backend& backend_;
  const int index_;
  const Kernels& kernels_;
  std::unique_ptr<Queue> queues_[2];
  Scratch<std::uint8_t> fill_;
  bool on_host_ = false;
  unsigned turn_ = 0;
  std::vector<Chunk<Query>> pending_;
  std::size_t pending_nbytes_ = 0;
  std::deque<std::unique_ptr<Slab>> in_flight_;
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

// Whether chunks are decoded by the host's threads and copied.
bool decodes_on_host(const RequestContext& context,
                     const Backend& devices,
                     const ResolvedSelection& selection) {
  const ArrayLayout& layout = context.layout;
  if (layout.chain.is_identity())
    return true;  // nothing to decode, and only what is wanted is read
  const std::string missing = layout.device_plan.missing(devices);
  const bool forced = !layout.on_device.empty();
  if (forced && !missing.empty()) {
    throw Error(ErrorCode::unsupported,
                "[read] " + context.state.path() + ": " + layout.on_device.begin()->second +
                    " cannot decode the chunks: " + missing);
  }
  if (forced || !missing.empty()) return !forced;
  std::vector<DeviceStage::Kind> kinds;
  for (const DeviceStep& step : layout.device_plan.steps) kinds.push_back(step.stage.kind);
  return !device_decodes(kinds,
                         decode_work(layout, selection),
                         context.threads,
                         context.config.device_min_decode_nbytes);
}

void read_on(RequestContext& context,
             const ResolvedSelection& selection,
             const TensorView& out,
             Backend& backend,
             std::unique_ptr<Queue> queue) {
  check_on_device(context.layout, out.device.type);
  const bool on_host = decodes_on_host(context, backend, selection);
  const int index = out.device.index;
  if (selection.pointwise) {
    DeviceReader<Points>(context, backend, std::move(queue), index)
        .read(Points(selection, out), on_host);
  } else {
    DeviceReader<Box>(context, backend, std::move(queue), index).read(Box(selection, out), on_host);
  }
}

}  // namespace

void read_selection_to_device(const ArrayState& state,
                              std::shared_ptr<const ArrayLayout> layout,
                              const ResolvedSelection& selection,
                              const TensorView& out,
                              const ReadOptions& options,
                              const std::atomic<bool>* cancel) {
  RequestContext context(state, std::move(layout), options, cancel);
  if (selection.size() == 0) return;
  Backend& devices = backend(out.device.type);
  auto queue = devices.make_queue(out.device.index);
  queue->wait_for(*devices.wrap_stream(out.device.index, options.stream.raw()));
  read_on(context, selection, out, devices, std::move(queue));
}

Tensor read_new_on_device(const ArrayState& state,
                          std::shared_ptr<const ArrayLayout> layout,
                          const ResolvedSelection& selection,
                          const ReadOptions& options,
                          const std::atomic<bool>* cancel) {
  const Device device = state.choice().device;
  RequestContext context(state, std::move(layout), options, cancel);
  const DType& dtype = context.layout.metadata->dtype;
  const std::size_t nbytes =
      checked_nbytes(selection.result_shape, dtype.itemsize(), "size of the result");
  Backend& devices = backend(device.type);
  auto queue = devices.make_queue(device.index);
  Tensor result(devices.allocate(*queue, nbytes), selection.result_shape, dtype, device);
  if (nbytes == 0) {
    queue->synchronize();
  } else {
    read_on(context, selection, result.view(), devices, std::move(queue));
  }
  return result;
}

}  // namespace headrace
