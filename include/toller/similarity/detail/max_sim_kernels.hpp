// SPDX-License-Identifier: Apache-2.0
// T2. The two inner loops of MaxSim, for the processor and in plain ATen for other devices.
#pragma once

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/segment_reduce.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace toller::detail {

/// `offsets[m0 .. m1]` cut to the rows `t0 .. t1` and counted from `t0`.
[[nodiscard]] inline std::vector<std::int64_t> clipped(const std::vector<std::int64_t>& offsets, std::int64_t m0,
                                                       std::int64_t m1, std::int64_t t0, std::int64_t t1) {
  std::vector<std::int64_t> result(offsets.begin() + m0, offsets.begin() + m1 + 1);
  for (auto& offset : result) offset = std::clamp(offset, t0, t1) - t0;
  return result;
}

/// Raises `best` and its `winners` by one block of similarities; the lowest row wins a tie, NaN wins always.
///
/// Shapes   sims [rows, columns]; offsets [M+1] into its rows; best, winners [M, columns].
inline void segment_max_cpu(const at::Tensor& sims, const std::vector<std::int64_t>& offsets, std::int64_t first_row,
                            const at::Tensor& best, const at::Tensor& winners) {
  const std::int64_t columns = sims.size(1), winner_stride = winners.stride(0);
  auto* const winner_data = winners.data_ptr<std::int32_t>();
  AT_DISPATCH_FLOATING_TYPES(sims.scalar_type(), "max_sim", [&] {
    const scalar_t* const sim_data = sims.const_data_ptr<scalar_t>();
    scalar_t* const best_data = best.data_ptr<scalar_t>();
    at::parallel_for(0, columns, 64, [&](std::int64_t begin, std::int64_t end) {
      for (std::size_t m = 0; m + 1 < offsets.size(); ++m) {
        scalar_t* const top = best_data + static_cast<std::int64_t>(m) * columns;
        std::int32_t* const winner = winner_data + static_cast<std::int64_t>(m) * winner_stride;
        for (std::int64_t r = offsets[m]; r < offsets[m + 1]; ++r) {
          const scalar_t* const row = sim_data + r * columns;
          const auto token = static_cast<std::int32_t>(first_row + r);
          for (std::int64_t c = begin; c < end; ++c) {
            const bool better = (row[c] > top[c]) | (row[c] != row[c]);
            top[c] = better ? row[c] : top[c];
            winner[c] = better ? token : winner[c];
          }
        }
      }
    });
  });
}

inline void segment_max_portable(const at::Tensor& sims, const std::vector<std::int64_t>& offsets, std::int64_t first_row,
                                 const at::Tensor& best, const at::Tensor& winners) {
  const std::int64_t rows = sims.size(0);
  std::vector<std::int64_t> lengths;
  for (std::size_t m = 0; m + 1 < offsets.size(); ++m) lengths.push_back(offsets[m + 1] - offsets[m]);
  const at::Tensor length = at::tensor(lengths, at::kLong).to(sims.device());
  const double lowest = -std::numeric_limits<double>::infinity();
  const at::Tensor top = at::segment_reduce(sims, "max", length, {}, {}, 0, true, lowest);
  const at::Tensor here = sims.eq(top.repeat_interleave(length, 0, rows));
  const at::Tensor row = at::arange(rows, sims.options()).unsqueeze(1);
  const at::Tensor candidate = at::where(here, row, static_cast<double>(rows)).contiguous();
  const at::Tensor first = at::segment_reduce(candidate, "min", length, {}, {}, 0, true, static_cast<double>(rows));
  const at::Tensor better = top.gt(best).logical_or_(top.isnan());
  winners.copy_(at::where(better, first.to(at::kInt).add_(first_row), winners));
  best.copy_(at::where(better, top, best));
}

/// d(q) and d(d) of the scores: each winner's pair of vectors, weighted by the gradient of its score.
///
/// Shapes   grad [B, M]; q [Q', D]; d [T', D]; winners [M, Q'].
inline std::pair<at::Tensor, at::Tensor> scatter_winners_cpu(const at::Tensor& grad, const at::Tensor& q, const at::Tensor& d,
                                                             const at::Tensor& winners,
                                                             const std::vector<std::int64_t>& q_offsets) {
  const at::Tensor g = grad.contiguous(), q_values = q.contiguous(), d_values = d.contiguous();
  const at::Tensor grad_q = at::zeros_like(q_values), grad_d = at::zeros_like(d_values);
  const std::int64_t M = winners.size(0), Q = winners.size(1), D = q.size(1);
  std::vector<std::int64_t> query(static_cast<std::size_t>(Q));
  for (std::size_t a = 0; a + 1 < q_offsets.size(); ++a)
    std::fill(query.begin() + q_offsets[a], query.begin() + q_offsets[a + 1], static_cast<std::int64_t>(a));
  const auto* const winner = winners.const_data_ptr<std::int32_t>();
  AT_DISPATCH_FLOATING_TYPES(g.scalar_type(), "max_sim_backward", [&] {
    const auto* const weight = g.const_data_ptr<scalar_t>();
    const auto visit = [&](std::int64_t m0, std::int64_t m1, std::int64_t j0, std::int64_t j1, const scalar_t* source,
                           scalar_t* target, bool to_query) {
      for (std::int64_t m = m0; m < m1; ++m)
        for (std::int64_t j = j0; j < j1; ++j) {
          const std::int64_t t = winner[m * Q + j];
          const scalar_t w = weight[query[static_cast<std::size_t>(j)] * M + m];
          if (t < 0 || w == scalar_t(0)) continue;
          const scalar_t* const from = source + (to_query ? t : j) * D;
          scalar_t* const into = target + (to_query ? j : t) * D;
          for (std::int64_t f = 0; f < D; ++f) into[f] += w * from[f];
        }
    };
    at::parallel_for(0, Q, 32, [&](std::int64_t begin, std::int64_t end) {
      visit(0, M, begin, end, d_values.const_data_ptr<scalar_t>(), grad_q.data_ptr<scalar_t>(), true);
    });
    at::parallel_for(0, M, 1, [&](std::int64_t begin, std::int64_t end) {  // a document's rows belong to one thread
      visit(begin, end, 0, Q, q_values.const_data_ptr<scalar_t>(), grad_d.data_ptr<scalar_t>(), false);
    });
  });
  return {grad_q, grad_d};
}

inline std::pair<at::Tensor, at::Tensor> scatter_winners_portable(const at::Tensor& grad, const at::Tensor& q,
                                                                  const at::Tensor& d, const at::Tensor& winners,
                                                                  const std::vector<std::int64_t>& q_offsets) {
  at::Tensor grad_q = at::zeros_like(q), grad_d = at::zeros_like(d);
  const std::int64_t M = winners.size(0), Q = winners.size(1), D = q.size(1);
  if (M == 0 || Q == 0 || d.size(0) == 0) return {grad_q, grad_d};
  std::vector<std::int64_t> lengths;
  for (std::size_t a = 0; a + 1 < q_offsets.size(); ++a) lengths.push_back(q_offsets[a + 1] - q_offsets[a]);
  const at::Tensor length = at::tensor(lengths, at::kLong).to(q.device());
  const at::Tensor weights = grad.repeat_interleave(length, 0, Q).t().masked_fill(winners.lt(0), 0).unsqueeze(2);  // [M, Q', 1]
  const at::Tensor rows = winners.clamp_min(0).to(at::kLong);
  const std::int64_t step = std::max<std::int64_t>(1, (std::int64_t{1} << 22) / (Q * D));
  for (std::int64_t m = 0; m < M; m += step) {
    const std::int64_t count = std::min(step, M - m);
    const at::Tensor w = weights.narrow(0, m, count), row = rows.narrow(0, m, count).reshape({-1});
    grad_q.add_(d.index_select(0, row).view({count, Q, D}).mul(w).sum(0));
    grad_d.index_put_({row}, q.unsqueeze(0).mul(w).reshape({-1, D}), /*accumulate=*/true);  // sorted on a GPU: deterministic
  }
  return {grad_q, grad_d};
}

}  // namespace toller::detail
