// SPDX-License-Identifier: Apache-2.0
// T0. Retrieval metrics of a run against judgements.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "toller/core/error.hpp"

namespace toller {

/// Query id -> document id -> grade; above 0 is relevant.
using Qrels = std::map<std::string, std::map<std::string, int>>;

/// A document that was found.
struct ScoredDocument {
  std::string document{};
  double score = 0;
};

/// Query id -> what was found, in any order.
using Run = std::map<std::string, std::vector<ScoredDocument>>;

/// Name (`ndcg@10`) -> value.
using MetricValues = std::map<std::string, double>;

/// Where the reference programs disagree.
///
/// trec_eval               ties by document id, descending, after rounding scores to float32; nDCG with the grades as
///                         gains; MAP@k divides by all relevant documents. Also what ranx gives where scores differ.
/// sentence_transformers   ties keep the given order; nDCG with gain 1 for every grade above 0; MAP@k divides by the
///                         relevant documents, but by k at most.
enum class MetricRules { trec_eval, sentence_transformers };

/// The queries of the mean. A query without results has 0 everywhere.
///
/// answerable   those with a relevant document (as ranx and Sentence Transformers)
/// judged       all that have judgements (as `trec_eval -c`)
/// retrieved    those that have judgements and are named by the run (as plain trec_eval)
enum class MeanOver { answerable, judged, retrieved };

/// What to compute.
struct MetricOptions {
  std::vector<std::int64_t> at{1, 3, 5, 10, 100};
  MetricRules rules = MetricRules::trec_eval;
  MeanOver mean_over = MeanOver::answerable;
};

/// Values of each query, and their mean.
struct MetricReport {
  MetricValues mean{};
  std::map<std::string, MetricValues> per_query{};
};

/// accuracy@k, precision@k, recall@k, mrr@k, ndcg@k and map@k for every k of `options.at`.
///
/// DCG@k = sum over ranks r <= k of gain(r) / log2(r + 1); nDCG@k divides by that of the best order. Precision divides by k
/// even where fewer were found.
///
/// Errors   DataError R260: a score that is not a number; R261: a document twice in one query. ConfigError R262: k < 1.
/// Source   trec_eval; Sentence Transformers' InformationRetrievalEvaluator.
[[nodiscard]] MetricReport evaluate_run(const Qrels& qrels, const Run& run, const MetricOptions& options = {});

namespace detail {

/// The gains of the found documents, best first.
[[nodiscard]] inline std::vector<double> ranked_gains(const std::string& query, std::vector<ScoredDocument> found,
                                                      const std::map<std::string, int>& grades, MetricRules rules) {
  std::unordered_set<std::string_view> seen;
  for (const ScoredDocument& hit : found) {
    if (std::isnan(hit.score))
      throw DataError("R260", cat("run: query ", query, ": the score of document ", hit.document, " is not a number"));
    if (!seen.insert(hit.document).second)
      throw DataError("R261", cat("run: query ", query, ": document ", hit.document, " is there twice"));
  }
  std::vector<const ScoredDocument*> order;
  for (const ScoredDocument& hit : found) order.push_back(&hit);
  std::stable_sort(order.begin(), order.end(), [rules](const ScoredDocument* a, const ScoredDocument* b) {
    if (rules == MetricRules::sentence_transformers) return a->score > b->score;
    const auto x = static_cast<float>(a->score);
    const auto y = static_cast<float>(b->score);
    return x != y ? x > y : a->document > b->document;
  });
  std::vector<double> gains;
  for (const ScoredDocument* hit : order) {
    const auto judged = grades.find(hit->document);
    const int grade = judged == grades.end() ? 0 : std::max(0, judged->second);
    gains.push_back(rules == MetricRules::trec_eval ? grade : std::min(grade, 1));
  }
  return gains;
}

/// The best order of gains that the judgements allow.
[[nodiscard]] inline std::vector<double> best_gains(const std::map<std::string, int>& grades, MetricRules rules) {
  std::vector<double> gains;
  for (const auto& [document, grade] : grades)
    if (grade > 0) gains.push_back(rules == MetricRules::trec_eval ? grade : 1);
  std::sort(gains.begin(), gains.end(), std::greater<>());
  return gains;
}

/// DCG of the first k.
[[nodiscard]] inline double dcg(const std::vector<double>& gains, std::size_t k) {
  double sum = 0;
  for (std::size_t i = 0; i < std::min(k, gains.size()); ++i) sum += gains[i] / std::log2(static_cast<double>(i) + 2);
  return sum;
}

/// The metrics at one k. `gains` in the order found, `best` in the best order: as many as there are relevant documents.
inline void add_metrics(MetricValues& values, const std::vector<double>& gains, const std::vector<double>& best, std::size_t k,
                        MetricRules rules) {
  double hits = 0, precisions = 0, first = 0;
  for (std::size_t i = 0; i < std::min(k, gains.size()); ++i) {
    if (gains[i] <= 0) continue;
    precisions += ++hits / static_cast<double>(i + 1);
    if (first == 0) first = 1 / static_cast<double>(i + 1);
  }
  const std::size_t relevant = best.size();
  const std::size_t reachable = rules == MetricRules::sentence_transformers ? std::min(k, relevant) : relevant;
  const auto share = [](double part, double whole) { return whole > 0 ? part / whole : 0; };
  const std::string at = "@" + std::to_string(k);
  values["accuracy" + at] = hits > 0 ? 1 : 0;
  values["precision" + at] = hits / static_cast<double>(k);
  values["recall" + at] = share(hits, static_cast<double>(relevant));
  values["mrr" + at] = first;
  values["ndcg" + at] = share(dcg(gains, k), dcg(best, k));
  values["map" + at] = share(precisions, static_cast<double>(reachable));
}

}  // namespace detail

inline MetricReport evaluate_run(const Qrels& qrels, const Run& run, const MetricOptions& options) {
  for (const std::int64_t k : options.at)
    if (k < 1) throw ConfigError("R262", detail::cat("metrics: expected cuts of at least 1, got ", k));
  MetricReport report;
  for (const auto& [query, grades] : qrels) {
    const auto found = run.find(query);
    const std::vector<double> best = detail::best_gains(grades, options.rules);
    if (options.mean_over == MeanOver::answerable && best.empty()) continue;
    if (options.mean_over == MeanOver::retrieved && found == run.end()) continue;
    const std::vector<double> gains =
        found == run.end() ? std::vector<double>{} : detail::ranked_gains(query, found->second, grades, options.rules);
    MetricValues& values = report.per_query[query];
    for (const std::int64_t k : options.at)
      detail::add_metrics(values, gains, best, static_cast<std::size_t>(k), options.rules);
    for (const auto& [name, value] : values) report.mean[name] += value;
  }
  for (auto& [name, value] : report.mean) value /= static_cast<double>(report.per_query.size());
  return report;
}

}  // namespace toller
