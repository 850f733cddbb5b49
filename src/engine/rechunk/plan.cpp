#include "engine/rechunk/plan.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "base/checked.h"
#include "headrace/error.h"

namespace headrace {
namespace {

// Beyond it a larger block only makes progress coarser.
constexpr std::size_t kWorthwhileBlockNbytes = std::size_t{256} << 20;
constexpr std::size_t kShardNbytes = std::size_t{64} << 20;

std::int64_t largest_of(const Shape& sizes) { return sizes.empty() ? 1 : std::ranges::max(sizes); }

Shape largest_of(const ChunkSizes& grid) {
  Shape result;
  for (const Shape& sizes : grid) result.push_back(largest_of(sizes));
  return result;
}

// Every `count` neighbours as one.
Shape merged(const Shape& sizes, std::size_t count) {
  Shape result;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (i % count == 0) result.push_back(0);
    result.back() += sizes[i];
  }
  return result;
}

// What the blocks of a dimension touch there.
struct Touched {
  std::int64_t chunks = 0;
  std::int64_t elements = 0;  // of these chunks
};

Touched touched_by(const Shape& blocks, const Shape& chunks) {
  Touched result;
  std::size_t at = 0;  // the chunk that holds the first element of the block
  std::int64_t chunk_start = 0;
  std::int64_t start = 0;
  for (const std::int64_t extent : blocks) {
    const std::int64_t stop = start + extent;
    while (chunk_start + chunks[at] <= start) chunk_start += chunks[at++];
    std::size_t last = at;
    std::int64_t last_start = chunk_start;
    for (;;) {
      ++result.chunks;
      result.elements += chunks[last];
      if (last_start + chunks[last] >= stop) break;
      last_start += chunks[last++];
    }
    at = last;
    chunk_start = last_start;
    start = stop;
  }
  return result;
}

// One way to cut a dimension into blocks.
struct Cut {
  std::size_t units;    // of the destination in a block
  std::int64_t extent;  // of the largest block
  double elements = 0;  // touched in the source
};

// From the smallest block to the largest, each cheaper than all before it unless `all` are wanted.
std::vector<Cut> cuts_of(const Shape& units, const Shape& source) {
  std::vector<std::size_t> counts = {1};
  const std::size_t n = std::max<std::size_t>(units.size(), 1);
  for (std::size_t count = 2; count < n; count *= 2) counts.push_back(count);
  if (!units.empty()) {
    // Blocks that end where chunks of the source do, when both grids are regular.
    const std::int64_t unit = units[0];
    const auto aligned = static_cast<std::size_t>(source[0] / std::gcd(source[0], unit));
    for (std::size_t count = aligned; count < n; count *= 2) counts.push_back(count);
  }
  counts.push_back(n);
  std::ranges::sort(counts);
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  std::vector<Cut> cuts;
  for (const std::size_t count : counts) {
    const Shape blocks = merged(units, count);
    cuts.push_back(
        {count, largest_of(blocks), static_cast<double>(touched_by(blocks, source).elements)});
  }
  return cuts;
}

// Blocks as far as the dimensions were looked at.
struct Choice {
  double extent = 1;              // elements of the largest block
  double elements = 1;            // touched
  std::vector<std::size_t> cuts;  // by dimension
};

// Only choices that no smaller block undercuts stay, by size.
void keep_the_best(std::vector<Choice>& choices) {
  std::ranges::sort(choices, [](const Choice& a, const Choice& b) {
    return std::pair(a.extent, a.elements) < std::pair(b.extent, b.elements);
  });
  std::vector<Choice> kept;
  for (Choice& choice : choices) {
    if (kept.empty() || choice.elements < kept.back().elements) kept.push_back(std::move(choice));
  }
  choices = std::move(kept);
}

[[noreturn]] void refuse_memory(const char* what, const Shape& extents, std::size_t itemsize) {
  std::string text;
  for (const std::int64_t extent : extents)
    text += (text.empty() ? "" : ", ") + std::to_string(extent);
  throw Error(ErrorCode::invalid_argument,
              "[rechunk] max_memory: a " + std::string(what) + " of (" + text + ") needs " +
                  std::to_string(2 * checked_nbytes(extents, itemsize, what)) + " bytes");
}

void check_fits(const char* what,
                const ChunkSizes& grid,
                std::size_t itemsize,
                std::size_t max_nbytes) {
  if (std::ranges::any_of(grid, &Shape::empty)) return;  // there is no chunk
  const Shape largest = largest_of(grid);
  if (checked_nbytes(largest, itemsize, what) > max_nbytes) refuse_memory(what, largest, itemsize);
}

std::vector<std::size_t> cheapest(const std::vector<std::vector<Cut>>& dimensions,
                                  double max_elements) {
  double least = 1;  // elements of the smallest block along the dimensions to come
  for (const auto& cuts : dimensions) least *= static_cast<double>(cuts.front().extent);
  std::vector<Choice> choices = {{}};
  for (const auto& cuts : dimensions) {
    least /= static_cast<double>(cuts.front().extent);
    std::vector<Choice> next;
    for (const Choice& choice : choices) {
      for (std::size_t i = 0; i < cuts.size(); ++i) {
        Choice grown = choice;
        grown.extent *= static_cast<double>(cuts[i].extent);
        grown.elements *= cuts[i].elements;
        grown.cuts.push_back(i);
        if (grown.extent * least <= max_elements) next.push_back(std::move(grown));
      }
    }
    keep_the_best(next);
    choices = std::move(next);
  }
  return choices.back().cuts;
}

// Larger blocks at the same cost have more chunks to share among the threads.
void grow(const std::vector<std::vector<Cut>>& dimensions,
          double max_elements,
          std::vector<std::size_t>& chosen) {
  double elements = 1;
  for (std::size_t d = 0; d < chosen.size(); ++d)
    elements *= static_cast<double>(dimensions[d][chosen[d]].extent);
  for (std::size_t d = chosen.size(); d-- > 0;) {
    const std::vector<Cut>& cuts = dimensions[d];
    const double others = elements / static_cast<double>(cuts[chosen[d]].extent);
    for (std::size_t i = cuts.size() - 1; i > chosen[d]; --i) {
      const double grown = others * static_cast<double>(cuts[i].extent);
      if (grown > max_elements || cuts[i].elements > cuts[chosen[d]].elements) continue;
      chosen[d] = i;
      elements = grown;
      break;
    }
  }
}

RechunkPass pass_of(ChunkSizes blocks, const ChunkSizes& source, std::size_t itemsize) {
  RechunkPass pass;
  pass.nblocks = 1;
  pass.chunks_read = 1;
  auto nbytes = checked_cast<std::int64_t>(itemsize, "itemsize");
  pass.block_nbytes = pass.nbytes_read = pass.nbytes_written = nbytes;
  for (std::size_t d = 0; d < blocks.size(); ++d) {
    const Touched touched = touched_by(blocks[d], source[d]);
    const auto multiply = [](std::int64_t& n, std::int64_t by) {
      n = checked_mul(n, by, "bytes of a rechunk");
    };
    multiply(pass.nblocks, static_cast<std::int64_t>(blocks[d].size()));
    multiply(pass.block_nbytes, blocks[d].empty() ? 0 : largest_of(blocks[d]));
    multiply(pass.chunks_read, touched.chunks);
    multiply(pass.nbytes_read, touched.elements);
    multiply(pass.nbytes_written,
             std::accumulate(blocks[d].begin(), blocks[d].end(), std::int64_t{0}));
  }
  pass.block_sizes = std::move(blocks);
  return pass;
}

// Blocks of one of two passes, while they are chosen.
struct Growing {
  const ChunkSizes& units;
  std::vector<std::size_t> counts;  // units in a block, by dimension

  explicit Growing(const ChunkSizes& grid) : units(grid), counts(grid.size(), 1) {}

  ChunkSizes blocks() const {
    ChunkSizes result;
    for (std::size_t d = 0; d < units.size(); ++d) result.push_back(merged(units[d], counts[d]));
    return result;
  }

  double largest_elements() const {
    double elements = 1;
    for (const std::int64_t extent : largest_of(blocks())) elements *= static_cast<double>(extent);
    return elements;
  }
};

double pieces(const Shape& a, const Shape& b) {
  return static_cast<double>(common_chunks({a}, {b})[0].size());
}

// Makes the block up to twice as large, along the dimension that leaves the fewest chunks between
// the passes. False when no dimension makes them fewer within the limit.
bool grow_once(Growing& mine, const Growing& other, double max_elements) {
  const double room = std::min(2.0, max_elements / mine.largest_elements());
  double fewest = 1;
  std::optional<std::pair<std::size_t, std::size_t>> best;  // dimension and units
  for (std::size_t d = 0; d < mine.units.size(); ++d) {
    const std::size_t count = mine.counts[d];
    const auto grown = static_cast<std::size_t>(static_cast<double>(count) * room);
    if (grown == count || count >= mine.units[d].size()) continue;
    const Shape theirs = merged(other.units[d], other.counts[d]);
    const double ratio =
        pieces(merged(mine.units[d], grown), theirs) / pieces(merged(mine.units[d], count), theirs);
    mine.counts[d] = grown;
    const bool fits = mine.largest_elements() <= max_elements;
    mine.counts[d] = count;
    if (!fits || ratio >= fewest) continue;
    best = {d, grown};
    fewest = ratio;
  }
  if (best) mine.counts[best->first] = best->second;
  return best.has_value();
}

std::vector<RechunkPass> plan_two_passes(const ChunkSizes& source,
                                         const ChunkSizes& destination,
                                         std::size_t itemsize,
                                         double max_elements) {
  Growing first(source);
  Growing second(destination);
  bool growing = true;
  while (growing) {
    growing = grow_once(first, second, max_elements);
    growing |= grow_once(second, first, max_elements);
  }
  const ChunkSizes between = common_chunks(first.blocks(), second.blocks());
  return {pass_of(first.blocks(), source, itemsize), pass_of(second.blocks(), between, itemsize)};
}

}  // namespace

RechunkPass plan_pass(const ChunkSizes& source,
                      const ChunkSizes& destination,
                      std::size_t itemsize,
                      std::size_t max_block_nbytes) {
  check_fits("chunk or shard of the destination", destination, itemsize, max_block_nbytes);
  if (std::ranges::any_of(destination, &Shape::empty))
    return pass_of(destination, source, itemsize);
  std::vector<std::vector<Cut>> dimensions;
  for (std::size_t d = 0; d < source.size(); ++d)
    dimensions.push_back(cuts_of(destination[d], source[d]));
  const auto elements_of = [&](std::size_t nbytes) {
    return static_cast<double>(nbytes / itemsize);
  };
  std::vector<std::size_t> chosen = cheapest(dimensions, elements_of(max_block_nbytes));
  grow(dimensions, elements_of(std::min(max_block_nbytes, kWorthwhileBlockNbytes)), chosen);
  ChunkSizes blocks;
  for (std::size_t d = 0; d < source.size(); ++d)
    blocks.push_back(merged(destination[d], dimensions[d][chosen[d]].units));
  return pass_of(std::move(blocks), source, itemsize);
}

std::vector<RechunkPass> plan_passes(const ChunkSizes& source,
                                     const ChunkSizes& destination,
                                     std::size_t itemsize,
                                     std::size_t max_block_nbytes) {
  check_fits("chunk of the source", source, itemsize, max_block_nbytes);
  RechunkPass one = plan_pass(source, destination, itemsize, max_block_nbytes);
  const std::int64_t nbytes = one.nbytes_written;
  // Two passes read the source, then write what lies between and read it.
  if (one.nbytes_read / 3 <= nbytes) return {std::move(one)};
  return plan_two_passes(
      source, destination, itemsize, static_cast<double>(max_block_nbytes / itemsize));
}

ChunkSizes common_chunks(const ChunkSizes& a, const ChunkSizes& b) {
  ChunkSizes result;
  for (std::size_t d = 0; d < a.size(); ++d) {
    Shape edges(a[d].size() + b[d].size());
    const auto rest = std::partial_sum(a[d].begin(), a[d].end(), edges.begin());
    std::partial_sum(b[d].begin(), b[d].end(), rest);
    std::ranges::sort(edges);
    edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
    std::adjacent_difference(edges.begin(), edges.end(), edges.begin());
    result.push_back(std::move(edges));
  }
  return result;
}

std::vector<Selection> block_selections(const ChunkSizes& blocks) {
  std::vector<Selection> result;
  std::vector<SelectionItem> items(blocks.size());
  const std::function<void(std::size_t)> visit = [&](std::size_t d) {
    if (d == blocks.size()) {
      result.emplace_back(items);
      return;
    }
    std::int64_t start = 0;
    for (const std::int64_t extent : blocks[d]) {
      items[d] = slice(start, start + extent);
      start += extent;
      visit(d + 1);
    }
  };
  visit(0);
  return result;
}

std::optional<Shape> choose_shards(const Shape& shape,
                                   const Shape& chunks,
                                   std::size_t itemsize,
                                   std::size_t max_nbytes) {
  const std::size_t limit = std::min(kShardNbytes, max_nbytes);
  const std::size_t chunk_nbytes = checked_nbytes(chunks, itemsize, "chunks");
  std::size_t left = chunk_nbytes == 0 ? 1 : limit / chunk_nbytes;  // chunks of a shard
  Shape shards = chunks;
  for (std::size_t d = shape.size(); d-- > 0;) {
    const std::int64_t grid = shape[d] / chunks[d] + (shape[d] % chunks[d] != 0);
    const std::int64_t count = std::clamp<std::int64_t>(
        checked_cast<std::int64_t>(left, "shards"), 1, std::max<std::int64_t>(grid, 1));
    shards[d] = chunks[d] * count;
    left /= static_cast<std::size_t>(count);
  }
  if (shards == chunks) return std::nullopt;
  return shards;
}

}  // namespace headrace
