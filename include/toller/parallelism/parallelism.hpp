// SPDX-License-Identifier: Apache-2.0
// T1. What a parallelism must have.
#pragma once

#include <concepts>

#include "toller/core/fields.hpp"
#include "toller/core/values.hpp"

namespace toller {

/// Where parameters and gradients live. `distributed` says at compile time whether there may be several ranks.
template <class P>
concept ParallelismPolicy = Spec<P> && requires(const P& parallelism) {
  { P::distributed } -> std::convertible_to<bool>;
  { parallelism.target() } -> std::same_as<at::Device>;
};

}  // namespace toller
