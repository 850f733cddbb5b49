#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "base/checked.h"
#include "base/counted.h"
#include "base/limits.h"
#include "codec/codec.h"
#include "codec/registry.h"
#include "engine/node/create.h"
#include "format/codec_specs.h"

namespace headrace {
namespace {

[[noreturn]] void throw_invalid(const std::string& message) {
  throw Error(ErrorCode::invalid_argument, message);
}

std::string text_of_shape(const Shape& shape) {
  std::string text = "(";
  for (std::size_t d = 0; d < shape.size(); ++d) text += (d ? ", " : "") + std::to_string(shape[d]);
  return text + ")";
}

// `extents` is `what` of an array of `ndim` dimensions, each at least 1.
void check_extents(const char* what, const Shape& extents, std::size_t ndim, std::size_t itemsize) {
  if (extents.size() != ndim) {
    throw_invalid(std::string(what) + ": expected " + counted(ndim, "extent") +
                  " as in shape, got " + text_of_shape(extents));
  }
  for (const std::int64_t extent : extents) {
    if (extent < 1)
      throw_invalid(std::string(what) + ": expected extents of at least 1, got " +
                    text_of_shape(extents));
  }
  static_cast<void>(checked_nbytes(extents, std::max<std::size_t>(itemsize, 1), what));
}

void check_format(const CreateOptions& o) {
  if (o.zarr_format != 2 && o.zarr_format != 3) {
    throw_invalid("zarr_format: expected 2 or 3, got " + std::to_string(o.zarr_format));
  }
  if (o.order != 'C' && o.order != 'F') {
    throw_invalid(std::string("order: expected 'C' or 'F', got '") + o.order + "'");
  }
  const std::string& separator = o.dimension_separator;
  if (!separator.empty() && separator != "/" && separator != ".") {
    throw_invalid("dimension_separator: expected \"/\" or \".\", got \"" + separator + '"');
  }
  if (o.zarr_format == 3) {
    if (o.order != 'C') throw_invalid("order: Zarr format 3 has none; add a transpose codec");
  } else {
    if (!o.shards.empty()) throw_invalid("shards: Zarr format 2 has no sharding");
    if (!o.dimension_names.empty()) {
      throw_invalid(
          "dimension_names: Zarr format 2 has none; xarray keeps them in the attribute "
          "_ARRAY_DIMENSIONS");
    }
  }
}

void check_shape(const CreateOptions& o) {
  if (o.shape.size() > kMaxDimensions) {
    throw_invalid("shape: expected at most " + std::to_string(kMaxDimensions) +
                  " dimensions, got " + std::to_string(o.shape.size()));
  }
  for (const std::int64_t extent : o.shape) {
    if (extent < 0)
      throw_invalid("shape: expected extents of at least 0, got " + text_of_shape(o.shape));
  }
  static_cast<void>(checked_nbytes(o.shape, std::max<std::size_t>(o.dtype.itemsize(), 1), "shape"));
  if (!o.dimension_names.empty() && o.dimension_names.size() != o.shape.size()) {
    throw_invalid("dimension_names: expected " + std::to_string(o.shape.size()) + " names, got " +
                  std::to_string(o.dimension_names.size()));
  }
}

// Of the rectilinear grid that is asked for; empty for a regular one.
std::vector<ChunkEdges> chosen_edges(const CreateOptions& o) {
  std::vector<ChunkEdges> edges;
  if (o.edges.empty()) return edges;
  if (o.zarr_format != 3) throw_invalid("chunks: Zarr format 2 has no rectilinear grids");
  if (!o.shards.empty()) throw_invalid("shards: of one shape and rectilinear at once");
  if (o.edges.size() != o.shape.size()) {
    throw_invalid("chunks: expected " + std::to_string(o.shape.size()) +
                  " dimensions as in shape, got " + std::to_string(o.edges.size()));
  }
  bool regular = true;
  for (std::size_t d = 0; d < o.edges.size(); ++d) {
    if (const auto* extent = std::get_if<std::int64_t>(&o.edges[d])) {
      edges.push_back(ChunkEdges::repeating(*extent));
      continue;
    }
    regular = false;
    ChunkEdges& dimension = edges.emplace_back();
    for (const std::int64_t extent : std::get<Shape>(o.edges[d])) dimension.append(extent, 1);
    if (dimension.bands.empty() || dimension.end < o.shape[d]) {
      throw_invalid("chunks: those along axis " + std::to_string(d) + " end at " +
                    std::to_string(dimension.end) + ", the array at " + std::to_string(o.shape[d]));
    }
  }
  if (regular) throw_invalid("chunks: a rectilinear grid has a list of extents in a dimension");
  return edges;
}

Shape largest_extents(const std::vector<ChunkEdges>& edges) {
  Shape largest;
  for (const ChunkEdges& dimension : edges) largest.push_back(dimension.largest_extent());
  return largest;
}

std::vector<ChunkEdges> regular_edges(const Shape& extents) {
  std::vector<ChunkEdges> edges;
  for (const std::int64_t extent : extents) edges.push_back(ChunkEdges::repeating(extent));
  return edges;
}

// Every shard is a multiple of the inner chunks.
void check_multiples(const std::vector<ChunkEdges>& shards, const Shape& chunks) {
  for (std::size_t d = 0; d < shards.size(); ++d) {
    for (const ChunkBand& band : shards[d].bands) {
      if (band.extent % chunks[d] == 0) continue;
      throw_invalid("shards: expected multiples of chunks " + text_of_shape(chunks) + ", got " +
                    std::to_string(band.extent) + " along axis " + std::to_string(d));
    }
  }
}

// The largest divisor of `n` that is at most `limit`.
std::int64_t largest_divisor(std::int64_t n, std::int64_t limit) {
  std::int64_t best = 1;
  for (std::int64_t a = 1; a <= n / a; ++a) {
    if (n % a != 0) continue;
    if (a <= limit) best = std::max(best, a);
    if (n / a <= limit) best = std::max(best, n / a);
  }
  return best;
}

Shape chosen_chunks(const CreateOptions& o) {
  if (!o.chunks.empty() || o.shape.empty()) return o.chunks;
  const std::size_t itemsize = std::max<std::size_t>(o.dtype.itemsize(), 1);
  if (o.shards.empty()) return auto_chunks(o.shape, itemsize);
  Shape chunks = auto_chunks(o.shards, itemsize);
  for (std::size_t d = 0; d < chunks.size(); ++d)
    chunks[d] = largest_divisor(o.shards[d], chunks[d]);
  return chunks;
}

CodecSpec serializer_for(const DType& dtype) {
  if (dtype.kind() == DType::Kind::string) return {"vlen-utf8", ""};
  if (dtype.kind() == DType::Kind::bytes) return {"vlen-bytes", ""};
  return dtype.swap_size() > 1 ? codec::bytes("little") : CodecSpec{"bytes", ""};
}

// The caller's codecs with the array -> bytes one put in when they leave it out.
std::vector<CodecSpec> complete_codecs(const std::vector<CodecSpec>& wanted, ChunkSpec chunk) {
  std::vector<CodecSpec> codecs;
  bool serialized = false;
  for (const CodecSpec& spec : wanted) {
    if (!serialized && is_sharding_codec(spec.name)) {
      serialized = true;  // the engine's part: it has no entry in the table
    } else if (!serialized) {
      const CodecPtr codec = resolve_codec(spec, {chunk, CodecPosition::before_bytes, nullptr}, {});
      if (codec->kind() == CodecKind::bytes_to_bytes) codecs.push_back(serializer_for(chunk.dtype));
      serialized = codec->kind() != CodecKind::array_to_array;
      chunk = codec->encoded_spec(chunk);
    }
    codecs.push_back(spec);
  }
  if (!serialized) codecs.push_back(serializer_for(chunk.dtype));
  return codecs;
}

std::vector<CodecSpec> chosen_codecs(const CreateOptions& o, const Shape& chunks) {
  std::vector<CodecSpec> wanted =
      o.codecs.value_or(std::vector{serializer_for(o.dtype), codec::zstd(3)});
  for (CodecSpec& spec : wanted)
    if (spec.name == "endian") spec.name = "bytes";  // as drafts of v3 say it
  if (o.zarr_format == 3) wanted = lower_to_v3(std::move(wanted));
  // v2's order "F" is v3's transpose with all dimensions reversed.
  if (o.order == 'F' && chunks.size() > 1) {
    std::vector<int> reversed(chunks.size());
    std::iota(reversed.rbegin(), reversed.rend(), 0);
    wanted.insert(wanted.begin(), codec::transpose(reversed));
  }
  ChunkSpec chunk;
  chunk.dtype = o.dtype;
  chunk.shape = chunks;
  return complete_codecs(wanted, std::move(chunk));
}

std::vector<std::byte> chosen_fill(const CreateOptions& o) {
  if (!o.fill_value) {
    return std::vector<std::byte>(o.dtype.variable_length() ? 0 : o.dtype.itemsize());
  }
  if (!o.dtype.variable_length() && o.fill_value->size() != o.dtype.itemsize()) {
    throw_invalid("fill_value: expected " + std::to_string(o.dtype.itemsize()) + " bytes of " +
                  o.dtype.to_string() + ", got " + std::to_string(o.fill_value->size()));
  }
  return *o.fill_value;
}

// Objects are what the first of the codecs for them says.
DType type_of_objects(const std::vector<CodecSpec>& codecs) {
  for (const CodecSpec& spec : codecs) {
    const std::string_view text = spec.configuration;
    const Json json = Json::parse(text.empty() ? "{}" : text, "codec \"" + spec.name + "\"");
    const auto type = v2_object_type(canonical_codec_name(spec.name), json);
    if (type) return *type;
  }
  throw_invalid(
      "dtype: objects may be strings, bytes or other values; name the type (\"string\", "
      "\"bytes\") or a codec for them");
}

}  // namespace

ArrayMetadata new_array_metadata(const CreateOptions& options) {
  CreateOptions o = options;
  if (o.dtype.kind() == DType::Kind::object)
    o.dtype = type_of_objects(o.codecs.value_or(std::vector<CodecSpec>()));
  check_format(o);
  check_shape(o);
  const std::size_t ndim = o.shape.size();
  const std::size_t itemsize = o.dtype.itemsize();
  if (itemsize == 0) {
    throw_invalid("dtype: " + o.dtype.to_string() + " has no bytes");
  }
  if (!o.shards.empty()) check_extents("shards", o.shards, ndim, itemsize);
  const std::vector<ChunkEdges> edges = chosen_edges(o);
  const Shape stored = edges.empty() ? o.shards : largest_extents(edges);
  const bool sharded = !o.shards.empty() || (!edges.empty() && !o.chunks.empty());
  const Shape chunks = !edges.empty() && !sharded ? stored : chosen_chunks(o);
  check_extents("chunks", chunks, ndim, itemsize);
  if (!edges.empty()) check_extents("chunks", stored, ndim, itemsize);

  ArrayMetadata m;
  m.zarr_format = o.zarr_format;
  m.shape = o.shape;
  m.chunk_shape = chunks;
  m.dtype = o.dtype;
  m.codecs = chosen_codecs(o, chunks);
  if (sharded) {
    check_multiples(edges.empty() ? regular_edges(stored) : edges, chunks);
    m.chunk_shape = stored;
    m.codecs = {codec::sharding(chunks, m.codecs)};
  }
  m.chunk_edges = edges;
  m.chunk_keys.default_prefix = o.zarr_format == 3 && !o.v2_chunk_keys;
  m.chunk_keys.separator = !o.dimension_separator.empty() ? o.dimension_separator[0]
                           : m.chunk_keys.default_prefix  ? '/'
                                                          : '.';
  if (o.null_fill_value) {
    if (o.zarr_format != 2) throw_invalid("fill_value: null is Zarr 2's");
    m.fill_value_json = "null";
  } else {
    m.fill_value = chosen_fill(o);
    m.fill_value_json = fill_value_to_json(o.dtype, *m.fill_value, o.zarr_format);
  }
  m.dimension_names = o.dimension_names;
  if (!o.attributes.empty()) m.attributes = checked_json_object(o.attributes, "attributes");

  // What is stored is what will be read: the documents are the truth, not the options.
  m = o.zarr_format == 3 ? parse_array_v3(write_array_v3(m))
                         : parse_array_v2(write_array_v2(m), m.attributes);
  make_layout(std::make_shared<const ArrayMetadata>(m), {}).chain.check_encodes();
  return m;
}

}  // namespace headrace
