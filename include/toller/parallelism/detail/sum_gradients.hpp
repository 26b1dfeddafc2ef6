// SPDX-License-Identifier: Apache-2.0
// T2. How gradients are summed over the ranks.
#pragma once

#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include <memory>
#include <utility>

#include "toller/core/touched_rows.hpp"
#include "toller/distributed/process_group.hpp"

namespace toller::detail {

/// When a step began, and when the last of its sums did: from then on a rank only waits.
struct StepState {
  Clock::time_point begun{};
  Clock::time_point last_sum{};
  double waited = 0;  ///< by the communicator's count, when the step began
};

/// Sums a bucket of gradients over the ranks, beside the computation and without a factor: a loss is already divided by the
/// rows of the global batch.
class SumGradients : public c10d::CommHookInterface {
public:
  SumGradients(ProcessGroup group, std::shared_ptr<StepState> state) : group_(std::move(group)), state_(std::move(state)) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    state_->last_sum = Clock::now();
    return group_.start_all_reduce(bucket.getBuffer())->getFuture();
  }
  at::Tensor parseHookResult(const c10::IValue& result) override { return c10d::detail::parseCppCommHookResult(result); }

private:
  ProcessGroup group_;
  std::shared_ptr<StepState> state_;
};

/// Sums a large table's gradient over the ranks, in its place. Only the rows that some rank's batch touched are sent: the
/// others are zero. A gradient that no rank has stays undefined.
inline void sum_touched(const ProcessGroup& group, const at::Tensor& table) {
  at::Tensor gradient = table.grad();
  const std::int64_t height = table.size(0);
  at::Tensor touched = at::cat({gradient.defined() ? touched_rows(gradient) : at::zeros({height}, at::kInt),
                                at::full({1}, gradient.defined() ? 1 : 0, at::kInt)});
  group.all_reduce(touched);
  if (touched[height].item<std::int32_t>() == 0) return;
  if (!gradient.defined()) gradient = table.mutable_grad() = at::zeros_like(table.detach());
  const at::Tensor rows = touched.narrow(0, 0, height).nonzero().squeeze(1);
  if (rows.size(0) * 2 > height) return group.all_reduce(gradient);
  at::Tensor sum = gradient.index_select(0, rows);
  group.all_reduce(sum);
  gradient.index_copy_(0, rows, sum);
}

}  // namespace toller::detail
