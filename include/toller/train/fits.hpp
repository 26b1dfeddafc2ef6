// SPDX-License-Identifier: Apache-2.0
// T1. Which parts go together: one named relation and one numbered message each, explained in train/README.md.
#pragma once

#include <type_traits>

#include "toller/core/values.hpp"
#include "toller/loss/loss.hpp"
#include "toller/parallelism/parallelism.hpp"
#include "toller/pooling/pooling.hpp"
#include "toller/precision/precision.hpp"

namespace toller::fits {

/// The loss compares what the pooling gives.
template <class Loss, class Output>
inline constexpr bool loss_takes = std::is_same_v<typename Loss::input_type, Output>;

/// The loss compares `Compared` while the pooling gives `Given`.
template <class Loss, class Output, class Compared, class Given>
inline constexpr bool mismatch_is = std::is_same_v<typename Loss::input_type, Compared>&& std::is_same_v<Output, Given>;

/// The dataset's record holds what the loss needs.
template <class Loss, class Record>
inline constexpr bool loss_accepts = Loss::template accepts<Record>;

/// Neither part refuses the other. A part refuses by `template <class Other> static constexpr bool unsupported_with`.
template <class A, class B>
inline constexpr bool supported_together = [] {
  bool fits = true;
  if constexpr (requires { A::template unsupported_with<B>; }) fits = fits && !A::template unsupported_with<B>;
  if constexpr (requires { B::template unsupported_with<A>; }) fits = fits && !B::template unsupported_with<A>;
  return fits;
}();

}  // namespace toller::fits
