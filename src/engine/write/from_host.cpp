#include "engine/write/from_host.h"

#include <algorithm>
#include <optional>
#include <span>

#include "base/memory_errors.h"
#include "base/thread_pool.h"
#include "codec/scratch.h"
#include "engine/request/attempts.h"
#include "engine/write/encoder.h"
#include "engine/write/to_network.h"

namespace headrace {
namespace {

template <typename Query>
class Writer {
 public:
  Writer(Request& request, const StoredArray& array, const ObjectLocks& locks)
      : request_(request), array_(array), locks_(locks), encoder_(request, array) {}

  void write_region(const Query& query, const Region& region) {
    const Shape& shape = array_.layout.stored_shape();
    const typename Query::Cut cut(query, GridCut(shape, region.first_chunk));
    request_.parallel(
        cut.size(),
        [&](std::size_t i) {
          request_.check();
          Coordinates coordinates;
          Query child;
          cut.child(i, coordinates.at, child);
          const std::string key = array_.key(coordinates.at);
          try {
            const Shape& extent = array_.layout.metadata->shape;
            write_one(key, child, valid_extent(coordinates, extent, shape, region));
          } catch (const Error& error) {
            throw error.with_context(array_.where("write", key));
          }
        },
        encoder_.objects_at_once());
  }

  void write_one(const std::string& key, const Query& query, const Shape& valid) {
    const auto lock = locks_.lock(key);
    bool on_condition = array_.driver.write_conditions().version;
    Attempts attempts;
    for (;;) {
      Scratch old;
      WriteCondition condition;
      const std::optional<ConstBytes> before =
          bytes_to_keep(key, query, valid, *old, on_condition ? &condition : nullptr);
      Scratch encoded;
      Scratch last;
      NewObject object(*encoded, *last);
      encoder_.encode(query, valid, before, object);
      try {
        return store(key, object, condition);
      } catch (const Error& error) {
        if (condition.kind == WriteCondition::Kind::none) throw;
        if (error.code() == ErrorCode::unsupported) {
          on_condition = false;  // by this server
          continue;
        }
        if (!is_forestalled(error)) throw;
        if (!attempts.next([this] { request_.check(); })) throw;
      }
    }
  }

 private:
  // Of the object as it is stored, what may have to be kept. Where all that can be seen of it is
  // written anew, it need not be readable.
  std::optional<ConstBytes> bytes_to_keep(const std::string& key,
                                          const Query& query,
                                          const Shape& valid,
                                          Buffer& old,
                                          WriteCondition* condition) {
    if (!encoder_.keeps_some(query, valid)) return std::nullopt;
    StoreDriver& driver = array_.driver;
    const std::uint64_t most = encoder_.max_object_nbytes();
    try {
      bool found = false;
      if (condition) {
        std::string version;
        found = driver.get_versioned(key, old, most, version);
        *condition = condition_of(found, std::move(version));
      } else {
        found = driver.get_latest(key, old, most);
      }
      if (!found) return std::nullopt;
    } catch (const Error& error) {
      if (!covers(query, valid) || error.code() != ErrorCode::corrupt) throw;
      return std::nullopt;
    }
    return old.bytes();
  }

  void store(const std::string& key, const NewObject& object, const WriteCondition& condition) {
    StoreDriver& driver = array_.driver;
    const std::span<const ConstBytes> parts = object.parts();
    if (parts.empty()) {
      driver.erase(key);
    } else if (condition.kind != WriteCondition::Kind::none) {
      driver.set_if(key, parts, condition);
    } else if (object.in_one_part()) {
      driver.set(key, parts.front());
    } else {
      driver.set_parts(key, parts);
    }
  }

  Request& request_;
  const StoredArray& array_;
  const ObjectLocks& locks_;
  ObjectEncoder<Query> encoder_;
};

template <typename Query>
void write_query(Request& request,
                 const StoredArray& array,
                 const ObjectLocks& locks,
                 Query query) {
  if (writes_in_flight(array.driver)) {
    return NetworkWriter<Query>(request, locks, array.driver).write(array, std::move(query));
  }
  // Shards are large: one region at a time sees to it how many are put together at once.
  const int fit = request.threads_for(array.layout);
  const bool alone = !array.layout.shards.empty() || fit < thread_count();
  each_region(request,
              array,
              std::move(query),
              alone ? 1 : fit,
              [&](const StoredArray& inside, const Query& part, const Region& region) {
                Writer<Query>(request, inside, locks).write_region(part, region);
              });
}

}  // namespace

TensorView broadcast_to(const TensorView& view, const Shape& shape) {
  const Shape strides = view.strides_or_c();
  auto refuse = [&] {
    throw Error(ErrorCode::invalid_argument,
                "could not broadcast data of shape " + shape_text(view.shape) + " into shape " +
                    shape_text(shape));
  };
  TensorView result = view;
  result.shape = shape;
  result.strides.assign(shape.size(), 0);
  // Leading extents of 1 beyond the target's rank say nothing.
  std::size_t extra = view.shape.size() > shape.size() ? view.shape.size() - shape.size() : 0;
  for (std::size_t d = 0; d < extra; ++d) {
    if (view.shape[d] != 1) refuse();
  }
  const std::size_t skip = shape.size() - (view.shape.size() - extra);
  for (std::size_t d = skip; d < shape.size(); ++d) {
    const std::size_t from = d - skip + extra;
    if (view.shape[from] == shape[d]) {
      result.strides[d] = strides[from];
    } else if (view.shape[from] != 1) {
      refuse();
    }
  }
  return result;
}

bool covers(const Box& box, const Shape& valid) {
  for (std::size_t d = 0; d < valid.size(); ++d) {
    const Axis& axis = box.axes[d];
    if (axis.list || axis.first != 0 || axis.step != 1 || axis.count != valid[d]) return false;
  }
  return true;
}

Shape valid_extent(const Coordinates& coordinates,
                   const Shape& extent,
                   const Shape& chunk,
                   const Region& region) {
  Shape valid(chunk.size());
  for (std::size_t d = 0; d < chunk.size(); ++d) {
    std::int64_t first = coordinates.at[d] * chunk[d];
    if (!region.first_chunk.empty()) {
      first = region.first_index[d] + (coordinates.at[d] - region.first_chunk[d]) * chunk[d];
    }
    valid[d] = std::min(chunk[d], extent[d] - first);
  }
  return valid;
}

void write_object(Request& request,
                  const StoredArray& array,
                  const ObjectLocks& locks,
                  const std::string& key,
                  const Box& box,
                  const Shape& valid) {
  Writer<Box>(request, array, locks).write_one(key, box, valid);
}

void write_selection(const ArrayState& state,
                     std::shared_ptr<const ArrayLayout> layout,
                     const ResolvedSelection& selection,
                     const TensorView& data,
                     const WriteOptions& options,
                     const std::atomic<bool>* cancel) {
  state.check_writable();
  Request request(options, cancel);
  const StoredArray array(state, std::move(layout));
  if (selection.size() == 0) return;
  with_memory_errors([&] {
    const ObjectLocks locks(state);
    if (selection.pointwise) {
      write_query(request, array, locks, Points(selection, data));
    } else {
      write_query(request, array, locks, Box(selection, data));
    }
  });
}

}  // namespace headrace
