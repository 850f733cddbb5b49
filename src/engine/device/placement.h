#pragma once

// Where the elements of chunks go in the caller's memory, for the kernel that puts them there.

#include <vector>

#include "engine/query/cut.h"
#include "kernels/kernels.h"

namespace headrace {

class PlacementList {
 public:
  PlacementList(std::size_t itemsize, std::uint32_t swap_nbytes) {
    batch_.itemsize = static_cast<std::uint32_t>(itemsize);
    batch_.swap_nbytes = swap_nbytes;
  }

  // `source` holds the chunk, its dimensions `strides` bytes apart.
  void add_chunk(const Box& box, const std::uint8_t* source, const Shape& strides);
  void add_chunk(const Points& points, const std::uint8_t* source, const Shape& strides);
  // `source` holds the wanted elements only, packed.
  void add_packed(const Box& box, const std::uint8_t* source);
  void add_packed(const Points& points, const std::uint8_t* source);
  // `source` is one element, for every place.
  void add_fill(const Box& box, const std::uint8_t* source);
  void add_fill(const Points& points, const std::uint8_t* source);

  bool empty() const { return placements_.empty(); }
  // Gives the work to the queue.
  void run(Queue& queue, const Kernels& kernels);
  // The other way: sources, which must be writable, get the elements from the caller's memory.
  void run_back(Queue& queue, const Kernels& kernels);

 private:
  // An axis on both sides. `list`: indices into lists_, for element i instead of i.
  struct Side {
    std::int64_t stride = 0;
    std::ptrdiff_t list = -1;
  };
  struct Line {
    std::int64_t count = 0;
    Side from, to;
  };

  // source_stride(d) tells the distance of two neighbours along dimension d of the chunk.
  template <typename Source>
  void add_box(const Box& box, const std::uint8_t* source, Source source_side);
  void add_lines(std::vector<Line> lines, const std::uint8_t* source, std::uint8_t* target);
  std::ptrdiff_t add_list(const std::int64_t* values, std::int64_t count);

  PlaceBatch batch_;
  std::vector<Placement> placements_;
  std::vector<std::vector<Line>> lines_;  // of each placement, innermost last
  std::vector<std::int64_t> lists_;
};

}  // namespace headrace
