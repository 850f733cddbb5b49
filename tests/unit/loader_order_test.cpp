#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "loader/order.h"
#include "loader/permutation.h"
#include "loader/sample_space.h"

namespace headrace::loader {
namespace {

std::vector<std::int64_t> numbers(std::int64_t n) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(n));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

TEST(Permutation, IsABijectionWithAnInverse) {
  for (std::int64_t n = 1; n < 300; ++n) {
    const Permutation permutation(n, mix({7, static_cast<std::uint64_t>(n)}));
    std::vector<std::int64_t> seen;
    for (std::int64_t i = 0; i < n; ++i) {
      seen.push_back(permutation(i));
      EXPECT_EQ(permutation.inverse(seen.back()), i);
    }
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(seen, numbers(n));
  }
}

TEST(Permutation, OfLargeRangesStaysInside) {
  const std::int64_t n = (std::int64_t{1} << 61) + 12345;
  const Permutation permutation(n, 3);
  for (std::int64_t i = 0; i < 1000; ++i) {
    const std::int64_t value = permutation(n - 1 - i);
    EXPECT_GE(value, 0);
    EXPECT_LT(value, n);
    EXPECT_EQ(permutation.inverse(value), n - 1 - i);
  }
}

// Each pair (position, value) comes as often as chance has it: chi-squared with 15 * 15 degrees of
// freedom, five standard deviations.
TEST(Permutation, OfManyKeysIsEven) {
  constexpr int kSize = 16, kKeys = 16000;
  std::vector<int> count(kSize * kSize);
  for (int key = 0; key < kKeys; ++key) {
    const Permutation permutation(kSize, mix({static_cast<std::uint64_t>(key)}));
    for (int i = 0; i < kSize; ++i) ++count[static_cast<std::size_t>(i * kSize + permutation(i))];
  }
  const double expected = static_cast<double>(kKeys) / kSize;
  double chi = 0;
  for (const int c : count) chi += (c - expected) * (c - expected) / expected;
  constexpr double kFreedom = (kSize - 1) * (kSize - 1);
  EXPECT_LT(std::abs(chi - kFreedom), 5 * std::sqrt(2 * kFreedom));
}

TEST(SampleSpace, LeavesOutWhatTouchesExcludedSteps) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    const std::int64_t steps = 5 + random() % 30, patches = 1 + random() % 3;
    std::vector<std::int64_t> offsets{0};
    for (auto i = random() % 3; i > 0; --i)
      offsets.push_back(offsets.back() + static_cast<std::int64_t>(random() % 3));
    std::vector<Range> excluded;
    for (auto i = random() % 4; i > 0; --i) {
      const std::int64_t begin = static_cast<std::int64_t>(random() % 40) - 3;
      excluded.emplace_back(begin, begin + static_cast<std::int64_t>(random() % 4));
    }
    const SampleSpace space(steps, offsets, excluded, patches);
    std::vector<std::int64_t> wanted;
    for (std::int64_t t = 0; t + offsets.back() < steps; ++t) {
      const bool touched = std::any_of(excluded.begin(), excluded.end(), [&](const Range& range) {
        return std::any_of(offsets.begin(), offsets.end(), [&](std::int64_t offset) {
          return t + offset >= range.first && t + offset < range.second;
        });
      });
      for (std::int64_t p = 0; p < patches && !touched; ++p) wanted.push_back(t);
    }
    ASSERT_EQ(space.size(), static_cast<std::int64_t>(wanted.size()));
    for (std::int64_t s = 0; s < space.size(); ++s) {
      EXPECT_EQ(space.start_of(s), wanted[static_cast<std::size_t>(s)]);
      EXPECT_EQ(space.patch_of(s), s % patches);
    }
    for (std::int64_t t = -2; t < steps + 2; ++t)
      EXPECT_EQ(space.first_from(t),
                std::lower_bound(wanted.begin(), wanted.end(), t) - wanted.begin());
  }
}

std::vector<std::int64_t> random_blocks(std::mt19937& random, unsigned least) {
  std::vector<std::int64_t> blocks{0};
  for (auto count = least + random() % 30; count > 0; --count)
    blocks.push_back(blocks.back() + 1 + random() % 20);
  return blocks;
}

OrderOptions random_options(std::mt19937& random) {
  OrderOptions options;
  options.shuffle = std::array{Shuffle::none, Shuffle::block, Shuffle::global}[random() % 3];
  options.seed = random();
  options.mixture = Mixture({1}, 1 + random() % 9);
  options.sources.push_back(
      {true, 1 + static_cast<std::int64_t>(random() % 4), random_blocks(random, 0)});
  options.size = options.sources[0].samples();
  return options;
}

// Of several sources, for as many samples as it happens to be.
OrderOptions random_mixture(std::mt19937& random) {
  OrderOptions options = random_options(random);
  options.sources.clear();
  std::vector<double> weights;
  for (auto count = 1 + random() % 4; count > 0; --count) {
    weights.push_back(0.1 + static_cast<double>(random() % 30));
    options.sources.push_back(
        {true, 1 + static_cast<std::int64_t>(random() % 4), random_blocks(random, 1)});
  }
  options.mixture = Mixture(weights, 1 + random() % 9);
  options.size = 1 + random() % 1000;
  return options;
}

std::vector<std::int64_t> samples_of(const Order& order) {
  std::vector<std::int64_t> samples;
  for (std::int64_t p = 0; p < order.size(); ++p) samples.push_back(order.sample_at(p));
  return samples;
}

TEST(Order, HasEverySampleOnce) {
  std::mt19937 random(2);
  for (int round = 0; round < 500; ++round) {
    const Order order(random_options(random), round);
    std::vector<std::int64_t> samples = samples_of(order);
    std::sort(samples.begin(), samples.end());
    ASSERT_EQ(samples, numbers(order.size()));
  }
}

// A source that gives n of its s samples gives each n / s times, rounded down or up.
TEST(Order, TakesSamplesOfASourceEquallyOften) {
  std::mt19937 random(4);
  for (int round = 0; round < 500; ++round) {
    const OrderOptions options = random_mixture(random);
    const Order order(options, round);
    std::vector<std::int64_t> first{0};
    for (const SequenceOptions& source : options.sources)
      first.push_back(first.back() + source.samples());
    std::vector<std::int64_t> times(static_cast<std::size_t>(first.back()));
    for (const std::int64_t sample : samples_of(order))
      ++times.at(static_cast<std::size_t>(sample));
    for (std::size_t s = 0; s < options.sources.size(); ++s) {
      const std::int64_t drawn = options.mixture.count(s, options.size);
      const std::int64_t least = drawn / options.sources[s].samples();
      std::int64_t sum = 0;
      for (auto sample = first[s]; sample < first[s + 1]; ++sample) {
        const std::int64_t found = times[static_cast<std::size_t>(sample)];
        ASSERT_TRUE(found == least || found == least + 1) << found << " of " << least;
        sum += found;
      }
      ASSERT_EQ(sum, drawn);
    }
  }
}

TEST(Order, BeginsPassesInNewOrders) {
  OrderOptions options;
  options.mixture = Mixture({1}, 1);
  options.sources.push_back({true, 2, {0, 10, 20, 30, 40, 50}});
  options.size = 150;
  for (const Shuffle shuffle : {Shuffle::block, Shuffle::global}) {
    options.shuffle = shuffle;
    const std::vector<std::int64_t> samples = samples_of(Order(options, 0));
    std::set<std::vector<std::int64_t>> passes;
    for (int pass = 0; pass < 3; ++pass)
      passes.emplace(samples.begin() + 50 * pass, samples.begin() + 50 * (pass + 1));
    EXPECT_EQ(passes.size(), 3u);
  }
}

void check_next_use(const OrderOptions& options, std::mt19937& random) {
  const Order order(options, 0);
  const std::vector<std::int64_t> samples = samples_of(order);
  const std::size_t s = random() % options.sources.size();
  std::int64_t first = 0;
  for (std::size_t before = 0; before < s; ++before) first += options.sources[before].samples();
  const std::int64_t size = options.sources[s].samples();
  if (size == 0) return;
  const std::int64_t begin = first + static_cast<std::int64_t>(random()) % size;
  const std::int64_t end = std::min<std::int64_t>(begin + 1 + random() % 40, first + size);
  std::int64_t wanted = kNever;
  for (std::int64_t position = order.size(); position >= 0; --position) {
    if (position < order.size()) {
      const std::int64_t sample = samples[static_cast<std::size_t>(position)];
      if (sample >= begin && sample < end) wanted = position;
    }
    const std::int64_t next = order.next_use({begin, end}, position);
    ASSERT_LE(next, wanted);
    ASSERT_GE(next, position);
    if (options.shuffle != Shuffle::block || wanted == kNever) {
      ASSERT_EQ(next, wanted);
    }
  }
}

TEST(Order, NextUseIsNeverLate) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    check_next_use(random_options(random), random);
    check_next_use(random_mixture(random), random);
  }
}

// Blocks of a lane are mixed a window at a time, and lanes turn to new blocks at different times.
TEST(Order, BlocksAreReadInFewStretches) {
  SequenceOptions blocks{true, 2, {}};
  for (std::int64_t i = 0; i <= 400; ++i) blocks.blocks.push_back(i * 10);
  OrderOptions options;
  options.mixture = Mixture({1}, 8);
  options.size = blocks.samples();
  options.sources.push_back(std::move(blocks));
  const Order order(options, 0);
  std::set<std::int64_t> active;
  std::vector<std::int64_t> first(400, -1), last(400, -1);
  for (std::int64_t p = 0; p < order.size(); ++p) {
    const auto block = static_cast<std::size_t>(order.sample_at(p) / 10);
    if (first[block] < 0) first[block] = p;
    last[block] = p;
  }
  std::size_t longest = 0;
  std::vector<int> begun(static_cast<std::size_t>(order.size()));
  for (std::size_t b = 0; b < 400; ++b) {
    // Those that two lanes share are at the end of one and at the beginning of the other.
    if (last[b] - first[b] > order.size() / 2) continue;
    longest = std::max(longest, static_cast<std::size_t>(last[b] - first[b]));
    ++begun[static_cast<std::size_t>(first[b])];
  }
  EXPECT_LE(longest, 2u * 2 * 10 * 8);
  for (std::int64_t p = 100; p + 40 < order.size(); p += 40) {
    const int in_stretch = std::accumulate(begun.begin() + p, begun.begin() + p + 40, 0);
    EXPECT_LE(in_stretch, 12) << p;  // 4 if they were even, 16 if all lanes turned at once
  }
}

}  // namespace
}  // namespace headrace::loader
