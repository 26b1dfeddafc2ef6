// SPDX-License-Identifier: Apache-2.0
// T1. Inner product of single vectors.
#pragma once

#include "toller/core/full_precision.hpp"
#include "toller/similarity/sides.hpp"
#include "toller/similarity/similarity.hpp"

namespace toller {

/// score = q . d
///
/// Shapes   [B, D], [M, D] -> [B, M].
/// Types    float32 whatever autocast says; float64 for float64.
/// Errors   ShapeError R310.
struct Dot {
  static constexpr std::string_view name = "Dot";
  static constexpr double default_temperature = 1.0;
  using input_type = Embeddings;

  static void fields(auto&, auto&&) {}

  [[nodiscard]] at::Tensor scores(const Embeddings& queries, const Embeddings& documents) const {
    detail::expect_same_width(name, queries.values, documents.values);
    const FullPrecision guard;
    return full_precision(queries.values).matmul(full_precision(documents.values).t());
  }
};

static_assert(Similarity<Dot>);

}  // namespace toller
