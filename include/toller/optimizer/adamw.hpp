// SPDX-License-Identifier: Apache-2.0
// T2. AdamW on ATen's fused kernel.
#pragma once

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "toller/core/check.hpp"
#include "toller/core/values.hpp"
#include "toller/optimizer/groups.hpp"
#include "toller/optimizer/optimizer.hpp"

namespace toller {

/// Adam with decoupled weight decay over groups of parameters.
///
/// m <- b1 m + (1 - b1) g;  v <- b2 v + (1 - b2) g^2;  p <- p (1 - lr wd) - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)
///
/// Types    the moments have the parameter's type; the step count is kept for each parameter.
/// Masks    a parameter without a gradient is left alone: not decayed, and its step count stays.
/// Errors   ConfigError R140 - R145 (settings), R146 (two parameters of one name), R147 (state of another model).
/// Cost     one fused call for each group; two numbers of state a weight.
/// Source   Loshchilov, Hutter 2019, "Decoupled Weight Decay Regularization".
class AdamW {
public:
  AdamW(const std::vector<ParameterGroup>& groups, const OptimizerOptions& options);

  /// One update with the learning rate of each group times `factor` (see `lr_factor`).
  void step(double factor);

  /// Drops the gradients: the next backward pass writes fresh ones instead of adding to zeros.
  void zero_grad();

  /// What a checkpoint holds: `step.<parameter>`, `exp_avg.<parameter>`, `exp_avg_sq.<parameter>` of every parameter that
  /// was ever updated. The tensors are handles.
  [[nodiscard]] Parameters state() const;

  /// Takes over a copy of such a state; parameters it does not name start afresh.
  void load_state(const Parameters& state);

private:
  struct Slot {
    Parameter parameter{};
    at::Tensor step{};  ///< undefined before the first update, as the moments
    at::Tensor exp_avg{};
    at::Tensor exp_avg_sq{};
  };
  struct Group {
    std::vector<Slot> slots{};
    double lr = 0;
    double weight_decay = 0;
  };

  std::vector<Group> groups_{};
  std::unordered_map<std::string, std::pair<std::size_t, std::size_t>> places_{};
  OptimizerOptions options_{};
};

inline AdamW::AdamW(const std::vector<ParameterGroup>& groups, const OptimizerOptions& options) : options_(options) {
  check(options);
  for (const ParameterGroup& group : groups) {
    Group made{{}, group.lr, group.weight_decay};
    for (const Parameter& p : group.parameters) {
      if (!places_.emplace(p.name, std::pair(groups_.size(), made.slots.size())).second)
        throw ConfigError("R146", detail::cat("optimizer: two parameters are named ", p.name));
      made.slots.push_back(Slot{p, {}, {}, {}});
    }
    groups_.push_back(std::move(made));
  }
}

inline void AdamW::step(double factor) {
  const c10::AutoGradMode no_grad(false);
  for (Group& group : groups_) {
    std::vector<at::Tensor> values, grads, exp_avgs, exp_avg_sqs, steps;
    for (Slot& slot : group.slots) {
      const at::Tensor& value = slot.parameter.value;
      if (!value.grad().defined()) continue;
      if (!slot.step.defined()) {
        slot.step = at::scalar_tensor(0, value.options().dtype(at::kFloat).requires_grad(false));
        slot.exp_avg = at::zeros_like(value);
        slot.exp_avg_sq = at::zeros_like(value);
      }
      values.push_back(value);
      grads.push_back(value.grad());
      exp_avgs.push_back(slot.exp_avg);
      exp_avg_sqs.push_back(slot.exp_avg_sq);
      steps.push_back(slot.step);
    }
    if (values.empty()) continue;
    at::_foreach_add_(steps, 1);
    at::_fused_adamw_(values, grads, exp_avgs, exp_avg_sqs, /*max_exp_avg_sqs=*/{}, steps, group.lr * factor, options_.beta1,
                      options_.beta2, group.weight_decay, options_.eps, /*amsgrad=*/false, /*maximize=*/false);
  }
}

inline void AdamW::zero_grad() {
  for (Group& group : groups_)
    for (Slot& slot : group.slots) slot.parameter.value.mutable_grad().reset();
}

inline Parameters AdamW::state() const {
  Parameters result;
  for (const Group& group : groups_)
    for (const Slot& slot : group.slots)
      if (slot.step.defined()) {
        result.push_back({"step." + slot.parameter.name, slot.step});
        result.push_back({"exp_avg." + slot.parameter.name, slot.exp_avg});
        result.push_back({"exp_avg_sq." + slot.parameter.name, slot.exp_avg_sq});
      }
  return result;
}

inline void AdamW::load_state(const Parameters& state) {
  const c10::AutoGradMode no_grad(false);
  for (Group& group : groups_)
    for (Slot& slot : group.slots) slot.step = slot.exp_avg = slot.exp_avg_sq = at::Tensor();
  for (const Parameter& entry : state) {
    const auto dot = entry.name.find('.');
    const std::string kind = entry.name.substr(0, dot);
    const auto place = places_.find(dot == std::string::npos ? std::string() : entry.name.substr(dot + 1));
    if (place == places_.end() || (kind != "step" && kind != "exp_avg" && kind != "exp_avg_sq"))
      throw ConfigError("R147", detail::cat("optimizer state: ", entry.name, " belongs to no parameter of this model"));
    Slot& slot = groups_[place->second.first].slots[place->second.second];
    const at::Tensor& value = slot.parameter.value;
    const at::IntArrayRef sizes = kind == "step" ? at::IntArrayRef{} : value.sizes();
    if (!entry.value.defined() || entry.value.sizes() != sizes)
      throw ShapeError("R301", detail::cat("optimizer state: ", entry.name, ": expected ", detail::print_shape(sizes), ", got ",
                                           entry.value.defined() ? detail::print_shape(entry.value.sizes()) : "no tensor"));
    at::Tensor& target = kind == "step" ? slot.step : kind == "exp_avg" ? slot.exp_avg : slot.exp_avg_sq;
    target = entry.value.detach().to(value.device(), kind == "step" ? at::kFloat : value.scalar_type(),
                                     /*non_blocking=*/false, /*copy=*/true);
  }
  for (const Group& group : groups_)
    for (const Slot& slot : group.slots)
      if (slot.step.defined() != slot.exp_avg.defined() || slot.step.defined() != slot.exp_avg_sq.defined())
        throw ConfigError("R147",
                          detail::cat("optimizer state: ", slot.parameter.name, " lacks its step, exp_avg or exp_avg_sq"));
}

}  // namespace toller
