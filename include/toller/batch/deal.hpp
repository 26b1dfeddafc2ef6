// SPDX-License-Identifier: Apache-2.0
// T0. Things of different cost, dealt to parts of nearly equal cost.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <queue>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "toller/core/error.hpp"

namespace toller {

namespace detail {

inline void expect_rank(std::string_view what, std::int64_t rank, std::int64_t world_size) {
  if (rank < 0 || rank >= world_size) throw ConfigError("R228", cat(what, ": no rank ", rank, " of ", world_size));
}

}  // namespace detail

/// The most costly first, each to the part that has least so far: what each part gets, in ascending order.
///
/// Every index goes to exactly one part; equal costs go lower index first and to the lower part, so that all ranks deal
/// alike. Costs below 1 count as 1. With fewer costs than parts the last parts get nothing.
///
/// Errors   ConfigError R228: no part.
/// Cost     n (log n + log parts) steps. The largest sum is at most 4/3 of the least possible one, and at most the mean plus
///          the largest cost.
/// Source   Graham 1969, "Bounds on multiprocessing timing anomalies".
[[nodiscard]] inline std::vector<std::vector<std::int64_t>> deal(std::span<const std::int64_t> cost, std::int64_t parts) {
  if (parts < 1) throw ConfigError("R228", detail::cat("deal: expected one part or more, got ", parts));
  const auto cost_of = [&](std::int64_t i) { return std::max<std::int64_t>(cost[static_cast<std::size_t>(i)], 1); };
  std::vector<std::int64_t> order(cost.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) { return cost_of(a) > cost_of(b); });

  using Load = std::pair<std::int64_t, std::size_t>;  // the sum so far, and whose it is
  std::priority_queue<Load, std::vector<Load>, std::greater<>> lightest;
  std::vector<std::vector<std::int64_t>> dealt(static_cast<std::size_t>(parts));
  for (std::size_t part = 0; part < dealt.size(); ++part) lightest.emplace(0, part);
  for (const std::int64_t i : order) {
    const auto [sum, part] = lightest.top();
    lightest.pop();
    dealt[part].push_back(i);
    lightest.emplace(sum + cost_of(i), part);
  }
  for (auto& part : dealt) std::sort(part.begin(), part.end());
  return dealt;
}

}  // namespace toller
