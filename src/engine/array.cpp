#include "headrace/array.h"

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "base/thread_pool.h"
#include "engine/array_state.h"
#include "engine/config.h"
#include "engine/read.h"
#include "engine/request.h"
#include "engine/request_context.h"
#include "engine/stored_chunks.h"
#include "engine/write.h"
#include "format/chunk_grid.h"
#include "format/selection.h"

namespace headrace {
namespace {

ResolvedSelection resolve(const ArrayState& state, const Selection& selection) {
  const auto metadata = state.metadata();
  return resolve_selection(selection, metadata->shape, metadata->chunk_shape);
}

std::string shape_text(const Shape& shape) { return coordinates_text(shape.data(), shape.size()); }

void check_dtype(const char* action, const ArrayState& state, const DType& found) {
  const DType& wanted = state.metadata()->dtype;
  if (found != wanted) {
    throw Error(ErrorCode::invalid_argument,
                std::string("[") + action + "] " + state.path() + ": expected dtype " +
                    wanted.to_string() + ", got " + found.to_string());
  }
}

void check_device(const ArrayState& state, const Device& found) {
  if (!found.is_cpu() || !state.choice().device.is_cpu()) {
    const Device& device = found.is_cpu() ? state.choice().device : found;
    throw Error(ErrorCode::unsupported, device.to_string() + ": this build has no CUDA");
  }
}

void check_out(const ArrayState& state, const ResolvedSelection& selection, const TensorView& out) {
  check_device(state, out.device);
  check_dtype("read", state, out.dtype);
  if (out.shape != selection.result_shape) {
    throw Error(ErrorCode::invalid_argument,
                "[read] " + state.path() + ": out has shape " + shape_text(out.shape) +
                    ", the selection " + shape_text(selection.result_shape));
  }
}

Tensor read_tensor(const ArrayState& state,
                   const Selection& selection,
                   const ReadOptions& options,
                   const CancelFlag* cancel) {
  check_device(state, state.choice().device);
  const ResolvedSelection resolved = resolve(state, selection);
  Tensor result = Tensor::empty(resolved.result_shape, state.metadata()->dtype);
  read_selection(state, resolved, result.view(), options, cancel);
  return result;
}

void read_view(const ArrayState& state,
               const Selection& selection,
               const TensorView& out,
               const ReadOptions& options,
               const CancelFlag* cancel) {
  const ResolvedSelection resolved = resolve(state, selection);
  check_out(state, resolved, out);
  read_selection(state, resolved, out, options, cancel);
}

void write_view(const ArrayState& state,
                const Selection& selection,
                const TensorView& data,
                const WriteOptions& options,
                const CancelFlag* cancel) {
  check_device(state, data.device);
  check_dtype("write", state, data.dtype);
  const ResolvedSelection resolved = resolve(state, selection);
  write_selection(state, resolved, broadcast_to(data, resolved.result_shape), options, cancel);
}

}  // namespace

Shape Array::shape() const { return state_->metadata()->shape; }
DType Array::dtype() const { return state_->metadata()->dtype; }

Shape Array::chunks() const {
  const auto metadata = state_->metadata();
  const std::vector<CodecSpec>& codecs = metadata->codecs;
  const bool sharded = codecs.size() == 1 && is_sharding_codec(codecs[0].name);
  return sharded ? parse_sharding(codecs[0]).chunk_shape : metadata->chunk_shape;
}

std::optional<Shape> Array::shards() const {
  const auto metadata = state_->metadata();
  if (metadata->codecs.size() != 1 || !is_sharding_codec(metadata->codecs[0].name))
    return std::nullopt;
  return metadata->chunk_shape;
}

Device Array::device() const { return state_->choice().device; }
int Array::zarr_format() const { return state_->metadata()->zarr_format; }
bool Array::read_only() const { return state_->choice().read_only || state_->driver().read_only(); }
std::vector<CodecSpec> Array::codecs() const { return state_->metadata()->codecs; }
std::optional<std::vector<std::byte>> Array::fill_value() const {
  return state_->metadata()->fill_value;
}
std::string Array::attributes_json() const { return state_->metadata()->attributes; }
std::string Array::metadata_json() const { return state_->metadata()->document; }
std::string Array::path() const { return state_->path(); }
Store Array::store() const { return state_->shared()->store; }

std::vector<std::optional<std::string>> Array::dimension_names() const {
  return state_->metadata()->dimension_names;
}

std::int64_t Array::nchunks() const {
  std::int64_t n = 1;
  for (std::int64_t extent : grid_shape(shape(), chunks())) n = checked_mul(n, extent, "chunks");
  return n;
}

std::int64_t Array::nchunks_initialized() const { return count_stored_chunks(*state_); }

Array Array::to(Device device) const {
  ArrayState::Choice choice = state_->choice();
  choice.device = device;
  return Array(std::make_shared<ArrayState>(state_->shared(), std::move(choice)));
}

Array Array::with_implementations(const Implementations& implementations) const {
  check_implementations(implementations, "implementations");
  ArrayState::Choice choice = state_->choice();
  for (const auto& [codec, name] : implementations) choice.implementations[codec] = name;
  return Array(std::make_shared<ArrayState>(state_->shared(), std::move(choice)));
}

Tensor Array::read(const Selection& selection, const ReadOptions& options) const {
  return read_tensor(*state_, selection, options, nullptr);
}

void Array::read_into(const Selection& selection,
                      const TensorView& out,
                      const ReadOptions& options) const {
  read_view(*state_, selection, out, options, nullptr);
}

Future<Tensor> Array::read_async(const Selection& selection, const ReadOptions& options) const {
  return start_request<Tensor>([state = state_, selection, options](const CancelFlag& cancel) {
    return read_tensor(*state, selection, options, &cancel);
  });
}

Future<Unit> Array::read_into_async(const Selection& selection,
                                    const TensorView& out,
                                    std::shared_ptr<void> keep_alive,
                                    const ReadOptions& options) const {
  check_out(*state_, resolve(*state_, selection), out);  // a wrong call fails now, not later
  return start_request<Unit>(
      [state = state_, selection, out, keep_alive = std::move(keep_alive), options](
          const CancelFlag& cancel) {
        read_view(*state, selection, out, options, &cancel);
        return Unit{};
      });
}

Shape Array::result_shape(const Selection& selection) const {
  return resolve(*state_, selection).result_shape;
}

void Array::write(const Selection& selection,
                  const TensorView& data,
                  const WriteOptions& options) const {
  state_->check_writable();
  write_view(*state_, selection, data, options, nullptr);
}

Future<Unit> Array::write_async(const Selection& selection,
                                const TensorView& data,
                                std::shared_ptr<void> keep_alive,
                                const WriteOptions& options) const {
  state_->check_writable();
  check_dtype("write", *state_, data.dtype);
  broadcast_to(data, result_shape(selection));
  return start_request<Unit>(
      [state = state_, selection, data, keep_alive = std::move(keep_alive), options](
          const CancelFlag& cancel) {
        write_view(*state, selection, data, options, &cancel);
        return Unit{};
      });
}

void Array::resize(const Shape& shape) const {
  state_->check_writable();
  ArrayMetadata metadata = *state_->metadata();
  if (shape.size() != metadata.ndim()) {
    throw Error(ErrorCode::invalid_argument,
                "[resize] " + path() + ": expected " + std::to_string(metadata.ndim()) +
                    " extents, got " + std::to_string(shape.size()));
  }
  for (std::int64_t extent : shape) {
    if (extent < 0)
      throw Error(ErrorCode::invalid_argument, "[resize] extent " + std::to_string(extent));
  }
  const Shape before = std::exchange(metadata.shape, shape);
  metadata.document = with_shape(metadata.document, shape);
  state_->replace_metadata(std::move(metadata));
  erase_chunks_outside(*state_, before);
}

Shape Array::append(const TensorView& data, int axis) const {
  const Shape before = shape();
  const int ndim = static_cast<int>(before.size());
  const int at = axis < 0 ? axis + ndim : axis;
  if (at < 0 || at >= ndim) {
    throw Error(ErrorCode::invalid_argument,
                "[append] axis " + std::to_string(axis) + " of an array of " +
                    std::to_string(ndim) + " dimensions");
  }
  const auto d = static_cast<std::size_t>(at);
  Shape expected = before;
  if (data.shape.size() == before.size()) expected[d] = data.shape[d];
  if (data.shape != expected) {
    throw Error(ErrorCode::invalid_argument,
                "[append] " + path() + ": data has shape " + shape_text(data.shape) +
                    ", expected that of the array but for axis " + std::to_string(at) + ": " +
                    shape_text(before));
  }
  check_dtype("append", *state_, data.dtype);
  Shape after = before;
  after[d] = checked_add(before[d], data.shape[d], "extent");
  resize(after);
  std::vector<SelectionItem> items(before.size(), all);
  items[d] = slice(before[d], after[d]);
  write(Selection(std::move(items)), data);
  return after;
}

void Array::set_attributes_json(std::string_view json) const {
  state_->check_writable();
  ArrayMetadata metadata = *state_->metadata();
  metadata.attributes = checked_json_object(json, "attributes");
  if (metadata.zarr_format == 3)
    metadata.document = with_attributes(metadata.document, metadata.attributes);
  state_->replace_metadata(std::move(metadata));
}

void read_many(const std::vector<ReadRequest>& requests, const ReadOptions& options) {
  std::vector<ResolvedSelection> selections;
  selections.reserve(requests.size());
  for (const ReadRequest& request : requests) {
    selections.push_back(resolve(*request.array.state(), request.selection));
    check_out(*request.array.state(), selections.back(), request.out);
  }
  parallel_for(requests.size(), [&](std::size_t i) {
    read_selection(*requests[i].array.state(), selections[i], requests[i].out, options);
  });
}

}  // namespace headrace
