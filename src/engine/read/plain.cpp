#include "engine/read/plain.h"

#include <algorithm>

#include "codec/scratch.h"
#include "engine/fetch/plan.h"
#include "headrace/error.h"

namespace headrace {
namespace {

constexpr std::size_t kWindow = kCachedNbytes;
constexpr std::size_t kDirectUnit = 512;  // shorter units cost more as scattered reads than a copy
constexpr std::size_t kGap = 4 << 10;     // a gap shorter than a page is read through
constexpr std::size_t kScatterBatch = 512;

// Long units: each straight to its place, neighbours in one system call.
void read_units(const ObjectReader& reader, std::uint64_t base, const ChunkSink& sink) {
  std::vector<MutableBytes> batch;
  std::size_t start = 0;
  std::size_t stop = 0;
  auto flush = [&] {
    if (!batch.empty()) reader.read_scattered(base + start, batch);
    batch.clear();
  };
  sink.for_each_unit([&](std::size_t offset, std::size_t nbytes, std::byte* user) {
    if (offset != stop || batch.size() == kScatterBatch) {
      flush();
      start = offset;
    }
    batch.emplace_back(user, nbytes);
    stop = offset + nbytes;
  });
  flush();
}

void read_window(const ObjectReader& reader,
                 std::uint64_t base,
                 std::size_t offset,
                 std::size_t nbytes,
                 ChunkSink& sink) {
  Scratch window(nbytes);
  reader.read(base + offset, window.bytes());
  sink.put(offset, window.bytes());
}

// Short units far apart: each with its near neighbours.
void read_sparse(const ObjectReader& reader, std::uint64_t base, ChunkSink& sink) {
  std::size_t start = 0;
  std::size_t stop = 0;
  auto flush = [&] {
    if (stop > start) read_window(reader, base, start, stop - start, sink);
  };
  sink.for_each_unit([&](std::size_t offset, std::size_t nbytes, std::byte*) {
    if (stop == start || offset > stop + kGap || offset + nbytes - start > kWindow) {
      flush();
      start = offset;
    }
    stop = offset + nbytes;
  });
  flush();
}

}  // namespace

void check_plain_size(const CodecChain& chain, std::uint64_t nbytes) {
  if (nbytes != chain.decoded_nbytes()) {
    throw Error(ErrorCode::corrupt,
                "codec bytes: expected " + std::to_string(chain.decoded_nbytes()) + " bytes, got " +
                    std::to_string(nbytes));
  }
}

std::vector<ByteRange> plain_ranges(const ChunkSink& sink, const Coalescing& near) {
  std::vector<ByteRange> ranges;
  std::uint64_t end = 0;  // of the last one
  sink.for_each_unit([&](std::size_t offset, std::size_t nbytes, std::byte*) {
    const std::uint64_t unit_end = std::uint64_t{offset} + nbytes;
    if (!ranges.empty() && offset <= end + near.gap) {
      ByteRange& last = ranges.back();
      const std::uint64_t joined = std::max(end, unit_end);
      if (joined - last.offset <= near.run || joined == end) {
        end = joined;
        last.nbytes = end - last.offset;
        return;
      }
    }
    ranges.push_back({offset, nbytes});
    end = unit_end;
  });
  return ranges;
}

void read_plain(const ObjectReader& reader,
                std::uint64_t base,
                std::size_t nbytes,
                ChunkSink& sink) {
  if (const ConstBytes mapped = reader.mapped(); !mapped.empty()) {
    sink.scatter(mapped.subspan(base, nbytes).data());
    return;
  }
  if (!sink.ordered()) {
    Scratch chunk(nbytes);
    reader.read(base, chunk.bytes());
    sink.scatter(chunk.data());
    return;
  }
  const std::size_t begin = sink.begin();
  const std::size_t span = sink.end() - begin;
  if (std::byte* direct = sink.direct(begin, span)) {
    reader.read(base + begin, {direct, span});
  } else if (sink.unit_nbytes() >= kDirectUnit) {
    read_units(reader, base, sink);
  } else if (span > kWindow / 4 && sink.wanted_nbytes() < span / 8) {
    read_sparse(reader, base, sink);
  } else {
    for (std::size_t at = begin; at < sink.end(); at += kWindow) {
      read_window(reader, base, at, std::min(kWindow, sink.end() - at), sink);
    }
  }
}

}  // namespace headrace
