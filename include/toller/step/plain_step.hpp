// SPDX-License-Identifier: Apache-2.0
// T1. The whole batch forward, the whole batch backward.
#pragma once

#include <string_view>

#include "toller/step/step.hpp"

namespace toller {

/// One forward pass over all texts of the batch, one backward pass.
///
///   gradient = d/dw ( loss.sum / rows )
///
/// Cost     holds the activations of every token of the batch.
struct PlainStep {
  static constexpr std::string_view name = "PlainStep";
  static constexpr bool splits_batch = false;
  static void fields(auto&, auto&&) {}

  template <class Batch, class Model, class Loss, class Precision>
  [[nodiscard]] StepReport run(const Batch& batch, const Model& model, const Loss& loss, Precision& precision) const {
    const auto forward = [&]() -> LossValue {
      [[maybe_unused]] const auto guard = precision.guard(batch.tokens.ids.device());
      const auto pooled = model.forward(batch.tokens);
      return loss(pooled.slice(0, batch.queries), pooled.slice(batch.queries, batch.queries + batch.documents),
                  batch.relevance);
    };
    const LossValue value = forward();
    const double rows = static_cast<double>(value.rows);
    const double mean = value.sum.template item<double>() / rows;
    precision.backward(value.sum.div(rows));
    const auto share = [&](const at::Tensor& t) { return t.defined() ? t.template item<double>() / rows : 0.0; };
    return {mean, share(value.correct), share(value.similarity), value.rows, batch.tokens.tokens()};
  }
};

static_assert(StepPolicy<PlainStep>);

}  // namespace toller
