// A write from a device goes through it slab by slab, as a read to one does, the other way: one
// kernel puts the elements of all chunks together, one call a step encodes them, and when the
// host knows their sizes the encoded bytes come to pinned memory, from where threads store them
// behind it (work_behind.h); across a network none waits for what is on its way. Stored objects
// that are covered in part come as their elements, and so do all when the host encodes.

#include "engine/device/from_device.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "base/mutex.h"
#include "device/backend.h"
#include "engine/device/drain.h"
#include "engine/device/slab.h"
#include "engine/device/work_behind.h"
#include "engine/device/write_items.h"
#include "engine/device/write_slab.h"
#include "engine/layout/device_codecs.h"
#include "engine/write/from_host.h"
#include "engine/write/network_boxes.h"
#include "engine/write/shard_writer.h"

namespace headrace {
namespace {

// On its way across a network.
class DevicePut final : public WritesInFlight::Write {
 public:
  DevicePut(const StoredArray& array, EncodedObject what) : array_(array), what_(std::move(what)) {
    key = what_.key;
    erases = what_.parts.empty();
    parts = what_.parts;
    held_nbytes = what_.nbytes();
    may_be_lost = what_.at_edge.has_value();
  }

  const EncodedObject& what() const { return what_; }

  Error located(const Error& failure) const override {
    return failure.with_context(array_.where("write", key));
  }

 private:
  const StoredArray& array_;
  const EncodedObject what_;
};

class DeviceWriter {
 public:
  DeviceWriter(Request& request,
               const StoredArray& array,
               const ObjectLocks& locks,
               Backend& backend,
               Queue& queue,
               int index,
               EncodedBy encoder)
      : request_(request),
        array_(array),
        locks_(locks),
        layout_(array.layout),
        plan_(array.layout.devices.encode),
        threads_(request.threads_for(array.layout)),
        backend_(backend),
        index_(index),
        encoder_(encoder),
        queue_(queue),
        behind_(request, kMostSlabsBehind * request.config().device_slab_nbytes) {
    if (writes_in_flight(array.driver)) network_.emplace(request, array, locks);
    if (!layout_.shards.empty())
      order_.emplace(array.state.choice().shard_order, layout_.shards.front().inner_grid);
    fill_ = Scratch<std::uint8_t>::of(
        queue, reinterpret_cast<const std::uint8_t*>(layout_.fill.data()), layout_.itemsize());
    ready_ = queue.mark();
  }

  // After an error, kernels may still be reading the caller's memory.
  ~DeviceWriter() {
    const Drain drain(queue_);
    for (const auto& own : own_queues_) {
      if (own) const Drain drain_own(*own);
    }
  }

  void write(const std::vector<RegionPart<Box>>& parts) {
    if (encoder_ == EncodedBy::device) {
      check_encodes();
      if (!array_.state.choice().write_empty_chunks) encode_fill();
    }
    std::size_t objects = 0;
    for (const RegionPart<Box>& part : parts) {
      cuts_.emplace_back(part.query, GridCut(layout_.stored_shape(), part.region.first_chunk));
      objects += cuts_.back().size();
    }
    auto threads = static_cast<std::size_t>(threads_);
    if (layout_.shards.empty()) threads = std::min(threads, objects);
    behind_.run(threads, [&] {
      for (std::size_t i = 0; i < parts.size(); ++i) add_region(parts[i].region, cuts_[i]);
      finish_all();
      if (network_) {
        for (const auto& write : network_->finish())
          found_made(static_cast<const DevicePut&>(*write).what());
      }
      merge_made();
    });
  }

 private:
  // To store an item of a finished slab.
  struct Storing final : WorkBehind::Task {
    Storing(DeviceWriter& w, WriteItem i) : writer(w), item(std::move(i)) {}
    void run() override { writer.store(item); }

    DeviceWriter& writer;
    WriteItem item;
  };

  // Slabs that are put together, encoded and copied at a time. With two the device waits while both
  // are copied (H200, 1 MiB chunks by blosc: 36 of 51 GB/s).
  static constexpr std::size_t kInFlight = 3;
  // As many bytes as these have, encoded, may wait to be stored.
  static constexpr std::size_t kMostSlabsBehind = 4;

  // What the host's encoders refuse, the kernels would write.
  void check_encodes() const {
    try {
      layout_.chain.check_encodes();
    } catch (const Error& error) {
      throw error.with_context("[write] " + array_.state.name());
    }
  }

  // The item of the object at `position` of a cut. The host encodes it where the device's kernels
  // do not, and where some of what is stored stays.
  WriteItem item_of(const Region& region, const BoxCut& cut, std::size_t position) const {
    const Shape& shape = layout_.stored_shape();
    Coordinates coordinates;
    WriteItem item;
    cut.child(position, coordinates.at, item.box);
    item.key = array_.key(coordinates.at);
    item.valid = valid_extent(coordinates, layout_.metadata->shape, shape, region);
    if (array_.state.keeps_behind_edge() && !covers(item.box, shape))
      item.at_edge = {&cut, position, item.valid};
    if (encoder_ == EncodedBy::host || layout_.shards.size() > 1 || !covers(item.box, item.valid))
      item.encoder = EncodedBy::host;
    return item;
  }

  // Of the objects of a cut, those over the edge of the array that are there. Side by side: of a
  // bucket each is a request.
  std::vector<char> found_over_edge(const Region& region, const BoxCut& cut) {
    std::vector<char> found(cut.size());
    if (encoder_ == EncodedBy::host || !array_.state.keeps_behind_edge()) return found;
    const auto look = [&](std::size_t i) {
      request_.check();
      const WriteItem item = item_of(region, cut, i);
      found[i] =
          item.encoder == EncodedBy::device && item.at_edge && array_.driver.exists(item.key);
    };
    request_.parallel(cut.size(), look, threads_);
    return found;
  }

  void add_region(const Region& region, const BoxCut& cut) {
    const std::vector<char> found = found_over_edge(region, cut);
    for (std::size_t i = 0; i < cut.size(); ++i) {
      WriteItem item = item_of(region, cut, i);
      if (found[i]) item.encoder = EncodedBy::host;
      if (item.encoder == EncodedBy::host || layout_.shards.empty())
        add(std::move(item));
      else
        add_shard(std::move(item));
    }
  }

  void add_shard(WriteItem item) {
    const ShardLevel& level = layout_.shards.front();
    const auto shard = std::make_shared<WholeShard>(std::move(item.box),
                                                    level,
                                                    std::move(item.key),
                                                    std::move(item.at_edge),
                                                    layout_.chain.decoded_nbytes());
    const auto positions = positions_in_order<Box>(*order_, shard->cut, level.inner_grid);
    for (std::size_t turn = 0; turn < positions.size(); ++turn) {
      Coordinates coordinates;
      WriteItem chunk;
      shard->cut.child(positions[turn], coordinates.at, chunk.box);
      chunk.shard = shard;
      chunk.turn = turn;
      chunk.inner = linear_index(coordinates.at, level.inner_grid);
      add(std::move(chunk));
    }
  }

  void add(WriteItem item) {
    request_.check();
    pending_nbytes_ += decoded_nbytes(item, layout_);
    pending_.push_back(std::move(item));
    if (pending_nbytes_ >= request_.config().device_slab_nbytes || pending_.size() == kSlabChunks)
      start_slab();
  }

  Queue& queue_of(std::size_t turn) {
    if (turn == 0) return queue_;
    std::unique_ptr<Queue>& own = own_queues_[turn - 1];
    if (!own) {
      own = backend_.make_queue(index_);
      own->wait_for(*ready_);
    }
    return *own;
  }

  void start_slab() {
    if (pending_.empty()) return;
    if (in_flight_.size() == kInFlight) finish_oldest();
    in_flight_.push_back(std::make_unique<WriteSlab>(
        array_, backend_, queue_of(turn_++ % kInFlight), index_, fill_.data()));
    in_flight_.back()->start(std::exchange(pending_, {}), zstd_block_nbytes());
    pending_nbytes_ = 0;
  }

  std::uint32_t zstd_block_nbytes() const {
    return static_cast<std::uint32_t>(request_.config().device_zstd_block_nbytes);
  }

  void finish_oldest() {
    const std::unique_ptr<WriteSlab> slab = std::move(in_flight_.front());
    in_flight_.pop_front();
    std::vector<WriteItem> elements;
    for (WriteItem& item : slab->finish()) {
      request_.check();
      std::size_t nbytes = item.nbytes;
      if (item.shard) nbytes = join_shard(item);
      if (network_ && item.encoder == EncodedBy::host)
        elements.push_back(std::move(item));
      else
        behind_.add(std::make_unique<Storing>(*this, std::move(item)), nbytes);
    }
    if (!elements.empty()) send_elements(elements);
  }

  // The bytes that are held until this chunk is stored: of all chunks, if it is the last.
  static std::size_t join_shard(const WriteItem& item) {
    WholeShard& shard = *item.shard;
    shard.encoded_nbytes += item.nbytes;
    return item.turn + 1 == shard.chunks.size() ? shard.encoded_nbytes : 0;
  }

  void store(WriteItem& item) {
    request_.check();
    std::optional<EncodedObject> encoded;
    try {
      if (item.encoder == EncodedBy::host) {
        return write_object(request_,
                            array_,
                            locks_,
                            item.key,
                            item.box.packed(item.pinned.get(), layout_.itemsize()),
                            item.valid);
      }
      encoded = finish_item(item);
      if (encoded && !network_) put(*encoded);
    } catch (const Error& error) {
      throw error.with_context(array_.where("write", item.object_key()));
    }
    if (encoded && network_) send(std::move(*encoded));
  }

  // Returns before it is stored.
  void send(EncodedObject encoded) {
    // With a place on the wire it waits for the key, and not the other way.
    auto room = network_->writes().room(encoded.nbytes());
    auto put = std::make_unique<DevicePut>(array_, std::move(encoded));
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
  void send_elements(const std::vector<WriteItem>& items) {
    behind_.drain();
    auto at = items.begin();
    network_->write([&]() -> std::optional<NetworkBoxes::Object> {
      if (at == items.end()) return std::nullopt;
      const WriteItem& item = *at++;
      return NetworkBoxes::Object{
          item.key, item.box.packed(item.pinned.get(), layout_.itemsize()), item.valid};
    });
  }

  // Whether its chunks leave pinned memory, much of which a large shard would keep.
  bool is_copied(const WholeShard& shard) const {
    return shard.nbytes > request_.config().device_slab_nbytes;
  }

  // Nothing: of a shard of which more is to come.
  std::optional<EncodedObject> finish_item(WriteItem& item) {
    Buffer buffer;
    const ConstBytes bytes = finish_encoding(plan_, {item.pinned.get(), item.nbytes}, buffer);
    const bool drops = is_fill(bytes);
    if (!item.shard) {
      EncodedObject encoded{item.key, item.at_edge};
      if (!drops) encoded.parts.push_back(bytes);
      encoded.buffer = std::move(buffer);
      encoded.pinned = std::move(item.pinned);
      return encoded;
    }
    WholeShard& shard = *item.shard;
    WholeShard::Chunk& chunk = shard.chunks[item.turn];
    chunk.inner = item.inner;
    if (!drops) {
      if (buffer.empty() && is_copied(shard)) buffer.assign(bytes);
      if (buffer.empty()) chunk.pinned = std::move(item.pinned);
      chunk.buffer = std::move(buffer);
      chunk.encoded = chunk.buffer.empty() ? bytes : ConstBytes(chunk.buffer.bytes());
    }
    if (shard.left.fetch_sub(1) > 1) return std::nullopt;
    for (const WholeShard::Chunk& each : shard.chunks)
      if (each.encoded) shard.bytes.put(each.inner, *each.encoded);
    EncodedObject encoded{shard.key, shard.at_edge};
    if (shard.bytes.empty()) return encoded;
    const std::span<const ConstBytes> parts = shard.bytes.finish();
    encoded.parts.assign(parts.begin(), parts.end());
    encoded.shard = item.shard;
    return encoded;
  }

  // An object over the edge that was not there, and that another writer has made meanwhile.
  void found_made(const EncodedObject& encoded) {
    const AtEdge& place = encoded.at_edge.value();
    WriteItem item;
    Coordinates coordinates;
    place.cut->child(place.position, coordinates.at, item.box);
    item.key = encoded.key;
    item.valid = place.valid;
    item.encoder = EncodedBy::host;
    const MutexLock lock(mutex_);
    made_.push_back(std::move(item));
  }

  // What others wrote behind the edge of the array stays.
  void merge_made() {
    std::vector<WriteItem> made;
    {
      const MutexLock lock(mutex_);
      made.swap(made_);
    }
    for (WriteItem& item : made) add(std::move(item));
    finish_all();
  }

  void finish_all() {
    start_slab();
    while (!in_flight_.empty()) finish_oldest();
    behind_.drain();
  }

  void put(const EncodedObject& encoded) {
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
    WriteSlab slab(array_, backend_, queue_, index_, fill_.data());
    slab.start_fill(zstd_block_nbytes());
    const WriteItem item = std::move(slab.finish().front());
    Buffer scratch;
    encoded_fill_.assign(finish_encoding(plan_, {item.pinned.get(), item.nbytes}, scratch));
  }

  Request& request_;
  const StoredArray& array_;
  const ObjectLocks& locks_;
  const ArrayLayout& layout_;
  const EncodePlan& plan_;
  const int threads_;  // that store
  Backend& backend_;
  const int index_;
  const EncodedBy encoder_;
  std::optional<InnerOrder> order_;                   // of shards
  Queue& queue_;                                      // the caller's
  std::unique_ptr<Queue> own_queues_[kInFlight - 1];  // once they are wanted
  std::unique_ptr<Mark> ready_;                       // what they begin behind
  std::deque<BoxCut> cuts_;                           // of the regions
  Scratch<std::uint8_t> fill_;
  Buffer encoded_fill_;  // empty when such chunks are kept
  std::size_t turn_ = 0;
  std::vector<WriteItem> pending_;
  std::size_t pending_nbytes_ = 0;
  std::deque<std::unique_ptr<WriteSlab>> in_flight_;
  Mutex mutex_;
  std::vector<WriteItem> made_ GUARDED_BY(mutex_);  // to be merged by the host
  std::optional<NetworkBoxes> network_;             // of a store across a network
  WorkBehind behind_;                               // that stores
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

EncodedBy encoder_of(const Request& request,
                     const StoredArray& array,
                     const Kernels& kernels,
                     std::size_t elements) {
  const ArrayLayout& layout = array.layout;
  const std::string missing = layout.devices.encode.missing(kernels);
  if (layout.devices.is_forced()) {
    if (missing.empty()) return EncodedBy::device;
    throw Error(ErrorCode::unsupported,
                "[write] " + array.state.path() + ": " + layout.devices.forced.begin()->second +
                    " cannot encode the chunks: " + missing);
  }
  const bool sooner = missing.empty() && device_encodes(layout.devices.encode.thorough,
                                                        elements * layout.itemsize(),
                                                        request.config().device_min_decode_nbytes);
  return sooner ? EncodedBy::device : EncodedBy::host;
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
  const EncodedBy encoder = encoder_of(request, array, devices.kernels(), selection.size());
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
