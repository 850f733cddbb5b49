#include "headrace/array.h"

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "base/thread_pool.h"
#include "device/backend.h"
#include "device/device.h"
#include "engine/device/from_device.h"
#include "engine/device/ragged.h"
#include "engine/device/to_device.h"
#include "engine/fetch/ahead.h"
#include "engine/fetch/stored_chunks.h"
#include "engine/query/coordinates.h"
#include "engine/read/chunk.h"
#include "engine/read/ragged.h"
#include "engine/read/to_host.h"
#include "engine/request/array_state.h"
#include "engine/request/async.h"
#include "engine/request/config.h"
#include "engine/request/request.h"
#include "engine/write/from_host.h"
#include "format/chunk_grid.h"
#include "format/selection.h"

namespace headrace {
namespace {

// A selection and the one state of the metadata that all of its request sees.
struct Prepared {
  std::shared_ptr<const ArrayLayout> layout;
  ResolvedSelection selection;
};

Prepared prepare(const ArrayState& state,
                 const Selection& selection,
                 const Implementations& implementations) {
  auto layout = state.layout(implementations);
  const ArrayMetadata& m = *layout->metadata;
  ResolvedSelection resolved = resolve_selection(selection, m.shape, m.chunk_shape, m.chunk_edges);
  return {std::move(layout), std::move(resolved)};
}

bool has_shards(const ArrayMetadata& metadata) {
  return metadata.codecs.size() == 1 && is_sharding_codec(metadata.codecs[0].name);
}

std::vector<Shape> stored_sizes(const ArrayMetadata& metadata) {
  return chunk_sizes(metadata.shape, metadata.chunk_shape, metadata.chunk_edges);
}

[[noreturn]] void refuse_one_shape(const char* what, const ArrayState& state) {
  throw Error(ErrorCode::unsupported,
              std::string("[") + what + "] " + state.name() +
                  ": the chunk grid is rectilinear, see write_chunk_sizes");
}

void check_dtype(const char* action, const ArrayState& state, const DType& found) {
  const DType& wanted = state.metadata()->dtype;
  if (found != wanted) {
    throw Error(ErrorCode::invalid_argument,
                std::string("[") + action + "] " + state.name() + ": expected dtype " +
                    wanted.to_string() + ", got " + found.to_string());
  }
}

void check_out(const ArrayState& state, const ResolvedSelection& selection, const TensorView& out) {
  const Device& device = state.choice().device;
  check_device(device);
  if (out.device != device) {
    throw Error(ErrorCode::invalid_argument,
                "[read] " + state.name() + ": out lies on " + out.device.to_string() +
                    ", the array is read to " + device.to_string());
  }
  check_dtype("read", state, out.dtype);
  if (out.dtype.variable_length()) {
    throw Error(ErrorCode::unsupported,
                "[read] " + state.name() + ": elements of " + out.dtype.to_string() +
                    " are read to new memory only");
  }
  if (out.shape != selection.result_shape) {
    throw Error(ErrorCode::invalid_argument,
                "[read] " + state.name() + ": out has shape " + shape_text(out.shape) +
                    ", the selection " + shape_text(selection.result_shape));
  }
  state.check_memory("read", out);
}

void read_prepared(const ArrayState& state,
                   const Prepared& prepared,
                   const TensorView& out,
                   const ReadOptions& options,
                   const CancelFlag* cancel = nullptr,
                   Mark* behind = nullptr) {
  const auto& [layout, selection] = prepared;
  if (out.device.is_cpu()) return read_selection(state, layout, selection, out, options, cancel);
  read_selection_to_device(state, layout, selection, out, options, cancel, behind);
}

// Where the caller's stream is now. `unsupported` while it is being captured.
std::shared_ptr<Mark> mark_of_stream(const Device& device, Stream stream) {
  return backend(device.type).wrap_stream(device.index, stream.raw())->mark();
}

// New memory waits for no stream, but the caller means the stream that he gives.
void check_stream(const ArrayState& state, const ReadOptions& options) {
  const Device& device = state.choice().device;
  if (device.is_cpu() || !options.stream.raw()) return;
  check_device(device);
  static_cast<void>(mark_of_stream(device, options.stream));
}

void check_vlen_device(const ArrayState& state, const DType& dtype) {
  const Device& device = state.choice().device;
  if (device.is_cpu()) return;
  throw Error(ErrorCode::unsupported,
              "[read] " + state.name() + ": elements of " + dtype.to_string() +
                  ", of variable length, are read to host memory only (device \"cpu\"), not to " +
                  device.to_string());
}

Tensor read_tensor(const ArrayState& state,
                   const Selection& selection,
                   const ReadOptions& options,
                   const CancelFlag* cancel) {
  const Device& device = state.choice().device;
  check_device(device);
  const Prepared read = prepare(state, selection, options.implementations);
  if (read.layout->variable_length()) {
    check_vlen_device(state, read.layout->metadata->dtype);
    return read_vlen_selection(state, read.layout, read.selection, options, cancel);
  }
  if (!device.is_cpu())
    return read_new_on_device(state, read.layout, read.selection, options, cancel);
  Tensor result = Tensor::empty(read.selection.result_shape, read.layout->metadata->dtype);
  read_selection(state, read.layout, read.selection, result.view(), options, cancel);
  return result;
}

Prepared prepare_write(const ArrayState& state,
                       const Selection& selection,
                       const TensorView& data,
                       const WriteOptions& options) {
  state.check_writable();
  check_dtype("write", state, data.dtype);
  state.check_memory("write", data);
  return prepare(state, selection, options.implementations);
}

}  // namespace

Shape Array::shape() const { return state_->metadata()->shape; }
DType Array::dtype() const { return state_->metadata()->dtype; }

bool Array::is_sharded() const { return has_shards(*state_->metadata()); }
bool Array::is_rectilinear() const { return !state_->metadata()->chunk_edges.empty(); }

Shape Array::chunks() const {
  const auto metadata = state_->metadata();
  if (has_shards(*metadata)) return parse_sharding(metadata->codecs[0]).chunk_shape;
  if (!metadata->chunk_edges.empty()) refuse_one_shape("chunks", *state_);
  return metadata->chunk_shape;
}

std::optional<Shape> Array::shards() const {
  const auto metadata = state_->metadata();
  if (!has_shards(*metadata)) return std::nullopt;
  if (!metadata->chunk_edges.empty()) refuse_one_shape("shards", *state_);
  return metadata->chunk_shape;
}

std::vector<Shape> Array::read_chunk_sizes() const {
  const auto metadata = state_->metadata();
  if (!has_shards(*metadata)) return stored_sizes(*metadata);
  return chunk_sizes(metadata->shape, parse_sharding(metadata->codecs[0]).chunk_shape);
}

Shape Array::largest_chunks() const {
  const auto metadata = state_->metadata();
  return has_shards(*metadata) ? parse_sharding(metadata->codecs[0]).chunk_shape
                               : metadata->chunk_shape;
}

std::vector<Shape> Array::write_chunk_sizes() const { return stored_sizes(*state_->metadata()); }

Device Array::device() const { return state_->choice().device; }
int Array::zarr_format() const { return state_->metadata()->zarr_format; }
bool Array::read_only() const { return state_->choice().read_only || state_->driver().read_only(); }
std::vector<CodecSpec> Array::codecs() const { return state_->metadata()->codecs; }
std::optional<std::vector<std::byte>> Array::fill_value() const {
  return state_->metadata()->fill_value;
}
std::string Array::attributes_json() const { return state_->metadata()->attributes; }
std::string Array::metadata_json() const { return state_->metadata()->document; }
OpenOptions Array::open_options() const {
  const ArrayState::Choice& choice = state_->choice();
  const auto metadata = state_->metadata();
  OpenOptions options;
  options.device = choice.device;
  options.zarr_format = metadata->zarr_format;
  options.read_only = choice.read_only;
  options.write_empty_chunks = choice.write_empty_chunks;
  options.shard_order = choice.shard_order;
  options.metadata_json = metadata->document;
  if (metadata->zarr_format == 2) options.attributes_json = metadata->attributes;
  options.as_opened = state_->shared()->has_document;
  options.implementations = choice.implementations;
  return options;
}
std::string Array::path() const { return state_->path(); }
Store Array::store() const { return state_->shared()->store; }

std::vector<std::optional<std::string>> Array::dimension_names() const {
  return state_->metadata()->dimension_names;
}

std::int64_t Array::nchunks() const {
  std::int64_t n = 1;
  const auto m = state_->metadata();
  const Shape grid = has_shards(*m) ? grid_shape(m->shape, parse_sharding(m->codecs[0]).chunk_shape)
                                    : grid_shape(m->shape, m->chunk_shape, m->chunk_edges);
  for (std::int64_t extent : grid) n = checked_mul(n, extent, "chunks");
  return n;
}

std::int64_t Array::nchunks_initialized() const { return count_stored_chunks(*state_); }

Array Array::to(Device device) const {
  ArrayState::Choice choice = state_->choice();
  choice.device = device;
  return Array(std::make_shared<ArrayState>(state_->shared(), std::move(choice)));
}

void Array::check_codecs() const { static_cast<void>(state_->layout()); }

Array Array::with_implementations(const Implementations& implementations) const {
  check_implementations(implementations, "[with_implementations]");
  ArrayState::Choice choice = state_->choice();
  for (const auto& [codec, name] : implementations) choice.implementations[codec] = name;
  return Array(std::make_shared<ArrayState>(state_->shared(), std::move(choice)));
}

Tensor Array::read(const Selection& selection, const ReadOptions& options) const {
  check_stream(*state_, options);
  return read_tensor(*state_, selection, options, nullptr);
}

RaggedTensor Array::read_ragged(const Selection& selection, const ReadOptions& options) const {
  const Device& device = state_->choice().device;
  check_device(device);
  const Prepared read = prepare(*state_, selection, options.implementations);
  const DType& dtype = read.layout->metadata->dtype;
  if (!read.layout->variable_length()) {
    throw Error(ErrorCode::invalid_argument,
                "[read_ragged] " + state_->name() + ": elements of " + dtype.to_string() +
                    " have one length, read() reads them");
  }
  if (!device.is_cpu()) {
    if (auto there = read_ragged_on_device(*state_, read.layout, read.selection, options))
      return std::move(*there);
    RaggedTensor here = to(Device::cpu()).read_ragged(selection, options);
    here.offsets = copy(here.offsets.view(), device);
    here.values = copy(here.values.view(), device);
    return here;
  }
  return read_ragged_selection(*state_, read.layout, read.selection, options);
}

void Array::read_placed(const Selection& selection,
                        const PlaceResult& place,
                        const ReadOptions& options) const {
  const Prepared read = prepare(*state_, selection, options.implementations);
  const TensorView out = place(read.selection.result_shape);
  check_out(*state_, read.selection, out);
  read_prepared(*state_, read, out, options);
}

void Array::read_into(const Selection& selection,
                      const TensorView& out,
                      const ReadOptions& options) const {
  const Prepared read = prepare(*state_, selection, options.implementations);
  check_out(*state_, read.selection, out);
  read_prepared(*state_, read, out, options);
}

Future<Tensor> Array::read_async(const Selection& selection, const ReadOptions& options) const {
  check_stream(*state_, options);
  return start_request<Tensor>([state = state_, selection, options](const CancelFlag& cancel) {
    return read_tensor(*state, selection, options, &cancel);
  });
}

Future<Unit> Array::read_into_async(const Selection& selection,
                                    const TensorView& out,
                                    std::shared_ptr<void> keep_alive,
                                    const ReadOptions& options) const {
  Prepared read = prepare(*state_, selection, options.implementations);
  check_out(*state_, read.selection, out);  // a wrong call fails now, not later
  // Now, too: what the stream is given after this call may wait for the read.
  std::shared_ptr<Mark> behind;
  if (!out.device.is_cpu()) behind = mark_of_stream(out.device, options.stream);
  return start_request<Unit>([state = state_,
                              read = std::move(read),
                              out,
                              keep_alive = std::move(keep_alive),
                              options,
                              behind = std::move(behind)](const CancelFlag& cancel) {
    read_prepared(*state, read, out, options, &cancel, behind.get());
    return Unit{};
  });
}

Shape Array::result_shape(const Selection& selection) const {
  const auto metadata = state_->metadata();
  return resolve_selection(selection, metadata->shape, metadata->chunk_shape, metadata->chunk_edges)
      .result_shape;
}

void Array::write(const Selection& selection,
                  const TensorView& data,
                  const WriteOptions& options) const {
  const Prepared write = prepare_write(*state_, selection, data, options);
  write_anywhere(*state_, write.layout, write.selection, data, options);
}

Future<Unit> Array::write_async(const Selection& selection,
                                const TensorView& data,
                                std::shared_ptr<void> keep_alive,
                                const WriteOptions& options) const {
  Prepared write = prepare_write(*state_, selection, data, options);
  broadcast_to(data, write.selection.result_shape);  // a wrong call fails now, not later
  return start_request<Unit>(
      [state = state_, write = std::move(write), data, keep_alive = std::move(keep_alive), options](
          const CancelFlag& cancel) {
        write_anywhere(*state, write.layout, write.selection, data, options, &cancel);
        return Unit{};
      });
}

namespace {

// Whether a read of files begins with a chunk that it takes the most of: first_object().
bool begins_with_object(const ArrayLayout& layout, const ResolvedSelection& selection) {
  return layout.shards.empty() && !layout.regions && !selection.pointwise && selection.size() > 0 &&
         !is_part(layout, selection.size() * layout.itemsize(), layout.chain.decoded_nbytes());
}

std::string first_object(const ArrayState& state, const Prepared& read) {
  std::vector<std::int64_t> chunk;
  for (std::size_t d = 0; d < read.selection.dims.size(); ++d)
    chunk.push_back(read.selection.dims[d].index(0) / read.layout->chunk_shape[d]);
  return StoredArray(state, read.layout).key(chunk.data());
}

}  // namespace

void read_many(const std::vector<ReadRequest>& requests, const ReadOptions& options) {
  std::vector<Prepared> reads;
  std::vector<TensorView> outs;
  reads.reserve(requests.size());
  outs.reserve(requests.size());
  for (const ReadRequest& request : requests) {
    const ArrayState& state = *request.array.state();
    reads.push_back(prepare(state, request.selection, options.implementations));
    const ResolvedSelection& selection = reads.back().selection;
    outs.push_back(request.place ? request.place(selection.result_shape) : request.out);
    check_out(state, selection, outs.back());
  }
  // Those of one array to a device are one plan there, and all of arrays across a network share
  // what is under way.
  const auto is_remote = [&](std::size_t i) {
    return outs[i].device.is_cpu() && requests[i].array.state()->driver().async_reads() != nullptr;
  };
  std::vector<std::vector<std::size_t>> groups;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const auto is_like = [&](const std::vector<std::size_t>& group) {
      const std::size_t other = group.front();
      if (is_remote(i) || is_remote(other)) return is_remote(i) && is_remote(other);
      return requests[other].array.state() == requests[i].array.state() &&
             reads[other].layout == reads[i].layout;
    };
    const auto group = outs[i].device.is_cpu() && !is_remote(i)
                           ? groups.end()
                           : std::find_if(groups.begin(), groups.end(), is_like);
    if (group == groups.end())
      groups.push_back({i});
    else
      group->push_back(i);
  }
  // Of files each is a group, in the same order.
  const auto is_of_files = [&](std::size_t i) {
    StoreDriver& driver = requests[i].array.state()->driver();
    return outs[i].device.is_cpu() && driver.has_files() &&
           &driver == &requests.front().array.state()->driver() &&
           begins_with_object(*reads[i].layout, reads[i].selection);
  };
  const auto key_of = [&](std::size_t i) {
    return first_object(*requests[i].array.state(), reads[i]);
  };
  if (requests.empty()) return;
  std::size_t files = requests.size();
  const CodecChain* largest = &reads.front().layout->chain;
  for (std::size_t i = 0; i < requests.size() && files > 0; ++i) {
    if (!is_of_files(i)) files = 0;
    const CodecChain& chain = reads[i].layout->chain;
    if (chain.decoded_nbytes() > largest->decoded_nbytes()) largest = &chain;
  }
  ObjectsAhead ahead(requests.front().array.state()->driver(),
                     files,
                     object_part(*largest),
                     largest->decoded_nbytes(),
                     key_of);
  Poll poll(options.poll);
  ReadOptions elsewhere = options;  // on the threads of the pool
  elsewhere.poll = nullptr;
  const auto read_group = [&](std::size_t g) {
    poll.check();
    if (files > 0) ahead.before(g, key_of);
    const ReadOptions& here = poll.is_caller() ? options : elsewhere;
    const std::size_t first = groups[g].front();
    const ArrayState& state = *requests[first].array.state();
    if (groups[g].size() > 1 && is_remote(first)) {
      std::vector<HostRead> together;
      for (const std::size_t i : groups[g]) {
        together.push_back(
            {requests[i].array.state().get(), reads[i].layout, &reads[i].selection, outs[i]});
      }
      return read_from_network_together(together, here);
    }
    if (outs[first].device.is_cpu()) return read_prepared(state, reads[first], outs[first], here);
    std::vector<DeviceTarget> targets;
    for (const std::size_t i : groups[g]) targets.push_back({&reads[i].selection, outs[i]});
    read_selections_to_device(state, reads[first].layout, targets, here);
  };
  parallel_for(groups.size(), read_group, 0, [&] { poll.check(); });
}

}  // namespace headrace
