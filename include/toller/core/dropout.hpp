// SPDX-License-Identifier: Apache-2.0
// T1. Dropout of rows whose mask depends on numbers alone, never on a generator's state.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "toller/core/seed.hpp"

namespace toller {

/// Zeroes a share `p` of the elements and scales the others by 1 / (1 - p).
///
/// Shapes   x [rows, D]; row_keys [rows]: what a row is, such as `mix_seed(text_index, position)`.
/// Masks    element (r, f) is a function of (key, site, row_keys[r], f): batch, order and device do not matter.
/// Cost     the mask is made on the host by one thread: meant for heads, not for encoder layers.
[[nodiscard]] inline at::Tensor dropout_rows(const at::Tensor& x, double p, std::uint64_t key, std::uint64_t site,
                                             const std::vector<std::uint64_t>& row_keys) {
  if (p <= 0) return x;
  const std::int64_t width = x.size(1);
  at::Tensor mask = x.new_empty({x.size(0), width}, at::TensorOptions().dtype(at::kFloat).device(at::kCPU));
  float* out = mask.data_ptr<float>();
  const float scale = static_cast<float>(1 / (1 - p));
  for (const std::uint64_t row : row_keys) {
    const std::uint64_t seed = mix_seed(key, site, row);
    for (std::int64_t f = 0; f < width; ++f) {
      const double uniform = static_cast<double>(mix_seed(seed, f) >> 11) * 0x1p-53;
      *out++ = uniform < p ? 0.0F : scale;
    }
  }
  return x.mul(mask.to(x.device(), x.scalar_type()));
}

}  // namespace toller
