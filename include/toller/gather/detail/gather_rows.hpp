// SPDX-License-Identifier: Apache-2.0
// T2. Rows of all ranks, and the way back of their gradients.
#pragma once

#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "toller/distributed/communicator.hpp"

namespace toller::detail {

/// Rows of each rank.
using RowCounts = std::vector<std::int64_t>;

/// The rows of all ranks, in rank order, without a graph: every rank sends all it has to every other.
template <Communicator C>
[[nodiscard]] at::Tensor gather_rows(const at::Tensor& mine, const RowCounts& rows, const C& comm) {
  const at::NoGradGuard guard;
  std::vector<std::int64_t> copies(static_cast<std::size_t>(mine.dim()), 1);
  copies.front() = comm.size();
  return comm.all_to_all(mine.detach().repeat(copies), RowCounts(rows.size(), mine.size(0)), rows);
}

/// Numbers of all ranks, on the host.
template <Communicator C>
[[nodiscard]] std::vector<std::int64_t> gather_numbers(const std::vector<std::int64_t>& mine, const RowCounts& rows,
                                                       at::Device device, const C& comm) {
  const at::Tensor all = gather_rows(at::tensor(mine, at::kLong).to(device), rows, comm).cpu().contiguous();
  const auto* begin = all.template const_data_ptr<std::int64_t>();
  return {begin, begin + all.numel()};
}

/// The sum over ranks of the gradients of this rank's rows, added in rank order in float32 at least: the same bits each time.
template <Communicator C>
[[nodiscard]] at::Tensor sum_rows(const at::Tensor& grad, const RowCounts& rows, const C& comm) {
  const at::NoGradGuard guard;
  const std::int64_t mine = rows[static_cast<std::size_t>(comm.rank())];
  const at::Tensor blocks = comm.all_to_all(grad.contiguous(), rows, RowCounts(rows.size(), mine));
  at::Tensor sum =
      blocks.slice(0, 0, mine).to(grad.scalar_type() == at::kDouble ? at::kDouble : at::kFloat, false, /*copy=*/true);
  for (std::int64_t r = 1; r < comm.size(); ++r) sum.add_(blocks.slice(0, r * mine, (r + 1) * mine));
  return sum.to(grad.scalar_type());
}

/// One node for all that was gathered together, so that ranks go back in one order.
template <Communicator C>
class GatherBackward final : public torch::autograd::Node {
public:
  GatherBackward(std::vector<RowCounts> rows, bool from_all, C comm)
      : rows_(std::move(rows)), from_all_(from_all), comm_(std::move(comm)) {}

  [[nodiscard]] std::string name() const override { return "toller::GatherBackward"; }

  torch::autograd::variable_list apply(torch::autograd::variable_list&& grads) override {
    torch::autograd::variable_list result;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const at::Tensor grad = grads[i].defined() ? grads[i] : input_metadata(i).zeros_like();
      result.push_back(from_all_ ? sum_rows(grad, rows_[i], comm_) : own_rows(grad, rows_[i]));
    }
    return result;
  }

private:
  [[nodiscard]] at::Tensor own_rows(const at::Tensor& grad, const RowCounts& rows) const {
    std::int64_t first = 0;
    for (int r = 0; r < comm_.rank(); ++r) first += rows[static_cast<std::size_t>(r)];
    return grad.slice(0, first, first + rows[static_cast<std::size_t>(comm_.rank())]);
  }

  std::vector<RowCounts> rows_;
  bool from_all_;
  C comm_;
};

/// A node of the autograd graph, held the way this LibTorch holds them: shared, from 2.15 on intrusively.
template <class Node, class... Arguments>
[[nodiscard]] auto make_node(Arguments&&... arguments) {
  using Held = std::remove_cvref_t<decltype(std::declval<const at::Tensor&>().grad_fn())>;
  if constexpr (std::is_same_v<Held, std::shared_ptr<torch::autograd::Node>>)
    return std::make_shared<Node>(std::forward<Arguments>(arguments)...);
  else
    return c10::make_intrusive<Node>(std::forward<Arguments>(arguments)...);
}

/// All ranks' rows of each tensor; with a graph back to this rank's where `graph` says so, which must then be so on each rank
/// if the gradients come from all of them.
template <Communicator C>
[[nodiscard]] std::vector<at::Tensor> gather_values(const std::vector<at::Tensor>& mine, const std::vector<RowCounts>& rows,
                                                    bool graph, bool from_all, const C& comm) {
  std::vector<at::Tensor> all;
  for (std::size_t i = 0; i < mine.size(); ++i) all.push_back(gather_rows(mine[i], rows[i], comm));
  if (!graph) return all;
  const auto node = make_node<GatherBackward<C>>(rows, from_all, comm);
  node->set_next_edges(torch::autograd::collect_next_edges(mine));
  for (const at::Tensor& values : all) torch::autograd::set_history(values, node);
  return all;
}

}  // namespace toller::detail
