// SPDX-License-Identifier: Apache-2.0
#include "toller/batch/deal.hpp"

#include <cmath>
#include <limits>
#include <numeric>

#include "toller/core/seed.hpp"

using namespace toller;
using Numbers = std::vector<std::int64_t>;

namespace {

std::int64_t number(std::int64_t i, std::int64_t n, std::uint64_t seed) {
  return static_cast<std::int64_t>(mix_seed(seed, i) % static_cast<std::uint64_t>(n));
}

/// Tokens of a pair: log-normal around 90, as in package descriptions, and cut at the two limits.
Numbers text_lengths(std::int64_t n, std::uint64_t seed) {
  Numbers cost;
  for (std::int64_t i = 0; i < n; ++i) {
    double normal = -6;  // the sum of 12 uniform numbers
    for (int k = 0; k < 12; ++k) normal += static_cast<double>(mix_seed(seed, i, k) >> 11) * 0x1p-53;
    cost.push_back(std::clamp<std::int64_t>(static_cast<std::int64_t>(std::exp(4.5 + 0.6 * normal)), 20, 332));
  }
  return cost;
}

Numbers sums(const Numbers& cost, const std::vector<Numbers>& dealt) {
  Numbers result;
  for (const Numbers& part : dealt) {
    result.push_back(0);
    for (const std::int64_t i : part) result.back() += std::max<std::int64_t>(cost[static_cast<std::size_t>(i)], 1);
  }
  return result;
}

std::int64_t largest(const Numbers& values) {
  return *std::max_element(values.begin(), values.end());
}

double imbalance(const Numbers& sums) {
  const auto total = std::accumulate(sums.begin(), sums.end(), std::int64_t{0});
  return static_cast<double>(largest(sums) * std::ssize(sums)) / static_cast<double>(total);
}

/// The least largest sum there is, by trying everything.
std::int64_t optimum(const Numbers& cost, std::size_t next, Numbers& load) {
  if (next == cost.size()) return largest(load);
  std::int64_t best = std::numeric_limits<std::int64_t>::max();
  for (std::int64_t& part : load) {
    part += cost[next];
    best = std::min(best, optimum(cost, next + 1, load));
    part -= cost[next];
  }
  return best;
}

}  // namespace

TEST_CASE("the most costly first, to the part that has least") {
  CHECK(deal(Numbers{5, 9, 4, 4, 1}, 2) == std::vector<Numbers>{{1, 3}, {0, 2, 4}});
  CHECK(deal(Numbers{3, 3, 3, 3}, 2) == std::vector<Numbers>{{0, 2}, {1, 3}});
  CHECK(deal(Numbers{0, 0, -4}, 2) == std::vector<Numbers>{{0, 2}, {1}});
  CHECK(deal(Numbers{7, 8}, 3) == std::vector<Numbers>{{1}, {0}, {}});
  CHECK(deal(Numbers{4, 9, 1}, 1) == std::vector<Numbers>{{0, 1, 2}});
  CHECK(deal({}, 2) == std::vector<Numbers>{{}, {}});
  CHECK_THROWS_WITH(deal(Numbers{1}, 0), "[R228] deal: expected one part or more, got 0");
}

TEST_CASE("every index goes to one part, always the same, and no part passes the mean by more than one cost", "[laws]") {
  for (const std::int64_t n : {0, 1, 2, 9, 64, 500})
    for (const std::int64_t parts : {1, 2, 3, 8, 17})
      for (const std::uint64_t seed : {1U, 2U, 3U}) {
        Numbers cost;
        for (std::int64_t i = 0; i < n; ++i) cost.push_back(number(i, seed == 1 ? 4 : 300, seed));
        const auto dealt = deal(cost, parts);
        CHECK(dealt == deal(cost, parts));
        REQUIRE(std::ssize(dealt) == parts);
        Numbers all;
        for (const Numbers& part : dealt) {
          CHECK(std::is_sorted(part.begin(), part.end()));
          all.insert(all.end(), part.begin(), part.end());
        }
        std::sort(all.begin(), all.end());
        Numbers expected(cost.size());
        std::iota(expected.begin(), expected.end(), 0);
        CHECK(all == expected);
        if (n == 0) continue;
        const Numbers sum = sums(cost, dealt);
        const std::int64_t total = std::accumulate(sum.begin(), sum.end(), std::int64_t{0});
        CHECK(largest(sum) * parts <= total + (parts - 1) * std::max<std::int64_t>(largest(cost), 1));
      }
}

TEST_CASE("the largest sum is at most 4/3 - 1/(3 parts) of the least possible one", "[laws]") {
  for (std::uint64_t seed = 0; seed < 60; ++seed)
    for (const std::int64_t parts : {2, 3}) {
      Numbers cost;
      for (std::int64_t i = 0; i < 3 + static_cast<std::int64_t>(seed % 6); ++i) cost.push_back(1 + number(i, 40, seed));
      Numbers load(static_cast<std::size_t>(parts));
      CHECK(3 * parts * largest(sums(cost, deal(cost, parts))) <= (4 * parts - 1) * optimum(cost, 0, load));
    }
  // Here the bound is reached.
  CHECK(largest(sums({3, 3, 2, 2, 2}, deal(Numbers{3, 3, 2, 2, 2}, 2))) == 7);
}

TEST_CASE("with the lengths of texts, 32 to a part, no part has 2 % more than the mean", "[laws]") {
  double worst = 1, by_count = 1;
  for (const std::int64_t parts : {2, 3, 4, 8})
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
      const Numbers cost = text_lengths(32 * parts, seed);
      worst = std::max(worst, imbalance(sums(cost, deal(cost, parts))));
      std::vector<Numbers> blocks(static_cast<std::size_t>(parts));
      for (std::int64_t i = 0; i < 32 * parts; ++i) blocks[static_cast<std::size_t>(i / 32)].push_back(i);
      by_count = std::max(by_count, imbalance(sums(cost, blocks)));
    }
  INFO("worst max/mean " << worst << "; 32 rows each " << by_count);
  CHECK(worst <= 1.02);
  CHECK(by_count > 1.1);
}
