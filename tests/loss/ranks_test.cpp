// SPDX-License-Identifier: Apache-2.0
#include "support/gradients.hpp"
#include "support/thread_ranks.hpp"
#include "toller/gather/gather_sides.hpp"
#include "toller/loss/contrastive.hpp"
#include "toller/similarity/cosine.hpp"
#include "toller/similarity/max_sim.hpp"

using namespace toller;

namespace {

using Ranks = std::vector<std::int64_t>;  // rows of each

/// A global batch: `rows` queries, each with a positive and `negatives` documents, all negatives behind all positives.
struct Batch {
  MultiVector queries{}, documents{};
  Relevance relevance{};
  std::int64_t rows = 0, negatives = 0;
};

MultiVector texts(const std::vector<std::int64_t>& lengths) {
  MultiVector result;
  for (const auto length : lengths) result.offsets.push_back(result.offsets.back() + length);
  result.values = at::randn({result.offsets.back(), 4}, at::kDouble);
  return result;
}

/// Texts of unequal lengths and few different hashes, so that many are equal.
Batch random_batch(std::int64_t rows, std::int64_t negatives, bool duplicates) {
  const std::int64_t M = rows * (1 + negatives);
  std::vector<std::int64_t> query_lengths, document_lengths;
  for (std::int64_t i = 0; i < rows; ++i) query_lengths.push_back(1 + i % 3);
  for (std::int64_t i = 0; i < M; ++i) document_lengths.push_back((i * 3 + 1) % 5);  // an empty one, too
  const at::Tensor row = at::arange(rows, at::kLong);
  const std::int64_t most = duplicates ? rows : 1000000000;
  return {texts(query_lengths),
          texts(document_lengths),
          {row, row.repeat({1 + negatives}), at::randint(most, {rows}, at::kLong), at::randint(most, {M}, at::kLong)},
          rows,
          negatives};
}

/// One rank's rows of it, as that rank would have them alone.
template <class Side>
Side select(const Side& side, const at::Tensor& rows) {
  return toller::detail::select_texts(side, rows);
}

struct Rank {
  at::Tensor queries{}, documents{};
  Relevance relevance{};
};
Rank rank_of(const Batch& batch, const Ranks& ranks, int rank) {
  const std::int64_t begin = std::accumulate(ranks.begin(), ranks.begin() + rank, std::int64_t{0});
  const std::int64_t rows = ranks[static_cast<std::size_t>(rank)];
  const at::Tensor queries = at::arange(begin, begin + rows, at::kLong), local = at::arange(rows, at::kLong);
  const at::Tensor documents = (at::arange(1 + batch.negatives, at::kLong).unsqueeze(1) * batch.rows + queries).flatten();
  return {queries,
          documents,
          {local, local.repeat({1 + batch.negatives}), batch.relevance.query_hash.index_select(0, queries),
           batch.relevance.document_hash.index_select(0, documents)}};
}

struct Outcome {
  LossValue value{};
  at::Tensor queries{}, documents{};  // gradients
};

Embeddings side_of(const at::Tensor& values, const std::vector<std::int64_t>& offsets, const Embeddings*) {
  return {values.slice(0, 0, static_cast<std::int64_t>(offsets.size()) - 1)};  // a vector a text; the other rows are left out
}
MultiVector side_of(const at::Tensor& values, const std::vector<std::int64_t>& offsets, const MultiVector*) {
  return {values, offsets};
}

template <class L>
Outcome one_process(const L& loss, const Batch& batch, const at::Tensor& queries, const at::Tensor& documents) {
  using Side = typename L::input_type;
  const at::Tensor q = leaf(queries, at::kDouble), d = leaf(documents, at::kDouble);
  const LossValue value = loss(side_of(q, batch.queries.offsets, static_cast<const Side*>(nullptr)),
                               side_of(d, batch.documents.offsets, static_cast<const Side*>(nullptr)), batch.relevance);
  value.sum.backward();
  return {value, grad_of(q), grad_of(d)};
}

/// The sum over ranks of what each has.
template <class L>
Outcome several_ranks(const L& loss, const Batch& batch, const at::Tensor& queries, const at::Tensor& documents,
                      const Ranks& ranks) {
  using Side = typename L::input_type;
  const auto outcomes = run_ranks(static_cast<int>(ranks.size()), [&](const ThreadCommunicator& comm) {
    const at::Tensor q = leaf(queries, at::kDouble), d = leaf(documents, at::kDouble);
    const Rank mine = rank_of(batch, ranks, comm.rank());
    const auto sides =
        gather_sides(select(side_of(q, batch.queries.offsets, static_cast<const Side*>(nullptr)), mine.queries),
                     select(side_of(d, batch.documents.offsets, static_cast<const Side*>(nullptr)), mine.documents),
                     mine.relevance, comm, loss.needs_all_queries());
    const LossValue value = loss(sides.queries, sides.documents, sides.relevance);
    value.sum.backward();
    return Outcome{{value.sum.detach(), value.rows, value.correct, value.similarity}, grad_of(q), grad_of(d)};
  });
  Outcome all = outcomes.front();
  for (std::size_t r = 1; r < outcomes.size(); ++r) {
    const Outcome& it = outcomes[r];
    all.value = {all.value.sum + it.value.sum, all.value.rows + it.value.rows, all.value.correct + it.value.correct,
                 all.value.similarity + it.value.similarity};
    all.queries = all.queries + it.queries;
    all.documents = all.documents + it.documents;
  }
  return all;
}

/// All settings that go together.
template <class S>
std::vector<Contrastive<S, CrossDeviceNegatives>> all_settings() {
  std::vector<Contrastive<S, CrossDeviceNegatives>> result;
  for (int bits = 0; bits < 32; ++bits) {
    Contrastive<S, CrossDeviceNegatives> loss{.temperature = 0.7};
    loss.document_to_query = bits & 1, loss.query_to_query = bits & 2, loss.document_to_document = bits & 4;
    loss.mask_duplicates = bits & 8;
    if (bits & 16) loss.partition = Partition::per_direction;
    if ((bits & 16) && (bits & 6)) continue;
    result.push_back(loss);
  }
  return result;
}

template <class S>
void expect_one_process(const Batch& batch, const std::vector<Ranks>& splits) {
  for (const auto& loss : all_settings<S>()) {
    const Outcome one = one_process(loss, batch, batch.queries.values, batch.documents.values);
    for (const Ranks& ranks : splits) {
      const Outcome many = several_ranks(loss, batch, batch.queries.values, batch.documents.values, ranks);
      CAPTURE(describe(loss), ranks, many.value.sum.item<double>(), one.value.sum.item<double>());
      REQUIRE(many.value.rows == one.value.rows);
      REQUIRE(near(many.value.sum, one.value.sum.detach(), 1e-12, 1e-12));
      REQUIRE(near(many.value.correct, one.value.correct, 0));
      REQUIRE(near(many.value.similarity, one.value.similarity, 1e-12, 1e-12));
      CAPTURE(largest_difference(many.queries, one.queries), largest_difference(many.documents, one.documents));
      REQUIRE(near(many.queries, one.queries, 1e-12, 1e-12));
      REQUIRE(near(many.documents, one.documents, 1e-12, 1e-12));
    }
  }
}

}  // namespace

TEST_CASE("Contrastive over ranks is that of one process, in value and gradients", "[laws]") {
  const bool duplicates = GENERATE(true, false);
  const std::int64_t negatives = GENERATE(0, 2);
  at::manual_seed(static_cast<std::uint64_t>(7 + negatives));
  const Batch batch = random_batch(6, negatives, duplicates);
  const std::vector<Ranks> splits{{3, 3}, {6, 0}, {1, 5}, {2, 0, 4}, {1, 2, 0, 3}};
  CAPTURE(duplicates, negatives);
  expect_one_process<MaxSim>(batch, splits);
  expect_one_process<Cosine>(
      {texts(std::vector<std::int64_t>(6, 1)),
       texts(std::vector<std::int64_t>(static_cast<std::size_t>(6 * (1 + negatives)), 1)), batch.relevance, 6, negatives},
      splits);
}

TEST_CASE("what is masked across ranks is what one process masks, and matters", "[laws]") {
  at::manual_seed(8);
  const Batch batch = random_batch(6, 2, true);
  const Contrastive<MaxSim, CrossDeviceNegatives> masked{
      .document_to_query = true, .query_to_query = true, .document_to_document = true};
  auto open = masked;
  open.mask_duplicates = false;
  const auto value = [&](const auto& loss) {
    return several_ranks(loss, batch, batch.queries.values, batch.documents.values, {2, 4}).value.sum.template item<double>();
  };
  REQUIRE(value(open) > value(masked) + 0.1);
}

TEST_CASE("ranks without any rows have no loss, and end") {
  const Batch batch = random_batch(0, 1, false);
  const Contrastive<MaxSim, CrossDeviceNegatives> loss{
      .document_to_query = true, .query_to_query = true, .document_to_document = true};
  const Outcome none = several_ranks(loss, batch, batch.queries.values, batch.documents.values, {0, 0});
  REQUIRE(none.value.rows == 0);
  REQUIRE(none.value.sum.item<double>() == 0);
}

TEST_CASE("own queries and all queries give the same loss where both will do") {
  at::manual_seed(9);
  const Embeddings queries{at::randn({5, 3})}, documents{at::randn({5, 3})};
  const at::Tensor all = at::arange(5, at::kLong);
  const Relevance target{all.slice(0, 2, 4), all, all, all, 2, all};
  const Contrastive<Cosine, CrossDeviceNegatives> loss{.document_to_document = true};
  REQUIRE_FALSE(loss.needs_all_queries());
  REQUIRE(loss(queries, documents, target).sum.equal(loss(queries.slice(2, 4), documents, target).sum));
  REQUIRE(loss(queries, documents, target).rows == 2);
}

TEST_CASE("rows and queries that do not go together are refused") {
  const Embeddings five{at::eye(5)}, two{at::eye(5).slice(0, 0, 2)};
  const at::Tensor all = at::arange(5, at::kLong);
  const Relevance target{all.slice(0, 2, 4), all, all, all, 2, all};
  const Contrastive<Cosine, CrossDeviceNegatives> loss{.query_to_query = true};
  REQUIRE(loss.needs_all_queries());
  REQUIRE_THROWS_WITH(loss(two, five, target),
                      "[R333] Contrastive across devices: these directions need all 5 queries of all "
                      "ranks, got 2");
  REQUIRE_THROWS_WITH(loss(five.slice(0, 3), five, target), "[R301] relevance.positive: expected [3], got [2]");
  Relevance beyond = target;
  beyond.first = 4;
  REQUIRE_THROWS_WITH(loss(five, five, beyond), "[R333] Contrastive across devices: rows 4 to 6 of 5 queries");
  Relevance own = target;
  own.all_positive = at::Tensor();
  REQUIRE_THROWS_AS(loss(five, five, own), ShapeError);
}

TEST_CASE("local negatives are named and numbered as in-batch ones") {
  using Local = Contrastive<Cosine, LocalNegatives>;
  STATIC_REQUIRE(LossPolicy<Local>);
  STATIC_REQUIRE(Local::local_negatives);
  STATIC_REQUIRE_FALSE(Local::cross_device);
  STATIC_REQUIRE_FALSE(Contrastive<Cosine>::local_negatives);
  STATIC_REQUIRE_FALSE(Contrastive<Cosine, CrossDeviceNegatives>::local_negatives);
  REQUIRE(Local::name == "Contrastive over local negatives");
  at::manual_seed(10);
  const Embeddings q{at::randn({3, 4})}, d{at::randn({3, 4})};
  const at::Tensor row = at::arange(3, at::kLong);
  const Relevance target{row, row, row, row};
  REQUIRE(Local{}(q, d, target).sum.equal(Contrastive<Cosine>{}(q, d, target).sum));
}
