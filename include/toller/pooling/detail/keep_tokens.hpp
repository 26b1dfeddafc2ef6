// SPDX-License-Identifier: Apache-2.0
// T2. Dropping tokens before anything is computed on them.
#pragma once

#include <ATen/ops/tensor.h>

#include <cstdint>
#include <vector>

#include "toller/core/check.hpp"
#include "toller/core/seed.hpp"
#include "toller/core/values.hpp"
#include "toller/pooling/reduce.hpp"

namespace toller::detail {

/// The tokens whose `mask` is true; all, without a copy, where the mask is not defined or all true.
///
/// Shapes   mask [T] bool.
/// Cost     a mask on a GPU is copied to the host: the offsets of the result live there.
[[nodiscard]] inline TokenRuns keep_tokens(const TokenEmbeddings& tokens, const at::Tensor& mask) {
  const TokenBatch& batch = tokens.batch;
  expect_shape("token embeddings", tokens.values, {batch.tokens(), any_size});
  if (mask.defined()) expect_shape("token mask", mask, {batch.tokens()});
  const at::Tensor host = mask.defined() ? mask.to(at::kCPU, at::kBool).contiguous() : at::Tensor();
  const bool* const kept = mask.defined() ? host.const_data_ptr<bool>() : nullptr;
  TokenRuns runs{tokens.values, {0}, {}};
  std::vector<std::int64_t> rows;
  for (std::size_t text = 0; text + 1 < batch.offsets.size(); ++text) {
    for (std::int64_t t = batch.offsets[text]; t < batch.offsets[text + 1]; ++t) {
      if (kept != nullptr && !kept[t]) continue;
      rows.push_back(t);
      runs.position.push_back(t - batch.offsets[text] + 1);
    }
    runs.offsets.push_back(static_cast<std::int64_t>(rows.size()));
  }
  if (static_cast<std::int64_t>(rows.size()) < batch.tokens())
    runs.values = tokens.values.index_select(0, runs.on_device(rows));
  return runs;
}

/// What each token is, for dropout: its text's number in the global batch, and its place there.
[[nodiscard]] inline std::vector<std::uint64_t> row_keys(const TokenRuns& runs, const TokenBatch& batch) {
  std::vector<std::uint64_t> keys;
  for (std::size_t text = 0; text + 1 < runs.offsets.size(); ++text)
    for (std::int64_t t = runs.offsets[text]; t < runs.offsets[text + 1]; ++t)
      keys.push_back(mix_seed(static_cast<std::uint64_t>(batch.text_index[text]), runs.position[static_cast<std::size_t>(t)]));
  return keys;
}

}  // namespace toller::detail
