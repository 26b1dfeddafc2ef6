// SPDX-License-Identifier: Apache-2.0
// T2. Weights in float32, matrix products in bfloat16.
#pragma once

#include "toller/precision/autocast.hpp"
#include "toller/precision/precision.hpp"

namespace toller {

/// Weights, gradients and optimizer in float32; matrix products and attention of the forward pass in bfloat16.
///
/// Its exponents are as wide as those of float32, so no loss scaling is needed and no step is ever skipped.
struct Bf16Mixed {
  static constexpr std::string_view name = "Bf16Mixed";

  static void fields(auto&, auto&&) {}
  [[nodiscard]] AutocastGuard guard(at::Device device) const { return {device, at::kBFloat16}; }
  /// Call it outside of the guard: gradients take the types of the forward pass by themselves.
  void backward(const at::Tensor& loss) const { loss.backward(); }
  template <class Update>
  bool step(Update&& update) const {
    update();
    return true;
  }
};

static_assert(PrecisionPolicy<Bf16Mixed>);

}  // namespace toller
