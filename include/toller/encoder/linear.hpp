// SPDX-License-Identifier: Apache-2.0
// T2. The one place where dense layers are computed, with its own backward and its own choice of kernel.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/threshold_backward.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <string_view>

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

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias, std::int64_t activation) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const at::ScalarType type = x.scalar_type(), products = product_type(type);
    const at::Tensor cast_weight = weight.to(products);
    const at::Tensor before = linear_forward(x.to(products), cast_weight, bias.to(products)).to(type);
    const auto act = static_cast<Activation>(activation);
    ctx->saved_data["activation"] = activation;
    ctx->saved_data["weight_type"] = static_cast<std::int64_t>(weight.scalar_type());
    ctx->save_for_backward({x, cast_weight, act == Activation::none ? at::Tensor() : before});
    return activate(before, act);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const auto saved = ctx->get_saved_variables();
    const auto act = static_cast<Activation>(ctx->saved_data["activation"].toInt());
    const auto type = static_cast<at::ScalarType>(ctx->saved_data["weight_type"].toInt());
    const at::Tensor grad = activation_backward(grads[0].contiguous(), saved[2], act);
    const at::ScalarType products = saved[1].scalar_type();
    const at::Tensor cast_grad = grad.to(products);
    at::Tensor dx, dweight, dbias;
    if (ctx->needs_input_grad(0)) dx = linear_grad_input(cast_grad, saved[1]).to(grad.scalar_type());
    if (ctx->needs_input_grad(1)) dweight = linear_grad_weight(cast_grad, saved[0].to(products)).to(type);
    if (ctx->needs_input_grad(2)) dbias = grad.sum(0, false, type);
    return {dx, dweight, dbias, at::Tensor()};
  }
};

}  // namespace detail

inline at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, Activation activation) {
  const bool ours = x.is_cpu() && x.size(0) > 0 && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16);
  if (ours) return detail::LinearFunction::apply(x, weight, bias, static_cast<std::int64_t>(activation));
  return activate(at::linear(x, weight.to(x.scalar_type()), bias.to(x.scalar_type())), activation);
}

}  // namespace toller
