// SPDX-License-Identifier: Apache-2.0
// T1. What a precision must have.
#pragma once

#include <concepts>

#include "toller/core/fields.hpp"
#include "toller/core/values.hpp"

namespace toller {

/// Which type computes. `guard(device)` is held during the forward pass and switches autocast; `backward(loss)` runs it, scaled
/// or not; `step(update)` calls `update()` unless the gradients overflowed, and says whether it did.
template <class P>
concept PrecisionPolicy = Spec<P> && requires(P& precision, const at::Tensor& loss, at::Device device, void (*update)()) {
  precision.guard(device);
  precision.backward(loss);
  { precision.step(update) } -> std::same_as<bool>;
};

}  // namespace toller
