// SPDX-License-Identifier: Apache-2.0
// T2. The gradient of a loss over the whole batch with the memory of a mini-batch.
#pragma once

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "toller/step/detail/micro_batches.hpp"
#include "toller/step/detail/mini_batches.hpp"
#include "toller/step/step.hpp"

namespace toller {

/// The exact gradient of the whole batch, encoded a mini-batch at a time.
///
///   1. pooled values v of all texts, mini-batch by mini-batch, without a graph
///   2. g = d loss(v) / dv, over the whole batch, and over the documents of all ranks where the loss wants them
///   3. mini-batch by mini-batch again, with a graph: gradient += g . dv/dw
///
/// Both passes see the same dropout, since a mask depends on the step and the text alone. Set one of the two fields:
/// `mini_batch_tokens`, as many texts at once as have that many tokens together (at least one), or `mini_batch`, as many texts,
/// queries and documents alike.
///
/// Ranks    one sum of gradients over the ranks a step, in the last mini-batch's backward pass, however many a rank has; a rank
///          without rows runs an empty one.
/// Errors   ConfigError R151 (both or none are set), R152 (out of range).
/// Cost     holds the activations of one mini-batch, and of all texts the pooled values and their gradients; a second forward
///          pass.
/// Source   Gao et al. 2021, "Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup".
struct GradCache {
  static constexpr std::string_view name = "GradCache";
  static constexpr bool splits_batch = false;
  std::int64_t mini_batch_tokens = 0;
  std::int64_t mini_batch = 0;

  static void fields(auto& self, auto&& visit) {
    visit("mini_batch_tokens", self.mini_batch_tokens);
    visit("mini_batch", self.mini_batch);
  }

  [[nodiscard]] std::int64_t micro_batches() const { return 1; }

  /// Throws unless the fields make sense together.
  void check() const {
    if (mini_batch_tokens < 0 || mini_batch < 0)
      throw ConfigError("R152", detail::cat("GradCache: sizes must be at least 1, got mini_batch_tokens ", mini_batch_tokens,
                                            ", mini_batch ", mini_batch));
    if ((mini_batch_tokens == 0) == (mini_batch == 0))
      throw ConfigError("R151", detail::cat("GradCache: set either mini_batch_tokens or mini_batch, got ",
                                            mini_batch == 0 ? "none" : "both"));
  }

  template <class Batch, class Model, class Loss, class Precision, Replica R>
  [[nodiscard]] StepReport run(const std::vector<Batch>& batches, const Model& model, const Loss& loss, Precision& precision,
                               const R& replica) const;
};

template <class Batch, class Model, class Loss, class Precision, Replica R>
StepReport GradCache::run(const std::vector<Batch>& batches, const Model& model, const Loss& loss, Precision& precision,
                          const R& replica) const {
  check();
  const Batch& batch = batches.front();
  const at::Device device = batch.tokens.ids.device();
  const std::vector<detail::TextRange> ranges = detail::cut_texts(batch.tokens, mini_batch, mini_batch_tokens);
  const auto forward = [&](const detail::TextRange& range) {
    [[maybe_unused]] const auto guard = precision.guard(device);
    return model.forward(batch.tokens.slice(range.begin, range.end));
  };

  const auto pool_all = [&] {
    const at::NoGradGuard no_grad;
    std::vector<decltype(forward(ranges.front()))> parts;
    for (const detail::TextRange& range : ranges) parts.push_back(forward(range));
    return detail::with_values(parts, detail::stacked_values(parts));
  };
  auto pooled = pool_all();
  pooled.values.set_requires_grad(true);

  StepReport report;
  const auto whole_loss = [&] {
    [[maybe_unused]] const auto guard = precision.guard(device);
    return detail::compare(batch, pooled, loss, replica.communicator());
  };
  const auto gradient_of_values = [&] {
    const LossValue value = whole_loss();
    detail::add_share(report, batch, value);
    precision.backward(value.sum.div(static_cast<double>(batch.global_rows)));
    return pooled.values.grad().defined() ? pooled.values.grad() : at::zeros_like(pooled.values);
  };
  const at::Tensor gradient = gradient_of_values();
  pooled.values = at::Tensor();

  std::int64_t row = 0;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const at::Tensor values = forward(ranges[i]).values;
    if (i + 1 == ranges.size()) replica.sync(values);
    // Not precision.backward: a loss scale is in the gradient already.
    values.backward(gradient.narrow(0, row, values.size(0)));
    row += values.size(0);
  }
  return report;
}

static_assert(StepPolicy<GradCache>);

}  // namespace toller
