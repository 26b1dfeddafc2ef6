// SPDX-License-Identifier: Apache-2.0
// T0. The hash behind dropout masks.
#pragma once

#include <algorithm>
#include <cstdint>

namespace toller::detail {

inline constexpr std::uint32_t dropout_row_step = 0x9e3779b1U;
inline constexpr std::uint32_t dropout_column_step = 0x85ebca77U;
inline constexpr std::uint32_t dropout_multiplier_1 = 0x21f0aaadU;
inline constexpr std::uint32_t dropout_multiplier_2 = 0x735a2d97U;

/// An element is dropped if its 32 bits are below `threshold`; kept ones are multiplied by `scale` = 1 / (1 - p).
struct DropoutRate {
  std::uint32_t threshold = 0;
  float scale = 1;

  constexpr DropoutRate() = default;
  constexpr explicit DropoutRate(double p)
      : threshold(static_cast<std::uint32_t>(std::min(p * 4294967296.0, 4294967295.0))),
        scale(static_cast<float>(1 / (1 - p))) {}
};

/// The two words that a row of a mask is made from.
struct DropoutRow {
  std::uint32_t first = 0;
  std::uint32_t second = 0;
};

/// The row of one token (and head) of a text.
constexpr DropoutRow dropout_row(std::uint64_t text_key, std::uint32_t head, std::uint32_t position) {
  std::uint32_t x = static_cast<std::uint32_t>(text_key) + ((head << 20) + position) * dropout_row_step;
  x = (x ^ (x >> 16)) * dropout_multiplier_1;
  x = (x ^ (x >> 15)) * dropout_multiplier_2;
  return {x ^ (x >> 15), static_cast<std::uint32_t>(text_key >> 32)};
}

/// 32 well-mixed bits of one element: two rounds of multiply and xorshift, a second key between them.
///
/// Source   the multipliers are those of Wellons' hash prospector, https://github.com/skeeto/hash-prospector.
constexpr std::uint32_t dropout_bits(DropoutRow row, std::uint32_t column) {
  std::uint32_t x = row.first + column * dropout_column_step;
  x = (x ^ (x >> 16)) * dropout_multiplier_1 + row.second;
  x = (x ^ (x >> 15)) * dropout_multiplier_2;
  return x ^ (x >> 15);
}

}  // namespace toller::detail
