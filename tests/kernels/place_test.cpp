#include <algorithm>
#include <numeric>

#include "headrace/error.h"
#include "kernels/filter_kit.h"
#include "kernels/place/placements.h"
#include "simt/host_queue.h"

namespace headrace::test {
namespace {

using Indices = std::vector<std::int64_t>;

// One side of an axis, with its list in host memory.
struct Side {
  std::int64_t stride = 0;
  Indices index;

  std::int64_t offset(std::int64_t i) const {
    return (index.empty() ? i : index[static_cast<std::size_t>(i)]) * stride;
  }
};

// A placement between two buffers of its own.
struct Case {
  Bytes source, target;
  std::size_t source_at = 0, target_at = 0;  // of element 0
  std::vector<std::int64_t> count;
  std::vector<Side> from, to;
};

// Lays axes of `extents` out from the innermost of `order`; gives the bytes it takes and, of
// negative strides, where element 0 is.
struct Layout {
  std::vector<std::int64_t> strides;
  std::size_t nbytes = 0;
  std::int64_t begin = 0;
};

Layout lay_out(const std::vector<std::int64_t>& extents,
               std::vector<std::size_t> order,
               std::int64_t itemsize,
               unsigned gap_percent,
               unsigned negative_percent,
               std::mt19937_64& random) {
  Layout layout{std::vector<std::int64_t>(extents.size()), 0, 0};
  std::int64_t step = itemsize;
  for (const std::size_t axis : order) {
    if (random() % 100 < gap_percent)
      step += itemsize * static_cast<std::int64_t>(1 + random() % 3);
    const bool negative = random() % 100 < negative_percent;
    layout.strides[axis] = negative ? -step : step;
    if (negative) layout.begin += step * (extents[axis] - 1);
    step *= extents[axis];
  }
  layout.nbytes = static_cast<std::size_t>(step);
  return layout;
}

struct Options {
  std::vector<std::int64_t> count;
  std::uint32_t itemsize = 4;
  unsigned gap_percent = 20;
  unsigned negative_percent = 20;
  unsigned index_percent = 20;
  unsigned repeat_percent = 10;  // of source axes with a stride of zero
  bool permute = true;
  std::size_t misalignment = 0;  // below 16
};

Indices some_of(std::int64_t extent, std::int64_t count, bool distinct, std::mt19937_64& random) {
  Indices index(static_cast<std::size_t>(extent));
  std::iota(index.begin(), index.end(), 0);
  std::shuffle(index.begin(), index.end(), random);
  index.resize(static_cast<std::size_t>(count));
  if (!distinct)
    for (auto& i : index)
      i = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(extent));
  return index;
}

Case make_case(const Options& options, std::mt19937_64& random) {
  const std::size_t n = options.count.size();
  Case c;
  c.count = options.count;
  c.from.resize(n);
  c.to.resize(n);
  for (const bool target : {false, true}) {
    std::vector<Side>& sides = target ? c.to : c.from;
    std::vector<std::int64_t> extents = options.count;
    for (std::size_t i = 0; i < n; ++i) {
      if (random() % 100 >= options.index_percent || options.count[i] == 0) continue;
      extents[i] += static_cast<std::int64_t>(random() % 4);
      sides[i].index = some_of(extents[i], options.count[i], target, random);
    }
    std::vector<std::size_t> order(n);
    std::iota(order.rbegin(), order.rend(), 0u);
    if (options.permute) std::shuffle(order.begin(), order.end(), random);
    const Layout layout = lay_out(
        extents, order, options.itemsize, options.gap_percent, options.negative_percent, random);
    for (std::size_t i = 0; i < n; ++i) {
      sides[i].stride = layout.strides[i];
      if (!target && random() % 100 < options.repeat_percent) {
        sides[i].stride = 0;
        sides[i].index.clear();
      }
    }
    const std::size_t guard = 64 + options.misalignment;
    (target ? c.target : c.source) = random_bytes(random, 2 * guard + layout.nbytes);
    (target ? c.target_at : c.source_at) = guard + static_cast<std::size_t>(layout.begin);
  }
  return c;
}

Bytes expected(const Case& c, std::uint32_t itemsize, std::uint32_t swap) {
  Bytes target = c.target;
  const std::size_t n = c.count.size();
  std::vector<std::int64_t> at(n, 0);
  if (std::count(c.count.begin(), c.count.end(), 0) > 0) return target;
  for (;;) {
    std::int64_t from = static_cast<std::int64_t>(c.source_at);
    std::int64_t to = static_cast<std::int64_t>(c.target_at);
    for (std::size_t i = 0; i < n; ++i) {
      from += c.from[i].offset(at[i]);
      to += c.to[i].offset(at[i]);
    }
    auto* element = target.data() + to;
    std::memcpy(element, c.source.data() + from, itemsize);
    if (swap > 1)
      for (std::uint32_t i = 0; i < itemsize; i += swap)
        std::reverse(element + i, element + i + swap);
    std::size_t axis = n;
    while (axis > 0 && ++at[axis - 1] == c.count[axis - 1]) at[--axis] = 0;
    if (axis == 0) return target;
  }
}

template <class Run>
void expect_placed(Queue& queue,
                   const std::vector<Case>& cases,
                   std::uint32_t itemsize,
                   std::uint32_t swap,
                   const std::string& what,
                   Run run) {
  std::vector<Scratch<std::uint8_t>> memory;
  std::vector<Scratch<std::int64_t>> indices;
  std::vector<Placement> placements;
  const auto steps = [&](const Side& side) {
    if (side.index.empty()) return Steps{side.stride, nullptr};
    indices.push_back(Scratch<std::int64_t>::of(queue, side.index.data(), side.index.size()));
    return Steps{side.stride, indices.back().data()};
  };
  for (const Case& c : cases) {
    memory.push_back(Scratch<std::uint8_t>::of(queue, c.source.data(), c.source.size()));
    memory.push_back(Scratch<std::uint8_t>::of(queue, c.target.data(), c.target.size()));
    Placement placement{memory[memory.size() - 2].data() + c.source_at,
                        memory.back().data() + c.target_at};
    for (std::size_t i = 0; i < c.count.size(); ++i) {
      placement.count[i] = c.count[i];
      placement.from[i] = steps(c.from[i]);
      placement.to[i] = steps(c.to[i]);
    }
    placements.push_back(placement);
  }
  run(PlaceBatch{placements, static_cast<unsigned>(cases[0].count.size()), itemsize, swap});
  for (std::size_t i = 0; i < cases.size(); ++i) {
    Bytes got(cases[i].target.size());
    queue.download(got.data(), memory[2 * i + 1].data(), got.size());
    queue.synchronize();
    EXPECT_TRUE(got == expected(cases[i], itemsize, swap)) << what << " case " << i;
  }
}

void expect_placed(const Place& place,
                   const std::vector<Case>& cases,
                   std::uint32_t itemsize,
                   std::uint32_t swap,
                   const std::string& what,
                   std::uint64_t seed) {
  const auto queue = place.make_queue(seed);
  expect_placed(*queue,
                cases,
                itemsize,
                swap,
                place.name + " " + what + ", itemsize " + std::to_string(itemsize) + ", swap " +
                    std::to_string(swap) + ", seed " + std::to_string(seed),
                [&](const PlaceBatch& batch) { place.kernels->place(*queue, batch); });
}

constexpr std::pair<std::uint32_t, std::uint32_t> kElements[] = {{1, 0},
                                                                 {2, 0},
                                                                 {2, 2},
                                                                 {3, 0},
                                                                 {4, 0},
                                                                 {4, 4},
                                                                 {4, 2},
                                                                 {6, 3},
                                                                 {8, 0},
                                                                 {8, 8},
                                                                 {8, 4},
                                                                 {8, 1},
                                                                 {12, 4},
                                                                 {16, 0},
                                                                 {16, 8},
                                                                 {16, 16},
                                                                 {16, 2},
                                                                 {20, 0},
                                                                 {33, 11}};

std::vector<std::int64_t> random_counts(std::size_t n,
                                        std::int64_t elements,
                                        std::mt19937_64& random) {
  std::vector<std::int64_t> count(n, 1);
  for (int step = 0; n > 0 && elements > 1 && step < 12; ++step) {
    const std::int64_t factor = static_cast<std::int64_t>(1 + random() % 5);
    if (factor > elements) break;
    count[random() % n] *= factor;
    elements /= factor;
  }
  return count;
}

TEST(KernelPlace, AnyOuterProduct) {
  for (const Place& place : places())
    for (const auto& [itemsize, swap] : kElements)
      for (std::uint64_t seed = 0; seed < 18; ++seed) {
        std::mt19937_64 random(seed * 64 + itemsize);
        const std::size_t axes = seed % (kMaxAxes + 1);
        std::vector<Case> cases;
        for (int i = 0; i < 4; ++i) {
          Options options;
          options.itemsize = itemsize;
          options.count = random_counts(axes, static_cast<std::int64_t>(random() % 2000), random);
          options.gap_percent = static_cast<unsigned>(random() % 2 * 30);
          options.index_percent = static_cast<unsigned>(random() % 2 * 40);
          options.misalignment = random() % 2 * (random() % 16);
          if (axes > 0 && random() % 20 == 0) options.count[random() % axes] = 0;
          cases.push_back(make_case(options, random));
        }
        expect_placed(place, cases, itemsize, swap, "product", seed);
      }
}

// Pieces of chunks into an array in C order, with and without a byte swap: rows.
TEST(KernelPlace, RowsOfAllLengths) {
  for (const Place& place : places())
    for (const std::uint32_t itemsize : {1, 4, 8})
      for (std::uint64_t seed = 0; seed < 4; ++seed) {
        std::mt19937_64 random(seed);
        std::vector<Case> cases;
        for (const std::int64_t row : {1, 2, 3, 4, 5, 16, 17, 63, 64, 1000}) {
          Options options{{3, 5, row}, itemsize, 40, 0, 0, 0, false, seed % 2 * (random() % 16)};
          cases.push_back(make_case(options, random));
        }
        expect_placed(place, cases, itemsize, seed % 2 ? itemsize : 0, "rows", seed);
      }
}

TEST(KernelPlace, Transposes) {
  for (const Place& place : places())
    for (const std::uint32_t itemsize : {1, 2, 4, 8, 16})
      for (std::uint64_t seed = 0; seed < 6; ++seed) {
        std::mt19937_64 random(seed);
        std::vector<Case> cases;
        for (const auto& count : std::vector<std::vector<std::int64_t>>{
                 {2, 70, 40}, {3, 8, 8}, {1, 64, 64}, {1, 33, 129}, {5, 3, 50}}) {
          Case c = make_case({count, itemsize, 0, seed < 3 ? 0u : 30u, 0, 0, false}, random);
          // C order there, Fortran order here.
          std::int64_t step = itemsize;
          std::int64_t begin = 64;
          for (std::size_t i = 0; i < count.size(); ++i) {
            c.from[i].stride = seed == 5 && i == 0 ? -step : step;
            if (seed == 5 && i == 0) begin += step * (count[i] - 1);
            step *= count[i];
          }
          c.source_at = static_cast<std::size_t>(begin);
          cases.push_back(c);
        }
        expect_placed(place, cases, itemsize, seed % 2 ? itemsize / 2 : 0, "transpose", seed);
      }
}

TEST(KernelPlace, FillsWithAValue) {
  for (const Place& place : places())
    for (const auto& [itemsize, swap] : kElements)
      for (std::uint64_t seed = 0; seed < 3; ++seed) {
        std::mt19937_64 random(seed);
        std::vector<Case> cases;
        for (const std::int64_t row : {1, 7, 300})
          cases.push_back(make_case(
              {{4, 3, row}, itemsize, 40, 0, 0, 100, false, seed == 2 ? 1u : 0u}, random));
        expect_placed(place, cases, itemsize, swap, "fill", seed);
      }
}

TEST(KernelPlace, TakesLargePlacementsApart) {
  for (const auto& [itemsize, swap] : kElements)
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
      std::mt19937_64 random(seed);
      std::vector<Case> cases;
      for (const std::int64_t row : {1, 50, 300}) {
        const unsigned indexed = seed % 2 * 40, repeated = seed == 3 ? 100 : 0;
        cases.push_back(make_case(
            {{5, 7, row}, itemsize, 20, 10, indexed, repeated, seed % 2 == 0, 0}, random));
      }
      HostQueue queue(seed);
      expect_placed(queue, cases, itemsize, swap, "limits", [&](const PlaceBatch& batch) {
        host::place_within(queue, batch, {700, 256});
      });
    }
}

TEST(KernelPlace, ManyPlacementsInOneCall) {
  for (const Place& place : places()) {
    std::mt19937_64 random(1);
    std::vector<Case> cases;
    for (int i = 0; i < 1200; ++i)
      cases.push_back(make_case({{2, 1 + i % 9}, 4, 10, 10, 10, 10, true, 0}, random));
    expect_placed(place, cases, 4, 4, "many", 1);
  }
}

TEST(KernelPlace, RefusesWhatMakesNoSense) {
  const auto code = [](const Place& place, const PlaceBatch& batch) {
    try {
      const auto queue = place.make_queue(1);
      place.kernels->place(*queue, batch);
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::cancelled;
  };
  for (const Place& place : places()) {
    EXPECT_EQ(code(place, {{}, kMaxAxes + 1, 4, 0}), ErrorCode::unsupported);
    EXPECT_EQ(code(place, {{}, 1, 0, 0}), ErrorCode::invalid_argument);
    EXPECT_EQ(code(place, {{}, 1, 6, 4}), ErrorCode::invalid_argument);
    Placement placement;
    placement.count[0] = -1;
    EXPECT_EQ(code(place, {{&placement, 1}, 1, 4, 0}), ErrorCode::invalid_argument);
    placement.count[0] = placement.count[1] = std::int64_t{1} << 40;
    EXPECT_EQ(code(place, {{&placement, 1}, 2, 4, 0}), ErrorCode::invalid_argument);
  }
}

}  // namespace
}  // namespace headrace::test
