// SPDX-License-Identifier: Apache-2.0
// T2. The whole batch forward, the whole batch backward.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "toller/step/detail/micro_batches.hpp"
#include "toller/step/step.hpp"

namespace toller {

/// One forward pass over all texts of the batch, one backward pass.
///
///   gradient = d/dw ( sum of the loss over all ranks' rows / global rows )
///
/// Ranks    each takes its part of the batch, which may be empty.
/// Cost     holds the activations of every token of this rank's part.
struct PlainStep {
  static constexpr std::string_view name = "PlainStep";
  static constexpr bool splits_batch = false;
  static void fields(auto&, auto&&) {}

  [[nodiscard]] std::int64_t micro_batches() const { return 1; }

  template <class Batch, class Model, class Loss, class Precision, Replica R>
  [[nodiscard]] StepReport run(const std::vector<Batch>& batches, const Model& model, const Loss& loss, Precision& precision,
                               const R& replica) const {
    return detail::run_micro_batches(batches, model, loss, precision, replica);
  }
};

static_assert(StepPolicy<PlainStep>);

}  // namespace toller
