#pragma once

// The unit of NVIDIA's chips from Blackwell on that decompresses beside the multiprocessors, by the
// driver's cuMemBatchDecompressAsync. Used only when asked for by name. No machine that has one was
// at hand: what is here was tried with a driver made for tests.
// https://docs.nvidia.com/cuda/cuda-driver-api/
//
// It says how many bytes each chunk gave, and of corrupt ones no more than that: a chunk of the
// right size is taken for good, unlike with headrace's own decoders, which find what breaks a
// format.

#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/kernels.h"

namespace headrace {

// Bits of the driver's mask.
enum class EngineFormat : std::uint32_t { deflate = 1, snappy = 2, lz4 = 4 };

// One chunk, as the driver's interface has it.
struct EngineChunk {
  std::size_t source_nbytes;
  std::size_t target_nbytes;
  std::uint32_t* found_nbytes;  // memory of the device
  const void* source;
  void* target;
  EngineFormat format;
  unsigned char reserved[20];  // zeros
};
static_assert(sizeof(EngineChunk) == 64);

// What a driver has of it.
struct Engine {
  // `stream`: the queue's native one. 0 is success; `bad_chunk` may be told of an error.
  using Decompress = int (*)(
      EngineChunk* chunks, std::size_t count, unsigned flags, std::size_t* bad_chunk, void* stream);
  std::string why_not{};  // empty when there is one
  Decompress decompress = nullptr;
  std::uint32_t formats = 0;   // bits of EngineFormat that the device has
  std::size_t max_nbytes = 0;  // of a chunk, either way
};

// Gives the queue what raises Fault::wrong_size of chunks[i] where found[i] is not wanted[i]. All
// in memory of the device, `count` of each.
using RaiseSizes = void (*)(Queue& queue,
                            const std::uint32_t* found,
                            const std::uint32_t* wanted,
                            const std::uint32_t* chunks,
                            std::size_t count,
                            std::uint32_t* faults);

// A Decode by the engine. `unsupported` for what this one does not take: a format, a size, memory
// that was not allocated for it.
void decode_by_engine(Queue& queue,
                      const DecodeBatch& batch,
                      EngineFormat format,
                      const Engine& engine,
                      RaiseSizes raise);

}  // namespace headrace
