// SPDX-License-Identifier: Apache-2.0
// T1. What a similarity must have.
#pragma once

#include <concepts>

#include "toller/core/fields.hpp"
#include "toller/core/values.hpp"

namespace toller {

/// Two pooled sides in, all scores out: `scores(queries, documents) -> [B, M]`, float32 (float64 for float64 inputs).
///
/// `default_temperature` is what a contrastive loss divides by when its user names none.
template <class S>
concept Similarity = Spec<S> && requires(const S& similarity, const typename S::input_type& side) {
  { similarity.scores(side, side) } -> std::same_as<at::Tensor>;
  { S::default_temperature } -> std::convertible_to<double>;
};

}  // namespace toller
