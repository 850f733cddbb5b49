// sharding_indexed: array -> bytes, inner chunks and an index of where they lie.
// The engine reads and writes plain shards by ranges; this codec serves the chains it does not:
// with codecs before or after the shard, and shards within shards.
// Spec: https://zarr-specs.readthedocs.io/en/latest/v3/codecs/sharding-indexed/index.html
// {"name": "sharding_indexed", "configuration": {"chunk_shape": [32, 32],
//  "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "zstd"}],
//  "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
//  "index_location": "end"}}

#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "base/thread_pool.h"
#include "codec/chain.h"
#include "codec/codecs.h"
#include "codec/config.h"
#include "codec/scratch.h"
#include "codec/shard_index.h"
#include "codec/sizes.h"
#include "codec/vlen.h"

namespace headrace {
namespace {

// Rows of an inner chunk, with their places in the shard. Both are dense and in C order.
class InnerChunk {
 public:
  InnerChunk(const Shape& shard, const Shape& inner, std::size_t itemsize)
      : inner_(inner), strides_(shard.size()) {
    std::size_t stride = itemsize;
    for (std::size_t d = shard.size(); d-- > 0;) {
      strides_[d] = stride;
      stride *= static_cast<std::size_t>(shard[d]);
    }
    row_nbytes_ = itemsize;
    if (!inner.empty()) row_nbytes_ *= static_cast<std::size_t>(inner.back());
    for (std::size_t d = 0; d + 1 < inner.size(); ++d)
      n_rows_ *= static_cast<std::size_t>(inner[d]);
  }

  std::size_t row_nbytes() const { return row_nbytes_; }

  // visit(offset in the shard, offset in the inner chunk) for each row.
  template <typename Visit>
  void for_each_row(std::size_t shard_offset, Visit visit) const {
    std::vector<std::int64_t> at(inner_.size(), 0);
    for (std::size_t row = 0; row < n_rows_; ++row) {
      visit(shard_offset, row * row_nbytes_);
      for (std::size_t d = inner_.size() - std::min<std::size_t>(inner_.size(), 1); d-- > 0;) {
        shard_offset += strides_[d];
        if (++at[d] < inner_[d]) break;
        shard_offset -= strides_[d] * static_cast<std::size_t>(inner_[d]);
        at[d] = 0;
      }
    }
  }

  // Offset in the shard of inner chunk i of a grid.
  std::size_t offset(std::int64_t i, const Shape& grid) const {
    std::size_t offset = 0;
    for (std::size_t d = grid.size(); d-- > 0;) {
      offset += static_cast<std::size_t>(i % grid[d] * inner_[d]) * strides_[d];
      i /= grid[d];
    }
    return offset;
  }

 private:
  const Shape& inner_;
  std::vector<std::size_t> strides_;
  std::size_t row_nbytes_;
  std::size_t n_rows_ = 1;
};

struct ShardingParameters {
  Shape chunk_shape;
  Shape grid;
  bool index_at_end = true;
};

class Sharding final : public Codec {
 public:
  Sharding(const ChunkSpec& in, ShardingParameters parameters, CodecChain inner, CodecChain index)
      : spec_(in),
        parameters_(std::move(parameters)),
        inner_(std::move(inner)),
        index_(std::move(index)),
        rows_(spec_.shape, parameters_.chunk_shape, spec_.dtype.itemsize()) {
    fill_.resize(inner_.decoded_nbytes());
    if (spec_.fill && !spec_.fill->empty()) {
      for (std::size_t i = 0; i < fill_.size(); ++i)
        fill_[i] = (*spec_.fill)[i % spec_.fill->size()];
    }
  }

  CodecKind kind() const override { return CodecKind::array_to_bytes; }
  std::string_view name() const override { return "sharding_indexed"; }
  std::string_view implementation() const override { return "headrace"; }
  EncodedNbytes encoded_nbytes(std::size_t) const override {
    // Gaps and incompressible inner chunks: other writers may leave both.
    if (spec_.dtype.variable_length()) return EncodedNbytes::at_most(kAnyNbytes);
    const std::size_t nbytes = checked_mul<std::size_t>(spec_.nbytes(), 2, "shard size");
    return EncodedNbytes::at_most(nbytes + shard_index_nbytes(index_) + 1024 * count());
  }

  void decode(ConstBytes src, MutableBytes dst, const DecodeContext& context) const override;

  void encode(ConstBytes src, Buffer& dst) const override;

 private:
  std::size_t count() const { return index_.decoded_nbytes() / 16; }
  bool is_fill(ConstBytes chunk) const {
    if (!spec_.dtype.variable_length()) return std::ranges::equal(chunk, fill_);
    return all_equal(chunk, ConstBytes(fill_).first(spec_.dtype.itemsize()));
  }

  ChunkSpec spec_;
  ShardingParameters parameters_;
  CodecChain inner_;
  CodecChain index_;
  InnerChunk rows_;
  std::vector<std::byte> fill_;  // an inner chunk of it
};

void Sharding::decode(ConstBytes src, MutableBytes dst, const DecodeContext& context) const {
  check_decoded_size(dst.size(), spec_.nbytes());
  const std::size_t index_nbytes = shard_index_nbytes(index_);
  if (src.size() < index_nbytes) {
    throw_corrupt("an index of " + std::to_string(index_nbytes) + " bytes does not fit into " +
                  std::to_string(src.size()));
  }
  const ConstBytes encoded_index =
      parameters_.index_at_end ? src.last(index_nbytes) : src.first(index_nbytes);
  const ShardIndex index = decode_shard_index(encoded_index, index_, src.size());
  const auto decode_one = [&](std::size_t position) {
    const auto i = static_cast<std::int64_t>(position);
    const std::byte* plain = fill_.data();
    std::optional<Scratch> scratch;
    if (index.has(i)) {
      scratch.emplace(inner_.decoded_nbytes());
      try {
        const auto [offset, nbytes] = index.range(i);
        inner_.decode(src.subspan(offset, nbytes), scratch->bytes(), {1, context.arena});
      } catch (const Error& e) {
        throw e.with_context("inner chunk " + std::to_string(i));
      }
      plain = scratch->data();
    }
    rows_.for_each_row(rows_.offset(i, parameters_.grid), [&](std::size_t to, std::size_t from) {
      std::memcpy(dst.data() + to, plain + from, rows_.row_nbytes());
    });
  };
  if (!dst.empty()) parallel_for(count(), decode_one, std::max(context.threads, 1));
}

// Inner chunks of nothing but the fill value are left out, as every writer does.
void Sharding::encode(ConstBytes src, Buffer& dst) const {
  check_decoded_size(spec_.nbytes(), src.size());
  const std::size_t index_nbytes = shard_index_nbytes(index_);
  ShardIndex index = ShardIndex::empty(static_cast<std::int64_t>(count()));
  Scratch plain(inner_.decoded_nbytes());
  Scratch encoded;
  dst.resize(parameters_.index_at_end ? 0 : index_nbytes);
  for (std::int64_t i = 0; i < index.count && !src.empty(); ++i) {
    rows_.for_each_row(rows_.offset(i, parameters_.grid), [&](std::size_t from, std::size_t to) {
      std::memcpy(plain.data() + to, src.data() + from, rows_.row_nbytes());
    });
    if (is_fill(plain.bytes())) continue;
    inner_.encode(plain.bytes(), *encoded);
    index.set(i, dst.size(), encoded->size());
    dst.append(encoded.bytes());
  }
  encode_shard_index(index, index_, *encoded);
  if (parameters_.index_at_end) {
    dst.append(encoded.bytes());
  } else {
    std::memcpy(dst.data(), encoded.data(), index_nbytes);
  }
}

}  // namespace

CodecPtr make_sharding(const CodecSpec& spec, const CodecSite& site) {
  CodecConfig config(spec);
  ShardingParameters parameters;
  parameters.chunk_shape = config.integers("chunk_shape");
  const Shape& shape = site.in.shape;
  const Shape& inner = parameters.chunk_shape;
  if (inner.size() != shape.size()) {
    config.fail("chunk_shape", "must have " + std::to_string(shape.size()) + " dimensions");
  }
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (inner[d] < 1 || shape[d] % inner[d] != 0) {
      config.fail("chunk_shape",
                  "has an extent of " + std::to_string(inner[d]) + ", which does not divide " +
                      std::to_string(shape[d]));
    }
    parameters.grid.push_back(shape[d] / inner[d]);
  }
  const std::string location = config.string("index_location", "end");
  if (location != "start" && location != "end") {
    config.fail("index_location", "must be \"start\" or \"end\", got \"" + location + "\"");
  }
  parameters.index_at_end = location == "end";
  const std::vector<CodecSpec> codecs = config.codecs("codecs");
  const std::vector<CodecSpec> index_codecs = config.codecs("index_codecs");
  config.finish();
  static const Implementations kFirst;
  const Implementations& implementations = site.implementations ? *site.implementations : kFirst;
  CodecChain inner_chain(codecs, {site.in.dtype, inner, site.in.fill}, implementations);
  CodecChain index_chain = shard_index_chain(index_codecs, parameters.grid, implementations);
  return std::make_shared<Sharding>(
      site.in, std::move(parameters), std::move(inner_chain), std::move(index_chain));
}

}  // namespace headrace
