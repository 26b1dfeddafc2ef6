// SPDX-License-Identifier: Apache-2.0
// T2. What a loss with in-batch negatives compares when the batch lies on several ranks.
#pragma once

#include <ATen/ops/tensor.h>

#include <array>
#include <cstdint>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

#include "toller/core/values.hpp"
#include "toller/gather/gather.hpp"

namespace toller {

/// Sides and target for a loss over the documents of all ranks.
template <class Side>
struct GatheredSides {
  Side queries{};
  Side documents{};
  Relevance relevance{};
};

/// The documents of all ranks (and their queries, if `with_queries`), with gradients, and the relevance of this rank's queries
/// to them.
///
/// Shapes   queries B, documents M, relevance that of one process over them (`first` 0) -> documents of all ranks; queries of
///          all ranks, or the own ones; relevance as `Relevance` says for ranks, `all_positive` included.
/// Types    one float type on all ranks.
/// Ranks    all call it, and all run the backward pass; a rank may have no rows. One process: its arguments as they are.
/// Errors   DistributedError R630, ShapeError R631, on every rank, before any data move.
/// Cost     README.md counts the collectives.
template <class Side, Communicator C>
[[nodiscard]] GatheredSides<Side> gather_sides(const Side& queries, const Side& documents, const Relevance& relevance,
                                               const C& comm, bool with_queries);

namespace detail {

/// The numbers that ranks tell of their batch, one list after the other.
struct BatchNumbers {
  enum List : std::size_t { positive, owner, query_hash, document_hash, query_lengths, document_lengths };
  std::array<std::vector<std::int64_t>, 6> lists{};
};

[[nodiscard]] inline std::vector<std::int64_t> to_vector(const at::Tensor& numbers) {
  const at::Tensor host = numbers.cpu().contiguous();
  const auto* begin = host.const_data_ptr<std::int64_t>();
  return {begin, begin + host.numel()};
}

/// How long each list of a rank is.
template <class Side>
[[nodiscard]] std::array<std::int64_t, 6> list_lengths(const Announcement& of) {
  const std::int64_t B = of.queries.texts, M = of.documents.texts;
  constexpr bool ragged = std::is_same_v<Side, MultiVector>;
  return {B, M, B, M, ragged && of.call == GatherCall::both_sides ? B : 0, ragged ? M : 0};
}

/// Lists of all ranks, each joined in rank order; queries and documents are numbered over all ranks.
template <class Side, Communicator C>
[[nodiscard]] BatchNumbers gather_batch_numbers(const BatchNumbers& mine, const std::vector<Announcement>& announced,
                                                at::Device device, const C& comm) {
  std::vector<std::int64_t> packed;
  for (const auto& list : mine.lists) packed.insert(packed.end(), list.begin(), list.end());
  RowCounts counts;
  for (const Announcement& it : announced) {
    const auto lengths = list_lengths<Side>(it);
    counts.push_back(std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}));
  }
  const auto received = gather_numbers(packed, counts, device, comm);
  BatchNumbers all;
  std::int64_t queries = 0, documents = 0;
  auto next = received.begin();
  for (const Announcement& it : announced) {
    const auto lengths = list_lengths<Side>(it);
    for (std::size_t list = 0; list < lengths.size(); ++list) {
      const std::int64_t add = list == BatchNumbers::positive ? documents : list == BatchNumbers::owner ? queries : 0;
      for (std::int64_t i = 0; i < lengths[list]; ++i) all.lists[list].push_back(*next++ + add);
    }
    queries += it.queries.texts;
    documents += it.documents.texts;
  }
  return all;
}

[[nodiscard]] inline std::int64_t length_of(const at::Tensor& numbers) {
  return numbers.defined() && numbers.dim() == 1 && numbers.scalar_type() == at::kLong ? numbers.size(0) : -1;
}

}  // namespace detail

template <class Side, Communicator C>
GatheredSides<Side> gather_sides(const Side& queries, const Side& documents, const Relevance& relevance, const C& comm,
                                 bool with_queries) {
  using namespace detail;
  if (comm.size() == 1) return {queries, documents, relevance};
  const Announcement mine{.call = with_queries ? GatherCall::both_sides : GatherCall::documents,
                          .documents = describe_part(documents),
                          .queries = describe_part(queries),
                          .positive = length_of(relevance.positive),
                          .owner = length_of(relevance.owner),
                          .query_hash = length_of(relevance.query_hash),
                          .document_hash = length_of(relevance.document_hash)};
  const at::Device device = device_for(documents);
  const auto announced = announce(mine, device, comm);

  BatchNumbers numbers{{to_vector(relevance.positive),
                        to_vector(relevance.owner),
                        to_vector(relevance.query_hash),
                        to_vector(relevance.document_hash),
                        {},
                        {}}};
  if constexpr (std::is_same_v<Side, MultiVector>) {
    if (with_queries) numbers.lists[BatchNumbers::query_lengths] = lengths_of(queries);
    numbers.lists[BatchNumbers::document_lengths] = lengths_of(documents);
  }
  const BatchNumbers all = gather_batch_numbers<Side>(numbers, announced, device, comm);

  std::vector<at::Tensor> sides{documents.values};
  std::vector<RowCounts> rows{count_rows(announced, &Announcement::documents, &Part::rows)};
  bool graph = any_graph(announced, &Announcement::documents);
  if (with_queries) {
    sides.push_back(queries.values);
    rows.push_back(count_rows(announced, &Announcement::queries, &Part::rows));
    graph = graph || any_graph(announced, &Announcement::queries);
  }
  const auto values = gather_values(sides, rows, graph, /*from_all=*/true, comm);

  GatheredSides<Side> result{queries, documents, {}};
  result.documents.values = values[0];
  if (with_queries) result.queries.values = values[1];
  if constexpr (std::is_same_v<Side, MultiVector>) {
    result.documents.offsets = offsets_of(all.lists[BatchNumbers::document_lengths]);
    if (with_queries) result.queries.offsets = offsets_of(all.lists[BatchNumbers::query_lengths]);
  }
  const auto numbers_of = [&](BatchNumbers::List list) {
    return at::tensor(all.lists[list], at::kLong).to(relevance.positive.device());
  };
  std::int64_t first = 0;
  for (int r = 0; r < comm.rank(); ++r) first += announced[static_cast<std::size_t>(r)].queries.texts;
  const at::Tensor all_positive = numbers_of(BatchNumbers::positive);
  result.relevance = {all_positive.slice(0, first, first + mine.queries.texts),
                      numbers_of(BatchNumbers::owner),
                      numbers_of(BatchNumbers::query_hash),
                      numbers_of(BatchNumbers::document_hash),
                      first,
                      all_positive};
  return result;
}

}  // namespace toller
