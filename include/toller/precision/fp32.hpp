// SPDX-License-Identifier: Apache-2.0
// T1. Everything in the type of the weights.
#pragma once

#include "toller/precision/precision.hpp"

namespace toller {

/// Computes in float32, the type of the weights (float64 weights compute in float64).
struct Fp32 {
  static constexpr std::string_view name = "Fp32";
  /// Changes nothing; autocast that the caller switched on stays on.
  struct Guard {
    Guard() {}  // not trivial, so that a held guard is no unused variable
    ~Guard() {}
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
  };

  static void fields(auto&, auto&&) {}
  [[nodiscard]] Guard guard(at::Device) const { return {}; }
  void backward(const at::Tensor& loss) const { loss.backward(); }
  template <class Update>
  bool step(Update&& update) const {
    update();
    return true;
  }
};

static_assert(PrecisionPolicy<Fp32>);

}  // namespace toller
