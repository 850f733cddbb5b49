// A write from a device goes through it slab by slab, as a read to one does, the other way: one
// kernel puts the elements of all chunks together, one call a step encodes them, and when the
// host knows their sizes the encoded bytes come to pinned memory, from where threads store them.
// While slabs are stored, the next is encoded; across a network no thread waits for what is on its
// way. Stored objects that are covered in part come as their elements, and so do all when the host
// encodes.

#include "engine/device/from_device.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "base/checked.h"
#include "base/mutex.h"
#include "base/thread_pool.h"
#include "device/backend.h"
#include "engine/device/drain.h"
#include "engine/device/encode.h"
#include "engine/device/placement.h"
#include "engine/device/slab.h"
#include "engine/device/stages.h"
#include "engine/layout/device_codecs.h"
#include "engine/write/from_host.h"
#include "engine/write/network_boxes.h"
#include "engine/write/shard_writer.h"

namespace headrace {
namespace {

constexpr std::size_t kPinnedAlignment = 64;

// Who encodes what is written.
enum class Encoder : std::uint8_t { host, device };

using PinnedMemory = std::vector<std::shared_ptr<std::byte>>;

// Of an object that reaches over the edge of the array: where it is found once more. Others who
// have grown the array may write there.
struct AtEdge {
  const BoxCut* cut = nullptr;
  std::size_t position = 0;
  Shape valid{};
};
using EdgePlace = std::optional<AtEdge>;

// One that is written whole; its inner chunks come one by one.
struct Shard {
  Shard(Box b, const ShardLevel& level, std::string k, EdgePlace edge, std::size_t inner_nbytes)
      : box(std::move(b)),
        cut(box, level.inner_shape),
        key(std::move(k)),
        at_edge(std::move(edge)),
        nbytes(cut.size() * inner_nbytes),
        bytes(level),
        chunks(cut.size()),
        left(cut.size()) {}

  struct Chunk {
    std::int64_t inner = 0;
    std::optional<ConstBytes> encoded{};  // nothing: it is missing
    Buffer buffer{};                      // that the bytes lie in, if not in `memory`
  };

  const Box box;
  const BoxCut cut;
  const std::string key;
  const EdgePlace at_edge;
  const std::size_t nbytes;  // decoded
  PlainShard bytes;
  std::vector<Chunk> chunks;  // by their turns
  std::atomic<std::size_t> left;
  std::vector<std::shared_ptr<const PinnedMemory>> memory;  // of the slabs that it was in
};

// A chunk that the device encodes, or the elements for a stored object that the host does.
struct Item {
  Box box;  // borrows from the writer's cut, or the shard's
  std::string key;
  Shape valid;
  Encoder encoder = Encoder::device;
  EdgePlace at_edge{};
  std::shared_ptr<Shard> shard;  // of an inner chunk
  std::size_t turn = 0;
  std::int64_t inner = 0;

  std::uint8_t* device = nullptr;  // decoded
  std::byte* pinned = nullptr;     // elements, or what the host finishes
  std::size_t nbytes = 0;          // there
};

// What was encoded and is to be stored. Its bytes lie in the slab's memory, or in what it holds.
struct Encoded {
  std::string key;
  EdgePlace at_edge{};
  std::vector<ConstBytes> parts{};  // none: the object is erased
  Buffer buffer{};
  std::shared_ptr<const Shard> shard{};

  std::uint64_t nbytes() const {
    std::uint64_t sum = 0;
    for (const ConstBytes part : parts) sum += part.size();
    return sum;
  }
};

// On its way across a network.
class DevicePut final : public WritesInFlight::Write {
 public:
  DevicePut(const StoredArray& array, Encoded what, std::shared_ptr<const PinnedMemory> pinned)
      : array_(array), what_(std::move(what)), pinned_(std::move(pinned)) {
    key = what_.key;
    erases = what_.parts.empty();
    parts = what_.parts;
    held_nbytes = what_.nbytes();
    may_be_lost = what_.at_edge.has_value();
  }

  const Encoded& what() const { return what_; }

  Error located(const Error& failure) const override {
    return failure.with_context(array_.where("write", key));
  }

 private:
  const StoredArray& array_;
  const Encoded what_;
  const std::shared_ptr<const PinnedMemory> pinned_;
};

class DeviceWriter {
 public:
  DeviceWriter(Request& request,
               const StoredArray& array,
               const ObjectLocks& locks,
               Backend& backend,
               Queue& queue,
               int index,
               Encoder encoder)
      : request_(request),
        array_(array),
        locks_(locks),
        layout_(array.layout),
        plan_(array.layout.devices.encode),
        threads_(request.threads_for(array.layout)),
        backend_(backend),
        kernels_(backend.kernels()),
        index_(index),
        encoder_(encoder),
        own_queue_(backend.make_queue(index)) {
    if (writes_in_flight(array.driver)) network_.emplace(request, array, locks);
    if (!layout_.shards.empty())
      order_.emplace(array.state.choice().shard_order, layout_.shards.front().inner_grid);
    queues_[0] = &queue;
    queues_[1] = own_queue_.get();
    fill_ = Scratch<std::uint8_t>::of(*queues_[0],
                                      reinterpret_cast<const std::uint8_t*>(layout_.fill.data()),
                                      layout_.itemsize());
    queues_[1]->wait_for(*queues_[0]);
  }

  // After an error, kernels may still be reading the caller's memory.
  ~DeviceWriter() {
    for (Queue* queue : queues_) const Drain drain(*queue);
  }

  void write(const std::vector<RegionPart<Box>>& parts) {
    if (encoder_ == Encoder::device) {
      check_encodes();
      if (!array_.state.choice().write_empty_chunks) encode_fill();
    }
    for (const RegionPart<Box>& part : parts) add_region(part);
    finish_all();
    if (network_) {
      for (const auto& write : network_->finish())
        found_made(static_cast<const DevicePut&>(*write).what());
    }
    merge_made();
  }

 private:
  struct Slab {
    explicit Slab(Queue& q) : queue(q) {}

    Queue& queue;
    std::vector<Item> items;
    std::vector<std::size_t> encoded;  // items of the device
    Scratch<std::uint8_t> decoded;
    std::optional<DeviceEncoder> encoder;
    PinnedMemory pinned;
    std::shared_ptr<std::byte> sizes;  // pinned, once `started`: of each encoded item
    std::unique_ptr<Mark> started;
  };

  // An item of a finished slab, with the memory that its bytes lie in.
  struct Waiting {
    Item item;
    std::shared_ptr<const PinnedMemory> pinned;
  };

  // With those in flight four slabs at most.
  static constexpr int kMostWaiting = 3;

  // What the host's encoders refuse, the kernels would write.
  void check_encodes() const {
    try {
      layout_.chain.check_encodes();
    } catch (const Error& error) {
      throw error.with_context("[write] " + array_.state.name());
    }
  }

  void add_region(const RegionPart<Box>& part) {
    const Shape& shape = layout_.stored_shape();
    const BoxCut& cut = cuts_.emplace_back(part.query, GridCut(shape, part.region.first_chunk));
    for (std::size_t i = 0; i < cut.size(); ++i) {
      Coordinates coordinates;
      Item item;
      cut.child(i, coordinates.at, item.box);
      item.key = array_.key(coordinates.at);
      item.valid = valid_extent(coordinates, layout_.metadata->shape, shape, part.region);
      if (array_.state.keeps_behind_edge() && !covers(item.box, shape))
        item.at_edge = {&cut, i, item.valid};
      if (encoder_ == Encoder::host || layout_.shards.size() > 1 || !covers(item.box, item.valid) ||
          (item.at_edge && array_.driver.exists(item.key))) {
        item.encoder = Encoder::host;
      }
      if (item.encoder == Encoder::host || layout_.shards.empty())
        add(std::move(item));
      else
        add_shard(std::move(item));
    }
  }

  std::size_t decoded_nbytes(const Item& item) const {
    return item.encoder == Encoder::host ? item.box.size() * layout_.itemsize()
                                         : layout_.chain.decoded_nbytes();
  }

  void add_shard(Item item) {
    const ShardLevel& level = layout_.shards.front();
    const auto shard = std::make_shared<Shard>(std::move(item.box),
                                               level,
                                               std::move(item.key),
                                               std::move(item.at_edge),
                                               layout_.chain.decoded_nbytes());
    const auto positions = positions_in_order<Box>(*order_, shard->cut, level.inner_grid);
    for (std::size_t turn = 0; turn < positions.size(); ++turn) {
      Coordinates coordinates;
      Item chunk;
      shard->cut.child(positions[turn], coordinates.at, chunk.box);
      chunk.shard = shard;
      chunk.turn = turn;
      chunk.inner = linear_index(coordinates.at, level.inner_grid);
      add(std::move(chunk));
    }
  }

  void add(Item item) {
    request_.check();
    pending_nbytes_ += decoded_nbytes(item);
    pending_.push_back(std::move(item));
    if (pending_nbytes_ >= request_.config().device_slab_nbytes || pending_.size() == kSlabChunks)
      start_slab();
  }

  void start_slab() {
    if (pending_.empty()) return;
    if (in_flight_.size() == 2) finish_oldest();
    turn_ ^= 1;
    in_flight_.push_back(std::make_unique<Slab>(*queues_[turn_]));
    Slab& slab = *in_flight_.back();
    slab.items = std::exchange(pending_, {});
    pending_nbytes_ = 0;
    gather(slab);
    download_elements(slab);
    encode(slab);
    slab.started = slab.queue.mark();
  }

  // The decoded chunks as their first step takes them.
  void gather(Slab& slab) {
    std::size_t total = 0;
    for (const Item& item : slab.items) total += aligned_nbytes(decoded_nbytes(item));
    slab.decoded = Scratch<std::uint8_t>(slab.queue, total);
    const std::uint32_t swap_nbytes = layout_.devices.decode.swap_nbytes;
    PlacementList fills(layout_.itemsize(), swap_nbytes);
    PlacementList chunks(layout_.itemsize(), swap_nbytes);
    PlacementList elements(layout_.itemsize(), 0);
    std::uint8_t* at = slab.decoded.data();
    for (Item& item : slab.items) {
      item.device = at;
      at += aligned_nbytes(decoded_nbytes(item));
      if (item.encoder == Encoder::host) {
        elements.add_packed(item.box, item.device);
        continue;
      }
      if (!covers(item.box, layout_.chunk_shape)) add_fill(fills, item.device);
      chunks.add_chunk(item.box, item.device, layout_.devices.decode.strides);
    }
    fills.run(slab.queue, kernels_);
    chunks.run_back(slab.queue, kernels_);
    elements.run_back(slab.queue, kernels_);
  }

  // A chunk of the fill value at `target`.
  void add_fill(PlacementList& fills, std::uint8_t* target) const {
    Box chunk;
    chunk.user = reinterpret_cast<std::byte*>(target);
    Axis axis;
    axis.user_step = static_cast<std::ptrdiff_t>(layout_.itemsize());
    axis.count = static_cast<std::int64_t>(layout_.chain.decoded_nbytes() / layout_.itemsize());
    chunk.axes.push_back(axis);
    fills.add_fill(chunk, fill_.data());
  }

  void download_elements(Slab& slab) {
    reserve_pinned(slab, [&](const Item& item) {
      return item.encoder == Encoder::host ? decoded_nbytes(item) : 0;
    });
    for (const Item& item : slab.items)
      if (item.encoder == Encoder::host) slab.queue.download(item.pinned, item.device, item.nbytes);
  }

  // Room for nbytes_of(item) of each item that has any.
  template <typename Nbytes>
  void reserve_pinned(Slab& slab, Nbytes nbytes_of) {
    const auto aligned = [](std::size_t nbytes) {
      return (nbytes + kPinnedAlignment - 1) / kPinnedAlignment * kPinnedAlignment;
    };
    std::size_t total = 0;
    for (const Item& item : slab.items) total += aligned(nbytes_of(item));
    if (total == 0) return;
    slab.pinned.push_back(backend_.allocate_pinned(index_, total));
    std::byte* at = slab.pinned.back().get();
    for (Item& item : slab.items) {
      const std::size_t nbytes = nbytes_of(item);
      if (nbytes == 0) continue;
      item.pinned = at;
      item.nbytes = nbytes;
      at += aligned(nbytes);
    }
  }

  void encode(Slab& slab) {
    std::vector<const std::uint8_t*> chunks;
    for (std::size_t i = 0; i < slab.items.size(); ++i) {
      if (slab.items[i].encoder == Encoder::host) continue;
      slab.encoded.push_back(i);
      chunks.push_back(slab.items[i].device);
    }
    if (chunks.empty()) return;
    const std::size_t nbytes = chunks.size() * sizeof(std::uint64_t);
    const Scratch<std::uint64_t> sizes(slab.queue, chunks.size());
    slab.encoder.emplace(slab.queue, kernels_, chunks, layout_.chain.decoded_nbytes());
    slab.encoder->run(plan_,
                      static_cast<std::uint32_t>(request_.config().device_zstd_block_nbytes),
                      sizes.data());
    slab.sizes = backend_.allocate_pinned(index_, nbytes);
    slab.queue.download(slab.sizes.get(), sizes.data(), nbytes);
  }

  void finish_oldest() {
    const std::unique_ptr<Slab> slab = std::move(in_flight_.front());
    in_flight_.pop_front();
    slab->started->wait();
    download_encoded(*slab);
    const auto pinned = std::make_shared<const PinnedMemory>(std::move(slab->pinned));
    for (Item& item : slab->items) {
      if (!item.shard) {
        ++waiting_objects_;
      } else {
        if (item.turn + 1 == item.shard->chunks.size()) ++waiting_objects_;
        Shard& shard = *item.shard;
        if (!is_copied(shard) && (shard.memory.empty() || shard.memory.back() != pinned))
          shard.memory.push_back(pinned);
      }
      waiting_.push_back({std::move(item), pinned});
    }
    if (++waiting_slabs_ == kMostWaiting || waiting_objects_ >= static_cast<std::size_t>(threads_))
      store_waiting();
  }

  // A large object keeps one thread, so there are to be as many as threads.
  void store_waiting() {
    request_.parallel(
        waiting_.size(),
        [&](std::size_t i) {
          request_.check();
          Waiting& waiting = waiting_[i];
          if (!network_) {
            store(waiting.item);
          } else if (waiting.item.encoder == Encoder::device) {
            send(waiting.item, waiting.pinned);
          }
        },
        threads_);
    if (network_) send_elements();
    waiting_.clear();
    waiting_slabs_ = 0;
    waiting_objects_ = 0;
  }

  // Returns before they are stored.
  void send(Item& item, const std::shared_ptr<const PinnedMemory>& pinned) {
    std::optional<Encoded> encoded;
    try {
      encoded = finish_item(item);
    } catch (const Error& error) {
      throw error.with_context(array_.where("write", key_of(item)));
    }
    if (!encoded) return;
    // With a place on the wire it waits for the key, and not the other way.
    auto room = network_->writes().room(encoded->nbytes());
    auto put = std::make_unique<DevicePut>(array_, std::move(*encoded), pinned);
    try {
      put->lock = locks_.lock(put->key, [this] { request_.check(); });
      if (put->may_be_lost && !put->erases && array_.driver.write_conditions().missing) {
        put->condition = WriteCondition::if_missing();
      } else if (put->may_be_lost && array_.driver.exists(put->key)) {
        return found_made(put->what());
      }
    } catch (const Error& error) {
      throw put->located(error);
    }
    network_->writes().put(std::move(room), std::move(put));
  }

  // What the host encodes; returns when it is stored.
  void send_elements() {
    std::size_t at = 0;
    const auto next = [&]() -> std::optional<NetworkBoxes::Object> {
      while (at < waiting_.size() && waiting_[at].item.encoder != Encoder::host) ++at;
      if (at == waiting_.size()) return std::nullopt;
      const Item& item = waiting_[at++].item;
      return NetworkBoxes::Object{
          item.key, item.box.packed(item.pinned, layout_.itemsize()), item.valid};
    };
    if (std::ranges::any_of(
            waiting_, [](const Waiting& waiting) { return waiting.item.encoder == Encoder::host; }))
      network_->write(next);
  }

  void download_encoded(Slab& slab) {
    if (slab.encoded.empty()) return;
    const auto* sizes = reinterpret_cast<const std::uint64_t*>(slab.sizes.get());
    const std::size_t prefix = prefix_nbytes(plan_.compressor.stage);
    std::size_t next = 0;
    for (const std::size_t i : slab.encoded) {
      if (sizes[next++] == 0)
        throw Error(ErrorCode::device,
                    array_.where("write", key_of(slab.items[i])) + " codec " +
                        plan_.compressor.codec + ": the encoder failed");
      slab.items[i].nbytes = prefix + sizes[next - 1];
    }
    reserve_pinned(
        slab, [](const Item& item) { return item.encoder == Encoder::host ? 0 : item.nbytes; });
    next = 0;
    for (const std::size_t i : slab.encoded) {
      const Item& item = slab.items[i];
      slab.queue.download(item.pinned + prefix, slab.encoder->result(next++), item.nbytes - prefix);
    }
    slab.queue.mark()->wait();
  }

  static const std::string& key_of(const Item& item) {
    return item.shard ? item.shard->key : item.key;
  }

  void store(Item& item) {
    try {
      if (item.encoder == Encoder::host)
        write_object(request_,
                     array_,
                     locks_,
                     item.key,
                     item.box.packed(item.pinned, layout_.itemsize()),
                     item.valid);
      else if (const std::optional<Encoded> encoded = finish_item(item))
        put(*encoded);
    } catch (const Error& error) {
      throw error.with_context(array_.where("write", key_of(item)));
    }
  }

  // Whether its chunks leave the slabs' memory: many are the slabs that a large shard would keep in
  // pinned memory.
  bool is_copied(const Shard& shard) const {
    return shard.nbytes > request_.config().device_slab_nbytes;
  }

  // Nothing: of a shard of which more is to come.
  std::optional<Encoded> finish_item(Item& item) {
    Buffer buffer;
    const ConstBytes bytes = finish_encoding(plan_, {item.pinned, item.nbytes}, buffer);
    const bool drops = is_fill(bytes);
    if (!item.shard) {
      Encoded encoded{item.key, item.at_edge};
      if (!drops) encoded.parts.push_back(bytes);
      encoded.buffer = std::move(buffer);
      return encoded;
    }
    Shard& shard = *item.shard;
    Shard::Chunk& chunk = shard.chunks[item.turn];
    chunk.inner = item.inner;
    if (!drops) {
      if (buffer.empty() && is_copied(shard)) buffer.assign(bytes);
      chunk.buffer = std::move(buffer);
      chunk.encoded = chunk.buffer.empty() ? bytes : ConstBytes(chunk.buffer.bytes());
    }
    if (shard.left.fetch_sub(1) > 1) return std::nullopt;
    for (const Shard::Chunk& each : shard.chunks)
      if (each.encoded) shard.bytes.put(each.inner, *each.encoded);
    Encoded encoded{shard.key, shard.at_edge};
    if (shard.bytes.empty()) return encoded;
    const std::span<const ConstBytes> parts = shard.bytes.finish();
    encoded.parts.assign(parts.begin(), parts.end());
    encoded.shard = item.shard;
    return encoded;
  }

  // An object over the edge that was not there, and that another writer has made meanwhile.
  void found_made(const Encoded& encoded) {
    const AtEdge& place = encoded.at_edge.value();
    Item item;
    Coordinates coordinates;
    place.cut->child(place.position, coordinates.at, item.box);
    item.key = encoded.key;
    item.valid = place.valid;
    item.encoder = Encoder::host;
    const MutexLock lock(mutex_);
    made_.push_back(std::move(item));
  }

  // What others wrote behind the edge of the array stays.
  void merge_made() {
    std::vector<Item> made;
    {
      const MutexLock lock(mutex_);
      made.swap(made_);
    }
    for (Item& item : made) add(std::move(item));
    finish_all();
  }

  void finish_all() {
    start_slab();
    while (!in_flight_.empty()) finish_oldest();
    store_waiting();
  }

  void put(const Encoded& encoded) {
    const auto lock = locks_.lock(encoded.key);
    if (encoded.at_edge && array_.driver.exists(encoded.key)) return found_made(encoded);
    switch (encoded.parts.size()) {
      case 0:
        return array_.driver.erase(encoded.key);
      case 1:
        return array_.driver.set(encoded.key, encoded.parts.front());
      default:
        array_.driver.set_parts(encoded.key, encoded.parts);
    }
  }

  // Equal chunks are encoded to equal bytes: so one that is all fill value is known.
  bool is_fill(ConstBytes encoded) const {
    return std::ranges::equal(encoded, encoded_fill_.bytes());
  }

  void encode_fill() {
    Slab slab(*queues_[0]);
    Item& item = slab.items.emplace_back();
    slab.decoded =
        Scratch<std::uint8_t>(slab.queue, aligned_nbytes(layout_.chain.decoded_nbytes()));
    item.device = slab.decoded.data();
    PlacementList fills(layout_.itemsize(), layout_.devices.decode.swap_nbytes);
    add_fill(fills, item.device);
    fills.run(slab.queue, kernels_);
    encode(slab);
    slab.queue.synchronize();
    download_encoded(slab);
    Buffer scratch;
    encoded_fill_.assign(finish_encoding(plan_, {item.pinned, item.nbytes}, scratch));
  }

  Request& request_;
  const StoredArray& array_;
  const ObjectLocks& locks_;
  const ArrayLayout& layout_;
  const EncodePlan& plan_;
  const int threads_;  // that store
  Backend& backend_;
  const Kernels& kernels_;
  const int index_;
  const Encoder encoder_;
  std::optional<InnerOrder> order_;  // of shards
  const std::unique_ptr<Queue> own_queue_;
  Queue* queues_[2];         // the caller's, and it
  std::deque<BoxCut> cuts_;  // of the regions
  Scratch<std::uint8_t> fill_;
  Buffer encoded_fill_;  // empty when such chunks are kept
  unsigned turn_ = 0;
  std::vector<Item> pending_;
  std::size_t pending_nbytes_ = 0;
  std::deque<std::unique_ptr<Slab>> in_flight_;
  std::vector<Waiting> waiting_;  // to be stored
  int waiting_slabs_ = 0;
  std::size_t waiting_objects_ = 0;
  Mutex mutex_;
  std::vector<Item> made_ GUARDED_BY(mutex_);  // to be merged by the host
  std::optional<NetworkBoxes> network_;        // of a store across a network
};

void refuse_decoders(const ArrayState& state, const ArrayLayout& layout) {
  for (const auto& [codec, name] : layout.devices.forced) {
    if (!only_decodes(name)) continue;
    const std::string own(backend(*device_of_implementation(name)).own_name());
    throw Error(ErrorCode::unsupported,
                "[write] " + state.name() + ": implementation " + name + " only decodes " + codec +
                    "; " + own + " encodes it, and the host's implementations do");
  }
}

Encoder encoder_of(const Request& request,
                   const StoredArray& array,
                   const Kernels& kernels,
                   std::size_t elements) {
  const ArrayLayout& layout = array.layout;
  const std::string missing = layout.devices.encode.missing(kernels);
  if (layout.devices.is_forced()) {
    if (missing.empty()) return Encoder::device;
    throw Error(ErrorCode::unsupported,
                "[write] " + array.state.path() + ": " + layout.devices.forced.begin()->second +
                    " cannot encode the chunks: " + missing);
  }
  const bool sooner = missing.empty() && device_encodes(layout.devices.encode.thorough,
                                                        elements * layout.itemsize(),
                                                        request.config().device_min_decode_nbytes);
  return sooner ? Encoder::device : Encoder::host;
}

}  // namespace

void write_selection_from_device(const ArrayState& state,
                                 std::shared_ptr<const ArrayLayout> layout,
                                 const ResolvedSelection& selection,
                                 const TensorView& data,
                                 const WriteOptions& options,
                                 const std::atomic<bool>* cancel) {
  state.check_writable();
  Request request(options, cancel);
  const StoredArray array(state, std::move(layout));
  if (selection.size() == 0) return;
  const ObjectLocks locks(state);
  refuse_decoders(state, array.layout);
  check_forced(array.layout.devices, data.device.type);
  Backend& devices = backend(data.device.type);
  const Encoder encoder = encoder_of(request, array, devices.kernels(), selection.size());
  auto queue = devices.make_queue(data.device.index);
  queue->wait_for(*devices.wrap_stream(data.device.index, options.stream.raw()));
  each_chunk_shape(array,
                   Box(selection, data),
                   [&](const StoredArray& inside, const std::vector<RegionPart<Box>>& parts) {
                     DeviceWriter(
                         request, inside, locks, devices, *queue, data.device.index, encoder)
                         .write(parts);
                   });
}

void write_anywhere(const ArrayState& state,
                    std::shared_ptr<const ArrayLayout> layout,
                    const ResolvedSelection& selection,
                    const TensorView& data,
                    const WriteOptions& options,
                    const std::atomic<bool>* cancel) {
  // Points never cover a chunk, so the host merges them.
  if (!data.device.is_cpu() && selection.pointwise) {
    const Tensor host = copy(data, Device::cpu(), options.stream);
    return write_anywhere(state, std::move(layout), selection, host.view(), options, cancel);
  }
  const TensorView broadcast = broadcast_to(data, selection.result_shape);
  const auto put = data.device.is_cpu() ? write_selection : write_selection_from_device;
  put(state, std::move(layout), selection, broadcast, options, cancel);
}

}  // namespace headrace
