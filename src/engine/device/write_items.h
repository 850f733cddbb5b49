#pragma once

// What a write from a device is made of, on its way from the device to the store: items that go
// through the device in slabs (write_slab.h), and the objects that are stored of them.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/bytes.h"
#include "engine/layout/array_layout.h"
#include "engine/query/cut.h"
#include "engine/write/shard_writer.h"

namespace headrace {

// Who encodes what is written.
enum class EncodedBy : std::uint8_t { host, device };

// A piece of pinned memory, of a block that others have pieces of.
using Pinned = std::shared_ptr<std::byte>;

// Of an object that reaches over the edge of the array: where it is found once more. Others who
// have grown the array may write there.
struct AtEdge {
  const BoxCut* cut = nullptr;
  std::size_t position = 0;
  Shape valid{};
};
using EdgePlace = std::optional<AtEdge>;

// One that is written whole; its inner chunks come one by one.
struct WholeShard {
  WholeShard(
      Box b, const ShardLevel& level, std::string k, EdgePlace edge, std::size_t inner_nbytes)
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
    Buffer buffer{};                      // that the bytes lie in
    Pinned pinned{};                      // or that
  };

  const Box box;
  const BoxCut cut;
  const std::string key;
  const EdgePlace at_edge;
  const std::size_t nbytes;  // decoded
  PlainShard bytes;
  std::vector<Chunk> chunks;  // by their turns
  std::atomic<std::size_t> left;
  std::size_t encoded_nbytes = 0;  // so far
};

// A chunk that the device encodes, or the elements for a stored object that the host does.
struct WriteItem {
  const std::string& object_key() const { return shard ? shard->key : key; }

  Box box;  // borrows from the writer's cut, or the shard's
  std::string key;
  Shape valid;
  EncodedBy encoder = EncodedBy::device;
  EdgePlace at_edge{};
  std::shared_ptr<WholeShard> shard;  // of an inner chunk
  std::size_t turn = 0;
  std::int64_t inner = 0;

  std::uint8_t* device = nullptr;  // decoded
  Pinned pinned;                   // elements, or what the host finishes
  std::size_t nbytes = 0;          // there
};

// What was encoded and is to be stored. Its bytes lie in what it holds.
struct EncodedObject {
  std::string key;
  EdgePlace at_edge{};
  std::vector<ConstBytes> parts{};  // none: the object is erased
  Buffer buffer{};
  Pinned pinned{};
  std::shared_ptr<const WholeShard> shard{};

  std::uint64_t nbytes() const {
    std::uint64_t sum = 0;
    for (const ConstBytes part : parts) sum += part.size();
    return sum;
  }
};

}  // namespace headrace
