// SPDX-License-Identifier: Apache-2.0
// T2. Late interaction: the sum over query tokens of the best document token.
#pragma once

#include "toller/core/full_precision.hpp"
#include "toller/similarity/detail/max_sim.hpp"
#include "toller/similarity/sides.hpp"
#include "toller/similarity/similarity.hpp"

namespace toller {

/// score(a, m) = sum over tokens s of query a of max over tokens t of document m of q_s . d_t
///
/// The vectors are taken as they are: `LateInteraction` has normalised them.
///
/// Shapes   values [Q', D] and [T', D] with offsets -> [B, M].
/// Types    float32 whatever autocast says; float64 for float64.
/// Masks    a document without tokens scores -1 for each query token and gets no gradient; a query without tokens scores 0.
///          The lowest index wins a tie.
///          `padded_length` reproduces PyLate, which multiplies by the mask: a document with fewer tokens than that, as it
///          would be padded, gives each query token at least 0. Leave it empty otherwise.
/// Errors   ShapeError R310 (sizes), R311 (offsets).
/// Cost     never more than 16 MB of similarities at once; the winners, int32 [M, Q'], are kept for the backward pass.
/// Source   Khattab and Zaharia 2020, "ColBERT".
struct MaxSim {
  static constexpr std::string_view name = "MaxSim";
  static constexpr double default_temperature = 1.0;
  using input_type = MultiVector;
  std::optional<std::int64_t> padded_length{};

  static void fields(auto& self, auto&& visit) { visit("padded_length", self.padded_length); }

  [[nodiscard]] at::Tensor scores(const MultiVector& queries, const MultiVector& documents) const {
    detail::expect_same_width(name, queries.values, documents.values);
    expect_offsets("queries", queries);
    expect_offsets("documents", documents);
    const FullPrecision guard;
    const at::Tensor q = full_precision(queries.values);
    const at::Tensor d = full_precision(documents.values).to(q.scalar_type());
    return detail::max_sim(q.to(d.scalar_type()), d, queries.offsets, documents.offsets, padded_length.value_or(0));
  }

private:
  static void expect_offsets(std::string_view side, const MultiVector& value) {
    if (value.offsets.empty() || value.offsets.front() != 0 || value.offsets.back() != value.values.size(0))
      throw ShapeError("R311", detail::cat(name, ": the offsets of the ", side, " must run from 0 to ", value.values.size(0),
                                           ", the number of their vectors"));
  }
};

static_assert(Similarity<MaxSim>);

}  // namespace toller
