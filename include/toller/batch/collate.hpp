// SPDX-License-Identifier: Apache-2.0
// T2. Tokenised texts -> one ragged batch; records with in-batch negatives -> one batch of all their texts.
#pragma once

#include <ATen/ops/empty.h>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "toller/core/error.hpp"
#include "toller/core/seed.hpp"
#include "toller/core/values.hpp"
#include "toller/text/records.hpp"
#include "toller/tokenizer/preprocessor.hpp"

namespace toller {

/// Texts as one run of tokens: positions count from 0 in each text, `text_index` from 0 over the batch.
///
/// Shapes   ids, positions, types [T] int64, attended, scored [T] bool, all on the host.
/// Errors   DataError R227: a text's lists differ in length.
[[nodiscard]] TokenBatch collate(std::span<const TokenizedText> texts);

/// Where a batch's records stand in the global batch, of which this rank may have a part. The default: it has all of it.
struct Placement {
  std::vector<std::int64_t> places{};  // one a record; empty: 0, 1, 2, ...
  std::int64_t global_rows = 0;        // 0: as many as records
};

/// A step's texts and which document answers which query.
///
/// Shapes   tokens: B queries, then the B positives, then the first negatives, then the second ones, ...; a row with
///          fewer negatives simply lacks them. `rows` are the dataset's row numbers, where the caller gave them.
/// Ranks    `global_rows` of the whole step, all ranks and micro-batches together: what a summed loss is divided by.
///          `tokens_imbalance`: the most tokens of a rank by their mean, over the ranks dealt with this one.
struct RetrievalBatch {
  TokenBatch tokens{};
  std::int64_t queries = 0;
  std::int64_t documents = 0;
  Relevance relevance{};
  std::vector<std::int64_t> rows{};
  std::int64_t global_rows = 0;
  double tokens_imbalance = 1;
};

/// What turns a text into tokens, `Preprocessor` or one of your own.
template <class P>
concept TextPreprocessor = requires(const P& preprocess, std::string_view text, Role role) {
  { preprocess(text, role) } -> std::convertible_to<TokenizedText>;
};

/// A text's tokens and the `hash_text` of what they were made from.
struct HashedText {
  TokenizedText tokens{};
  std::int64_t hash = 0;
};

/// A record for losses with in-batch negatives, its texts tokenised.
struct TokenizedRecord {
  HashedText query{};
  HashedText positive{};
  std::vector<HashedText> negatives{};

  /// Tokens of all its texts: what the record costs.
  [[nodiscard]] std::int64_t tokens() const {
    std::size_t count = query.tokens.ids.size() + positive.tokens.ids.size();
    for (const HashedText& negative : negatives) count += negative.tokens.ids.size();
    return static_cast<std::int64_t>(count);
  }
};

/// A `Pair`, a `Triplet`, or a record of your own with their fields, as tokens.
///
/// Errors   those of the preprocessor.
template <PairRecord Record, TextPreprocessor Preprocess>
[[nodiscard]] TokenizedRecord tokenize(const Record& record, const Preprocess& preprocess) {
  const auto text = [&](std::string_view raw, Role role) {
    return HashedText{preprocess(raw, role), static_cast<std::int64_t>(hash_text(raw))};
  };
  TokenizedRecord result{text(record.query, Role::query), text(record.positive, Role::document)};
  if constexpr (requires { record.negatives; })
    for (const auto& negative : record.negatives) result.negatives.push_back(text(negative, Role::document));
  return result;
}

/// Tokenised records as a batch for losses with in-batch negatives; no records make a batch of no texts.
///
/// text_index = slot * global_rows + the record's place; slot 0 is the query, 1 the positive, 2 + i negative i. A text
/// keeps its dropout however the global batch is cut.
///
/// Shapes   relevance.positive[i] = i, owner [M], query_hash [B], document_hash [M]: `hash_text` of the raw texts.
/// Errors   DataError R227; ConfigError R229: the placement does not fit the records.
[[nodiscard]] RetrievalBatch collate_retrieval(std::span<const TokenizedRecord> records, std::vector<std::int64_t> rows = {},
                                               const Placement& placement = {});

/// Tokenises records and collates them.
///
/// Errors   those of the preprocessor, R227 and R229.
template <std::ranges::forward_range Records, TextPreprocessor Preprocess>
requires PairRecord<std::ranges::range_value_t<Records>>
[[nodiscard]] RetrievalBatch collate_retrieval(const Records& records, const Preprocess& preprocess,
                                               std::vector<std::int64_t> rows = {}, const Placement& placement = {}) {
  std::vector<TokenizedRecord> tokenized;
  for (const auto& record : records) tokenized.push_back(tokenize(record, preprocess));
  return collate_retrieval(std::span<const TokenizedRecord>(tokenized), std::move(rows), placement);
}

/// The batch in page-locked memory, so that its copy to a CUDA device runs beside the computation. CUDA builds only.
[[nodiscard]] TokenBatch pin_memory(TokenBatch batch);
[[nodiscard]] RetrievalBatch pin_memory(RetrievalBatch batch);

namespace detail {

/// A host vector as a tensor of its own.
[[nodiscard]] inline at::Tensor to_tensor(const std::vector<std::int64_t>& values) {
  at::Tensor tensor = at::empty({static_cast<std::int64_t>(values.size())}, at::kLong);
  std::copy(values.begin(), values.end(), tensor.mutable_data_ptr<std::int64_t>());
  return tensor;
}

inline void expect_equal_lengths(const TokenizedText& text, std::int64_t index) {
  const std::size_t n = text.ids.size();
  if (text.types.size() != n || text.attended.size() != n || text.scored.size() != n)
    throw DataError("R227", cat("text ", index, " of the batch: ", n, " ids, but ", text.types.size(), " types, ",
                                text.attended.size(), " attended, ", text.scored.size(), " scored"));
}

/// Texts as one run of tokens, without copying them first.
[[nodiscard]] TokenBatch collate(std::span<const TokenizedText* const> texts, std::vector<std::int64_t> text_index);

/// Texts of one batch in the order of RetrievalBatch, with what Relevance needs.
struct RetrievalTexts {
  const Placement& placement;
  std::int64_t global_rows;
  std::vector<const TokenizedText*> texts{};
  std::vector<std::int64_t> text_index{}, owner{}, query_hash{}, document_hash{};

  void add(const HashedText& text, std::int64_t slot, std::int64_t query) {
    texts.push_back(&text.tokens);
    const bool placed = !placement.places.empty();
    text_index.push_back(slot * global_rows + (placed ? placement.places[static_cast<std::size_t>(query)] : query));
    if (slot > 0) owner.push_back(query);
    (slot > 0 ? document_hash : query_hash).push_back(text.hash);
  }
};

inline void expect_placement(const Placement& placement, std::int64_t records, std::int64_t global_rows) {
  if (!placement.places.empty() && std::ssize(placement.places) != records)
    throw ConfigError("R229", cat("collate: ", records, " records, but ", placement.places.size(), " places"));
  if (global_rows < records)
    throw ConfigError("R229", cat("collate: ", records, " records, but ", global_rows, " rows in the global batch"));
  for (const std::int64_t place : placement.places)
    if (place < 0 || place >= global_rows)
      throw ConfigError("R229", cat("collate: no place ", place, " in a global batch of ", global_rows, " rows"));
}

}  // namespace detail

inline TokenBatch detail::collate(std::span<const TokenizedText* const> texts, std::vector<std::int64_t> text_index) {
  TokenBatch batch;
  for (const TokenizedText* text : texts) {
    detail::expect_equal_lengths(*text, batch.texts());
    batch.offsets.push_back(batch.tokens() + static_cast<std::int64_t>(text->ids.size()));
  }
  batch.text_index = std::move(text_index);
  for (at::Tensor* t : {&batch.ids, &batch.positions, &batch.types}) *t = at::empty({batch.tokens()}, at::kLong);
  for (at::Tensor* t : {&batch.attended, &batch.scored}) *t = at::empty({batch.tokens()}, at::kBool);
  auto* ids = batch.ids.mutable_data_ptr<std::int64_t>();
  auto* positions = batch.positions.mutable_data_ptr<std::int64_t>();
  auto* types = batch.types.mutable_data_ptr<std::int64_t>();
  auto* attended = batch.attended.mutable_data_ptr<bool>();
  auto* scored = batch.scored.mutable_data_ptr<bool>();
  for (const TokenizedText* text : texts)
    for (std::size_t i = 0; i < text->ids.size(); ++i) {
      *ids++ = text->ids[i];
      *positions++ = static_cast<std::int64_t>(i);
      *types++ = text->types[i];
      *attended++ = text->attended[i] != 0;
      *scored++ = text->scored[i] != 0;
      batch.all_attended = batch.all_attended && text->attended[i] != 0;
    }
  return batch;
}

inline TokenBatch collate(std::span<const TokenizedText> texts) {
  std::vector<const TokenizedText*> all;
  for (const TokenizedText& text : texts) all.push_back(&text);
  std::vector<std::int64_t> text_index(texts.size());
  std::iota(text_index.begin(), text_index.end(), 0);
  return detail::collate(all, std::move(text_index));
}

inline RetrievalBatch collate_retrieval(std::span<const TokenizedRecord> records, std::vector<std::int64_t> rows,
                                        const Placement& placement) {
  const std::int64_t queries = std::ssize(records);
  const std::int64_t global_rows = placement.global_rows == 0 ? queries : placement.global_rows;
  detail::expect_placement(placement, queries, global_rows);
  detail::RetrievalTexts all{placement, global_rows};
  const auto each = [&](const auto& add) {
    for (std::int64_t i = 0; i < queries; ++i) add(records[static_cast<std::size_t>(i)], i);
  };
  std::int64_t levels = 0;
  each([&](const TokenizedRecord& record, std::int64_t i) {
    all.add(record.query, 0, i);
    levels = std::max(levels, std::ssize(record.negatives));
  });
  each([&](const TokenizedRecord& record, std::int64_t i) { all.add(record.positive, 1, i); });
  for (std::int64_t level = 0; level < levels; ++level)
    each([&](const TokenizedRecord& record, std::int64_t i) {
      if (level < std::ssize(record.negatives)) all.add(record.negatives[static_cast<std::size_t>(level)], 2 + level, i);
    });
  std::vector<std::int64_t> positive(records.size());
  std::iota(positive.begin(), positive.end(), 0);
  return {detail::collate(all.texts, std::move(all.text_index)),
          queries,
          std::ssize(all.document_hash),
          {detail::to_tensor(positive), detail::to_tensor(all.owner), detail::to_tensor(all.query_hash),
           detail::to_tensor(all.document_hash)},
          std::move(rows),
          global_rows};
}

inline TokenBatch pin_memory(TokenBatch batch) {
  for (at::Tensor* t : {&batch.ids, &batch.positions, &batch.types, &batch.attended, &batch.scored}) *t = t->pin_memory();
  return batch;
}

inline RetrievalBatch pin_memory(RetrievalBatch batch) {
  batch.tokens = pin_memory(std::move(batch.tokens));
  for (at::Tensor* t :
       {&batch.relevance.positive, &batch.relevance.owner, &batch.relevance.query_hash, &batch.relevance.document_hash})
    *t = t->pin_memory();
  return batch;
}

}  // namespace toller
