// SPDX-License-Identifier: Apache-2.0
// T0. What tells two datasets apart.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "toller/core/error.hpp"
#include "toller/core/seed.hpp"
#include "toller/text/views.hpp"

namespace toller::detail {

/// The number of rows, and of at most 256 rows spread over them a hash of the texts, a line each.
template <class Data>
[[nodiscard]] std::string print_data(const Data& data) {
  const std::int64_t rows = rows_of(data), looked_at = std::min<std::int64_t>(rows, 256);
  std::string print = cat("rows ", rows);
  for (std::int64_t i = 0; i < looked_at; ++i) {
    const std::int64_t row = looked_at == 1 ? 0 : i * (rows - 1) / (looked_at - 1);
    const auto record = row_of(data, row);
    std::uint64_t hash = 0;
    const auto add = [&](const auto& text) { hash = mix_seed(hash, hash_text(text)); };
    if constexpr (requires { record.query; }) add(record.query);
    if constexpr (requires { record.positive; }) add(record.positive);
    if constexpr (requires { record.negatives; })
      for (const auto& text : record.negatives) add(text);
    print += cat("\nrow ", row, " with texts of hash ", hash);
  }
  return print;
}

}  // namespace toller::detail
