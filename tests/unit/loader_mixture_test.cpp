#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

#include "loader/mixture.h"

namespace headrace::loader {
namespace {

std::vector<double> random_weights(std::mt19937& random) {
  std::vector<double> weights;
  for (auto count = 1 + random() % 6; count > 0; --count)
    weights.push_back(std::exp2(static_cast<double>(random() % 160) / 16));
  return weights;
}

TEST(EvenPart, CountsWhatItHas) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    const EvenPart part(static_cast<double>(1 + random() % 999) / 1000,
                        static_cast<double>(random() % 1000) / 1000);
    const EvenPart others = part.complement();
    std::int64_t in_part = 0, in_others = 0;
    for (std::int64_t number = 0; number < 300; ++number) {
      ASSERT_EQ(part.count(number), in_part);
      ASSERT_EQ(others.count(number), in_others);
      if (part.count(number + 1) > in_part)
        ASSERT_EQ(part.at(in_part++), number);
      else
        ASSERT_EQ(others.at(in_others++), number);
    }
  }
}

TEST(EvenPart, OfLargeNumbersIsExact) {
  for (const double share : {0.0, 1e-9, 0.3, 0.75, 1.0}) {
    const EvenPart part(share, 0.4), others = part.complement();
    const std::int64_t end = (std::int64_t{1} << 61) + 12345;
    EXPECT_EQ(part.count(end) + others.count(end), end);
    for (std::int64_t n = part.count(end) - 50; n < part.count(end); ++n) {
      EXPECT_EQ(part.count(part.at(n)), n);
      EXPECT_EQ(part.count(part.at(n) + 1), n + 1);
    }
  }
}

TEST(Mixture, KnowsWhereEachDrawIs) {
  std::mt19937 random(2);
  for (int round = 0; round < 200; ++round) {
    const Mixture mixture(random_weights(random), 1 + random() % 9);
    std::vector<std::int64_t> drawn(mixture.sources());
    std::vector<std::vector<std::int64_t>> in_lane(
        mixture.sources(), std::vector<std::int64_t>(static_cast<std::size_t>(mixture.lanes())));
    for (std::int64_t position = 0; position < 500; ++position) {
      for (std::size_t s = 0; s < mixture.sources(); ++s)
        ASSERT_EQ(mixture.count(s, position), drawn[s]);
      const Mixture::Draw draw = mixture.at(position);
      EXPECT_EQ(draw.lane, position % mixture.lanes());
      std::int64_t& number = in_lane[draw.source][static_cast<std::size_t>(draw.lane)];
      ASSERT_EQ(draw.number, number);
      EXPECT_EQ(mixture.count_in_lane(draw.source, draw.lane, position), number);
      EXPECT_EQ(mixture.position_of(draw), position);
      EXPECT_EQ(mixture.position_of(draw.source, drawn[draw.source]), position);
      ++number;
      ++drawn[draw.source];
    }
  }
}

// In every prefix, of the whole and of what each rank of a world size gets that divides the lanes.
TEST(Mixture, FollowsTheWeightsClosely) {
  std::mt19937 random(3);
  for (int round = 0; round < 100; ++round) {
    const std::vector<double> weights = random_weights(random);
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    const Mixture mixture(weights, 8);
    for (const std::int64_t world_size : {1, 2, 4, 8}) {
      for (std::int64_t rank = 0; rank < world_size; ++rank) {
        std::vector<double> drawn(weights.size());
        for (std::int64_t i = 0; i < 400; ++i) {
          drawn[mixture.at(i * world_size + rank).source] += 1;
          for (std::size_t s = 0; s < weights.size(); ++s)
            ASSERT_LT(std::abs(drawn[s] - static_cast<double>(i + 1) * weights[s] / sum), 5)
                << "rank " << rank << " of " << world_size;
        }
      }
    }
  }
}

TEST(Mixture, EndsEpochsWhereSourcesDo) {
  std::mt19937 random(4);
  for (int round = 0; round < 200; ++round) {
    const Mixture mixture(random_weights(random), 1 + random() % 9);
    std::vector<std::int64_t> samples;
    for (std::size_t s = 0; s < mixture.sources(); ++s) samples.push_back(1 + random() % 100);
    const auto most = [&](std::int64_t length, int more) {
      std::size_t sources = 0;
      for (std::size_t s = 0; s < samples.size(); ++s)
        sources += mixture.count(s, length) >= samples[s] + more ? 1 : 0;
      return sources;
    };
    const std::int64_t first = first_exhausted(mixture, samples);
    EXPECT_EQ(most(first, 1), 0u);
    EXPECT_EQ(most(first + 1, 1), 1u);
    const std::int64_t all = all_exhausted(mixture, samples);
    EXPECT_EQ(most(all, 0), samples.size());
    EXPECT_EQ(most(all - 1, 0), samples.size() - 1);
  }
}

}  // namespace
}  // namespace headrace::loader
