#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "loader/chunk_cache.h"
#include "loader/plan.h"

namespace headrace::loader {

// A part of a chunk and where it goes in a batch.
struct ChunkPart {
  GatherBox box;               // without source and target, of which there are the offsets only
  std::int64_t source_offset;  // bytes, in the chunk
  std::int64_t target_offset;  // bytes, in the tensor of the variable
  std::size_t sample;          // in the batch
};

// A chunk that a batch takes, and all that it takes of it.
struct Need {
  ChunkKey key;
  std::vector<ChunkPart> parts;
};

// What a batch of these samples takes, each chunk once.
std::vector<Need> find_needs(const Plan& plan, std::span<const std::int64_t> samples);

}  // namespace headrace::loader
