// SPDX-License-Identifier: Apache-2.0
// T1. Cosine of single vectors.
#pragma once

#include "toller/core/full_precision.hpp"
#include "toller/core/normalize.hpp"
#include "toller/similarity/sides.hpp"
#include "toller/similarity/similarity.hpp"

namespace toller {

/// score = q . d / (|q| |d|); a vector shorter than `eps` scores 0 and gets no gradient.
///
/// Shapes   [B, D], [M, D] -> [B, M].
/// Types    float32 whatever autocast says; float64 for float64.
/// Errors   ShapeError R310.
struct Cosine {
  static constexpr std::string_view name = "Cosine";
  static constexpr double default_temperature = 0.05;
  using input_type = Embeddings;
  double eps = 1e-12;

  static void fields(auto& self, auto&& visit) { visit("eps", self.eps); }

  [[nodiscard]] at::Tensor scores(const Embeddings& queries, const Embeddings& documents) const {
    detail::expect_same_width(name, queries.values, documents.values);
    const FullPrecision guard;
    const at::Tensor q = normalize_rows(full_precision(queries.values), eps);
    return q.matmul(normalize_rows(full_precision(documents.values), eps).t());
  }
};

static_assert(Similarity<Cosine>);

}  // namespace toller
