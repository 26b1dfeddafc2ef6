// SPDX-License-Identifier: Apache-2.0
// T2. From the tokens of a text to one vector: the six ways that Sentence Transformers knows.
#pragma once

#include <ATen/ops/segment_reduce.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "toller/core/values.hpp"

namespace toller {

/// The tokens that a pooling sees, text by text.
///
/// Shapes   values [T', H]; offsets [N+1]; position [T']: the token's place in its text, from 1, counted before tokens were
///          dropped. Texts without tokens are there, with equal offsets.
struct TokenRuns {
  at::Tensor values{};
  std::vector<std::int64_t> offsets{0};
  std::vector<std::int64_t> position{};

  [[nodiscard]] std::int64_t texts() const { return static_cast<std::int64_t>(offsets.size()) - 1; }
  /// A host vector on the device of the values.
  [[nodiscard]] at::Tensor on_device(const std::vector<std::int64_t>& v) const {
    return at::tensor(v, at::kLong).to(values.device());
  }
  /// Shapes   [N]: how many tokens each text has.
  [[nodiscard]] at::Tensor counts() const;
  /// Sums of the rows of each text. Shapes: [T', any] -> [N, any].
  [[nodiscard]] at::Tensor sums(const at::Tensor& rows) const;
  /// One row a text; a text without tokens gets zeros. Shapes: rows [N] -> [N, H].
  [[nodiscard]] at::Tensor pick(std::vector<std::int64_t> rows) const;
};

/// A way to reduce: `reduce(runs) -> [N, H]`, and the key that a folder's Pooling module has for it, `pooling_mode_...`.
template <class R>
concept Reduction = requires(const TokenRuns& runs) {
  { R::name } -> std::convertible_to<std::string_view>;
  { R::key } -> std::convertible_to<std::string_view>;
  { R::reduce(runs) } -> std::same_as<at::Tensor>;
};

/// The first token.
struct ReduceCls {
  static constexpr std::string_view name = "ClsPooling", key = "pooling_mode_cls_token";
  [[nodiscard]] static at::Tensor reduce(const TokenRuns& runs) {
    return runs.pick({runs.offsets.begin(), runs.offsets.end() - 1});
  }
};

/// The last token.
struct ReduceLastToken {
  static constexpr std::string_view name = "LastTokenPooling", key = "pooling_mode_lasttoken";
  [[nodiscard]] static at::Tensor reduce(const TokenRuns& runs) {
    std::vector<std::int64_t> rows(runs.offsets.begin() + 1, runs.offsets.end());
    for (auto& row : rows) --row;
    return runs.pick(rows);
  }
};

/// sum / n
struct ReduceMean {
  static constexpr std::string_view name = "MeanPooling", key = "pooling_mode_mean_tokens";
  [[nodiscard]] static at::Tensor reduce(const TokenRuns& runs) {
    return runs.sums(runs.values).div(runs.counts().clamp_min(1).unsqueeze(1));
  }
};

/// sum / sqrt(n)
struct ReduceMeanSqrtLength {
  static constexpr std::string_view name = "MeanSqrtLengthPooling", key = "pooling_mode_mean_sqrt_len_tokens";
  [[nodiscard]] static at::Tensor reduce(const TokenRuns& runs) {
    return runs.sums(runs.values).div(runs.counts().clamp_min(1).to(runs.values.scalar_type()).sqrt().unsqueeze(1));
  }
};

/// sum of position * x / sum of positions, with positions 1 .. L of the text
struct ReduceWeightedMean {
  static constexpr std::string_view name = "WeightedMeanPooling", key = "pooling_mode_weightedmean_tokens";
  [[nodiscard]] static at::Tensor reduce(const TokenRuns& runs) {
    const at::Tensor weight = runs.on_device(runs.position).to(runs.values.scalar_type()).unsqueeze(1);
    return runs.sums(runs.values.mul(weight)).div(runs.sums(weight).clamp_min(1));
  }
};

/// The largest value of each feature; a text without tokens gets -1e9, as in Sentence Transformers 5. Ties: lowest index.
struct ReduceMax {
  static constexpr std::string_view name = "MaxPooling", key = "pooling_mode_max_tokens";
  [[nodiscard]] static at::Tensor reduce(const TokenRuns& runs);
};

inline at::Tensor TokenRuns::counts() const {
  std::vector<std::int64_t> result;
  for (std::size_t i = 1; i < offsets.size(); ++i) result.push_back(offsets[i] - offsets[i - 1]);
  return on_device(result);
}

inline at::Tensor TokenRuns::sums(const at::Tensor& rows) const {
  std::vector<std::int64_t> text;
  for (std::int64_t i = 0; i < texts(); ++i) text.resize(static_cast<std::size_t>(offsets[static_cast<std::size_t>(i) + 1]), i);
  return rows.new_zeros({texts(), rows.size(1)}).index_add(0, on_device(text), rows);
}

inline at::Tensor TokenRuns::pick(std::vector<std::int64_t> rows) const {
  if (values.size(0) == 0) return sums(values);
  bool all = true;
  std::vector<std::int64_t> empty(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (offsets[i] == offsets[i + 1]) all = false, empty[i] = 1, rows[i] = 0;
  const at::Tensor picked = values.index_select(0, on_device(rows));
  return all ? picked : picked.masked_fill(on_device(empty).to(at::kBool).unsqueeze(1), 0);
}

inline at::Tensor ReduceMax::reduce(const TokenRuns& runs) {
  constexpr double lowest = -1e9;
  if (runs.values.size(0) == 0) return runs.sums(runs.values).add(lowest);
  std::vector<std::int64_t> text, row;  // the text of each token, and its place among all
  for (std::int64_t i = 0; i < runs.texts(); ++i)
    text.resize(static_cast<std::size_t>(runs.offsets[static_cast<std::size_t>(i) + 1]), i);
  for (std::size_t i = 0; i < text.size(); ++i) row.push_back(static_cast<std::int64_t>(i));
  const at::Tensor values = runs.values.detach(), counts = runs.counts();
  const std::int64_t none = values.size(0);
  const at::Tensor top = at::segment_reduce(values.contiguous(), "max", counts, {}, {}, 0, true, lowest);
  const at::Tensor here = values.eq(top.index_select(0, runs.on_device(text)));
  const at::Tensor place = at::where(here, runs.on_device(row).to(at::kDouble).unsqueeze(1), static_cast<double>(none));
  const at::Tensor first =
      at::segment_reduce(place.contiguous(), "min", counts, {}, {}, 0, true, static_cast<double>(none)).to(at::kLong);
  return runs.values.gather(0, first.clamp_max(none - 1)).masked_fill(first.eq(none), lowest);
}

}  // namespace toller
