// SPDX-License-Identifier: Apache-2.0
// T1. The type in which a loss has its pooled sides compared.
#pragma once

#include "toller/core/values.hpp"

namespace toller::detail {

/// In float64 where that costs next to nothing: a product of single vectors. Differentiable.
[[nodiscard]] inline Embeddings to_compare(const Embeddings& side) {
  return {side.values.to(at::kDouble)};
}
[[nodiscard]] inline MultiVector to_compare(const MultiVector& side) {
  return side;
}

}  // namespace toller::detail
