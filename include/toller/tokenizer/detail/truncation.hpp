// SPDX-License-Identifier: Apache-2.0
// T0. How many tokens each text keeps.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>

#include "toller/core/error.hpp"
#include "toller/tokenizer/tokenizer.hpp"

namespace toller::detail {

/// The lengths of two texts with `room` for both.
///
/// Errors   DataError R236 when the text that must give tokens up has too few.
[[nodiscard]] inline std::pair<std::size_t, std::size_t> truncated_lengths(std::size_t first, std::size_t second,
                                                                           std::size_t room, Truncation truncation) {
  if (first + second <= room) return {first, second};
  if (room == 0) return {0, 0};
  const std::size_t excess = first + second - room;
  if (truncation != Truncation::longest_first) {
    std::size_t& length = truncation == Truncation::only_first ? first : second;
    if (length <= excess)
      throw DataError("R236", cat("the ", truncation == Truncation::only_first ? "first" : "second", " text has ", length,
                                  " tokens, too few to give up ", excess, ": raise max_length or use longest_first"));
    length -= excess;
    return {first, second};
  }
  const bool swapped = first > second;
  std::size_t shorter = std::min(first, second);
  std::size_t longer = shorter > room ? shorter : std::max(shorter, room - shorter);
  if (shorter + longer > room) {
    shorter = room / 2;
    longer = room - shorter;
  }
  return swapped ? std::pair(longer, shorter) : std::pair(shorter, longer);
}

}  // namespace toller::detail
