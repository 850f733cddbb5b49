#pragma once

#include <concepts>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/tensor.h"

#pragma GCC visibility push(default)
namespace headrace {

// A codec as metadata names it: {"name": "zstd", "configuration": {"level": 3}}. The configuration
// is kept as JSON text so that no JSON type shows here; empty means none.
struct CodecSpec {
  std::string name;
  std::string configuration;
  friend bool operator==(const CodecSpec&, const CodecSpec&) = default;
};

// Codec name -> implementation name: {"zstd": "libzstd"}. Names not in the map take the first
// available implementation of the table.
using Implementations = std::map<std::string, std::string, std::less<>>;

namespace codec {

CodecSpec bytes(std::string_view endian = "little");
CodecSpec transpose(const std::vector<int>& order);
CodecSpec zstd(int level = 3, bool checksum = false);
CodecSpec gzip(int level = 5);
CodecSpec zlib(int level = 1);
CodecSpec lz4(int acceleration = 1);
CodecSpec blosc(std::string_view cname = "lz4",
                int clevel = 5,
                std::string_view shuffle = "shuffle",
                int typesize = 0,  // 0: the array's item size
                int blocksize = 0);
CodecSpec crc32c();
CodecSpec sharding(const Shape& chunk_shape,
                   const std::vector<CodecSpec>& codecs,
                   const std::vector<CodecSpec>& index_codecs = {bytes(), crc32c()},
                   std::string_view index_location = "end");

}  // namespace codec

// One row of the table of implementations, in order of preference.
struct CodecInfo {
  std::string codec;           // "zstd"
  std::string implementation;  // "libzstd"
  std::string device;          // "cpu", "cuda"
  bool available = true;
  std::string why_not;         // when it is not available
  std::string used;            // for what, when nobody asks for it by name: to decode
  bool encodes = true;         // as well
  std::string used_to_encode;  // as `used`; empty when it only decodes
};
std::vector<CodecInfo> codec_table();

struct BatchOptions {
  Device device{};               // where to decode or encode; cpu: by the host's threads
  Stream stream{};               // what it was given before may still write the buffers
  std::string implementation{};  // empty: as configured, else the one that takes the least time
  std::string configuration{};   // JSON text, as in CodecSpec
  // Kept as long as `stream` is used: until new memory that goes back behind it has gone. Null: the
  // stream lives as long as such memory, and where that goes during a capture, until the next read
  // to the device, or write from it, after that.
  std::shared_ptr<void> stream_owner{};
};

// The buffers of a batch: contiguous views, or consecutive pieces of one, for which thousands of
// views need not be made.
class BatchViews {
 public:
  // Borrows them.
  template <typename Views>
  requires std::convertible_to<const Views&, std::span<const TensorView>> BatchViews(
      const Views& views)
      : views_(views) {}
  // The bytes of `all` from offsets[i] to offsets[i + 1]. `invalid_argument` where these fall or
  // end behind it, and where it is not contiguous.
  BatchViews(TensorView all, std::vector<std::size_t> offsets);

  std::size_t size() const;
  bool empty() const { return size() == 0; }

  std::span<const TensorView> views() const { return views_; }  // empty: pieces of all()
  const TensorView& all() const { return all_; }
  const std::vector<std::size_t>& offsets() const { return offsets_; }

 private:
  std::span<const TensorView> views_{};
  TensorView all_{};
  std::vector<std::size_t> offsets_{};
};

// Decodes inputs[i] into outputs[i], whose size must be the decoded size; done when it returns.
// `corrupt` names the index of a bad input; what the outputs hold then is unspecified.
void decode_batch(std::string_view codec,
                  std::span<const std::span<const std::byte>> inputs,
                  std::span<const std::span<std::byte>> outputs,
                  const BatchOptions& options = {});

// The same for contiguous memory of the host and of one device, in any mix. Bytes count, whatever
// shape and type the views give them.
void decode_batch(std::string_view codec,
                  const BatchViews& inputs,
                  const BatchViews& outputs,
                  const BatchOptions& options = {});

// Into new memory of uint8 on `options.device`, `nbytes[i]` for inputs[i].
std::vector<Tensor> decode_batch(std::string_view codec,
                                 const BatchViews& inputs,
                                 std::span<const std::size_t> nbytes,
                                 const BatchOptions& options = {});

// The same, but what a device decodes is only queued when this returns:
//  - behind what `options.stream` (none: the default stream) was given before, and what that stream
//    is given later comes behind it; the host waits for neither;
//  - errors of the decode are thrown by Ready::wait(), which the tensors have, too. What outputs
//    hold after an error is unspecified. Wrong arguments, input that is seen to be wrong by its
//    size, and what is found while the call waits, throw at once, when the device is done with the
//    outputs and with what is kept;
//  - inputs in host memory are copied; `keep_alive` is held until the work is done: inputs and
//    outputs of the device, say. `options.stream_owner` is, as long as new tensors.
// Plans, copies of inputs in host memory and their headers are the call's own work, which for
// thousands of small chunks takes nearly as long as their decode.
// Done when it returns is what the host decodes, and what goes to host memory. It waits for the
// device where a batch is larger than three slabs (device_slab_nbytes), and where it must read
// headers of inputs that lie there: of zstd, blosc and lz4. `unsupported` while the stream is being
// captured into a graph.
[[nodiscard]] Ready decode_batch_async(std::string_view codec,
                                       const BatchViews& inputs,
                                       const BatchViews& outputs,
                                       std::shared_ptr<void> keep_alive,
                                       const BatchOptions& options = {});
[[nodiscard]] std::vector<Tensor> decode_batch_async(std::string_view codec,
                                                     const BatchViews& inputs,
                                                     std::span<const std::size_t> nbytes,
                                                     std::shared_ptr<void> keep_alive,
                                                     const BatchOptions& options = {});

// Encodes each input, by the host's threads: `options.device` does not count.
std::vector<std::vector<std::byte>> encode_batch(std::string_view codec,
                                                 std::span<const std::span<const std::byte>> inputs,
                                                 const BatchOptions& options = {});

// The same for memory of the host and of one device, into new memory of uint8 on `options.device`.
// That device encodes inputs that all lie there, to zstd up to level 3, lz4, blosc with lz4, blosc
// with zstd up to clevel 2, shuffle and bitshuffle, when they have device_min_decode_nbytes (where
// not configured, 1 MiB) together; everything else, the host. An implementation that is asked for
// does it wherever they lie; `unsupported` when it cannot, as nvCOMP, which only decodes here.
std::vector<Tensor> encode_batch(std::string_view codec,
                                 const BatchViews& inputs,
                                 const BatchOptions& options = {});

}  // namespace headrace
#pragma GCC visibility pop
