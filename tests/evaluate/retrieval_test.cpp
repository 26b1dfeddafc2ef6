// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "toller/evaluate/retrieval.hpp"

using namespace toller;

namespace {

struct Dot {
  using input_type = Embeddings;
  static constexpr std::string_view name = "Dot";
  static constexpr double default_temperature = 1;
  static void fields(auto&, auto&&) {}
  at::Tensor scores(const Embeddings& a, const Embeddings& b) const { return a.values.mm(b.values.t()); }
};

/// The sum over query tokens of the best document token, one pair of texts at a time.
struct SlowMaxSim {
  using input_type = MultiVector;
  static constexpr std::string_view name = "SlowMaxSim";
  static constexpr double default_temperature = 1;
  static void fields(auto&, auto&&) {}
  at::Tensor scores(const MultiVector& a, const MultiVector& b) const {
    at::Tensor result = at::empty({a.size(), b.size()});
    for (std::int64_t i = 0; i < a.size(); ++i)
      for (std::int64_t j = 0; j < b.size(); ++j)
        result[i][j].copy_(std::get<0>(a.slice(i, i + 1).values.mm(b.slice(j, j + 1).values.t()).max(1)).sum());
    return result;
  }
};

MultiVector ragged(std::int64_t texts) {
  MultiVector side;
  for (std::int64_t i = 0; i < texts; ++i) side.offsets.push_back(side.offsets.back() + 1 + (i * 7) % 4);
  side.values = at::randint(-2, 3, {side.offsets.back(), 3}).to(at::kFloat);  // whole numbers: many ties
  return side;
}

/// The k best of a row by a stable sort of everything.
std::vector<std::int64_t> slow_best(const at::Tensor& row, std::int64_t k) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(row.numel()));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](auto a, auto b) { return row[a].template item<float>() > row[b].template item<float>(); });
  order.resize(static_cast<std::size_t>(std::min<std::int64_t>(k, row.numel())));
  return order;
}

template <class S, class Side>
void check_search(const S& similarity, const Side& queries, const Side& documents, std::int64_t k, SearchOptions options) {
  const at::Tensor all = similarity.scores(queries, documents);
  const Ranking ranking = search(similarity, queries, documents, k, options);
  REQUIRE(ranking.documents.size(0) == queries.size());
  for (std::int64_t q = 0; q < queries.size(); ++q) {
    const auto expected = at::tensor(slow_best(all[q], k), at::kLong);
    REQUIRE(ranking.documents[q].equal(expected));
    REQUIRE(ranking.scores[q].equal(all[q].index_select(0, expected)));
  }
}

}  // namespace

TEST_CASE("search in blocks finds what sorting everything finds, ties by the lowest number", "[laws]") {
  at::manual_seed(GENERATE(1U, 2U, 3U));
  const SearchOptions options = GENERATE(SearchOptions{}, SearchOptions{1, 1}, SearchOptions{3, 7});
  const std::int64_t k = GENERATE(1, 10, 100);
  const auto whole = [](std::int64_t rows) { return Embeddings{at::randint(-2, 3, {rows, 4}).to(at::kFloat)}; };
  check_search(Dot{}, whole(5), whole(41), k, options);
  check_search(SlowMaxSim{}, ragged(4), ragged(30), k, options);
}

TEST_CASE("scores of every kind keep their order and value") {
  const float inf = std::numeric_limits<float>::infinity();
  const at::Tensor row = at::tensor({-0.0f, 0.0f, -1.5f, inf, -inf, 3e38f, -3e38f, 1e-45f, -1e-45f, 0.0f});
  const Embeddings one{at::ones({1, 1})};
  const Ranking ranking = search(Dot{}, one, Embeddings{row.view({10, 1})}, 10);
  REQUIRE(ranking.documents[0].equal(at::tensor({3, 5, 7, 0, 1, 9, 8, 2, 6, 4}, at::kLong)));
  REQUIRE(ranking.scores[0].equal(row.index_select(0, ranking.documents[0])));
}

TEST_CASE("searches that cannot be answered are one line; empty sides are fine") {
  const Embeddings some{at::ones({2, 3})}, none{at::ones({0, 3})};
  REQUIRE_THROWS_AS(search(Dot{}, some, some, 0), ConfigError);
  REQUIRE_THROWS_AS(search(Dot{}, some, some, 1, SearchOptions{0, 5}), ConfigError);
  const Embeddings bad{at::full({2, 3}, std::nan(""))};
  REQUIRE_THROWS_WITH(search(Dot{}, some, bad, 1),
                      "[R270] search: a score of queries 0 .. 2 with documents 0 .. 2 is not a number");
  REQUIRE(search(Dot{}, none, some, 5).documents.sizes() == at::IntArrayRef{0, 2});
  REQUIRE(search(Dot{}, some, none, 5).documents.sizes() == at::IntArrayRef{2, 0});
}

TEST_CASE("a retriever is measured by the place of its answers") {
  RetrievalData data;
  data.query_ids = {"q0", "q1"};
  data.queries = {"", ""};
  for (int i = 0; i < 12; ++i) data.document_ids.push_back("d" + std::to_string(i));
  data.documents.resize(12);
  data.qrels = {{"q0", {{"d0", 1}}}, {"q1", {{"d3", 1}}}};
  at::Tensor documents = at::zeros({12, 2}), queries = at::eye(2);
  for (int i = 0; i < 12; ++i) documents[i][0] = 12 - i;  // d0 is the best for q0
  documents[2][1] = 5, documents[3][1] = 4;               // d3 is the second best for q1
  const auto report = evaluate_retrieval(Dot{}, Embeddings{queries}, Embeddings{documents}, data);
  REQUIRE(report.accuracy_at_1 == 0.5);
  REQUIRE(report.mrr_at_10 == 0.75);
  REQUIRE(report.map_at_100 == 0.75);
  REQUIRE(report.recall_at_100 == 1);
  REQUIRE(report.ndcg_at_10 == Catch::Approx((1 + 1 / std::log2(3.0)) / 2));
  REQUIRE(describe(report).starts_with("RetrievalReport{ndcg@10=0.8"));
  REQUIRE_THROWS_WITH(evaluate_retrieval(Dot{}, Embeddings{documents}, Embeddings{documents}, data),
                      "[R301] queries: expected 2 rows, got 12");
}
