// SPDX-License-Identifier: Apache-2.0
// T2. Some texts of a pooled side, in a given order.
#pragma once

#include <ATen/ops/tensor.h>

#include <numeric>
#include <vector>

#include "toller/core/values.hpp"

namespace toller::detail {

/// Shapes   texts [n] int64, on the side's device.
[[nodiscard]] inline Embeddings select_texts(const Embeddings& side, const at::Tensor& texts) {
  return {side.values.index_select(0, texts)};
}

[[nodiscard]] inline MultiVector select_texts(const MultiVector& side, const at::Tensor& texts) {
  const at::Tensor host = texts.cpu().contiguous();
  MultiVector result;
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < host.size(0); ++i) {
    const auto text = static_cast<std::size_t>(host.const_data_ptr<std::int64_t>()[i]);
    const std::size_t begin = rows.size();
    rows.resize(begin + static_cast<std::size_t>(side.offsets.at(text + 1) - side.offsets[text]));
    std::iota(rows.begin() + static_cast<std::ptrdiff_t>(begin), rows.end(), side.offsets[text]);
    result.offsets.push_back(static_cast<std::int64_t>(rows.size()));
  }
  result.values = side.values.index_select(0, at::tensor(rows, at::kLong).to(side.values.device()));
  return result;
}

}  // namespace toller::detail
