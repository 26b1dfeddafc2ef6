// SPDX-License-Identifier: Apache-2.0
// Comparing values and gradients.
#pragma once

#include <ATen/ATen.h>

#include <catch2/catch_all.hpp>
#include <string>

/// A leaf with a gradient, in that type.
[[nodiscard]] inline at::Tensor leaf(const at::Tensor& value, at::ScalarType type) {
  return value.to(type, false, /*copy=*/true).requires_grad_(true);
}

/// The gradient of a leaf; zeros where nothing reached it.
[[nodiscard]] inline at::Tensor grad_of(const at::Tensor& leaf) {
  return leaf.grad().defined() ? leaf.grad() : at::zeros_like(leaf);
}

[[nodiscard]] inline double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  REQUIRE(a.sizes() == b.sizes());
  return a.numel() == 0 ? 0 : (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

/// Every element within `absolute + relative * |reference|`; false for NaN.
[[nodiscard]] inline bool near(const at::Tensor& value, const at::Tensor& reference, double absolute, double relative = 0) {
  REQUIRE(value.sizes() == reference.sizes());
  const at::Tensor r = reference.to(at::kDouble);
  return ((value.to(at::kDouble) - r).abs() <= absolute + relative * r.abs()).all().item<bool>();
}
