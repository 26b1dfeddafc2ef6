// SPDX-License-Identifier: Apache-2.0
// T2. How a bucket of gradients is summed over the ranks.
#pragma once

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "toller/distributed/process_group.hpp"

namespace toller::detail {

/// When a step began, and when the last of its sums did: from then on a rank only waits.
struct StepState {
  Clock::time_point begun{};
  Clock::time_point last_sum{};
  double waited = 0;  ///< by the communicator's count, when the step began
};

/// A table of at least so many bytes, in which a batch touches few rows, is worth a look at its rows.
inline constexpr std::size_t large_table_bytes = 8 << 20;

/// 1 for each row that holds anything but zeros. Shapes: table [R, C] on the host; int32 [R].
[[nodiscard]] inline at::Tensor touched_rows(const at::Tensor& table) {
  at::Tensor touched = at::empty({table.size(0)}, at::kInt);
  auto* flag = touched.mutable_data_ptr<std::int32_t>();
  const auto row_bytes = static_cast<std::size_t>(table.size(1) * table.element_size());
  const auto* row = static_cast<const unsigned char*>(table.const_data_ptr());
  for (std::int64_t r = 0; r < table.size(0); ++r, row += row_bytes) {
    std::uint64_t bits = 0, word = 0;
    std::size_t i = 0;
    for (; i + sizeof word <= row_bytes; i += sizeof word) std::memcpy(&word, row + i, sizeof word), bits |= word;
    for (; i < row_bytes; ++i) bits |= row[i];
    flag[r] = bits != 0 ? 1 : 0;
  }
  return touched;
}

/// Sums a bucket of gradients over the ranks, beside the computation and without a factor: a loss is already divided by the
/// rows of the global batch. Of a large embedding only the rows that some rank's batch touched are sent: the others are zero.
class SumGradients : public c10d::CommHookInterface {
public:
  SumGradients(ProcessGroup group, std::shared_ptr<StepState> state) : group_(std::move(group)), state_(std::move(state)) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    state_->last_sum = Clock::now();
    const std::vector<at::Tensor> gradients = bucket.getGradients();
    for (const at::Tensor& table : gradients)
      if (table.is_cpu() && table.dim() == 2 && table.is_contiguous() && table.nbytes() >= large_table_bytes)
        return sum_touched(bucket, gradients, table);
    return group_.start_all_reduce(bucket.getBuffer())->getFuture();
  }
  at::Tensor parseHookResult(const c10::IValue& result) override { return c10d::detail::parseCppCommHookResult(result); }

private:
  /// The table's touched rows and the rest of the bucket, sent as one.
  [[nodiscard]] c10::intrusive_ptr<c10::ivalue::Future> sum_touched(c10d::GradBucket& bucket,
                                                                    const std::vector<at::Tensor>& gradients,
                                                                    const at::Tensor& table) const {
    at::Tensor touched = touched_rows(table);
    group_.all_reduce(touched);
    const at::Tensor rows = touched.nonzero().squeeze(1);
    if (rows.size(0) * 2 > table.size(0)) return group_.start_all_reduce(bucket.getBuffer())->getFuture();
    std::vector<at::Tensor> parts;
    for (const at::Tensor& g : gradients)
      parts.push_back(g.is_same(table) ? g.index_select(0, rows).view({-1}) : g.reshape({-1}));
    at::Tensor packed = at::cat(parts);
    group_.all_reduce(packed);
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const at::Tensor sum = packed.narrow(0, begin, parts[i].size(0));
      begin += parts[i].size(0);
      at::Tensor gradient = gradients[i];
      if (gradient.is_same(table))
        gradient.index_copy_(0, rows, sum.view({rows.size(0), table.size(1)}));
      else
        gradient.copy_(sum.view(gradient.sizes()));
    }
    auto done = c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get());
    done->markCompleted(c10::IValue(bucket.getBuffer()));
    return done;
  }

  ProcessGroup group_;
  std::shared_ptr<StepState> state_;
};

}  // namespace toller::detail
