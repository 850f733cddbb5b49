#include "kernels/place/gather.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "headrace/error.h"
#include "kernels/queues.h"
#include "loader/host_gather.h"
#include "simt/host_queue.h"

namespace headrace::test {
namespace {

constexpr std::array kSources{Number::boolean,
                              Number::int8,
                              Number::int16,
                              Number::int32,
                              Number::int64,
                              Number::uint8,
                              Number::uint16,
                              Number::uint32,
                              Number::uint64,
                              Number::float16,
                              Number::float32,
                              Number::float64,
                              Number::bfloat16};
constexpr std::array kTargets{Number::float16, Number::bfloat16, Number::float32, Number::float64};

std::int64_t size_of(Number number) {
  switch (number) {
    case Number::boolean:
    case Number::int8:
    case Number::uint8:
      return 1;
    case Number::int16:
    case Number::uint16:
    case Number::float16:
    case Number::bfloat16:
      return 2;
    case Number::int32:
    case Number::uint32:
    case Number::float32:
      return 4;
    default:
      return 8;
  }
}

bool is_nan(const std::uint8_t* p, Number number) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, p, static_cast<std::size_t>(size_of(number)));
  switch (number) {
    case Number::float16:
      return (bits & 0x7fff) > 0x7c00;
    case Number::bfloat16:
      return (bits & 0x7fff) > 0x7f80;
    case Number::float32:
      return std::isnan(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
    default:
      return std::isnan(std::bit_cast<double>(bits));
  }
}

// Boxes between two buffers, in any order of the axes on either side, with gaps.
struct Case {
  GatherFormat format;
  unsigned axes = 0;
  std::vector<std::uint8_t> source, target;
  std::vector<GatherBox> boxes;  // offsets in place of addresses
};

void lay_out(std::int64_t (&strides)[kMaxAxes],
             const std::int64_t (&count)[kMaxAxes],
             unsigned axes,
             std::int64_t& end,
             std::int64_t itemsize,
             std::mt19937_64& random) {
  std::vector<unsigned> order(axes);
  std::iota(order.begin(), order.end(), 0u);
  if (random() % 2 == 0) std::shuffle(order.begin(), order.end(), random);
  std::int64_t stride = itemsize;
  for (std::size_t i = axes; i-- > 0;) {
    if (random() % 4 == 0) stride += itemsize;
    strides[order[i]] = stride;
    stride *= count[order[i]];
  }
  end += stride;
}

Case random_case(const GatherFormat& format, std::int64_t most, std::mt19937_64& random) {
  Case c{format, 1 + static_cast<unsigned>(random() % 4), {}, {}, {}};
  std::int64_t source_end = 0, target_end = 0;
  for (unsigned b = 1 + random() % 4; b > 0; --b) {
    GatherBox box;
    for (unsigned i = 0; i < c.axes; ++i)
      box.count[i] = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most));
    const std::int64_t source_at = source_end, target_at = target_end;
    lay_out(box.from, box.count, c.axes, source_end, size_of(format.from), random);
    lay_out(box.to, box.count, c.axes, target_end, size_of(format.to), random);
    if (random() % 8 == 0) std::fill(std::begin(box.from), std::end(box.from), 0);
    box.source = reinterpret_cast<const std::uint8_t*>(source_at);
    box.target = reinterpret_cast<std::uint8_t*>(target_at);
    if (random() % 2 == 0) {
      box.mean = static_cast<double>(random() % 1000) / 7 - 50;
      box.std = static_cast<double>(random() % 1000 + 1) / 13;
    }
    c.boxes.push_back(box);
  }
  c.source.resize(static_cast<std::size_t>(source_end) + 16);
  for (auto& byte : c.source) byte = static_cast<std::uint8_t>(random());
  c.target.assign(static_cast<std::size_t>(target_end) + 16, 0xcd);
  return c;
}

GatherBatch batch_of(const Case& c,
                     std::vector<GatherBox>& boxes,
                     const std::uint8_t* source,
                     std::uint8_t* target) {
  boxes = c.boxes;
  for (GatherBox& box : boxes) {
    box.source = source + reinterpret_cast<std::intptr_t>(box.source);
    box.target = target + reinterpret_cast<std::intptr_t>(box.target);
  }
  return {boxes, c.axes, c.format};
}

void expect_equal(const Case& c,
                  const std::vector<std::uint8_t>& got,
                  const std::vector<std::uint8_t>& wanted) {
  const auto size = static_cast<std::size_t>(size_of(c.format.to));
  for (std::size_t i = 0; i + size <= got.size(); i += size) {
    if (is_nan(&got[i], c.format.to) && is_nan(&wanted[i], c.format.to)) continue;
    ASSERT_EQ(std::memcmp(&got[i], &wanted[i], size), 0)
        << "element " << i / size << " from " << static_cast<int>(c.format.from) << " to "
        << static_cast<int>(c.format.to);
  }
}

void check(const Case& c, const Place& place, std::uint64_t seed) {
  std::vector<GatherBox> boxes;
  std::vector<std::uint8_t> wanted = c.target, got(c.target.size());
  loader::gather_on_host(batch_of(c, boxes, c.source.data(), wanted.data()));
  const auto queue = place.make_queue(seed);
  const auto source = Scratch<std::uint8_t>::of(*queue, c.source.data(), c.source.size());
  const auto target = Scratch<std::uint8_t>::of(*queue, c.target.data(), c.target.size());
  place.kernels->gather(*queue, batch_of(c, boxes, source.data(), target.data()));
  queue->download(got.data(), target.data(), got.size());
  queue->synchronize();
  expect_equal(c, got, wanted);
}

TEST(Gather, ConvertsAsTheHostDoes) {
  std::mt19937_64 random(1);
  for (const Place& place : places()) {
    for (const Number from : kSources)
      for (const Number to : kTargets)
        for (int round = 0; round < 4; ++round) {
          GatherFormat format{from, to};
          if (round % 2 == 1) format.nan_fill = -2.5;
          check(random_case(format, 9, random), place, random());
          if (HasFatalFailure()) return;
        }
  }
}

TEST(Gather, TakesLargeBoxesApart) {
  std::mt19937_64 random(2);
  const GatherFormat format{Number::int16, Number::float32};
  for (int round = 0; round < 20; ++round) {
    const Case c = random_case(format, 12, random);
    std::vector<GatherBox> boxes;
    std::vector<std::uint8_t> wanted = c.target, got = c.target;
    loader::gather_on_host(batch_of(c, boxes, c.source.data(), wanted.data()));
    HostQueue queue(random());
    host::gather_within(queue, batch_of(c, boxes, c.source.data(), got.data()), 50);
    queue.synchronize();
    expect_equal(c, got, wanted);
    if (HasFatalFailure()) return;
  }
}

TEST(Gather, RefusesMoreAxesThanThereAre) {
  HostQueue queue(1);
  EXPECT_THROW(host::gather(queue, {{}, kMaxAxes + 1, {}}), Error);
}

}  // namespace
}  // namespace headrace::test
