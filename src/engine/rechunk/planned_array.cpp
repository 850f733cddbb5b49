#include "engine/rechunk/planned_array.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "codec/hashes.h"
#include "engine/node/create.h"
#include "engine/rechunk/plan.h"
#include "engine/rechunk/state.h"
#include "format/fill_value.h"
#include "format/json.h"
#include "store/store.h"

namespace headrace {
namespace {

Shape with_whole_dimensions(Shape extents, const Shape& shape) {
  for (std::size_t d = 0; d < extents.size(); ++d) {
    if (extents[d] == -1) extents[d] = std::max<std::int64_t>(shape[d], 1);
  }
  return extents;
}

// The source's own chunks; empty, for chosen ones, when they have more than one shape.
Shape chunks_of(const Array& source) {
  return source.is_rectilinear() && !source.is_sharded() ? Shape{} : source.chunks();
}

}  // namespace

std::optional<std::vector<std::byte>> fill_of(const Array& source) {
  const DType dtype = source.dtype();
  auto fill_value = source.fill_value();
  if (!fill_value && !dtype.variable_length()) fill_value = element_without_fill(dtype);
  return fill_value;
}

namespace {

CreateOptions destination_of(const Array& source, bool in_group, const RechunkOptions& options) {
  CreateOptions result;
  result.shape = source.shape();
  result.dtype = source.dtype();
  result.fill_value = fill_of(source);
  result.attributes = attributes_in_v3(source);
  result.dimension_names = source.dimension_names();
  result.codecs = options.codecs;
  // Of a group's arrays those of another number of dimensions are not meant.
  const auto meant = [&](const Shape& extents) {
    return !in_group || extents.size() == result.shape.size();
  };
  const bool given = !options.chunks.empty() && meant(options.chunks);
  result.chunks = given ? with_whole_dimensions(options.chunks, result.shape) : chunks_of(source);
  if (options.shards && !options.shards->empty() && meant(*options.shards))
    result.shards = with_whole_dimensions(*options.shards, result.shape);
  return result;
}

// What is wrong with the options is so for the destination, not for the array in memory.
Array array_in_memory(const CreateOptions& options) {
  try {
    new_array_metadata(options);
  } catch (const Error& e) {
    throw Error(e.code(), std::string("[rechunk] ") + e.what(), e.os_error());
  }
  return create_array(memory_store(), "", options);
}

// An array of the same metadata without chunks, for its grids: plans are made before the
// destination is.
Array planned_destination(const Array& source, bool in_group, const RechunkOptions& options) {
  CreateOptions create = destination_of(source, in_group, options);
  Array array = array_in_memory(create);
  const bool choose = options.shards && options.shards->empty();
  if (!choose || array.dtype().variable_length()) return array;
  const auto shards = choose_shards(
      array.shape(), array.chunks(), array.dtype().itemsize(), options.max_memory / 8);
  if (!shards) return array;
  create.chunks = array.chunks();
  create.shards = *shards;
  return array_in_memory(create);
}

PlannedArray planned_array(const std::string& path,
                           const Array& source,
                           bool in_group,
                           const RechunkOptions& options) {
  try {
    Array planned = planned_destination(source, in_group, options);
    RechunkPlan plan{path, planned.chunks(), planned.shards(), {}};
    plan.passes = plan_passes(source.read_chunk_sizes(),
                              planned.write_chunk_sizes(),
                              source.dtype().itemsize(),
                              options.max_memory / 2);
    return {source, std::move(planned), std::move(plan)};
  } catch (const Error& e) {
    if (path.empty()) throw;
    throw e.with_context(path);
  }
}

std::string json_of(const Shape& extents) {
  std::string text = "[";
  for (const std::int64_t extent : extents)
    text += (text.size() > 1 ? ", " : "") + std::to_string(extent);
  return text + ']';
}

// Of the blocks, which are known by their numbers when a rechunk goes on: they are others where the
// source was resized meanwhile, or the planner changed.
std::uint32_t checksum(const std::vector<PlannedArray>& arrays) {
  std::string text;
  for (const PlannedArray& array : arrays) {
    text += json_quote(array.plan.path) + array.source.dtype().name();
    for (const RechunkPass& pass : array.plan.passes) {
      for (const Shape& sizes : pass.block_sizes) text += json_of(sizes);
    }
  }
  return crc32c(bytes_of(text));
}

// Of what the copy gets from the source besides elements, and by what these are decoded.
std::uint32_t checksum_of_documents(const RechunkTree& tree) {
  std::string text;
  for (const auto& [path, group] : tree.groups)
    text += json_quote(path) + json_compact(group.attributes_json());
  for (const auto& [path, array] : tree.arrays) {
    text += json_quote(path) + json_compact(array.metadata_json()) +
            json_compact(array.attributes_json());
  }
  return crc32c(bytes_of(text));
}

std::vector<RechunkPlan> plans_of(const RechunkTree& tree, const RechunkOptions& options) {
  std::vector<RechunkPlan> plans;
  for (PlannedArray& array : planned_arrays(tree, options)) plans.push_back(std::move(array.plan));
  return plans;
}

}  // namespace

std::vector<PlannedArray> planned_arrays(const RechunkTree& tree, const RechunkOptions& options) {
  std::vector<PlannedArray> arrays;
  for (const auto& [path, array] : tree.arrays)
    arrays.push_back(planned_array(path, array, !tree.groups.empty(), options));
  return arrays;
}

std::string source_name(const RechunkTree& tree, const RechunkOptions& options) {
  if (!options.source_name.empty()) return options.source_name;
  return tree.store.driver().lasting_name() + '/' + tree.path;
}

std::string arguments_json(const RechunkTree& tree,
                           const std::vector<PlannedArray>& arrays,
                           const RechunkOptions& options) {
  std::string codecs = "null";
  if (options.codecs) {
    codecs = "[";
    for (const CodecSpec& codec : *options.codecs) {
      codecs += (codecs.size() > 1 ? ", [" : "[") + json_quote(codec.name) + ", " +
                (codec.configuration.empty() ? "{}" : codec.configuration) + ']';
    }
    codecs += ']';
  }
  return "{\"source\": " + json_quote(source_name(tree, options)) +
         ", \"documents\": " + std::to_string(checksum_of_documents(tree)) +
         ", \"chunks\": " + json_of(options.chunks) +
         ", \"shards\": " + (options.shards ? json_of(*options.shards) : "null") +
         ", \"codecs\": " + codecs + ", \"max_memory\": " + std::to_string(options.max_memory) +
         ", \"blocks\": " + std::to_string(checksum(arrays)) + '}';
}

std::size_t largest_block_nbytes(const std::vector<PlannedArray>& arrays) {
  std::int64_t largest = 0;
  for (const PlannedArray& array : arrays) {
    for (const RechunkPass& pass : array.plan.passes)
      largest = std::max(largest, pass.block_nbytes);
  }
  return static_cast<std::size_t>(largest);
}

std::int64_t RechunkPlan::nbytes_read() const {
  std::int64_t nbytes = 0;
  for (const RechunkPass& pass : passes) nbytes += pass.nbytes_read;
  return nbytes;
}

std::int64_t RechunkPlan::nbytes_written() const {
  std::int64_t nbytes = 0;
  for (const RechunkPass& pass : passes) nbytes += pass.nbytes_written;
  return nbytes;
}

double RechunkPlan::amplification() const {
  const auto nbytes = static_cast<double>(passes.back().nbytes_written);
  return nbytes == 0 ? 1 : static_cast<double>(nbytes_read()) / nbytes;
}

std::vector<RechunkPlan> plan_rechunk(const Array& source, const RechunkOptions& options) {
  return plans_of(tree_of(source), options);
}

std::vector<RechunkPlan> plan_rechunk(const Group& source, const RechunkOptions& options) {
  return plans_of(tree_of(source, options.left_out), options);
}

}  // namespace headrace
