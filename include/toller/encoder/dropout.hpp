// SPDX-License-Identifier: Apache-2.0
// T2. Dropout whose mask is a function of (key, text, layer, site, position) alone, the same on every device.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "toller/core/seed.hpp"
#include "toller/core/values.hpp"
#include "toller/encoder/detail/simd.hpp"

namespace toller {

/// Where in a layer dropout acts; part of the mask's key.
enum class DropoutSite : std::uint64_t { embeddings = 0, attention = 1, attention_output = 2, feed_forward_output = 3 };

/// One dropout of a batch: its probability and a key for each text. Undefined keys: no dropout here.
struct Dropout {
  detail::DropoutRate rate{};
  std::shared_ptr<const std::vector<std::uint64_t>> text_keys{};
  std::shared_ptr<const std::vector<std::int64_t>> offsets{};

  [[nodiscard]] bool active() const { return text_keys != nullptr; }
};

/// The dropout of one site of one layer; not active without a `dropout_key` or with p = 0.
[[nodiscard]] inline Dropout make_dropout(const TokenBatch& batch, std::shared_ptr<const std::vector<std::int64_t>> offsets,
                                          double p, std::int64_t layer, DropoutSite site) {
  if (!batch.dropout_key || p <= 0) return {};
  auto keys = std::make_shared<std::vector<std::uint64_t>>();
  for (const std::int64_t text : batch.text_index)
    keys->push_back(mix_seed(*batch.dropout_key, text, layer, static_cast<std::uint64_t>(site)));
  return {detail::DropoutRate(p), std::move(keys), std::move(offsets)};
}

/// residual + dropout(x), or dropout(x) if the residual is undefined.
///
/// Shapes   x [T, H], residual [T, H].
/// Types    the residual's type, or x's.
[[nodiscard]] at::Tensor dropout_add(const at::Tensor& x, const at::Tensor& residual, const Dropout& dropout);

/// Factors 0 or 1 / (1 - p) of the attention probabilities of texts, by tensor operations of any device.
///
/// Shapes   texts: numbers of n texts -> [n, heads, length, length] float32: a function of text, head, query and key position.
[[nodiscard]] at::Tensor attention_dropout_mask(const std::vector<std::int64_t>& texts, std::int64_t heads, std::int64_t length,
                                                const Dropout& dropout, at::Device device);

namespace detail {

/// The 32-bit hash behind `dropout_bits` on int64 tensors that hold 32-bit values.
inline at::Tensor dropout_bits_by_tensors(const at::Tensor& row, const at::Tensor& second, const at::Tensor& column) {
  constexpr std::int64_t low = 0xffffffff;
  at::Tensor x = (row + column * static_cast<std::int64_t>(dropout_column_step)) & low;
  x = x ^ x.bitwise_right_shift(16);
  x = (x * static_cast<std::int64_t>(dropout_multiplier_1) + second) & low;
  x = x ^ x.bitwise_right_shift(15);
  x = (x * static_cast<std::int64_t>(dropout_multiplier_2)) & low;
  return x ^ x.bitwise_right_shift(15);
}

inline at::Tensor host_numbers(const std::vector<std::int64_t>& numbers, at::Device device) {
  at::Tensor result = at::empty({static_cast<std::int64_t>(numbers.size())}, at::kLong);
  std::copy(numbers.begin(), numbers.end(), result.data_ptr<std::int64_t>());
  return result.to(device);
}

inline at::Tensor dropout_factors(const at::Tensor& bits, const DropoutRate& rate) {
  return (bits >= static_cast<std::int64_t>(rate.threshold)).to(at::kFloat) * rate.scale;
}

/// [T, features] float32.
inline at::Tensor hidden_dropout_mask(std::int64_t features, const Dropout& dropout, at::Device device) {
  std::vector<std::int64_t> rows, seconds;
  for (std::size_t i = 0; i + 1 < dropout.offsets->size(); ++i)
    for (std::int64_t t = 0; t < (*dropout.offsets)[i + 1] - (*dropout.offsets)[i]; ++t) {
      const DropoutRow row = dropout_row((*dropout.text_keys)[i], 0, static_cast<std::uint32_t>(t));
      rows.push_back(row.first);
      seconds.push_back(row.second);
    }
  const auto column = [&](const std::vector<std::int64_t>& v) { return host_numbers(v, device).unsqueeze(1); };
  const at::Tensor features_1H = at::arange(features, at::TensorOptions(at::kLong).device(device)).unsqueeze(0);
  return dropout_factors(dropout_bits_by_tensors(column(rows), column(seconds), features_1H), dropout.rate);
}

/// One row of keys for each token, for the fast kernels.
inline std::vector<DropoutRow> hidden_dropout_rows(const Dropout& dropout) {
  std::vector<DropoutRow> rows;
  rows.reserve(static_cast<std::size_t>(dropout.offsets->back()));
  for (std::size_t i = 0; i + 1 < dropout.offsets->size(); ++i)
    for (std::int64_t t = 0; t < (*dropout.offsets)[i + 1] - (*dropout.offsets)[i]; ++t)
      rows.push_back(dropout_row((*dropout.text_keys)[i], 0, static_cast<std::uint32_t>(t)));
  return rows;
}

struct DropoutKeys : torch::CustomClassHolder {
  explicit DropoutKeys(Dropout d) : dropout(std::move(d)) {}
  Dropout dropout;
};

/// out = (residual +) mask * x by the fast kernel. bfloat16 rows are widened on the way.
inline void run_dropout(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& out, const Dropout& dropout) {
  const auto rows = hidden_dropout_rows(dropout);
  const std::int64_t features = x.size(1);
  const bool from_bf16 = x.scalar_type() == at::kBFloat16, to_bf16 = out.scalar_type() == at::kBFloat16;
  const float* add = residual.defined() ? residual.const_data_ptr<float>() : nullptr;
  const auto floats = [](const at::Tensor& t, std::int64_t i) { return static_cast<float*>(t.data_ptr()) + i; };
  const auto halves = [](const at::Tensor& t, std::int64_t i) { return static_cast<std::uint16_t*>(t.data_ptr()) + i; };
  at::parallel_for(0, x.size(0), std::max<std::int64_t>(1, 16384 / features), [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> row(static_cast<std::size_t>(features));
    for (std::int64_t t = begin; t < end; ++t) {
      const std::int64_t at = t * features;
      if (from_bf16) kernels().widen(halves(x, at), row.data(), features, 1.F);
      kernels().dropout_row_add(from_bf16 ? row.data() : floats(x, at), add == nullptr ? nullptr : add + at,
                                to_bf16 ? row.data() : floats(out, at), features, rows[static_cast<std::size_t>(t)],
                                dropout.rate);
      if (to_bf16) kernels().narrow(row.data(), halves(out, at), features, 1.F);
    }
  });
}

struct DropoutAdd : torch::autograd::Function<DropoutAdd> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const std::optional<at::Tensor>& add,
                            const c10::intrusive_ptr<DropoutKeys>& keys) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const at::Tensor residual = add.value_or(at::Tensor());
    ctx->saved_data["keys"] = c10::IValue::make_capsule(keys);
    ctx->saved_data["residual"] = residual.defined();
    ctx->saved_data["type"] = static_cast<std::int64_t>(x.scalar_type());
    const at::Tensor out = at::empty(x.sizes(), residual.defined() ? residual.options() : x.options());
    run_dropout(x.contiguous(), residual.defined() ? residual.contiguous() : residual, out, keys->dropout);
    return out;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const auto keys = c10::static_intrusive_pointer_cast<DropoutKeys>(ctx->saved_data["keys"].toCapsule());
    const at::Tensor grad = grads[0].contiguous();
    const at::Tensor dx =
        at::empty(grad.sizes(), grad.options().dtype(static_cast<at::ScalarType>(ctx->saved_data["type"].toInt())));
    run_dropout(grad, {}, dx, keys->dropout);
    return {dx, ctx->saved_data["residual"].toBool() ? grads[0] : at::Tensor(), at::Tensor()};
  }
};

}  // namespace detail

inline at::Tensor dropout_add(const at::Tensor& x, const at::Tensor& residual, const Dropout& dropout) {
  if (!dropout.active()) return residual.defined() ? residual + x : x;
  const auto fast = [](const at::Tensor& t) {
    return t.is_cpu() && (t.scalar_type() == at::kFloat || t.scalar_type() == at::kBFloat16);
  };
  if (fast(x) && (!residual.defined() || residual.scalar_type() == at::kFloat))
    return detail::DropoutAdd::apply(x, residual.defined() ? std::optional(residual) : std::nullopt,
                                     c10::make_intrusive<detail::DropoutKeys>(dropout));
  const at::Tensor dropped = x * detail::hidden_dropout_mask(x.size(1), dropout, x.device()).to(x.scalar_type());
  return residual.defined() ? residual + dropped : dropped;
}

inline at::Tensor attention_dropout_mask(const std::vector<std::int64_t>& texts, std::int64_t heads, std::int64_t length,
                                         const Dropout& dropout, at::Device device) {
  std::vector<std::int64_t> rows, seconds;
  for (const std::int64_t text : texts)
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t t = 0; t < length; ++t) {
        const auto row = detail::dropout_row((*dropout.text_keys)[static_cast<std::size_t>(text)],
                                             static_cast<std::uint32_t>(h), static_cast<std::uint32_t>(t));
        rows.push_back(row.first);
        seconds.push_back(row.second);
      }
  const auto n = static_cast<std::int64_t>(texts.size());
  const auto column = [&](const std::vector<std::int64_t>& v) {
    return detail::host_numbers(v, device).view({n, heads, length, 1});
  };
  const at::Tensor keys = at::arange(length, at::TensorOptions(at::kLong).device(device));
  return detail::dropout_factors(detail::dropout_bits_by_tensors(column(rows), column(seconds), keys), dropout.rate);
}

}  // namespace toller
