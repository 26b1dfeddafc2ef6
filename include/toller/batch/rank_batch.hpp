// SPDX-License-Identifier: Apache-2.0
// T2. A step's global batch -> the part of one rank, dealt by tokens.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "toller/batch/collate.hpp"
#include "toller/batch/deal.hpp"
#include "toller/core/error.hpp"
#include "toller/text/records.hpp"

namespace toller {

/// So many consecutive ranks share their rows out among themselves: each tokenises what all of them get, and no more.
inline constexpr std::int64_t ranks_dealt_together = 8;

/// What a rank computes of a global batch: `micro_batches` of them, one after the other, the first ones a row longer.
///
/// A micro-batch's row i goes to the group of 8 ranks that has rank i mod world_size, and within the group by tokens, so
/// that up to 8 ranks deal the whole of it. A rank of a small batch may get none. `read(row)` gives the row's record.
///
/// Ranks    Together they have every row once, without a word to each other: all must be given the same rows and data.
///          `text_index` and `global_rows` are those of the whole batch, so neither dropout nor the division depends on the
///          cut.
/// Errors   ConfigError R228: no such rank, or no micro-batch; those of `read` and of `collate_retrieval`.
/// Cost     reads and tokenises the rows of the group, at most 8 times what the rank computes.
template <std::invocable<std::int64_t> Read, TextPreprocessor Preprocess>
requires PairRecord<std::remove_cvref_t<std::invoke_result_t<const Read&, std::int64_t>>>
[[nodiscard]] std::vector<RetrievalBatch> rank_batches(std::span<const std::int64_t> rows, const Read& read,
                                                       const Preprocess& preprocess, std::int64_t rank = 0,
                                                       std::int64_t world_size = 1, std::int64_t micro_batches = 1);

namespace detail {

/// The places `begin .. end` of the global batch that a group of ranks has: row i is for the group of rank i mod world_size.
[[nodiscard]] inline std::vector<std::int64_t> places_of_group(std::int64_t begin, std::int64_t end, std::int64_t rank,
                                                               std::int64_t world_size) {
  std::vector<std::int64_t> places;
  for (std::int64_t place = begin; place < end; ++place)
    if ((place - begin) % world_size / ranks_dealt_together == rank / ranks_dealt_together) places.push_back(place);
  return places;
}

}  // namespace detail

template <std::invocable<std::int64_t> Read, TextPreprocessor Preprocess>
requires PairRecord<std::remove_cvref_t<std::invoke_result_t<const Read&, std::int64_t>>> std::vector<RetrievalBatch>
rank_batches(std::span<const std::int64_t> rows, const Read& read, const Preprocess& preprocess, std::int64_t rank,
             std::int64_t world_size, std::int64_t micro_batches) {
  detail::expect_rank("batch", rank, world_size);
  if (micro_batches < 1) throw ConfigError("R228", detail::cat("batch: expected one micro-batch or more, got ", micro_batches));
  const std::int64_t total = std::ssize(rows);
  const std::int64_t first_rank = rank / ranks_dealt_together * ranks_dealt_together;
  const std::int64_t ranks = std::min(ranks_dealt_together, world_size - first_rank);

  std::vector<RetrievalBatch> batches;
  for (std::int64_t m = 0, begin = 0; m < micro_batches; ++m) {
    const std::int64_t end = begin + total / micro_batches + (m < total % micro_batches ? 1 : 0);
    const auto places = detail::places_of_group(begin, end, rank, world_size);
    begin = end;

    std::vector<TokenizedRecord> records;
    std::vector<std::int64_t> cost;
    std::int64_t tokens = 0;
    for (const std::int64_t place : places) {
      records.push_back(tokenize(std::invoke(read, rows[static_cast<std::size_t>(place)]), preprocess));
      cost.push_back(records.back().tokens());
      tokens += cost.back();
    }
    const auto parts = deal(cost, ranks);
    std::int64_t most = 0;
    for (const auto& part : parts) {
      std::int64_t sum = 0;
      for (const std::int64_t i : part) sum += cost[static_cast<std::size_t>(i)];
      most = std::max(most, sum);
    }

    std::vector<TokenizedRecord> mine;
    std::vector<std::int64_t> my_rows;
    Placement placement{.global_rows = total};
    for (const std::int64_t i : parts[static_cast<std::size_t>(rank - first_rank)]) {
      const std::int64_t place = places[static_cast<std::size_t>(i)];
      mine.push_back(std::move(records[static_cast<std::size_t>(i)]));
      my_rows.push_back(rows[static_cast<std::size_t>(place)]);
      placement.places.push_back(place);
    }
    batches.push_back(collate_retrieval(mine, std::move(my_rows), placement));
    if (tokens > 0) batches.back().tokens_imbalance = static_cast<double>(most * ranks) / static_cast<double>(tokens);
  }
  return batches;
}

}  // namespace toller
