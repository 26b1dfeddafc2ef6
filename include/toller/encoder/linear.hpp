// SPDX-License-Identifier: Apache-2.0
// T2. The one place where dense layers are computed, with its own backward and its own choice of kernel.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/threshold_backward.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "toller/encoder/activation.hpp"
#include "toller/encoder/kernels.hpp"

namespace at::native {
// Exported by libtorch_cpu without a shipped header: result = beta * result + alpha * a b, by oneDNN.
void mkldnn_matmul(const Tensor& a, const Tensor& b, const Tensor& result, float beta, float alpha);
}  // namespace at::native

namespace toller {

/// y = act(x W' + b), the dense layer of every encoder.
///
/// Shapes   x [T, I], weight [O, I], bias [O] -> [T, O].
/// Types    computes and returns in the type of x; a weight of another type is cast, its gradient has the weight's type.
/// Cost     the products go to the kernels of `linear_kernels`; at::linear for other devices, fp64 and empty batches.
[[nodiscard]] at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                Activation activation = Activation::none);

/// Several dense layers of one input in one product, their outputs side by side.
///
/// Shapes   x [T, I], weights [O_i, I], biases [O_i] -> [T, sum of O_i].
/// Cost     as `linear`; the weights put together, or cast, are not held for the backward pass but made again.
[[nodiscard]] at::Tensor linear_side_by_side(const at::Tensor& x, at::TensorList weights, at::TensorList biases,
                                             Activation activation = Activation::none);

/// f(x) elementwise, differentiable.
[[nodiscard]] inline at::Tensor activate(const at::Tensor& x, Activation activation) {
  switch (activation) {
    case Activation::gelu:
      return at::gelu(x);
    case Activation::gelu_tanh:
      return at::gelu(x, "tanh");
    case Activation::relu:
      return at::relu(x);
    case Activation::none:
      break;
  }
  return x;
}

namespace detail {

inline at::Tensor activation_backward(const at::Tensor& grad, const at::Tensor& before, Activation activation) {
  switch (activation) {
    case Activation::gelu:
      return at::gelu_backward(grad, before);
    case Activation::gelu_tanh:
      return at::gelu_backward(grad, before, "tanh");
    case Activation::relu:
      return at::threshold_backward(grad, before, 0);
    case Activation::none:
      break;
  }
  return grad;
}

/// x W' + b by oneDNN; any strides of W.
inline at::Tensor onednn_linear(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
  using Signature = at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, std::string_view,
                               c10::List<std::optional<at::Scalar>>, std::optional<std::string_view>);
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("mkldnn::_linear_pointwise", "").typed<Signature>();
  return op.call(x, weight, bias, "none", c10::List<std::optional<at::Scalar>>(), std::nullopt);
}

inline at::Tensor linear_forward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return linear_kernels(x.scalar_type()).forward == LinearKernel::onednn ? onednn_linear(x, weight, bias)
                                                                         : at::linear(x, weight, bias);
}

inline at::Tensor linear_grad_input(const at::Tensor& grad, const at::Tensor& weight) {
  return linear_kernels(grad.scalar_type()).input == LinearKernel::onednn ? onednn_linear(grad, weight.t(), std::nullopt)
                                                                          : at::mm(grad, weight);
}

inline at::Tensor linear_grad_weight(const at::Tensor& grad, const at::Tensor& x) {
  if (linear_kernels(grad.scalar_type()).weight != LinearKernel::onednn) return at::mm(grad.t(), x);
  at::Tensor result = at::empty({grad.size(1), x.size(1)}, grad.options());
  at::native::mkldnn_matmul(grad.t(), x, result, 0.F, 1.F);
  return result;
}

/// The type in which the products of a dense layer on `type` are computed.
inline at::ScalarType product_type(at::ScalarType type) {
  return linear_kernels(type).forward == LinearKernel::widened ? at::kFloat : type;
}

/// What layers of one input have, one below the other.
inline at::Tensor stacked(at::TensorList parts, at::ScalarType type) {
  return (parts.size() == 1 ? parts[0] : at::cat(parts)).to(type);
}

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  using Tensors = torch::autograd::variable_list;

  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, at::TensorList weights,
                            at::TensorList biases, std::int64_t activation) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const at::ScalarType type = x.scalar_type(), products = product_type(type);
    const at::Tensor before = linear_forward(x.to(products), stacked(weights, products), stacked(biases, products)).to(type);
    const auto act = static_cast<Activation>(activation);
    ctx->saved_data["activation"] = activation;
    Tensors saved{x, act == Activation::none ? at::Tensor() : before};
    saved.insert(saved.end(), weights.begin(), weights.end());
    ctx->save_for_backward(std::move(saved));
    return activate(before, act);
  }

  static Tensors backward(torch::autograd::AutogradContext* ctx, const Tensors& grads) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const Tensors saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &before = saved[1];
    const auto weights = at::TensorList(saved).slice(2);
    const at::ScalarType type = weights[0].scalar_type(), products = product_type(x.scalar_type());
    const auto act = static_cast<Activation>(ctx->saved_data["activation"].toInt());
    const at::Tensor grad = activation_backward(grads[0].contiguous(), before, act);
    const at::Tensor cast_grad = grad.to(products);
    std::vector<std::int64_t> rows;
    for (const at::Tensor& weight : weights) rows.push_back(weight.size(0));
    const std::size_t n = rows.size();
    Tensors result(1 + 2 * n + 1);  // of x, the weights, the biases, the activation
    const auto any_needed = [&](std::size_t first) {
      bool any = false;
      for (std::size_t i = first; i < first + n; ++i) any |= ctx->needs_input_grad(i);
      return any;
    };
    const auto give = [&](Tensors parts, std::size_t first) { std::move(parts.begin(), parts.end(), &result[first]); };
    if (ctx->needs_input_grad(0)) result[0] = linear_grad_input(cast_grad, stacked(weights, products)).to(grad.scalar_type());
    if (any_needed(1)) give(linear_grad_weight(cast_grad, x.to(products)).to(type).split_with_sizes(rows), 1);
    if (any_needed(1 + n)) give(grad.sum(0, false, type).split_with_sizes(rows), 1 + n);
    return result;
  }
};

}  // namespace detail

inline at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, Activation activation) {
  return linear_side_by_side(x, weight, bias, activation);
}

inline at::Tensor linear_side_by_side(const at::Tensor& x, at::TensorList weights, at::TensorList biases,
                                      Activation activation) {
  const at::ScalarType type = x.scalar_type();
  const bool ours = x.is_cpu() && x.size(0) > 0 && (type == at::kFloat || type == at::kBFloat16);
  if (ours) return detail::LinearFunction::apply(x, weights, biases, static_cast<std::int64_t>(activation));
  return activate(at::linear(x, detail::stacked(weights, type), detail::stacked(biases, type)), activation);
}

}  // namespace toller
