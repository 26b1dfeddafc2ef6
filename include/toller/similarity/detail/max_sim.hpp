// SPDX-License-Identifier: Apache-2.0
// T2. MaxSim on ragged sides: blocks of similarities forward, scattering of the winners backward.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "toller/similarity/detail/max_sim_kernels.hpp"

namespace toller::detail {

using Offsets = std::vector<std::int64_t>;

/// Most query tokens, document tokens and documents of one block: 16 MB of float32 similarities.
inline constexpr std::int64_t block_columns = 1024, block_rows = 4096, block_documents = 1024;

struct MaxSimResult {
  at::Tensor scores{};   // [B, M]
  at::Tensor winners{};  // [M, Q'] int32: the row of the best document token, -1 for none; undefined unless kept
};

/// Documents `first .. last` that share a block; only a single one may have more than `block_rows` tokens.
[[nodiscard]] inline std::int64_t block_end(const Offsets& offsets, std::int64_t first) {
  const auto documents = static_cast<std::int64_t>(offsets.size()) - 1;
  const auto at = [&](std::int64_t i) { return offsets[static_cast<std::size_t>(i)]; };
  std::int64_t last = first + 1;
  while (last < documents && last - first < block_documents && at(last + 1) - at(first) <= block_rows) ++last;
  return last;
}

/// What a document without tokens scores, and PyLate's floor at zero for documents that it would pad.
inline void settle_short_documents(at::Tensor best, at::Tensor winners, const Offsets& offsets, std::int64_t first,
                                   std::int64_t padded) {
  for (std::int64_t i = 0; i < best.size(0); ++i) {
    const auto m = static_cast<std::size_t>(first + i);
    const std::int64_t length = offsets[m + 1] - offsets[m];
    if (length == 0) best.select(0, i).fill_(padded > 0 ? 0 : -1);
    if (length == 0 || length >= padded) continue;
    at::Tensor row = best.select(0, i);
    winners.select(0, i).masked_fill_(row.lt(0), -1);
    row.clamp_min_(0);
  }
}

[[nodiscard]] inline MaxSimResult max_sim_forward(const at::Tensor& q, const at::Tensor& d, const Offsets& q_offsets,
                                                  const Offsets& d_offsets, std::int64_t padded, bool keep, bool portable) {
  const auto B = static_cast<std::int64_t>(q_offsets.size()) - 1, M = static_cast<std::int64_t>(d_offsets.size()) - 1;
  const std::int64_t Q = q.size(0), step = std::min(Q, block_columns);
  const auto index = q.options().dtype(at::kInt);
  MaxSimResult result{at::zeros({B, M}, q.options()), keep ? at::empty({M, Q}, index) : at::Tensor()};
  const at::Tensor buffer = at::empty({std::min(d.size(0), block_rows), step}, q.options());
  const at::Tensor d_values = d.contiguous();
  for (std::int64_t q0 = 0; q0 < Q; q0 += step) {
    const std::int64_t columns = std::min(step, Q - q0);
    const at::Tensor q_transposed = q.narrow(0, q0, columns).t();
    for (std::int64_t m0 = 0, m1 = 0; m0 < M; m0 = m1) {
      m1 = block_end(d_offsets, m0);
      const at::Tensor best = at::full({m1 - m0, columns}, -std::numeric_limits<double>::infinity(), q.options());
      const at::Tensor winners =
          keep ? result.winners.narrow(0, m0, m1 - m0).narrow(1, q0, columns) : at::empty({m1 - m0, columns}, index);
      winners.fill_(-1);
      const std::int64_t end = d_offsets[static_cast<std::size_t>(m1)];
      for (std::int64_t t0 = d_offsets[static_cast<std::size_t>(m0)]; t0 < end; t0 += block_rows) {
        const std::int64_t rows = std::min(block_rows, end - t0);
        at::Tensor sims = columns == step ? buffer.narrow(0, 0, rows) : at::empty({rows, columns}, q.options());
        at::mm_out(sims, d_values.narrow(0, t0, rows), q_transposed);
        const Offsets part = clipped(d_offsets, m0, m1, t0, t0 + rows);
        if (q.is_cpu() && !portable)
          segment_max_cpu(sims, part, t0, best, winners);
        else
          segment_max_portable(sims, part, t0, best, winners);
      }
      settle_short_documents(best, winners, d_offsets, m0, padded);
      for (std::int64_t a = 0; a < B; ++a) {
        const std::int64_t begin = std::max(q_offsets[static_cast<std::size_t>(a)], q0) - q0;
        const std::int64_t stop = std::min(q_offsets[static_cast<std::size_t>(a) + 1], q0 + columns) - q0;
        if (begin < stop) result.scores.select(0, a).narrow(0, m0, m1 - m0).add_(best.narrow(1, begin, stop - begin).sum(1));
      }
    }
  }
  return result;
}

struct MaxSimFunction : torch::autograd::Function<MaxSimFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& q, const at::Tensor& d,
                            const Offsets& q_offsets, const Offsets& d_offsets, std::int64_t padded, bool portable) {
    MaxSimResult result = max_sim_forward(q, d, q_offsets, d_offsets, padded, true, portable);
    context->save_for_backward({q, d, result.winners});
    context->saved_data["q_offsets"] = q_offsets;
    context->saved_data["portable"] = portable;
    return result.scores;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    const auto saved = context->get_saved_variables();
    const Offsets q_offsets = context->saved_data["q_offsets"].toIntVector();
    const bool portable = context->saved_data["portable"].toBool();
    const auto [grad_q, grad_d] = saved[0].is_cpu() && !portable
                                      ? scatter_winners_cpu(grads[0], saved[0], saved[1], saved[2], q_offsets)
                                      : scatter_winners_portable(grads[0], saved[0], saved[1], saved[2], q_offsets);
    return {grad_q, grad_d, {}, {}, {}, {}};
  }
};

/// The scores with a graph where one is wanted. `portable` takes the code of other devices, for tests.
[[nodiscard]] inline at::Tensor max_sim(const at::Tensor& q, const at::Tensor& d, const Offsets& q_offsets,
                                        const Offsets& d_offsets, std::int64_t padded, bool portable = false) {
  if (at::GradMode::is_enabled() && (q.requires_grad() || d.requires_grad()))
    return MaxSimFunction::apply(q, d, q_offsets, d_offsets, padded, portable);
  return max_sim_forward(q, d, q_offsets, d_offsets, padded, false, portable).scores;
}

}  // namespace toller::detail
