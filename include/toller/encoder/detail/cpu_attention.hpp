// SPDX-License-Identifier: Apache-2.0
// T2. Attention on the CPU: each (text, head) by itself, at its own length, with nothing padded, gathered or kept but a
// log-sum.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "toller/encoder/attention_plan.hpp"
#include "toller/encoder/detail/simd.hpp"
#include "toller/encoder/dropout.hpp"

namespace toller::detail {

/// What forward and backward of one layer share.
struct CpuAttention : torch::CustomClassHolder {
  std::shared_ptr<const std::vector<std::int64_t>> offsets{};
  std::shared_ptr<const std::vector<std::uint8_t>> visible{};
  Dropout dropout{};
  std::int64_t heads = 1;

  /// Runs `task(text, head, scratch)` for all, longest texts first; every task writes places of its own.
  template <class Task>
  void for_each(std::int64_t squares, std::int64_t strips, std::int64_t width, const Task& task) const;
};

/// Rounds up to whole vectors of the widest instruction set.
constexpr std::int64_t whole(std::int64_t n) {
  return (n + 15) / 16 * 16;
}

template <class Task>
void CpuAttention::for_each(std::int64_t squares, std::int64_t strips, std::int64_t width, const Task& task) const {
  const std::vector<std::int64_t>& at_token = *offsets;
  const auto length_of = [&](std::int64_t i) {
    return at_token[static_cast<std::size_t>(i) + 1] - at_token[static_cast<std::size_t>(i)];
  };
  std::vector<std::int64_t> order(at_token.size() - 1);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) { return length_of(a) > length_of(b); });
  const std::int64_t longest = whole(length_of(order.front()));
  const std::int64_t floats = squares * longest * longest + (strips * whole(width) + 1) * longest;
  const auto tasks = static_cast<std::int64_t>(order.size()) * heads;
  std::atomic<std::int64_t> next{0};
  at::parallel_for(0, at::get_num_threads(), 1, [&](std::int64_t, std::int64_t) {
    const std::unique_ptr<float, decltype(&std::free)> scratch(
        static_cast<float*>(std::aligned_alloc(64, static_cast<std::size_t>(floats) * sizeof(float))), &std::free);
    for (std::int64_t t = next++; t < tasks; t = next++) {
      const std::int64_t text = order[static_cast<std::size_t>(t / heads)];
      if (length_of(text) > 0) task(text, t % heads, scratch.get());
    }
  });
}

/// One head of one text: its place in [T, stride] matrices and the loads and stores of its rows.
struct HeadRows {
  std::int64_t begin = 0;
  std::int64_t length = 0;
  std::int64_t width = 0;

  /// rows [whole(length), whole(width)] of floats = scale * the block at `column`, zero outside it.
  void load(const at::Tensor& from, std::int64_t column, float scale, float* rows) const {
    const std::int64_t stride = from.size(1), padded = whole(width);
    const bool bf16 = from.scalar_type() == at::kBFloat16;
    for (std::int64_t t = 0; t < length; ++t, rows += padded) {
      const std::int64_t at = (begin + t) * stride + column;
      if (bf16) {
        kernels().widen(static_cast<const std::uint16_t*>(from.const_data_ptr()) + at, rows, width, scale);
      } else {
        const float* source = from.const_data_ptr<float>() + at;
        for (std::int64_t c = 0; c < width; ++c) rows[c] = scale * source[c];
      }
      for (std::int64_t c = width; c < padded; ++c) rows[c] = 0;
    }
    std::fill(rows, rows + (whole(length) - length) * padded, 0.F);
  }

  void save(const float* rows, float scale, const at::Tensor& to, std::int64_t column) const {
    const std::int64_t stride = to.size(1), padded = whole(width);
    const bool bf16 = to.scalar_type() == at::kBFloat16;
    for (std::int64_t t = 0; t < length; ++t, rows += padded) {
      const std::int64_t at = (begin + t) * stride + column;
      if (bf16) {
        kernels().narrow(rows, static_cast<std::uint16_t*>(to.data_ptr()) + at, width, scale);
      } else {
        float* target = to.data_ptr<float>() + at;
        for (std::int64_t c = 0; c < width; ++c) target[c] = scale * rows[c];
      }
    }
  }

  /// columns [whole(width), whole(length)] = rows transposed.
  void transpose(const float* rows, float* columns) const {
    const std::int64_t padded = whole(width), tokens = whole(length);
    for (std::int64_t block = 0; block < tokens; block += 16)
      for (std::int64_t c = 0; c < padded; ++c)
        for (std::int64_t t = block; t < block + 16; ++t) columns[c * tokens + t] = rows[t * padded + c];
  }
};

struct CpuAttentionFunction : torch::autograd::Function<CpuAttentionFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& qkv_any,
                            const c10::intrusive_ptr<CpuAttention>& plan) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const at::Tensor qkv = qkv_any.contiguous();
    const std::int64_t hidden = qkv.size(1) / 3, width = hidden / plan->heads, padded = whole(width);
    const at::Tensor out = at::empty({qkv.size(0), hidden}, qkv.options());
    const at::Tensor log_sums = at::empty({qkv.size(0), plan->heads}, qkv.options().dtype(at::kFloat));
    const float scale = 1.F / std::sqrt(static_cast<float>(width));
    plan->for_each(1, 4, width, [&](std::int64_t text, std::int64_t head, float* scratch) {
      const HeadRows rows = head_rows(*plan, text, width);
      const std::int64_t tokens = whole(rows.length), column = head * width;
      float* scores = scratch;
      float* q = scores + tokens * tokens;
      float* k = q + tokens * padded;
      float* v = k + tokens * padded;
      float* k_columns = v + tokens * padded;
      float* bias = k_columns + tokens * padded;
      rows.load(qkv, column, scale, q);
      rows.load(qkv, hidden + column, 1, k);
      rows.load(qkv, 2 * hidden + column, 1, v);
      rows.transpose(k, k_columns);
      fill_bias(*plan, rows, bias);
      kernels().multiply(tokens, tokens, width, q, padded, 1, k_columns, tokens, scores, tokens);
      for (std::int64_t t = 0; t < rows.length; ++t) {
        const DropoutRow key = dropout_key(*plan, text, head, t);
        log_sums.data_ptr<float>()[(rows.begin + t) * plan->heads + head] = kernels().softmax_row(
            scores + t * tokens, bias, tokens, plan->dropout.active() ? &key : nullptr, plan->dropout.rate);
      }
      kernels().multiply(tokens, padded, rows.length, scores, tokens, 1, v, padded, q, padded);
      rows.save(q, 1, out, column);
    });
    ctx->saved_data["plan"] = c10::IValue::make_capsule(plan);
    ctx->save_for_backward({qkv, out, log_sums});
    return out;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &qkv = saved[0], &out = saved[1], &log_sums = saved[2];
    const at::Tensor grad = grads[0].contiguous();
    const auto plan = c10::static_intrusive_pointer_cast<CpuAttention>(ctx->saved_data["plan"].toCapsule());
    const std::int64_t hidden = qkv.size(1) / 3, width = hidden / plan->heads, padded = whole(width);
    const at::Tensor result = at::empty(qkv.sizes(), qkv.options());
    const float scale = 1.F / std::sqrt(static_cast<float>(width));
    plan->for_each(2, 7, width, [&](std::int64_t text, std::int64_t head, float* scratch) {
      const HeadRows rows = head_rows(*plan, text, width);
      const std::int64_t tokens = whole(rows.length), column = head * width;
      float* scores = scratch;
      float* grad_scores = scores + tokens * tokens;
      float* q = grad_scores + tokens * tokens;
      float* k = q + tokens * padded;
      float* v = k + tokens * padded;
      float* columns = v + tokens * padded;
      float* o = columns + tokens * padded;
      float* grad_o = o + tokens * padded;
      float* product = grad_o + tokens * padded;
      float* bias = product + tokens * padded;
      rows.load(qkv, column, scale, q);
      rows.load(qkv, hidden + column, 1, k);
      rows.load(qkv, 2 * hidden + column, 1, v);
      rows.load(out, column, 1, o);
      rows.load(grad, column, 1, grad_o);
      fill_bias(*plan, rows, bias);
      rows.transpose(k, columns);
      kernels().multiply(tokens, tokens, width, q, padded, 1, columns, tokens, scores, tokens);
      rows.transpose(v, columns);
      kernels().multiply(tokens, tokens, width, grad_o, padded, 1, columns, tokens, grad_scores, tokens);
      for (std::int64_t t = 0; t < rows.length; ++t) {
        float delta = 0;
        for (std::int64_t c = 0; c < width; ++c) delta += o[t * padded + c] * grad_o[t * padded + c];
        const DropoutRow key = dropout_key(*plan, text, head, t);
        kernels().softmax_row_backward(scores + t * tokens, grad_scores + t * tokens, bias, tokens,
                                       log_sums.const_data_ptr<float>()[(rows.begin + t) * plan->heads + head], delta,
                                       plan->dropout.active() ? &key : nullptr, plan->dropout.rate);
      }
      kernels().multiply(tokens, padded, rows.length, scores, 1, tokens, grad_o, padded, product, padded);
      rows.save(product, 1, result, 2 * hidden + column);
      kernels().multiply(tokens, padded, rows.length, grad_scores, tokens, 1, k, padded, product, padded);
      rows.save(product, scale, result, column);
      kernels().multiply(tokens, padded, rows.length, grad_scores, 1, tokens, q, padded, product, padded);
      rows.save(product, 1, result, hidden + column);
    });
    return {result, at::Tensor()};
  }

private:
  static HeadRows head_rows(const CpuAttention& plan, std::int64_t text, std::int64_t width) {
    const std::int64_t begin = (*plan.offsets)[static_cast<std::size_t>(text)];
    return {begin, (*plan.offsets)[static_cast<std::size_t>(text) + 1] - begin, width};
  }
  static DropoutRow dropout_key(const CpuAttention& plan, std::int64_t text, std::int64_t head, std::int64_t t) {
    if (!plan.dropout.active()) return {};
    return dropout_row((*plan.dropout.text_keys)[static_cast<std::size_t>(text)], static_cast<std::uint32_t>(head),
                       static_cast<std::uint32_t>(t));
  }
  static void fill_bias(const CpuAttention& plan, const HeadRows& rows, float* bias) {
    for (std::int64_t t = 0; t < whole(rows.length); ++t) {
      const bool seen =
          t < rows.length && (plan.visible->empty() || (*plan.visible)[static_cast<std::size_t>(rows.begin + t)] != 0);
      bias[t] = seen ? 0.F : -1e30F;
    }
  }
};

}  // namespace toller::detail
