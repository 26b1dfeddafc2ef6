// SPDX-License-Identifier: Apache-2.0
// T2. Exact search over pooled documents, and how good it is.
#pragma once

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/where.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "toller/core/error.hpp"
#include "toller/core/fields.hpp"
#include "toller/core/values.hpp"
#include "toller/evaluate/beir.hpp"
#include "toller/evaluate/metrics.hpp"
#include "toller/similarity/similarity.hpp"

namespace toller {

/// The best documents of each query, best first; equal scores have the lowest document number first.
///
/// Shapes   scores [B, k] float32, documents [B, k] int64: rows of the searched documents, k at most their number. On the host.
struct Ranking {
  at::Tensor scores{};
  at::Tensor documents{};
};

/// How many queries are compared with how many documents at a time.
struct SearchOptions {
  std::int64_t query_block = 256;
  std::int64_t document_block = 4096;
};

/// The `k` best documents of each query, by comparing all.
///
/// Types    scores are compared in float32.
/// Errors   ConfigError R269: k or a block below 1, or 2^31 documents; NumericError R270: a score that is not a number.
/// Cost     memory for one block of scores (four times: 16 MB with the usual blocks) and k results a query.
template <Similarity S>
[[nodiscard]] Ranking search(const S& similarity, const typename S::input_type& queries,
                             const typename S::input_type& documents, std::int64_t k, const SearchOptions& options = {});

/// A ranking of numbered rows as a run of ids.
[[nodiscard]] Run to_run(const Ranking& ranking, const std::vector<std::string>& query_ids,
                         const std::vector<std::string>& document_ids);

/// What is said about a retriever: means over the queries that have a relevant document, by the rules of trec_eval.
struct RetrievalReport {
  static constexpr std::string_view name = "RetrievalReport";
  double ndcg_at_10 = 0;
  double mrr_at_10 = 0;
  double map_at_100 = 0;
  double recall_at_100 = 0;
  double accuracy_at_1 = 0;

  static void fields(auto& self, auto&& visit) {
    visit("ndcg@10", self.ndcg_at_10);
    visit("mrr@10", self.mrr_at_10);
    visit("map@100", self.map_at_100);
    visit("recall@100", self.recall_at_100);
    visit("accuracy@1", self.accuracy_at_1);
  }
};

/// Searches with pooled queries and documents, in the order of `data`, and compares with its judgements.
///
/// Errors   those of `search`; ShapeError R301: as many rows as texts are expected.
template <Similarity S>
[[nodiscard]] RetrievalReport evaluate_retrieval(const S& similarity, const typename S::input_type& queries,
                                                 const typename S::input_type& documents, const RetrievalData& data,
                                                 const SearchOptions& options = {});

namespace detail {

inline constexpr std::int64_t last_document = 0x7FFFFFFF;

/// Score and document number as one integer that orders by score, then by lower number: no two are equal, so that a search
/// for the greatest has one answer on every device.
[[nodiscard]] inline at::Tensor ranking_keys(const at::Tensor& scores, std::int64_t first_document) {
  const at::Tensor bits = scores.to(at::kFloat).add(0.0).contiguous().view(at::kInt);  // + 0: -0 becomes 0
  const at::Tensor ordered = at::where(bits.lt(0), bits.bitwise_xor(0x7FFFFFFF), bits).to(at::kLong);
  const at::Tensor numbers = at::arange(first_document, first_document + scores.size(1), ordered.options());
  return ordered.mul(std::int64_t{1} << 32).add(numbers.neg().add(last_document));
}

[[nodiscard]] inline Ranking from_keys(const at::Tensor& keys) {
  const at::Tensor ordered = keys.bitwise_right_shift(at::Scalar(32)).to(at::kInt);
  const at::Tensor bits = at::where(ordered.lt(0), ordered.bitwise_xor(0x7FFFFFFF), ordered);
  const at::Tensor numbers = keys.bitwise_and(std::int64_t{0xFFFFFFFF}).neg().add(last_document);
  return {bits.contiguous().view(at::kFloat), numbers};
}

}  // namespace detail

template <Similarity S>
Ranking search(const S& similarity, const typename S::input_type& queries, const typename S::input_type& documents,
               std::int64_t k, const SearchOptions& options) {
  if (k < 1 || options.query_block < 1 || options.document_block < 1 || documents.size() > detail::last_document)
    throw ConfigError(
        "R269", detail::cat("search: expected k and blocks of at least 1 and fewer than 2^31 documents, got k ", k, ", blocks ",
                            options.query_block, " and ", options.document_block, ", ", documents.size(), " documents"));
  const c10::AutoGradMode no_grad(false);
  std::vector<at::Tensor> found;
  for (std::int64_t q = 0; q < queries.size(); q += options.query_block) {
    const auto some_queries = queries.slice(q, std::min(queries.size(), q + options.query_block));
    at::Tensor best = at::empty({some_queries.size(), 0}, queries.values.options().dtype(at::kLong));
    for (std::int64_t d = 0; d < documents.size(); d += options.document_block) {
      const auto some_documents = documents.slice(d, std::min(documents.size(), d + options.document_block));
      const at::Tensor scores = similarity.scores(some_queries, some_documents);
      if (scores.isnan().any().template item<bool>())
        throw NumericError("R270", detail::cat("search: a score of queries ", q, " .. ", q + some_queries.size(),
                                               " with documents ", d, " .. ", d + some_documents.size(), " is not a number"));
      best = at::cat({best, detail::ranking_keys(scores, d)}, 1);
      best = std::get<0>(best.topk(std::min(k, best.size(1)), 1));
    }
    found.push_back(best.to(at::kCPU));
  }
  return detail::from_keys(found.empty() ? at::empty({0, std::min(k, documents.size())}, at::kLong) : at::cat(found, 0));
}

inline Run to_run(const Ranking& ranking, const std::vector<std::string>& query_ids,
                  const std::vector<std::string>& document_ids) {
  Run run;
  const at::Tensor scores = ranking.scores.contiguous(), documents = ranking.documents.contiguous();
  const auto* score = scores.const_data_ptr<float>();
  const auto* document = documents.const_data_ptr<std::int64_t>();
  for (std::int64_t q = 0; q < documents.size(0); ++q) {
    auto& found = run[query_ids.at(static_cast<std::size_t>(q))];
    for (std::int64_t i = 0; i < documents.size(1); ++i)
      found.push_back({document_ids.at(static_cast<std::size_t>(*document++)), static_cast<double>(*score++)});
  }
  return run;
}

template <Similarity S>
RetrievalReport evaluate_retrieval(const S& similarity, const typename S::input_type& queries,
                                   const typename S::input_type& documents, const RetrievalData& data,
                                   const SearchOptions& options) {
  const auto expect = [](std::string_view what, std::int64_t rows, const std::vector<std::string>& ids) {
    if (rows != static_cast<std::int64_t>(ids.size()))
      throw ShapeError("R301", detail::cat(what, ": expected ", ids.size(), " rows, got ", rows));
  };
  expect("queries", queries.size(), data.query_ids);
  expect("documents", documents.size(), data.document_ids);
  const Ranking ranking = search(similarity, queries, documents, 100, options);
  const Run run = to_run(ranking, data.query_ids, data.document_ids);
  const MetricValues mean = evaluate_run(data.qrels, run, MetricOptions{.at = {1, 10, 100}}).mean;
  const auto value = [&](const char* metric) { return mean.contains(metric) ? mean.at(metric) : 0; };
  return {value("ndcg@10"), value("mrr@10"), value("map@100"), value("recall@100"), value("accuracy@1")};
}

}  // namespace toller
