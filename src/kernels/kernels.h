#pragma once

// The device code as seen from outside: one table of functions for the GPU and one for the host run
// of the same kernels. Every function gives work to a queue and returns; it never waits for the
// device unless it says so.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "simt/queue.h"

namespace headrace {

// What a decoder found wrong with a chunk. The first one counts.
enum class Fault : std::uint32_t {
  none,
  truncated,    // ends before its format says
  malformed,    // breaks its format
  wrong_size,   // decodes to another size than wanted
  checksum,     // fails its checksum
  unsupported,  // valid, but nobody writes it into arrays: a dictionary, say
};

// Encoded bytes and where their decoded bytes go, in device memory.
//
// Kernels load words, so the bytes from `source` rounded down to 16 up to its end rounded up to 16,
// and 16 more, must be readable; what they hold never matters. Nothing outside `target` is written.
struct Frame {
  const std::uint8_t* source = nullptr;
  std::uint64_t source_nbytes = 0;
  std::uint8_t* target = nullptr;
  std::uint64_t target_nbytes = 0;  // exactly what must come out
  std::uint32_t chunk = 0;          // whose fault it is: index into DecodeBatch::faults
};
inline constexpr std::size_t kSourcePadding = 32;

// What a decoder has to know of encoded bytes before the device works on them, read on the host
// while the bytes are in its cache.
class Headers {
 public:
  Headers() = default;
  virtual ~Headers() = default;
  Headers(const Headers&) = delete;
  Headers& operator=(const Headers&) = delete;
};
// Of the source of a Frame. Never fails: what is wrong is raised by the decoder.
using ReadHeaders = std::unique_ptr<const Headers> (*)(const std::uint8_t* source,
                                                       std::uint64_t source_nbytes,
                                                       std::uint64_t target_nbytes);

struct DecodeBatch {
  std::span<const Frame> frames{};  // host memory, needed until the call returns
  // The same encoded bytes in host memory, when they are there: spares a round trip for headers.
  // Empty otherwise.
  std::span<const std::uint8_t* const> host_sources{};
  // Fault of each chunk, device memory; zeros before the first call.
  std::uint32_t* faults = nullptr;
  // What comes out are planes of bytes or bits, which a filter makes elements of: for LZ codecs
  // another way is then faster.
  bool planes = false;
  // In place of host_sources, what ReadHeaders of the same table has read in each source.
  std::span<const Headers* const> headers{};
};

using Decode = void (*)(Queue&, const DecodeBatch&);

// The size that frames[i] gets goes to encoded_nbytes[chunk]. A target that is too small for it is
// Fault::wrong_size, and its contents are not to be used.
struct EncodeBatch {
  std::span<const Frame> frames{};
  std::uint64_t* encoded_nbytes = nullptr;  // device memory
  std::uint32_t* faults = nullptr;
};

using Encode = void (*)(Queue&, const EncodeBatch&);

// Frames with the size of their content, of blocks that are decoded side by side: a few chunks of
// smaller ones are decoded sooner.
struct ZstdFormat {
  std::uint32_t block_nbytes = 64 * 1024;  // at most; from 1 KiB to 128
  bool checksum = false;
};

// Of 4 bytes; src/codec/hashes.h computes the same on the host.
enum class Checksum : std::uint8_t { crc32c, crc32, adler32, fletcher32 };

// The container of blosc 1, laid out as c-blosc lays it out.
struct BloscFormat {
  enum class Inner : std::uint8_t { lz4, zstd };
  enum class Filter : std::uint8_t { none, shuffle, bit_shuffle };
  Inner inner = Inner::lz4;
  Filter filter = Filter::shuffle;
  std::uint32_t typesize = 1;   // up to 255
  std::uint32_t clevel = 5;     // larger blocks from 0, nothing compressed, to 9; no other effect
  std::uint32_t blocksize = 0;  // 0: by clevel and typesize
};

// Filters give as many bytes as they take. `itemsize`: bytes of an element.
struct FilterBatch {
  std::span<const Frame> frames{};
  std::uint32_t itemsize = 1;
};

// Elements of the typed filters, as src/codec/elements.h has them; bfloat16 only of gathers.
enum class Number : std::uint8_t {
  boolean,
  int8,
  int16,
  int32,
  int64,
  uint8,
  uint16,
  uint32,
  uint64,
  float16,
  float32,
  float64,
  bfloat16,
};
struct NumberFormat {
  Number type = Number::uint8;
  bool swapped = false;  // in the other byte order
};
struct NumberConversion {
  NumberFormat encoded, decoded;
  double scale = 1, offset = 0;  // of fixedscaleoffset
};

inline constexpr unsigned kMaxAxes = 8;

// One side of an axis: element i lies at index[i] * stride, or i * stride without a list. Bytes.
struct Steps {
  std::int64_t stride = 0;
  const std::int64_t* index = nullptr;  // device memory
};

// Elements of one chunk and where they go: the outer product of the axes.
struct Placement {
  const std::uint8_t* source = nullptr;
  std::uint8_t* target = nullptr;
  std::int64_t count[kMaxAxes] = {};
  Steps from[kMaxAxes] = {};
  Steps to[kMaxAxes] = {};
};

// A fill value is a source of one element with strides of zero.
struct PlaceBatch {
  std::span<const Placement> placements{};  // host memory, needed until the call returns
  unsigned axes = 0;                        // of each placement, at most kMaxAxes
  std::uint32_t itemsize = 1;
  std::uint32_t swap_nbytes = 0;  // reverse each group of so many bytes; 0: none
};

// Elements of decoded chunks on their way into a batch of samples: (value - mean) / std of each,
// and `nan_fill` in place of NaNs then. Computed in double for sources of float64 and of integers
// of 32 bits and more, and for targets of float64; else in float.
struct GatherFormat {
  Number from = Number::float32;
  Number to = Number::float32;  // a floating one
  std::optional<double> nan_fill{};
};

// The outer product of the axes; bytes from one element of an axis to the next. Elements are
// aligned.
struct GatherBox {
  const std::uint8_t* source = nullptr;
  std::uint8_t* target = nullptr;
  std::int64_t count[kMaxAxes] = {};
  std::int64_t from[kMaxAxes] = {};
  std::int64_t to[kMaxAxes] = {};
  double mean = 0, std = 1;
};

struct GatherBatch {
  std::span<const GatherBox> boxes{};  // host memory, needed until the call returns
  unsigned axes = 0;                   // of each box, at most kMaxAxes
  GatherFormat format{};
};

// A matrix of which rows are gathered. Elements are aligned.
struct RowMatrix {
  Number data = Number::float32;
  Number indices = Number::int32;     // an integer; of a sparse matrix
  bool sparse = true;                 // else a row has an element for each column
  bool sorts = false, joins = false;  // the map changes the order; has two columns at one place
  std::uint64_t columns = 0;          // below 2^31
  const std::int32_t* map = nullptr;  // column of the batch for each, or -1; null: the same
  // Elements are converted from `data` to `compute` where they are loaded and scaled, or when these
  // are not the same, then summed, then converted to `to`. Scaled are float32 and float64.
  Number compute = Number::float32, to = Number::float32;
  bool loads = false;
};

struct BatchRow {
  const std::uint8_t* data = nullptr;
  const std::uint8_t* indices = nullptr;
  std::uint64_t count = 0;   // elements of the row
  std::uint64_t first = 0;   // of the batch, to which the row's first one goes
  std::uint64_t wanted = 0;  // elements of the batch that it has; of CSR
  std::uint32_t matrix = 0;
};

// Each element of a row is divided by (sum of the row / total), by 1 where the sum is 0; then log1p
// of it. The sum is that of row_values.h of the loader: in double, in eight lanes.
struct RowScale {
  bool scales = false;  // else nothing of this
  bool totals = false, log1p = false;
  double total = 1;
};

// What kernels found, in device memory; before the first call all bits of `corrupt` and `unequal`
// are set and `again` is 0.
struct RowFaults {
  std::uint32_t corrupt;  // the first row of the batch with a column outside of its matrix
  std::uint32_t unequal;  // the first row that has other elements than are wanted
  std::uint32_t again;    // rows that gather_rows_dense left to sum_rows_dense
};

struct RowBatch {
  std::span<const RowMatrix> matrices{};  // host memory, needed until the call returns
  std::span<const BatchRow> rows{};       // the same; fewer than 2^31
  RowScale scale{};
  std::uint64_t columns = 0;  // of a dense batch
  std::uint8_t* data = nullptr;
  std::int32_t* indices = nullptr;
  RowFaults* faults = nullptr;
};

// Of variable length: where its bytes lie, in device memory. Laid out as VlenElement is.
struct RaggedElement {
  const std::uint8_t* data;
  std::uint64_t nbytes;
};

// What elements are; a chunk with others is malformed.
struct RaggedFormat {
  std::uint32_t unit = 1;  // of a multiple of so many bytes
  bool utf8 = false;
};

// Elements that are packed one behind the other; all in device memory.
struct RaggedBatch {
  const RaggedElement* elements = nullptr;
  std::uint64_t count = 0;
  std::uint32_t unit = 1;
  std::int64_t* offsets = nullptr;  // count + 1: where each begins, in units, and the end
};

using Filter = void (*)(Queue&, const FilterBatch&);
using TypedDecode = void (*)(Queue&, const DecodeBatch&, const NumberConversion&);

// Compressors take and give bytes. Without host_sources or headers a call may wait for the device
// once, blosc two times more: for headers and for the sizes of streams.
struct Kernels {
  Decode zstd = nullptr;     // one frame or several, skippable ones too (RFC 8878)
  Decode lz4 = nullptr;      // one block, no framing
  Decode snappy = nullptr;   // raw
  Decode blosclz = nullptr;  // one stream of blosc 1
  Decode deflate = nullptr;  // RFC 1951
  Decode zlib = nullptr;     // RFC 1950
  Decode gzip = nullptr;     // RFC 1952, several members too
  Decode blosc = nullptr;    // blosc 1 container with any of these inside

  // Null for decoders that ask for nothing before.
  ReadHeaders zstd_headers = nullptr;
  ReadHeaders blosc_headers = nullptr;

  // At most n + n / 255 + 16 bytes: one block, no framing.
  Encode lz4_encode = nullptr;
  // At most 18 bytes, and 3 a block begun, more than go in. As small as libzstd's level 1.
  void (*zstd_encode)(Queue&, const EncodeBatch&, const ZstdFormat&) = nullptr;
  // At most 16 bytes more than go in.
  void (*blosc_encode)(Queue&, const EncodeBatch&, const BloscFormat&) = nullptr;

  // Compares the checksum in the first or last 4 bytes of each source, little-endian, with that of
  // the other bytes. A target gets those; without one (null) they are only checked.
  void (*verify)(Queue&, Checksum, bool at_start, const DecodeBatch&) = nullptr;

  Filter unshuffle = nullptr;      // bytes; what is beyond whole elements is copied
  Filter shuffle = nullptr;        // its inverse
  Filter bit_unshuffle = nullptr;  // bits, as the bitshuffle library; beyond 8 elements copied
  Filter bit_shuffle = nullptr;    // its inverse
  Filter swap_bytes = nullptr;     // the bytes of each element; source may be target

  // Of numcodecs, with the results of src/codec bit for bit.
  TypedDecode delta = nullptr;
  TypedDecode fixed_scale_offset = nullptr;
  TypedDecode cast = nullptr;  // astype and quantize
  Decode packbits = nullptr;

  // vlen-utf8 and its like: to a target, as RaggedElement, where in the source its elements lie,
  // which is to be kept as long as these.
  void (*parse_ragged)(Queue&, const DecodeBatch&, const RaggedFormat&) = nullptr;
  void (*ragged_offsets)(Queue&, const RaggedBatch&) = nullptr;
  // By their offsets, to `nbytes` of memory that is aligned to 16.
  void (*ragged_values)(Queue&,
                        const RaggedBatch&,
                        std::uint8_t* values,
                        std::uint64_t nbytes) = nullptr;

  void (*place)(Queue&, const PlaceBatch&) = nullptr;
  // target_nbytes of each source to its target: what `place` does too, for less of the host's time.
  void (*copy)(Queue&, std::span<const Frame>) = nullptr;
  void (*gather)(Queue&, const GatherBatch&) = nullptr;

  // How many elements a CSR batch has of each row, to device memory. A dense matrix gives those
  // that are not zero.
  void (*count_rows)(Queue&, const RowBatch&, std::uint64_t* counts) = nullptr;
  // To CSR, in the order of the row or, where the map sorts, of columns. Nothing is written beyond
  // what is wanted of each row.
  void (*gather_rows)(Queue&, const RowBatch&) = nullptr;
  // To a matrix of rows by columns. Rows whose columns do not ascend, or of which a map joins some,
  // may have elements to sum: those are not written, but their numbers are put into `again`, device
  // memory of a word a row, in any order.
  void (*gather_rows_dense)(Queue&, const RowBatch&, std::uint32_t* again) = nullptr;
  // The rows that `again` names, `count` of them: elements of a column are added in the order of
  // the row.
  void (*sum_rows_dense)(Queue&,
                         const RowBatch&,
                         const std::uint32_t* again,
                         std::size_t count) = nullptr;
};

const Kernels& host_kernels();
// All null in a build without CUDA.
const Kernels& gpu_kernels();
// A queue of its own on CUDA device `device`; null when there is no such device.
std::unique_ptr<Queue> make_gpu_queue(int device);

}  // namespace headrace
