// SPDX-License-Identifier: Apache-2.0
// T1. Rows of length one.
#pragma once

#include <ATen/core/Tensor.h>

#include <limits>

namespace toller {

/// x / |x| along the last dimension; a row shorter than `eps` becomes zero and gets no gradient.
///
/// Types    as the input; cast half types before.
[[nodiscard]] inline at::Tensor normalize_rows(const at::Tensor& x, double eps = 1e-12) {
  const at::Tensor norm = x.norm(2, {-1}, /*keepdim=*/true);
  return x.div(norm.masked_fill(norm.lt(eps), std::numeric_limits<double>::infinity()));
}

}  // namespace toller
