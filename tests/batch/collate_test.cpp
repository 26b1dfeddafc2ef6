// SPDX-License-Identifier: Apache-2.0
#include "toller/batch/collate.hpp"

using namespace toller;
using Numbers = std::vector<std::int64_t>;

namespace {

/// A token a letter; a question mark can't be attended to, a full stop isn't scored; documents have type 1.
struct Letters {
  TokenizedText operator()(std::string_view text, Role role) const {
    TokenizedText tokens;
    for (const char c : text) {
      tokens.ids.push_back(c);
      tokens.types.push_back(role == Role::document ? 1 : 0);
      tokens.attended.push_back(c != '?');
      tokens.scored.push_back(c != '.');
    }
    return tokens;
  }
};

Numbers numbers(const at::Tensor& tensor) {
  const at::Tensor wide = tensor.to(at::kLong);
  return {wide.const_data_ptr<std::int64_t>(), wide.const_data_ptr<std::int64_t>() + wide.numel()};
}

std::string text_of(const TokenBatch& batch, std::int64_t i) {
  std::string text;
  for (const std::int64_t id : numbers(batch.slice(i, i + 1).ids)) text += static_cast<char>(id);
  return text;
}

}  // namespace

TEST_CASE("texts of different lengths become one run of tokens") {
  const std::vector<TokenizedText> texts{Letters{}("ab?", Role::query), Letters{}("", Role::query),
                                         Letters{}("c.", Role::document)};
  const TokenBatch batch = collate(texts);
  CHECK(batch.offsets == Numbers{0, 3, 3, 5});
  CHECK(batch.text_index == Numbers{0, 1, 2});
  CHECK(numbers(batch.ids) == Numbers{'a', 'b', '?', 'c', '.'});
  CHECK(numbers(batch.positions) == Numbers{0, 1, 2, 0, 1});
  CHECK(numbers(batch.types) == Numbers{0, 0, 0, 1, 1});
  CHECK(numbers(batch.attended) == Numbers{1, 1, 0, 1, 1});
  CHECK(numbers(batch.scored) == Numbers{1, 1, 1, 1, 0});
  CHECK(batch.attended.scalar_type() == at::kBool);
  CHECK(batch.scored.scalar_type() == at::kBool);
  CHECK_FALSE(batch.all_attended);
  CHECK(collate(std::span(texts).subspan(1)).all_attended);
  CHECK_FALSE(batch.dropout_key.has_value());
  CHECK(collate({}).texts() == 0);
  CHECK(collate({}).ids.numel() == 0);
}

TEST_CASE("a text whose lists differ in length is refused") {
  const std::vector<TokenizedText> texts{{}, {.ids = {1, 2}, .types = {0}, .attended = {1, 1}, .scored = {1, 1}}};
  REQUIRE_THROWS_WITH(collate(texts), "[R227] text 1 of the batch: 2 ids, but 1 types, 2 attended, 2 scored");
}

TEST_CASE("pairs: the queries, then the positives") {
  const std::vector<Pair> pairs{{"q0", "p0"}, {"q1?", "same"}, {"q2", "same"}};
  const RetrievalBatch batch = collate_retrieval(pairs, Letters{}, {7, 3, 5});
  CHECK(batch.queries == 3);
  CHECK(batch.documents == 3);
  CHECK(batch.rows == Numbers{7, 3, 5});
  CHECK(batch.tokens.texts() == 6);
  CHECK(text_of(batch.tokens, 1) == "q1?");
  CHECK(text_of(batch.tokens, 3) == "p0");
  CHECK(numbers(batch.tokens.slice(0, 3).types).back() == 0);
  CHECK(numbers(batch.tokens.slice(3, 6).types).front() == 1);
  CHECK(numbers(batch.relevance.positive) == Numbers{0, 1, 2});
  CHECK(numbers(batch.relevance.owner) == Numbers{0, 1, 2});
  const Numbers hashes = numbers(batch.relevance.document_hash);
  CHECK(hashes == Numbers{static_cast<std::int64_t>(hash_text("p0")), static_cast<std::int64_t>(hash_text("same")), hashes[1]});
  CHECK(numbers(batch.relevance.query_hash)[2] == static_cast<std::int64_t>(hash_text("q2")));
}

TEST_CASE("triplets: then the first negatives, the second ones, and none where a row has none") {
  const std::vector<Triplet> rows{{"q0", "p0", {"a0"}}, {"q1", "p1", {}}, {"q2", "p2", {"a2", "b2", "c2"}}};
  const RetrievalBatch batch = collate_retrieval(std::span<const Triplet>(rows), Letters{});
  CHECK(batch.queries == 3);
  CHECK(batch.documents == 7);
  std::vector<std::string> texts;
  for (std::int64_t i = 0; i < batch.tokens.texts(); ++i) texts.push_back(text_of(batch.tokens, i));
  CHECK(texts == std::vector<std::string>{"q0", "q1", "q2", "p0", "p1", "p2", "a0", "a2", "b2", "c2"});
  CHECK(numbers(batch.relevance.owner) == Numbers{0, 1, 2, 0, 2, 2, 2});
  CHECK(numbers(batch.relevance.positive) == Numbers{0, 1, 2});
  CHECK(batch.relevance.document_hash.numel() == 7);
}

TEST_CASE("no records make an empty batch") {
  const RetrievalBatch batch = collate_retrieval(std::vector<Triplet>{}, Letters{}, {}, {.global_rows = 9});
  CHECK(batch.queries == 0);
  CHECK(batch.documents == 0);
  CHECK(batch.global_rows == 9);
  CHECK(batch.tokens.texts() == 0);
  CHECK(batch.tokens.tokens() == 0);
  CHECK(batch.tokens.offsets == Numbers{0});
  CHECK(batch.tokens.all_attended);
  for (const at::Tensor& t : {batch.tokens.ids, batch.tokens.positions, batch.tokens.types, batch.relevance.positive,
                              batch.relevance.owner, batch.relevance.query_hash, batch.relevance.document_hash}) {
    CHECK(t.sizes() == at::IntArrayRef{0});
    CHECK(t.scalar_type() == at::kLong);
  }
  for (const at::Tensor& t : {batch.tokens.attended, batch.tokens.scored}) {
    CHECK(t.sizes() == at::IntArrayRef{0});
    CHECK(t.scalar_type() == at::kBool);
  }
  CHECK(collate_retrieval(std::vector<Pair>{}, Letters{}).global_rows == 0);
}

TEST_CASE("a text's number is its place in the global batch") {
  const std::vector<Triplet> rows{{"q0", "p0", {"a0"}}, {"q1", "p1", {}}, {"q2", "p2", {"a2", "b2"}}};
  const RetrievalBatch whole = collate_retrieval(rows, Letters{});
  CHECK(whole.global_rows == 3);
  CHECK(whole.tokens_imbalance == 1);
  CHECK(whole.tokens.text_index == Numbers{0, 1, 2, 3, 4, 5, 6, 8, 11});
  const RetrievalBatch part = collate_retrieval(rows, Letters{}, {}, {.places = {2, 5, 9}, .global_rows = 10});
  CHECK(part.global_rows == 10);
  CHECK(part.tokens.text_index == Numbers{2, 5, 9, 12, 15, 19, 22, 29, 39});
  CHECK(numbers(part.relevance.owner) == Numbers{0, 1, 2, 0, 2, 2});
  CHECK(numbers(part.relevance.positive) == Numbers{0, 1, 2});
}

TEST_CASE("a record is tokenised once, and knows what it costs") {
  const Triplet record{"ab", "cde", {"f", ""}};
  const TokenizedRecord tokenized = tokenize(record, Letters{});
  CHECK(tokenized.tokens() == 6);
  CHECK(tokenized.negatives.size() == 2);
  CHECK(tokenized.query.hash == static_cast<std::int64_t>(hash_text("ab")));
  CHECK(tokenized.positive.tokens.types == Numbers{1, 1, 1});
  CHECK(tokenize(Pair{"ab", "c"}, Letters{}).tokens() == 3);
  const RetrievalBatch batch = collate_retrieval(std::vector{tokenized, tokenize(Triplet{"q", "p", {}}, Letters{})}, {4, 2});
  CHECK(batch.rows == Numbers{4, 2});
  CHECK(text_of(batch.tokens, 2) == "cde");
  CHECK(numbers(batch.relevance.owner) == Numbers{0, 1, 0, 0});
}

TEST_CASE("a placement that does not fit is refused") {
  const std::vector<Pair> pairs{{"a", "b"}, {"c", "d"}};
  const auto at = [&](const Placement& placement) { return collate_retrieval(pairs, Letters{}, {}, placement); };
  CHECK_THROWS_WITH(at({.places = {1}, .global_rows = 4}), "[R229] collate: 2 records, but 1 places");
  CHECK_THROWS_WITH(at({.global_rows = 1}), "[R229] collate: 2 records, but 1 rows in the global batch");
  CHECK_THROWS_WITH(at({.places = {0, 4}, .global_rows = 4}), "[R229] collate: no place 4 in a global batch of 4 rows");
  CHECK_THROWS_WITH(at({.places = {-1, 0}, .global_rows = 4}), "[R229] collate: no place -1 in a global batch of 4 rows");
}

TEST_CASE("pinning keeps the numbers", "[cuda]") {
  if (!at::hasCUDA()) SKIP("no CUDA device");
  const RetrievalBatch batch = collate_retrieval(std::vector<Pair>{{"ab", "c"}}, Letters{});
  const RetrievalBatch pinned = pin_memory(batch);
  CHECK(pinned.tokens.ids.is_pinned());
  CHECK(pinned.relevance.owner.is_pinned());
  CHECK(numbers(pinned.tokens.ids) == numbers(batch.tokens.ids));
}
