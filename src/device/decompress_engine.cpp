#include "device/decompress_engine.h"

#include <algorithm>
#include <vector>

#include "headrace/error.h"

namespace headrace {
namespace {

// Of CUresult.
constexpr int kInvalidValue = 1, kNotSupported = 801;

const char* name_of(EngineFormat format) {
  switch (format) {
    case EngineFormat::deflate:
      return "deflate";
    case EngineFormat::snappy:
      return "snappy";
    case EngineFormat::lz4:
      break;
  }
  return "lz4";
}

[[noreturn]] void fail(ErrorCode code, EngineFormat format, const std::string& problem) {
  throw Error(code, std::string("decompression engine, ") + name_of(format) + ": " + problem);
}

}  // namespace

void decode_by_engine(Queue& queue,
                      const DecodeBatch& batch,
                      EngineFormat format,
                      const Engine& engine,
                      RaiseSizes raise) {
  const std::size_t n = batch.frames.size();
  if (n == 0) return;
  if (!engine.why_not.empty()) fail(ErrorCode::unsupported, format, engine.why_not);
  if ((engine.formats & static_cast<std::uint32_t>(format)) == 0)
    fail(ErrorCode::unsupported, format, "that of this device does not have the format");

  std::vector<EngineChunk> chunks(n);
  // Wanted sizes and numbers of the chunks, in one copy.
  std::vector<std::uint32_t> table(2 * n);
  const Scratch<std::uint32_t> found(queue, n);
  for (std::size_t i = 0; i < n; ++i) {
    const Frame& frame = batch.frames[i];
    const std::uint64_t most = std::max(frame.source_nbytes, frame.target_nbytes);
    if (most > engine.max_nbytes) {
      fail(ErrorCode::unsupported,
           format,
           "a chunk of " + std::to_string(most) + " bytes, at most " +
               std::to_string(engine.max_nbytes));
    }
    chunks[i] = {frame.source_nbytes,
                 frame.target_nbytes,
                 found.data() + i,
                 frame.source,
                 frame.target,
                 format,
                 {}};
    table[i] = static_cast<std::uint32_t>(frame.target_nbytes);
    table[n + i] = frame.chunk;
  }
  const auto columns = Scratch<std::uint32_t>::of(queue, table.data(), table.size());
  queue.fill(found.data(), 0xff, n * sizeof(std::uint32_t));  // until it is told otherwise
  std::size_t bad_chunk = SIZE_MAX;
  const int status = engine.decompress(chunks.data(), n, 0, &bad_chunk, queue.native());
  if (status != 0) {
    const std::string which =
        bad_chunk < n ? " of chunk " + std::to_string(batch.frames[bad_chunk].chunk) : "";
    const std::string said =
        "cuMemBatchDecompressAsync" + which + " failed with error " + std::to_string(status);
    // So it says of memory that was not allocated for the engine, which is the caller's then.
    const bool refused = status == kNotSupported || (status == kInvalidValue && bad_chunk < n);
    fail(refused ? ErrorCode::unsupported : ErrorCode::device, format, said);
  }
  raise(queue, found.data(), columns.data(), columns.data() + n, n, batch.faults);
}

}  // namespace headrace
