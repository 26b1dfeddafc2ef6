// SPDX-License-Identifier: Apache-2.0
// T1. What a step must have.
#pragma once

#include <concepts>
#include <cstdint>

#include "toller/core/fields.hpp"
#include "toller/core/values.hpp"

namespace toller {

/// What one step leaves besides the gradients: host numbers.
///
/// Ranks    loss, accuracy and similarity are this rank's share of the mean over the global batch, own sum / global rows: their
///          sum over the ranks is the mean. `rows` and `tokens` are counted on this rank.
struct StepReport {
  double loss = 0;
  double accuracy = 0;
  double similarity = 0;
  std::int64_t rows = 0;
  std::int64_t tokens = 0;
};

/// One global batch in, gradients left in the parameters.
///
/// `splits_batch` says whether a loss sees less than the whole batch at once; `micro_batches()` into how many consecutive parts
/// the global batch is cut, each dealt to the ranks. The member is `template <class Batch, class Model, class Loss, class
/// Precision, class Replica> StepReport run(const std::vector<Batch>&, const Model&, const Loss&, Precision&, const Replica&)
/// const`.
template <class S>
concept StepPolicy = Spec<S> && requires(const S& step) {
  { S::splits_batch } -> std::convertible_to<bool>;
  { step.micro_batches() } -> std::same_as<std::int64_t>;
};

}  // namespace toller
