// SPDX-License-Identifier: Apache-2.0
// T1. What a step must have.
#pragma once

#include <concepts>
#include <cstdint>

#include "toller/core/fields.hpp"
#include "toller/core/values.hpp"

namespace toller {

/// What one step leaves besides the gradients: host numbers of this process's rows.
struct StepReport {
  double loss = 0;  ///< mean over the rows
  double accuracy = 0;
  double similarity = 0;
  std::int64_t rows = 0;
  std::int64_t tokens = 0;
};

/// One batch in, gradients left in the parameters. `splits_batch` says whether a loss sees less than the whole batch at once.
///
/// The member is `template <class Batch, class Model, class Loss, class Precision> StepReport run(const Batch&, const Model&,
/// const Loss&, Precision&) const`.
template <class S>
concept StepPolicy = Spec<S> && requires {
  { S::splits_batch } -> std::convertible_to<bool>;
};

}  // namespace toller
