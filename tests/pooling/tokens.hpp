// SPDX-License-Identifier: Apache-2.0
// Token embeddings without an encoder.
#pragma once

#include <ATen/ATen.h>

#include <numeric>
#include <vector>

#include "toller/core/values.hpp"

/// Texts that are attended and scored whole.
[[nodiscard]] inline toller::TokenEmbeddings tokens(const at::Tensor& values, std::vector<std::int64_t> offsets) {
  toller::TokenBatch batch;
  batch.ids = batch.positions = batch.types = at::zeros({values.size(0)}, at::kLong);
  batch.attended = at::ones({values.size(0)}, at::kBool);
  batch.scored = at::ones({values.size(0)}, at::kBool);
  batch.text_index.resize(offsets.size() - 1);
  std::iota(batch.text_index.begin(), batch.text_index.end(), 0);
  batch.offsets = std::move(offsets);
  return {values, batch};
}

/// Padded [N, T, H] as N texts of T tokens, attended where the mask is 1.
[[nodiscard]] inline toller::TokenEmbeddings padded_tokens(const at::Tensor& padded, const at::Tensor& mask) {
  std::vector<std::int64_t> offsets{0};
  for (std::int64_t i = 0; i < padded.size(0); ++i) offsets.push_back(offsets.back() + padded.size(1));
  toller::TokenEmbeddings result = tokens(padded.flatten(0, 1), offsets);
  result.batch.attended = mask.to(at::kBool).flatten();
  result.batch.all_attended = false;
  return result;
}
