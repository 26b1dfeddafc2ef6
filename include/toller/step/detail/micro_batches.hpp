// SPDX-License-Identifier: Apache-2.0
// T2. What steps share: the loss of a pooled batch, its report, and forward and backward of one batch after the other.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

#include "toller/gather/gather_sides.hpp"
#include "toller/parallelism/parallelism.hpp"
#include "toller/step/step.hpp"

namespace toller::detail {

/// The loss of a batch's rows, over the documents of all ranks where it asks for them.
template <class Batch, class Output, class Loss, class Communicator>
[[nodiscard]] LossValue compare(const Batch& batch, const Output& pooled, const Loss& loss, const Communicator& communicator) {
  const Output queries = pooled.slice(0, batch.queries);
  const Output documents = pooled.slice(batch.queries, batch.queries + batch.documents);
  if constexpr (Loss::cross_device) {
    bool all_queries = false;
    if constexpr (requires { loss.needs_all_queries(); }) all_queries = loss.needs_all_queries();
    const auto sides = gather_sides(queries, documents, batch.relevance, communicator, all_queries);
    return loss(sides.queries, sides.documents, sides.relevance);
  } else {
    return loss(queries, documents, batch.relevance);
  }
}

/// Adds a batch to the report of its step.
template <class Batch>
void add_share(StepReport& report, const Batch& batch, const LossValue& value) {
  const auto share = [&](const at::Tensor& sum) {
    return sum.defined() ? sum.template item<double>() / static_cast<double>(batch.global_rows) : 0.0;
  };
  report.loss += share(value.sum);
  report.accuracy += share(value.correct);
  report.similarity += share(value.similarity);
  report.rows += value.rows;
  report.tokens += batch.tokens.tokens();
}

/// Forward and backward of each batch; gradients add up, and the last backward pass sums them over the ranks.
template <class Batch, class Model, class Loss, class Precision, Replica R>
[[nodiscard]] StepReport run_micro_batches(const std::vector<Batch>& batches, const Model& model, const Loss& loss,
                                           Precision& precision, const R& replica) {
  StepReport report;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const Batch& batch = batches[i];
    const auto forward = [&]() -> LossValue {
      [[maybe_unused]] const auto guard = precision.guard(batch.tokens.ids.device());
      return compare(batch, model.forward(batch.tokens), loss, replica.communicator());
    };
    const LossValue value = forward();
    const at::Tensor root = value.sum.div(static_cast<double>(batch.global_rows));
    add_share(report, batch, value);
    if (i + 1 == batches.size()) replica.sync(root);
    precision.backward(root);
  }
  return report;
}

}  // namespace toller::detail
