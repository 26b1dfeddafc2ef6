// SPDX-License-Identifier: Apache-2.0
// T2. What ranks tell each other before data move: sizes and types, so that a difference is an error on all of them.
#pragma once

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/ScalarType.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "toller/core/check.hpp"
#include "toller/core/values.hpp"
#include "toller/distributed/communicator.hpp"

namespace toller::detail {

/// A side, in numbers.
struct Part {
  enum Kind : std::int64_t { none, tensor, embeddings, multi_vector };
  enum Graph : std::int64_t { no_grad_mode, constant, requires_grad };
  std::int64_t kind = none;
  std::int64_t type = -1;
  std::int64_t dimensions = -1;  // -1: no tensor
  std::array<std::int64_t, 4> row{};
  std::int64_t rows = 0;
  std::int64_t texts = 0;
  std::int64_t tokens = 0;
  std::int64_t graph = no_grad_mode;
};

enum class GatherCall : std::int64_t { all_gather, with_gradients, documents, both_sides };

/// All that a rank tells, of one size whatever it holds.
struct Announcement {
  GatherCall call = GatherCall::all_gather;
  Part documents{};
  Part queries{};  // `all_gather` has one part, `documents`
  std::int64_t positive = 0, owner = 0, query_hash = 0, document_hash = 0;
};
static_assert(std::is_trivially_copyable_v<Announcement> && sizeof(Announcement) % sizeof(std::int64_t) == 0);

[[nodiscard]] inline const at::Tensor& values_of(const at::Tensor& x) {
  return x;
}
template <class Side>
[[nodiscard]] const at::Tensor& values_of(const Side& x) {
  return x.values;
}

template <class X>
[[nodiscard]] Part describe_part(const X& x) {
  const at::Tensor& values = values_of(x);
  Part part;
  part.kind = std::is_same_v<X, at::Tensor>   ? Part::tensor
              : std::is_same_v<X, Embeddings> ? Part::embeddings
                                              : Part::multi_vector;
  part.graph = !at::GradMode::is_enabled() ? Part::no_grad_mode : Part::constant;
  if (!values.defined()) return part;
  part.type = static_cast<std::int64_t>(values.scalar_type());
  part.dimensions = values.dim();
  for (std::int64_t i = 1; i < values.dim() && i <= 4; ++i) part.row[static_cast<std::size_t>(i) - 1] = values.size(i);
  part.texts = part.tokens = part.rows = values.dim() > 0 ? values.size(0) : 0;
  if constexpr (std::is_same_v<X, MultiVector>) {
    part.texts = x.size();
    part.tokens = x.offsets.empty() ? -1 : x.offsets.back();
  }
  if (at::GradMode::is_enabled() && values.requires_grad()) part.graph = Part::requires_grad;
  return part;
}

[[nodiscard]] inline std::string print_part(const Part& part) {
  constexpr std::array kinds{"nothing", "a tensor", "Embeddings", "a MultiVector"};
  std::vector<std::int64_t> sizes{any_size};
  for (std::int64_t i = 1; i < part.dimensions && i <= 4; ++i) sizes.push_back(part.row[static_cast<std::size_t>(i) - 1]);
  return cat(kinds[static_cast<std::size_t>(part.kind)], " of ", c10::toString(static_cast<at::ScalarType>(part.type)), " ",
             print_shape(sizes));
}

/// Errors   ShapeError R631: what no rank can gather.
inline void expect_part(std::string_view what, std::size_t rank, const Part& part) {
  const auto fail = [&](const auto&... why) { throw ShapeError("R631", cat("gathering ", what, ": rank ", rank, why...)); };
  if (part.dimensions < 0) fail(" gives no tensor");
  if (part.dimensions < 1 || part.dimensions > 5)
    fail(" gives a tensor of ", part.dimensions, " dimensions; 1 to 5 can be sent");
  if (part.tokens != part.rows) fail(" gives ", part.rows, " vectors with offsets that end at ", part.tokens);
}

/// Errors   DistributedError R630: ranks that give different things.
inline void expect_same(std::string_view what, std::size_t rank, const Part& part, const Part& first, bool gradients) {
  if (std::pair(part.kind, part.type) != std::pair(first.kind, first.type) || part.dimensions != first.dimensions ||
      part.row != first.row)
    throw DistributedError(
        "R630", cat("gathering ", what, ": rank ", rank, " gives ", print_part(part), ", rank 0 gives ", print_part(first)));
  if (gradients && (part.graph == Part::no_grad_mode) != (first.graph == Part::no_grad_mode))
    throw DistributedError("R630",
                           cat("gathering ", what, ": of ranks ", rank, " and 0, one records a graph and one does not"));
}

/// Throws on every rank if what the ranks gave does not go together.
inline void expect_agreement(const std::vector<Announcement>& all) {
  constexpr std::array calls{"all_gather", "all_gather_with_gradients", "gather_sides of documents",
                             "gather_sides of both sides"};
  const Announcement& first = all.front();
  const bool sides = first.call >= GatherCall::documents, gradients = first.call != GatherCall::all_gather;
  const std::string_view what = sides ? "documents" : "a tensor";
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const Announcement& it = all[rank];
    if (it.call != first.call)
      throw DistributedError("R630", cat("rank ", rank, " is in ", calls.at(static_cast<std::size_t>(it.call)), ", rank 0 in ",
                                         calls.at(static_cast<std::size_t>(first.call))));
    expect_part(what, rank, it.documents);
    expect_same(what, rank, it.documents, first.documents, gradients);
    if (!sides) continue;
    expect_part("queries", rank, it.queries);
    if (first.call == GatherCall::both_sides) expect_same("queries", rank, it.queries, first.queries, gradients);
    const std::int64_t B = it.queries.texts, M = it.documents.texts;
    if (it.positive != B || it.query_hash != B || it.owner != M || it.document_hash != M)
      throw ShapeError("R631", cat("gathering relevance: rank ", rank, " has ", B, " queries and ", M, " documents with ",
                                   it.positive, " positives, ", it.query_hash, " query hashes, ", it.owner, " owners and ",
                                   it.document_hash, " document hashes"));
  }
}

/// What each rank gives, checked; a collective of fixed size on that device.
///
/// Errors   DistributedError R630, ShapeError R631, on every rank alike.
template <Communicator C>
[[nodiscard]] std::vector<Announcement> announce(const Announcement& mine, at::Device device, const C& comm) {
  at::Tensor numbers = at::empty({sizeof(Announcement) / sizeof(std::int64_t)}, at::kLong);
  std::memcpy(numbers.mutable_data_ptr(), &mine, sizeof(mine));
  const at::Tensor gathered = comm.all_gather(numbers.to(device)).cpu().contiguous();
  std::vector<Announcement> all(static_cast<std::size_t>(comm.size()));
  std::memcpy(all.data(), gathered.const_data_ptr(), all.size() * sizeof(Announcement));
  expect_agreement(all);
  return all;
}

}  // namespace toller::detail
