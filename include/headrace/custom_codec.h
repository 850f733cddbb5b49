#pragma once

// Codecs that headrace lacks and the application has: derive from CustomCodec, and from
// CodecProvider, which makes them.
//  1. An array's metadata name a codec that is not in headrace's table.
//  2. The providers are asked to make it, in the order in which they were added.
//  3. The codec is called for every chunk. Where results go to a device, the host decodes.

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/codec.h"
#include "headrace/dtype.h"
#include "headrace/tensor.h"

#pragma GCC visibility push(default)
namespace headrace {

// The elements of a chunk, in C order.
struct CodecArray {
  DType dtype{};
  Shape shape{};
  std::vector<std::byte> fill_value{};  // one element, native; empty: zeros
};

// What a codec is prepared for.
struct CodecInput {
  bool is_array = true;  // it stands where the array is not bytes yet
  // What it is given on encode. Behind codecs whose output has no fixed size: uint8 of shape {0},
  // and it is given any number of bytes.
  CodecArray elements{};
  bool swapped = false;  // their bytes are not in native order
  CodecArray chunk{};    // what the codec that makes bytes of the array is given
};

struct CodecOutput {
  std::span<const std::byte> bytes{};
  std::shared_ptr<const void> owner{};  // keeps `bytes` where they are
};

// Any thread calls it, several at once. What it throws reaches the caller of the read or write; an
// Error is told with the names of array, chunk and codec.
class CustomCodec {
 public:
  enum class Kind { array_to_array, array_to_bytes, bytes_to_bytes };

  virtual ~CustomCodec() = default;
  virtual Kind kind() const = 0;
  virtual std::string implementation() const = 0;  // whose it is, for messages: "numcodecs"

  // What encode makes of the elements it is prepared for; only array_to_array is asked.
  virtual CodecArray encoded() const { return {}; }
  // Bytes after encode where they depend on the bytes before only; array_to_array is not asked.
  virtual std::optional<std::size_t> encoded_nbytes(std::size_t /*decoded_nbytes*/) const {
    return std::nullopt;
  }

  // Arrays are native elements in C order. The number of bytes is checked by the caller.
  virtual CodecOutput decode(std::span<const std::byte> encoded) const = 0;
  virtual CodecOutput encode(std::span<const std::byte> decoded) const = 0;
};

class CodecProvider {
 public:
  virtual ~CodecProvider() = default;
  // Null when it knows no such codec. Throws for a configuration that the codec does not take.
  virtual std::shared_ptr<const CustomCodec> make(const CodecSpec& spec,
                                                  const CodecInput& input) = 0;
  // For codec_table(): name and implementation of what make() knows.
  struct Entry {
    std::string codec;
    std::string implementation;
  };
  virtual std::vector<Entry> codecs() = 0;
};

// For good, and for all arrays that are opened from now on.
void add_codec_provider(std::shared_ptr<CodecProvider> provider);

}  // namespace headrace
#pragma GCC visibility pop
