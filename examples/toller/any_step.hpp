// SPDX-License-Identifier: Apache-2.0
// Any of the library's steps, chosen at run time: one Trainer to compile instead of three.
#pragma once

#include "toller/step/accumulate.hpp"
#include "toller/step/grad_cache.hpp"
#include "toller/step/plain_step.hpp"

namespace program {

/// GradCache if one of its sizes is set, else the batch in parts; one part is the batch at once.
struct AnyStep {
  static constexpr std::string_view name = "AnyStep";
  static constexpr bool splits_batch = true;
  static constexpr bool micro_batch_negatives = true;
  toller::GradCache cache{};
  toller::Accumulate<toller::MicroBatchNegatives> parts{};

  static void fields(auto& self, auto&& visit) {
    visit("cache", self.cache);
    visit("parts", self.parts);
  }
  [[nodiscard]] std::int64_t micro_batches() const { return parts.steps; }

  template <class Batch, class Model, class Loss, class Precision, toller::Replica R>
  [[nodiscard]] toller::StepReport run(const std::vector<Batch>& batches, const Model& model, const Loss& loss,
                                       Precision& precision, const R& replica) const {
    if (cache.mini_batch > 0 || cache.mini_batch_tokens > 0) return cache.run(batches, model, loss, precision, replica);
    return parts.run(batches, model, loss, precision, replica);
  }
};

}  // namespace program
