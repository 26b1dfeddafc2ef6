// SPDX-License-Identifier: Apache-2.0
// T0. Metrics of one reranked list, and correlations of scores with labels.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "toller/core/error.hpp"
#include "toller/evaluate/metrics.hpp"

namespace toller {

/// How well one list was reranked. MRR and nDCG look at the first k, average precision at the whole list.
struct RerankingMetrics {
  double mrr = 0;
  double ndcg = 0;
  double average_precision = 0;
};

/// The metrics of documents with these labels (above 0 is relevant, nDCG takes them as gains) ordered by these scores; equal
/// scores keep their order.
///
/// Errors   DataError R263: labels and scores differ in number, or a score is not a number.
[[nodiscard]] inline RerankingMetrics reranking_metrics(const std::vector<double>& labels, const std::vector<double>& scores,
                                                        std::int64_t k) {
  if (labels.size() != scores.size())
    throw DataError("R263", detail::cat("reranking: ", labels.size(), " labels, but ", scores.size(), " scores"));
  for (const double score : scores)
    if (std::isnan(score)) throw DataError("R263", "reranking: a score is not a number");
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
  std::vector<double> gains, best;
  for (const std::size_t i : order) gains.push_back(std::max(0.0, labels[i]));
  for (const double gain : gains)
    if (gain > 0) best.push_back(gain);
  std::sort(best.begin(), best.end(), std::greater<>());
  MetricValues first, all;
  const auto size = std::max<std::size_t>(1, gains.size());
  detail::add_metrics(first, gains, best, static_cast<std::size_t>(k), MetricRules::trec_eval);
  detail::add_metrics(all, gains, best, size, MetricRules::trec_eval);
  const auto value = [](const MetricValues& values, const char* metric, std::size_t cut) {
    return values.at(metric + std::string("@") + std::to_string(cut));
  };
  return {value(first, "mrr", static_cast<std::size_t>(k)), value(first, "ndcg", static_cast<std::size_t>(k)),
          value(all, "map", size)};
}

/// Pearson's correlation; not a number when a side is constant or has fewer than two values.
///
/// Errors   DataError R264: sides of different length.
[[nodiscard]] inline double pearson(const std::vector<double>& x, const std::vector<double>& y) {
  if (x.size() != y.size()) throw DataError("R264", detail::cat("correlation of ", x.size(), " values with ", y.size()));
  const auto count = static_cast<double>(x.size());
  const double mean_x = std::accumulate(x.begin(), x.end(), 0.0) / count;
  const double mean_y = std::accumulate(y.begin(), y.end(), 0.0) / count;
  double xx = 0, yy = 0, xy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xx += (x[i] - mean_x) * (x[i] - mean_x);
    yy += (y[i] - mean_y) * (y[i] - mean_y);
    xy += (x[i] - mean_x) * (y[i] - mean_y);
  }
  return xy / (std::sqrt(xx) * std::sqrt(yy));
}

namespace detail {

/// Ranks from 1; equal values share the mean of their ranks.
[[nodiscard]] inline std::vector<double> average_ranks(const std::vector<double>& x) {
  std::vector<std::size_t> order(x.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return x[a] < x[b]; });
  std::vector<double> ranks(x.size());
  for (std::size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    while (end < order.size() && x[order[end]] == x[order[begin]]) ++end;
    for (std::size_t i = begin; i < end; ++i) ranks[order[i]] = static_cast<double>(begin + 1 + end) / 2;
  }
  return ranks;
}

}  // namespace detail

/// Spearman's correlation: Pearson's of the ranks, where equal values share the mean of their ranks.
///
/// Errors   DataError R264: sides of different length, or a value that is not a number.
[[nodiscard]] inline double spearman(const std::vector<double>& x, const std::vector<double>& y) {
  for (const auto* side : {&x, &y})
    for (const double value : *side)
      if (std::isnan(value)) throw DataError("R264", "correlation: a value is not a number");
  return pearson(detail::average_ranks(x), detail::average_ranks(y));
}

}  // namespace toller
