// SPDX-License-Identifier: Apache-2.0
// T1. Computing in float32 whatever autocast says.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace toller {

/// While it lives, autocast casts nothing on this thread.
class FullPrecision {
  c10::impl::ExcludeDispatchKeyGuard no_autocast_{c10::autocast_dispatch_keyset};
};

/// The tensor in float32, or in float64 if it is that already. Differentiable.
[[nodiscard]] inline at::Tensor full_precision(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? tensor : tensor.to(at::kFloat);
}

}  // namespace toller
