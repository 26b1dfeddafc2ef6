// SPDX-License-Identifier: Apache-2.0
// T2. Cutting a run of texts into mini-batches, and putting what was pooled of them together again.
#pragma once

#include <ATen/ops/cat.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "toller/core/values.hpp"

namespace toller::detail {

/// Texts `begin .. end`.
struct TextRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// Consecutive ranges of at most `most_texts` texts and `most_tokens` tokens, at least one text each; 0: no such limit. Without
/// texts one empty range.
[[nodiscard]] inline std::vector<TextRange> cut_texts(const TokenBatch& batch, std::int64_t most_texts,
                                                      std::int64_t most_tokens) {
  std::vector<TextRange> ranges;
  std::int64_t begin = 0;
  do {
    std::int64_t end = begin, tokens = 0;
    while (end < batch.texts()) {
      tokens += batch.length(end);
      const bool full = (most_texts > 0 && end - begin >= most_texts) || (most_tokens > 0 && tokens > most_tokens);
      if (full && end > begin) break;
      ++end;
    }
    ranges.push_back({begin, end});
    begin = end;
  } while (begin < batch.texts());
  return ranges;
}

/// The texts of all parts, in order, with `values` as their values.
template <class Output>
[[nodiscard]] Output with_values(const std::vector<Output>& parts, at::Tensor values) {
  Output whole;
  whole.values = std::move(values);
  if constexpr (requires { whole.offsets; })
    for (const Output& part : parts)
      for (std::int64_t i = 0; i < part.size(); ++i) {
        const auto text = static_cast<std::size_t>(i);
        whole.offsets.push_back(whole.offsets.back() + part.offsets[text + 1] - part.offsets[text]);
      }
  return whole;
}

/// The values of all parts, one below the other.
template <class Output>
[[nodiscard]] at::Tensor stacked_values(const std::vector<Output>& parts) {
  std::vector<at::Tensor> values;
  for (const Output& part : parts) values.push_back(part.values);
  return at::cat(values);
}

}  // namespace toller::detail
