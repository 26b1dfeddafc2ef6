// SPDX-License-Identifier: Apache-2.0
// T2. The norm of all gradients together, and keeping it below a limit.
#pragma once

#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "toller/core/values.hpp"

namespace toller {

namespace detail {

/// Sum of squares, [] float64. Float32 adds up at most 1024 numbers at a time, so that no large tensor loses digits.
[[nodiscard]] inline at::Tensor sum_of_squares(const at::Tensor& tensor) {
  constexpr std::int64_t run = 1024;
  const at::Tensor flat = tensor.reshape({-1});
  const auto square = [](const at::Tensor& norms) { return norms.to(at::kDouble).square().sum(); };
  if (flat.numel() <= run) return square(at::linalg_vector_norm(flat));
  const std::int64_t whole = flat.numel() / run * run;
  const at::Tensor rows = at::linalg_vector_norm(flat.slice(0, 0, whole).view({-1, run}), 2, at::IntArrayRef{1});
  return square(rows).add(square(at::linalg_vector_norm(flat.slice(0, whole))));
}

/// The gradients that are there.
[[nodiscard]] inline std::vector<at::Tensor> gradients(const Parameters& parameters) {
  std::vector<at::Tensor> result;
  result.reserve(parameters.size());
  for (const Parameter& p : parameters)
    if (p.value.grad().defined()) result.push_back(p.value.grad());
  return result;
}

}  // namespace detail

/// Multiplies all gradients by `scale`, then scales them together so that their common 2-norm is at most `max_norm` (0: any),
/// and returns the norm between the two.
///
///   g <- scale g min(1, max_norm / (norm + 1e-6)),   norm = scale |g|
///
/// Types    the norm is added up in float64. A norm that is not finite is returned as it is and leaves no usable gradient.
/// Cost     one pass over the gradients, two when they change; one device synchronisation.
/// Source   `torch.nn.utils.clip_grad_norm_`, which adds up in float32.
inline double clip_grad_norm(const Parameters& parameters, double max_norm, double scale = 1) {
  const c10::AutoGradMode no_grad(false);
  const std::vector<at::Tensor> grads = detail::gradients(parameters);
  if (grads.empty()) return 0;
  std::vector<at::Tensor> squares;
  squares.reserve(grads.size());
  for (const at::Tensor& grad : grads) squares.push_back(detail::sum_of_squares(grad));
  const double norm = scale * std::sqrt(at::stack(squares).sum().item<double>());
  const double kept = max_norm / (norm + 1e-6);
  if (max_norm > 0 && !(kept >= 1)) scale *= kept;
  if (scale != 1) at::_foreach_mul_(grads, scale);
  return norm;
}

}  // namespace toller
