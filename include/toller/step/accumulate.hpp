// SPDX-License-Identifier: Apache-2.0
// T2. The batch in several parts, one after the other: less memory, and a loss sees one part at a time.
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>
#include <vector>

#include "toller/step/detail/micro_batches.hpp"
#include "toller/step/step.hpp"

namespace toller {

/// Negatives are those of the whole batch: a loss with in-batch negatives does not compile with `Accumulate` (C104).
struct WholeBatchNegatives {};

/// Negatives are those of the same micro-batch, on all ranks with `CrossDeviceNegatives`: fewer, so another loss.
struct MicroBatchNegatives {};

/// The gradients of `steps` consecutive parts of the batch, added.
///
///   gradient = sum over parts of d/dw ( loss.sum of the part / global rows of the whole batch )
///
/// Spelt `Accumulate<>{.steps = 4}`, or `Accumulate<MicroBatchNegatives>{.steps = 4}` to accept fewer negatives.
/// Ranks    one sum of gradients over the ranks, in the last part's backward pass.
/// Errors   ConfigError R150.
/// Cost     holds the activations of one part. GradCache takes as little memory and leaves the loss as it is.
template <class Negatives = WholeBatchNegatives>
struct Accumulate {
  static_assert(std::is_same_v<Negatives, WholeBatchNegatives> || std::is_same_v<Negatives, MicroBatchNegatives>,
                "[toller C110] negatives are WholeBatchNegatives or MicroBatchNegatives. step/README.md");
  static constexpr bool splits_batch = true;
  static constexpr bool micro_batch_negatives = std::is_same_v<Negatives, MicroBatchNegatives>;
  static constexpr std::string_view name = micro_batch_negatives ? "Accumulate with negatives of the part" : "Accumulate";
  std::int64_t steps = 1;

  static void fields(auto& self, auto&& visit) { visit("steps", self.steps); }

  [[nodiscard]] std::int64_t micro_batches() const { return steps; }

  /// Throws unless the fields make sense.
  void check() const {
    if (steps < 1 || steps > 1'000'000)
      throw ConfigError("R150", detail::cat("Accumulate: steps must be in 1 .. 1000000, got ", steps));
  }

  template <class Batch, class Model, class Loss, class Precision, Replica R>
  [[nodiscard]] StepReport run(const std::vector<Batch>& batches, const Model& model, const Loss& loss, Precision& precision,
                               const R& replica) const {
    return detail::run_micro_batches(batches, model, loss, precision, replica);
  }
};

static_assert(StepPolicy<Accumulate<>>);

}  // namespace toller
