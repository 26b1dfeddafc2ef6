// SPDX-License-Identifier: Apache-2.0
// T2. Tokenised texts -> one ragged batch; records with in-batch negatives -> one batch of all their texts.
#pragma once

#include <ATen/ops/empty.h>

#include <concepts>
#include <cstdint>
#include <iterator>
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

/// A step's texts and which document answers which query.
///
/// Shapes   tokens: B queries, then the B positives, then the first negatives, then the second ones, ...; a row with
///          fewer negatives simply lacks them. `rows` are the dataset's row numbers, where the caller gave them.
struct RetrievalBatch {
  TokenBatch tokens{};
  std::int64_t queries = 0;
  std::int64_t documents = 0;
  Relevance relevance{};
  std::vector<std::int64_t> rows{};
};

/// What turns a text into tokens, `Preprocessor` or one of your own.
template <class P>
concept TextPreprocessor = requires(const P& preprocess, std::string_view text, Role role) {
  { preprocess(text, role) } -> std::convertible_to<TokenizedText>;
};

/// Tokenises and collates records for losses with in-batch negatives (`Pair`, `Triplet`, or your own with their fields).
///
/// Shapes   relevance.positive[i] = i, owner [M], query_hash [B], document_hash [M]: `hash_text` of the raw texts.
/// Errors   those of the preprocessor, and R227.
template <std::ranges::forward_range Records, TextPreprocessor Preprocess>
requires PairRecord<std::ranges::range_value_t<Records>>
[[nodiscard]] RetrievalBatch collate_retrieval(const Records& records, const Preprocess& preprocess,
                                               std::vector<std::int64_t> rows = {});

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

/// Texts of one batch in the order of RetrievalBatch, with what Relevance needs.
template <TextPreprocessor Preprocess>
struct RetrievalTexts {
  const Preprocess& preprocess;
  std::vector<TokenizedText> texts{};
  std::vector<std::int64_t> owner{}, query_hash{}, document_hash{};

  void add_query(std::string_view text) {
    texts.push_back(preprocess(text, Role::query));
    query_hash.push_back(static_cast<std::int64_t>(hash_text(text)));
  }
  void add_document(std::string_view text, std::int64_t query) {
    texts.push_back(preprocess(text, Role::document));
    document_hash.push_back(static_cast<std::int64_t>(hash_text(text)));
    owner.push_back(query);
  }
};

}  // namespace detail

inline TokenBatch collate(std::span<const TokenizedText> texts) {
  TokenBatch batch;
  for (const TokenizedText& text : texts) {
    detail::expect_equal_lengths(text, batch.texts());
    batch.text_index.push_back(batch.texts());
    batch.offsets.push_back(batch.tokens() + static_cast<std::int64_t>(text.ids.size()));
  }
  for (at::Tensor* t : {&batch.ids, &batch.positions, &batch.types}) *t = at::empty({batch.tokens()}, at::kLong);
  for (at::Tensor* t : {&batch.attended, &batch.scored}) *t = at::empty({batch.tokens()}, at::kBool);
  auto* ids = batch.ids.mutable_data_ptr<std::int64_t>();
  auto* positions = batch.positions.mutable_data_ptr<std::int64_t>();
  auto* types = batch.types.mutable_data_ptr<std::int64_t>();
  auto* attended = batch.attended.mutable_data_ptr<bool>();
  auto* scored = batch.scored.mutable_data_ptr<bool>();
  for (const TokenizedText& text : texts)
    for (std::size_t i = 0; i < text.ids.size(); ++i) {
      *ids++ = text.ids[i];
      *positions++ = static_cast<std::int64_t>(i);
      *types++ = text.types[i];
      *attended++ = text.attended[i] != 0;
      *scored++ = text.scored[i] != 0;
      batch.all_attended = batch.all_attended && text.attended[i] != 0;
    }
  return batch;
}

template <std::ranges::forward_range Records, TextPreprocessor Preprocess>
requires PairRecord<std::ranges::range_value_t<Records>> RetrievalBatch collate_retrieval(const Records& records,
                                                                                          const Preprocess& preprocess,
                                                                                          std::vector<std::int64_t> rows) {
  detail::RetrievalTexts<Preprocess> all{preprocess};
  std::vector<std::int64_t> positive;
  for (const auto& record : records) all.add_query(record.query);
  for (const auto& record : records) {
    positive.push_back(static_cast<std::int64_t>(positive.size()));
    all.add_document(record.positive, positive.back());
  }
  if constexpr (requires { std::ranges::begin(records)->negatives; }) {
    bool more = true;
    for (std::size_t level = 0; std::exchange(more, false); ++level) {
      std::int64_t query = 0;
      for (const auto& record : records) {
        if (level < record.negatives.size()) all.add_document(record.negatives[level], query), more = true;
        ++query;
      }
    }
  }
  return {collate(all.texts),
          static_cast<std::int64_t>(all.query_hash.size()),
          static_cast<std::int64_t>(all.document_hash.size()),
          {detail::to_tensor(positive), detail::to_tensor(all.owner), detail::to_tensor(all.query_hash),
           detail::to_tensor(all.document_hash)},
          std::move(rows)};
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
