// SPDX-License-Identifier: Apache-2.0
// T2. The rows of one rank become those of all ranks, with exact gradients.
#pragma once

#include <algorithm>
#include <type_traits>
#include <utility>
#include <vector>

#include "toller/core/values.hpp"
#include "toller/distributed/communicator.hpp"
#include "toller/gather/detail/announcement.hpp"
#include "toller/gather/detail/gather_rows.hpp"

namespace toller {
namespace detail {

template <class X>
concept Gatherable = std::is_same_v<X, at::Tensor> || std::is_same_v<X, Embeddings> || std::is_same_v<X, MultiVector>;

template <Gatherable X, Communicator C>
[[nodiscard]] X gather(const X& x, bool from_all, const C& comm);

}  // namespace detail

/// All ranks' rows, in rank order; only this rank's own keep their gradient, the others are constants.
///
/// Shapes   Tensor [n, ...] -> [sum of n, ...]; MultiVector: texts and tokens alike. n may differ between ranks and be zero;
///          the rest may not.
/// Types    any, the same on all ranks.
/// Ranks    all call it. One process: returns `x` itself.
/// Errors   DistributedError R630, ShapeError R631, on every rank, before any data move.
/// Cost     README.md counts the collectives; the backward pass makes none.
template <detail::Gatherable X, Communicator C>
[[nodiscard]] X all_gather(const X& x, const C& comm) {
  return detail::gather(x, false, comm);
}

/// The same values; the gradient of a rank's rows is the sum over ranks of the gradients that reached them there.
///
/// Types    half types are summed in float32. No second derivative.
/// Ranks    all run the backward pass, through as many results of this function and in one order, whether or not their own
///          rows need a gradient; it is a collective.
template <detail::Gatherable X, Communicator C>
[[nodiscard]] X all_gather_with_gradients(const X& x, const C& comm) {
  return detail::gather(x, true, comm);
}

namespace detail {

[[nodiscard]] inline RowCounts count_rows(const std::vector<Announcement>& all, Part Announcement::*part,
                                          std::int64_t Part::*number) {
  RowCounts rows;
  for (const Announcement& it : all) rows.push_back(it.*part.*number);
  return rows;
}

[[nodiscard]] inline bool any_graph(const std::vector<Announcement>& all, Part Announcement::*part) {
  return std::any_of(all.begin(), all.end(), [&](const auto& it) { return (it.*part).graph == Part::requires_grad; });
}

[[nodiscard]] inline std::vector<std::int64_t> lengths_of(const MultiVector& x) {
  std::vector<std::int64_t> lengths;
  for (std::size_t i = 0; i + 1 < x.offsets.size(); ++i) lengths.push_back(x.offsets[i + 1] - x.offsets[i]);
  return lengths;
}

[[nodiscard]] inline std::vector<std::int64_t> offsets_of(const std::vector<std::int64_t>& lengths) {
  std::vector<std::int64_t> offsets{0};
  for (const std::int64_t length : lengths) offsets.push_back(offsets.back() + length);
  return offsets;
}

template <class X>
[[nodiscard]] at::Device device_for(const X& x) {
  return values_of(x).defined() ? values_of(x).device() : cpu();
}

template <Gatherable X, Communicator C>
X gather(const X& x, bool from_all, const C& comm) {
  if (comm.size() == 1) return x;
  Announcement mine;
  mine.call = from_all ? GatherCall::with_gradients : GatherCall::all_gather;
  mine.documents = describe_part(x);
  const auto all = announce(mine, device_for(x), comm);
  const bool graph = from_all ? any_graph(all, &Announcement::documents) : mine.documents.graph == Part::requires_grad;
  const RowCounts rows = count_rows(all, &Announcement::documents, &Part::rows);
  const auto values = [&] { return gather_values({values_of(x)}, {rows}, graph, from_all, comm).front(); };
  if constexpr (std::is_same_v<X, at::Tensor>) {
    return values();
  } else if constexpr (std::is_same_v<X, Embeddings>) {
    return {values()};
  } else {
    const RowCounts texts = count_rows(all, &Announcement::documents, &Part::texts);
    auto offsets = offsets_of(gather_numbers(lengths_of(x), texts, x.values.device(), comm));
    return {values(), std::move(offsets)};
  }
}

}  // namespace detail
}  // namespace toller
