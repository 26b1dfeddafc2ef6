// SPDX-License-Identifier: Apache-2.0
#include "toller/gather/gather_sides.hpp"

#include "support/gradients.hpp"
#include "support/thread_ranks.hpp"

using namespace toller;

namespace {

at::Tensor numbers(const std::vector<std::int64_t>& values) {
  return at::tensor(values, at::kLong);
}

/// A rank's own batch: `rows` queries with a positive and `negatives` documents each. Vectors and hashes tell rank and place.
struct Batch {
  Embeddings queries{}, documents{};
  Relevance relevance{};
};
Batch batch(int rank, std::int64_t rows, std::int64_t negatives) {
  const at::Tensor row = at::arange(rows, at::kLong), owner = row.repeat({1 + negatives});
  const at::Tensor query_hash = row + 1000 * (rank + 1),
                   document_hash = at::arange(owner.size(0), at::kLong) - 1000 * (rank + 1);
  const auto vectors = [](const at::Tensor& hash) {
    return at::stack({hash, hash * 2}, 1).to(at::kDouble).requires_grad_(true);
  };
  return {{vectors(query_hash)}, {vectors(document_hash)}, {row.flip(0), owner.flip(0), query_hash, document_hash}};
}

MultiVector single_tokens(const Embeddings& side) {
  MultiVector result{side.values};
  for (std::int64_t i = 1; i <= side.size(); ++i) result.offsets.push_back(i);
  return result;
}

const std::vector<std::int64_t> rows{2, 0, 1}, negatives{1, 3, 0};

Batch batch_of(int rank) {
  return batch(rank, rows[static_cast<std::size_t>(rank)], negatives[static_cast<std::size_t>(rank)]);
}

void expect_relevance(const Relevance& relevance, int rank) {
  const std::vector<std::int64_t> first{0, 2, 2};
  const auto begin = first[static_cast<std::size_t>(rank)];
  REQUIRE(relevance.first == begin);
  REQUIRE(relevance.all_positive.equal(numbers({1, 0, 4})));
  REQUIRE(relevance.positive.equal(relevance.all_positive.slice(0, begin, begin + rows[static_cast<std::size_t>(rank)])));
  REQUIRE(relevance.owner.equal(numbers({1, 0, 1, 0, 2})));
  REQUIRE(relevance.query_hash.equal(numbers({1000, 1001, 3000})));
  REQUIRE(relevance.document_hash.equal(numbers({-1000, -999, -998, -997, -3000})));
}

}  // namespace

TEST_CASE("queries and documents are numbered over all ranks", "[laws]") {
  for (const bool with_queries : {true, false}) {
    const auto gathered = run_ranks(3, [&](const ThreadCommunicator& comm) {
      const Batch mine = batch_of(comm.rank());
      const auto ragged =
          gather_sides(single_tokens(mine.queries), single_tokens(mine.documents), mine.relevance, comm, with_queries);
      return std::pair(gather_sides(mine.queries, mine.documents, mine.relevance, comm, with_queries), ragged);
    });
    for (int rank = 0; rank < 3; ++rank) {
      const auto& [dense, ragged] = gathered[static_cast<std::size_t>(rank)];
      CAPTURE(with_queries, rank);
      expect_relevance(dense.relevance, rank);
      expect_relevance(ragged.relevance, rank);
      const Relevance& all = dense.relevance;
      const at::Tensor queries = with_queries ? all.query_hash : batch_of(rank).relevance.query_hash;
      REQUIRE(dense.documents.values.select(1, 0).equal(all.document_hash.to(at::kDouble)));
      REQUIRE(dense.queries.values.select(1, 0).equal(queries.to(at::kDouble)));
      REQUIRE(ragged.documents.values.equal(dense.documents.values));
      REQUIRE(ragged.queries.values.equal(dense.queries.values));
      REQUIRE(ragged.documents.offsets == std::vector<std::int64_t>{0, 1, 2, 3, 4, 5});
      REQUIRE(ragged.queries.size() == queries.size(0));
    }
  }
}

TEST_CASE("sides of all ranks make the collectives that the README counts") {
  const auto count = [](bool ragged, bool with_queries) {
    return run_ranks(3, [&](const ThreadCommunicator& comm) {
      const Batch mine = batch_of(comm.rank());
      const auto backward = [](const auto& sides) { (sides.queries.values.sum() + sides.documents.values.sum()).backward(); };
      if (ragged)
        backward(gather_sides(single_tokens(mine.queries), single_tokens(mine.documents), mine.relevance, comm, with_queries));
      else
        backward(gather_sides(mine.queries, mine.documents, mine.relevance, comm, with_queries));
      return comm.counts();
    });
  };
  for (const bool ragged : {false, true})
    for (const bool with_queries : {false, true})
      for (const CollectiveCounts& counts : count(ragged, with_queries)) {
        REQUIRE(counts.at("all_gather").calls == 1);
        REQUIRE(counts.at("all_to_all").calls == (with_queries ? 1 + 2 + 2 : 1 + 1 + 1));
        REQUIRE(counts.size() == 2);
      }
}

TEST_CASE("the sides of one process are its own") {
  const Batch mine = batch(0, 2, 1);
  const auto sides = gather_sides(mine.queries, mine.documents, mine.relevance, SingleProcess{}, true);
  REQUIRE(sides.queries.values.is_same(mine.queries.values));
  REQUIRE(sides.documents.values.is_same(mine.documents.values));
  REQUIRE(sides.relevance.owner.is_same(mine.relevance.owner));
  REQUIRE_FALSE(sides.relevance.all_positive.defined());
}

TEST_CASE("sides that do not go together are an error on all ranks") {
  const auto errors = [](const auto& spoil, bool with_queries) {
    return run_ranks(2, [&](const ThreadCommunicator& comm) -> std::string {
      Batch mine = batch(comm.rank(), 2, 1);
      if (comm.rank() == 1) spoil(mine);
      try {
        (void)gather_sides(mine.queries, mine.documents, mine.relevance, comm, comm.rank() == 0 || with_queries);
      } catch (const Error& error) {
        return error.what();
      }
      return "nothing";
    });
  };
  const auto expect_both = [](const std::vector<std::string>& heard, const std::string& message) {
    REQUIRE(heard == std::vector<std::string>{message, message});
  };
  expect_both(
      errors(
          [](Batch& b) {
            b.queries.values = at::ones({2, 3}, at::kDouble).requires_grad_(true);
          },
          true),
      "[R630] gathering queries: rank 1 gives Embeddings of Double [any, 3], rank 0 gives Embeddings of Double [any, 2]");
  expect_both(
      errors(
          [](Batch& b) {
            b.documents.values = at::ones({4, 2});
          },
          true),
      "[R630] gathering documents: rank 1 gives Embeddings of Float [any, 2], rank 0 gives Embeddings of Double [any, 2]");
  expect_both(
      errors([](Batch& b) { b.relevance.owner = at::Tensor(); }, true),
      "[R631] gathering relevance: rank 1 has 2 queries and 4 documents with 2 positives, 2 query hashes, -1 owners and 4 "
      "document hashes");
  expect_both(errors([](Batch&) {}, false),
              "[R630] rank 1 is in gather_sides of documents, rank 0 in gather_sides of both sides");
}
