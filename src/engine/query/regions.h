#pragma once

// A rectilinear grid is regular ones side by side. Along each dimension chunks of one extent that
// lie next to each other make a band; where a band of each dimension meet is a region, a regular
// grid of its own. A query is cut by regions, and each part goes on as in an array with that grid.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "engine/layout/region_layouts.h"
#include "engine/query/coordinates.h"
#include "engine/query/cut.h"
#include "engine/request/request.h"
#include "engine/request/stored_array.h"

namespace headrace {

// Where a region begins. Empty shapes: the whole of a regular grid.
struct Region {
  Shape first_chunk;  // coordinates
  Shape first_index;
};

// What a query wants of one region.
template <typename Query>
struct RegionPart {
  std::shared_ptr<const ArrayLayout> layout;
  Region region;
  Query query;  // relative to the region; borrows from the cut
};

// Of a cut by the array's chunk_edges.
template <typename Query>
RegionPart<Query> region_part(const ArrayLayout& array,
                              const typename Query::Cut& cut,
                              std::size_t i) {
  Coordinates bands;
  RegionPart<Query> part;
  cut.child(i, bands.at, part.query);
  Shape shape;
  const std::vector<ChunkEdges>& edges = array.metadata->chunk_edges;
  for (std::size_t d = 0; d < edges.size(); ++d) {
    const ChunkBand& band = edges[d].bands[static_cast<std::size_t>(bands.at[d])];
    part.region.first_chunk.push_back(band.first_chunk);
    part.region.first_index.push_back(band.first_index);
    shape.push_back(band.extent);
  }
  part.layout = array.regions->of(shape);
  return part;
}

// Calls body(array, query, region) for each region that the query touches, by up to `threads`
// threads; of a regular grid once.
template <typename Query, typename Body>
void each_region(Request& request, const StoredArray& array, Query query, int threads, Body body) {
  if (!array.layout.regions) return body(array, std::move(query), Region{});
  const typename Query::Cut cut(query, GridCut(array.layout.metadata->chunk_edges));
  request.parallel(
      cut.size(),
      [&](std::size_t i) {
        request.check();
        auto part = region_part<Query>(array.layout, cut, i);
        const StoredArray inside(array.state, std::move(part.layout));
        body(inside, std::move(part.query), part.region);
      },
      threads);
}

// Calls body(array, parts) for all regions with chunks of one shape at a time.
template <typename Query, typename Body>
void each_chunk_shape(const StoredArray& array, Query query, Body body) {
  using Parts = std::vector<RegionPart<Query>>;
  if (!array.layout.regions) {
    Parts whole(1);
    whole[0].query = std::move(query);
    return body(array, whole);
  }
  constexpr std::size_t kRegionsAtOnce = 4096;
  const typename Query::Cut cut(query, GridCut(array.layout.metadata->chunk_edges));
  for (std::size_t first = 0; first < cut.size(); first += kRegionsAtOnce) {
    std::map<Shape, Parts> by_shape;
    for (std::size_t i = first; i < std::min(first + kRegionsAtOnce, cut.size()); ++i) {
      auto part = region_part<Query>(array.layout, cut, i);
      by_shape[part.layout->stored_shape()].push_back(std::move(part));
    }
    for (auto& [shape, parts] : by_shape) {
      const StoredArray inside(array.state, parts.front().layout);
      body(inside, parts);
    }
  }
}

}  // namespace headrace
