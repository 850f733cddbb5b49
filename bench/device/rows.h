#pragma once

// What the device benchmarks decode: a codec, data and the shape of a batch.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kernels/kernels.h"

namespace headrace {

using Bytes = std::vector<std::uint8_t>;

struct Codec {
  std::string name;
  Decode Kernels::*decode;
  std::function<Bytes(const Bytes&)> encode;
};
const std::map<std::string, Codec>& codecs();

// How many chunks, of how many KiB.
using Shape = std::pair<std::size_t, std::size_t>;

struct Row {
  std::string codec, data;
  std::size_t count, nbytes;
  std::string name() const;
};

// The file of float32 values.
class Field {
 public:
  explicit Field(const std::string& path);

  std::size_t distinct(std::size_t nbytes) const;
  // `data`: "packed", the values; "full", with noise in the bits that packing left empty;
  // "shuffled", the bytes of the values in planes.
  Bytes chunk(const std::string& data, std::size_t index, std::size_t nbytes) const;

 private:
  Bytes bytes_;
};

// A row's chunks in device memory.
class Inputs {
 public:
  Inputs(const Row& row, const Field& field, Queue& queue);

  const std::vector<Bytes>& encoded() const { return encoded_; }  // the distinct ones
  double ratio() const { return ratio_; }
  DecodeBatch batch() const { return {frames_, host_, faults_.data()}; }
  // After a decode: how many chunks have a fault or are not what was encoded.
  std::size_t wrong(Queue& queue) const;

 private:
  Row row_;
  std::vector<Bytes> originals_, encoded_;
  double ratio_ = 0;
  Scratch<std::uint8_t> sources_, targets_;
  Scratch<std::uint32_t> faults_;
  std::vector<Frame> frames_;
  std::vector<const std::uint8_t*> host_;
};

}  // namespace headrace
