// SPDX-License-Identifier: Apache-2.0
// T2. Multi-head self-attention over ragged texts.
#pragma once

#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "toller/encoder/attention_plan.hpp"
#include "toller/encoder/detail/cpu_attention.hpp"
#include "toller/encoder/dropout.hpp"

namespace toller {

/// softmax(q k' / sqrt(d)) v, each token over the visible tokens of its own text, for each head.
///
/// Shapes   qkv [T, 3 H]: queries, keys and values side by side, heads side by side in each -> [T, H].
/// Types    computes the softmax in float32 at least; returns the type of qkv.
[[nodiscard]] at::Tensor attention(const at::Tensor& qkv, std::int64_t heads, const AttentionPlan& plan,
                                   const Dropout& dropout);

namespace detail {

/// By tensor operations, on any device and in any type.
inline at::Tensor attention_by_blocks(const at::Tensor& qkv, std::int64_t heads, const AttentionPlan& plan,
                                      const Dropout& dropout) {
  const std::int64_t hidden = qkv.size(1) / 3, width = hidden / heads;
  std::vector<at::Tensor> outputs;
  for (const AttentionBlock& block : plan.blocks) {
    const auto n = static_cast<std::int64_t>(block.texts.size());
    const auto parts =
        qkv.index_select(0, block.rows).view({n, block.length, 3, heads, width}).permute({2, 0, 3, 1, 4}).unbind(0);
    const at::Tensor &q = parts[0], &k = parts[1], &v = parts[2];
    at::Tensor context;
    if (dropout.active()) {
      at::Tensor scores = at::matmul(q, k.transpose(-2, -1)) * (1 / std::sqrt(static_cast<double>(width)));
      if (scores.scalar_type() != at::kDouble) scores = scores.to(at::kFloat);
      if (block.bias.defined()) scores = scores + block.bias;
      const at::Tensor factors = attention_dropout_mask(block.texts, heads, block.length, dropout, qkv.device());
      context = at::matmul((at::softmax(scores, -1) * factors).to(v.scalar_type()), v);
    } else {
      const auto mask = block.bias.defined()
                            ? std::optional(block.bias.to(q.scalar_type()).expand({n, 1, block.length, block.length}))
                            : std::nullopt;
      context = at::scaled_dot_product_attention(q, k, v, mask);
    }
    outputs.push_back(context.transpose(1, 2).reshape({n * block.length, hidden}));
  }
  if (outputs.empty()) return qkv.narrow(1, 0, hidden);
  return at::cat(outputs).index_select(0, plan.slots);
}

/// Whether the plan must hold blocks for attention on this device in this type.
inline bool attention_needs_blocks(at::Device device, at::ScalarType type) {
  return !device.is_cpu() || (type != at::kFloat && type != at::kBFloat16);
}

}  // namespace detail

inline at::Tensor attention(const at::Tensor& qkv, std::int64_t heads, const AttentionPlan& plan, const Dropout& dropout) {
  if (detail::attention_needs_blocks(qkv.device(), qkv.scalar_type()))
    return detail::attention_by_blocks(qkv, heads, plan, dropout);
  if (qkv.size(0) == 0) return qkv.narrow(1, 0, qkv.size(1) / 3);
  auto shared = c10::make_intrusive<detail::CpuAttention>();
  shared->offsets = plan.offsets;
  shared->visible = plan.visible;
  shared->dropout = dropout;
  shared->heads = heads;
  return detail::CpuAttentionFunction::apply(qkv, shared);
}

}  // namespace toller
