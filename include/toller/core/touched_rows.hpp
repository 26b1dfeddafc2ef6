// SPDX-License-Identifier: Apache-2.0
// T2. Large embeddings, of which a batch touches few rows.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "toller/core/values.hpp"

namespace toller::detail {

/// Whether a parameter is an embedding so large that looking at its gradient's rows pays: 8 MiB or more, on the host.
[[nodiscard]] inline bool is_large_table(const Parameter& p) {
  constexpr std::size_t bytes = 8 << 20;
  const at::Tensor& t = p.value;
  const bool exact = t.scalar_type() == at::kFloat || t.scalar_type() == at::kDouble;
  return p.embedding && exact && t.is_cpu() && t.dim() == 2 && t.is_contiguous() && t.nbytes() >= bytes;
}

/// 1 for each row that holds anything but zeros (-0 is not one). Shapes: table [R, C] on the host; int32 [R].
[[nodiscard]] inline at::Tensor touched_rows(const at::Tensor& table) {
  at::Tensor touched = at::empty({table.size(0)}, at::kInt);
  auto* flag = touched.mutable_data_ptr<std::int32_t>();
  const auto row_bytes = static_cast<std::size_t>(table.size(1) * table.element_size());
  const at::Tensor dense = table.contiguous();
  const auto* row = static_cast<const unsigned char*>(dense.const_data_ptr());
  for (std::int64_t r = 0; r < table.size(0); ++r, row += row_bytes) {
    std::uint64_t bits = 0, word = 0;
    std::size_t i = 0;
    for (; i + sizeof word <= row_bytes; i += sizeof word) std::memcpy(&word, row + i, sizeof word), bits |= word;
    for (; i < row_bytes; ++i) bits |= row[i];
    flag[r] = bits != 0 ? 1 : 0;
  }
  return touched;
}

}  // namespace toller::detail
