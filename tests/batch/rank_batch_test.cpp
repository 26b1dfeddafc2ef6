// SPDX-License-Identifier: Apache-2.0
#include "toller/batch/rank_batch.hpp"

#include <map>
#include <numeric>
#include <set>

#include "toller/core/seed.hpp"

using namespace toller;
using Numbers = std::vector<std::int64_t>;

namespace {

/// A token a letter, which counts the texts it was asked for.
struct Letters {
  std::int64_t* calls = nullptr;
  TokenizedText operator()(std::string_view text, Role role) const {
    if (calls != nullptr) ++*calls;
    TokenizedText tokens;
    for (const char c : text) tokens.ids.push_back(c);
    tokens.types.assign(tokens.ids.size(), role == Role::document ? 1 : 0);
    tokens.attended.assign(tokens.ids.size(), 1);
    tokens.scored.assign(tokens.ids.size(), 1);
    return tokens;
  }
};

std::string text_of_row(std::int64_t row, char kind) {
  return kind + std::to_string(row) + std::string(mix_seed(1, row, kind) % 40, 'x');
}

/// Row 7: "q7xxx", "p7xxxxx", and none to two negatives.
Triplet record_of(std::int64_t row) {
  Triplet record{text_of_row(row, 'q'), text_of_row(row, 'p')};
  for (std::int64_t i = 0; i < row % 3; ++i) record.negatives.push_back(text_of_row(row, i == 0 ? 'a' : 'b'));
  return record;
}

Numbers numbers(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<std::int64_t>(), tensor.const_data_ptr<std::int64_t>() + tensor.numel()};
}

/// Rows of a dataset in some order, none twice.
Numbers global_rows(std::int64_t n) {
  Numbers rows;
  for (std::int64_t i = 0; i < n; ++i) rows.push_back((i * 389 + 17) % 1009);
  return rows;
}

/// Every text of a batch by its number in the global batch.
void add_texts(const RetrievalBatch& batch, std::map<std::int64_t, Numbers>& texts) {
  for (std::int64_t i = 0; i < batch.tokens.texts(); ++i)
    CHECK(
        texts.emplace(batch.tokens.text_index[static_cast<std::size_t>(i)], numbers(batch.tokens.slice(i, i + 1).ids)).second);
}

}  // namespace

TEST_CASE("one process gets the whole batch in order") {
  const Numbers rows = global_rows(21);
  const auto batches = rank_batches(rows, record_of, Letters{});
  REQUIRE(batches.size() == 1);
  std::vector<Triplet> records;
  for (const std::int64_t row : rows) records.push_back(record_of(row));
  const RetrievalBatch expected = collate_retrieval(records, Letters{}, rows);
  CHECK(batches[0].rows == rows);
  CHECK(batches[0].global_rows == 21);
  CHECK(batches[0].tokens_imbalance == 1);
  CHECK(batches[0].tokens.text_index == expected.tokens.text_index);
  CHECK(batches[0].tokens.offsets == expected.tokens.offsets);
  CHECK(numbers(batches[0].tokens.ids) == numbers(expected.tokens.ids));
  CHECK(numbers(batches[0].relevance.owner) == numbers(expected.relevance.owner));
  CHECK(numbers(batches[0].relevance.document_hash) == numbers(expected.relevance.document_hash));
}

TEST_CASE("the ranks' texts together are one process's, each with its number", "[laws]") {
  for (const std::int64_t n : {0, 1, 5, 32, 100})
    for (const std::int64_t world_size : {1, 2, 3, 8, 9, 20})
      for (const std::int64_t micro_batches : {1, 3, 7}) {
        const Numbers rows = global_rows(n);
        std::map<std::int64_t, Numbers> expected, found;
        add_texts(rank_batches(rows, record_of, Letters{})[0], expected);
        Numbers all_rows;
        for (std::int64_t m = 0, begin = 0; m < micro_batches; ++m) {
          Numbers in_micro_batch;
          for (std::int64_t rank = 0; rank < world_size; ++rank) {
            const auto batches = rank_batches(rows, record_of, Letters{}, rank, world_size, micro_batches);
            REQUIRE(std::ssize(batches) == micro_batches);
            const RetrievalBatch& batch = batches[static_cast<std::size_t>(m)];
            CHECK(batch.global_rows == n);
            CHECK(batch.queries == std::ssize(batch.rows));
            add_texts(batch, found);
            in_micro_batch.insert(in_micro_batch.end(), batch.rows.begin(), batch.rows.end());
          }
          // Micro-batches are consecutive and of nearly equal size.
          const std::int64_t size = n / micro_batches + (m < n % micro_batches ? 1 : 0);
          Numbers slice(rows.begin() + begin, rows.begin() + begin + size);
          begin += size;
          std::sort(slice.begin(), slice.end());
          std::sort(in_micro_batch.begin(), in_micro_batch.end());
          CHECK(in_micro_batch == slice);
        }
        CHECK(found == expected);
      }
}

TEST_CASE("eight ranks tokenise their own rows only, and their shares are fair", "[laws]") {
  const std::int64_t n = 1000;
  const Numbers rows = global_rows(n);
  for (const std::int64_t world_size : {8, 20, 64}) {
    std::int64_t read = 0;
    for (std::int64_t first = 0; first < world_size; first += 8) {
      const std::int64_t ranks = std::min<std::int64_t>(8, world_size - first);
      std::int64_t rows_of_group = 0, most = 0, tokens = 0;
      double imbalance = 0;
      for (std::int64_t rank = first; rank < first + ranks; ++rank) {
        std::int64_t reads = 0;
        const auto reader = [&](std::int64_t row) {
          ++reads;
          return record_of(row);
        };
        const RetrievalBatch batch = rank_batches(rows, reader, Letters{}, rank, world_size)[0];
        CHECK(reads <= (n + world_size - 1) / world_size * ranks);
        CHECK(reads >= n / world_size * ranks);
        if (rank == first) read += reads;
        rows_of_group += batch.queries;
        most = std::max(most, batch.tokens.tokens());
        tokens += batch.tokens.tokens();
        if (rank > first) CHECK(batch.tokens_imbalance == imbalance);
        imbalance = batch.tokens_imbalance;
        CHECK(std::is_sorted(batch.tokens.text_index.begin(), batch.tokens.text_index.begin() + batch.queries));
      }
      CHECK(rows_of_group >= n / world_size * ranks);
      CHECK(imbalance == static_cast<double>(most * ranks) / static_cast<double>(tokens));
      if (world_size == 8) CHECK(imbalance <= 1.01);
    }
    CHECK(read == n);
  }
}

TEST_CASE("each text is tokenised once") {
  std::int64_t calls = 0;
  const auto pairs = [](std::int64_t row) { return Pair{text_of_row(row, 'q'), text_of_row(row, 'p')}; };
  const RetrievalBatch batch = rank_batches(global_rows(12), pairs, Letters{&calls}, 1, 3)[0];
  CHECK(calls == 24);
  CHECK(batch.documents == batch.queries);
}

TEST_CASE("a rank without rows has a batch all the same") {
  for (const std::int64_t rank : {2, 11}) {
    const auto batches = rank_batches(global_rows(2), record_of, Letters{}, rank, 12, 2);
    REQUIRE(batches.size() == 2);
    for (const RetrievalBatch& batch : batches) {
      CHECK(batch.queries == 0);
      CHECK(batch.tokens.texts() == 0);
      CHECK(batch.global_rows == 2);
      CHECK(batch.tokens_imbalance == (rank == 2 ? 8 : 1));
    }
  }
}

TEST_CASE("a rank or a cut that is not there is refused") {
  const Numbers rows = global_rows(4);
  CHECK_THROWS_WITH(rank_batches(rows, record_of, Letters{}, 2, 2), "[R228] batch: no rank 2 of 2");
  CHECK_THROWS_WITH(rank_batches(rows, record_of, Letters{}, 0, 1, 0), "[R228] batch: expected one micro-batch or more, got 0");
}
