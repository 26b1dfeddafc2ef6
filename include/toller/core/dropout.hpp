// SPDX-License-Identifier: Apache-2.0
// T1. Dropout of rows whose mask depends on numbers alone, never on a generator's state.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "toller/core/dropout_hash.hpp"
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
  const detail::DropoutRate rate(p);
  for (const std::uint64_t row_key : row_keys) {
    const detail::DropoutRow row = detail::dropout_row(mix_seed(key, site, row_key), 0, 0);
    for (std::int64_t f = 0; f < width; ++f)
      *out++ = detail::dropout_bits(row, static_cast<std::uint32_t>(f)) < rate.threshold ? 0.0F : rate.scale;
  }
  return x.mul(mask.to(x.device(), x.scalar_type()));
}

}  // namespace toller
