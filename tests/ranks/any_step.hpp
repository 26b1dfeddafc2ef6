// SPDX-License-Identifier: Apache-2.0
// Any of the library's steps, chosen when the program runs: one Trainer to compile instead of three.
#pragma once

#include "toller/step/accumulate.hpp"
#include "toller/step/grad_cache.hpp"
#include "toller/step/plain_step.hpp"

struct AnyStep {
  static constexpr std::string_view name = "AnyStep";
  static constexpr bool splits_batch = true;
  static constexpr bool micro_batch_negatives = true;
  toller::GradCache cache{};
  std::int64_t parts = 1;

  static void fields(auto& self, auto&& visit) {
    visit("cache", self.cache);
    visit("parts", self.parts);
  }
  [[nodiscard]] std::int64_t micro_batches() const { return parts; }

  template <class Batch, class Model, class Loss, class Precision, toller::Replica R>
  [[nodiscard]] toller::StepReport run(const std::vector<Batch>& batches, const Model& model, const Loss& loss,
                                       Precision& precision, const R& replica) const {
    if (cache.mini_batch > 0 || cache.mini_batch_tokens > 0) return cache.run(batches, model, loss, precision, replica);
    if (parts > 1)
      return toller::Accumulate<toller::MicroBatchNegatives>{.steps = parts}.run(batches, model, loss, precision, replica);
    return toller::PlainStep{}.run(batches, model, loss, precision, replica);
  }
};
