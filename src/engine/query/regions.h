#pragma once

// A rectilinear grid is regular ones side by side. Along each dimension chunks of one extent that
// lie next to each other make a run; where a run of each dimension meet is a region, a regular grid
// of its own. A query is cut by regions, and each part goes on as in an array with that grid.

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
#include "engine/request/context.h"

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
  Coordinates runs;
  RegionPart<Query> part;
  cut.child(i, runs.at, part.query);
  Shape shape;
  const std::vector<ChunkEdges>& edges = array.metadata->chunk_edges;
  for (std::size_t d = 0; d < edges.size(); ++d) {
    const ChunkRun& run = edges[d].runs[static_cast<std::size_t>(runs.at[d])];
    part.region.first_chunk.push_back(run.first_chunk);
    part.region.first_index.push_back(run.first_index);
    shape.push_back(run.extent);
  }
  part.layout = array.regions->of(shape);
  return part;
}

// Calls body(context, query, region) for each region that the query touches, by up to `threads`
// threads; of a regular grid once.
template <typename Query, typename Body>
void each_region(RequestContext& context, Query query, int threads, Body body) {
  if (!context.layout.regions) return body(context, std::move(query), Region{});
  const typename Query::Cut cut(query, GridCut(context.layout.metadata->chunk_edges));
  context.parallel(
      cut.size(),
      [&](std::size_t i) {
        context.check();
        auto part = region_part<Query>(context.layout, cut, i);
        RequestContext inside(context, std::move(part.layout));
        body(inside, std::move(part.query), part.region);
      },
      threads);
}

// Calls body(context, parts) for all regions with chunks of one shape at a time.
template <typename Query, typename Body>
void each_chunk_shape(RequestContext& context, Query query, Body body) {
  using Parts = std::vector<RegionPart<Query>>;
  if (!context.layout.regions) {
    Parts whole(1);
    whole[0].query = std::move(query);
    return body(context, whole);
  }
  constexpr std::size_t kRegionsAtOnce = 4096;
  const typename Query::Cut cut(query, GridCut(context.layout.metadata->chunk_edges));
  for (std::size_t first = 0; first < cut.size(); first += kRegionsAtOnce) {
    std::map<Shape, Parts> by_shape;
    for (std::size_t i = first; i < std::min(first + kRegionsAtOnce, cut.size()); ++i) {
      auto part = region_part<Query>(context.layout, cut, i);
      by_shape[part.layout->stored_shape()].push_back(std::move(part));
    }
    for (auto& [shape, parts] : by_shape) {
      RequestContext inside(context, parts.front().layout);
      body(inside, parts);
    }
  }
}

}  // namespace headrace
