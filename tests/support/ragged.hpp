// SPDX-License-Identifier: Apache-2.0
// From padded reference data to ragged values.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

#include "toller/core/values.hpp"

/// The rows of padded [N, T, D] where mask [N, T] is true; all where it is not defined. Differentiable.
[[nodiscard]] inline toller::MultiVector ragged(const at::Tensor& padded, const at::Tensor& mask = {}) {
  const at::Tensor keep = mask.defined() ? mask.to(at::kBool) : at::ones({padded.size(0), padded.size(1)}, at::kBool);
  toller::MultiVector result;
  for (std::int64_t i = 0; i < padded.size(0); ++i)
    result.offsets.push_back(result.offsets.back() + keep.select(0, i).sum().item<std::int64_t>());
  result.values = padded.flatten(0, 1).index_select(0, keep.flatten().nonzero().squeeze(1));
  return result;
}
