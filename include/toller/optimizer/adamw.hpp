// SPDX-License-Identifier: Apache-2.0
// T2. AdamW on ATen's fused kernel.
#pragma once

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "toller/core/check.hpp"
#include "toller/core/touched_rows.hpp"
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
/// Cost     one fused call for each group; two numbers of state a weight. Of a large embedding on the host, rows that never had
///          a gradient have no state, since it would be zero, and are only decayed: this saves most of it where a batch touches
///          few of many rows, and with an `eps` above 0 it changes no bit of the result.
/// Source   Loshchilov, Hutter 2019, "Decoupled Weight Decay Regularization".
class AdamW {
public:
  AdamW(const std::vector<ParameterGroup>& groups, const OptimizerOptions& options);

  /// One update with the learning rate of each group times `factor` (see `lr_factor`).
  void step(double factor);

  /// Drops the gradients: the next backward pass writes fresh ones instead of adding to zeros.
  void zero_grad();

  /// What a checkpoint holds: `step.<parameter>`, `exp_avg.<parameter>`, `exp_avg_sq.<parameter>` of every parameter that
  /// was ever updated, whole. The tensors are handles, but for those of large embeddings.
  [[nodiscard]] Parameters state() const;

  /// Takes over a copy of such a state; parameters it does not name start afresh.
  void load_state(const Parameters& state);

private:
  struct Slot {
    Parameter parameter{};
    at::Tensor step{};  ///< undefined before the first update, as the moments
    at::Tensor exp_avg{};
    at::Tensor exp_avg_sq{};
    at::Tensor rows{};  ///< defined while the moments are those of these rows, in rising order, and zero for all others

    void start();
    void keep_rows(const at::Tensor& touched);
    [[nodiscard]] at::Tensor whole(const at::Tensor& moment) const;
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
      made.slots.push_back(Slot{p, {}, {}, {}, {}});
    }
    groups_.push_back(std::move(made));
  }
}

/// The first update: step 0, moments zero.
inline void AdamW::Slot::start() {
  const at::Tensor value = parameter.value.detach();
  step = at::scalar_tensor(0, value.options().dtype(at::kFloat));
  if (detail::is_large_table(parameter)) rows = at::zeros({0}, at::kLong);
  exp_avg = rows.defined() ? value.slice(0, 0, 0).clone() : at::zeros_like(value);
  exp_avg_sq = exp_avg.clone();
}

/// Makes room for the moments of more rows: for all, once more than half of them were touched. Shapes: touched [R], not 0 where
/// a row is.
inline void AdamW::Slot::keep_rows(const at::Tensor& touched) {
  const at::Tensor kept = touched.index_fill(0, rows, 1).nonzero().squeeze(1);
  if (kept.size(0) == rows.size(0)) return;
  const bool all = kept.size(0) * 2 > touched.size(0);
  const at::Tensor places = all ? rows : at::searchsorted(kept, rows);
  for (at::Tensor* moment : {&exp_avg, &exp_avg_sq})
    *moment =
        at::zeros({all ? touched.size(0) : kept.size(0), moment->size(1)}, moment->options()).index_copy_(0, places, *moment);
  rows = all ? at::Tensor() : kept;
}

inline at::Tensor AdamW::Slot::whole(const at::Tensor& moment) const {
  return rows.defined() ? at::zeros_like(parameter.value.detach()).index_copy_(0, rows, moment) : moment;
}

inline void AdamW::step(double factor) {
  const c10::AutoGradMode no_grad(false);
  for (Group& group : groups_) {
    const double lr = group.lr * factor;
    std::vector<at::Tensor> values, grads, exp_avgs, exp_avg_sqs, steps;
    std::vector<std::pair<const Slot*, at::Tensor>> parts;  // rows that were taken out of a table
    for (Slot& slot : group.slots) {
      at::Tensor value = slot.parameter.value, grad = value.grad();
      if (!grad.defined()) continue;
      if (!slot.step.defined()) slot.start();
      if (grad.strides() != value.strides()) grad = at::empty_like(value).copy_(grad);  // the kernel reads in storage order
      if (slot.rows.defined()) slot.keep_rows(detail::touched_rows(grad));
      if (slot.rows.defined()) {
        at::Tensor part = value.index_select(0, slot.rows);
        if (group.weight_decay != 0) value.mul_(1 - lr * group.weight_decay);
        parts.emplace_back(&slot, part);
        value = part;
        grad = grad.index_select(0, slot.rows);
      }
      values.push_back(value);
      grads.push_back(grad);
      exp_avgs.push_back(slot.exp_avg);
      exp_avg_sqs.push_back(slot.exp_avg_sq);
      steps.push_back(slot.step);
    }
    if (values.empty()) continue;
    at::_foreach_add_(steps, 1);
    at::_fused_adamw_(values, grads, exp_avgs, exp_avg_sqs, /*max_exp_avg_sqs=*/{}, steps, lr, options_.beta1, options_.beta2,
                      group.weight_decay, options_.eps, /*amsgrad=*/false, /*maximize=*/false);
    for (const auto& [slot, part] : parts) {
      at::Tensor value = slot->parameter.value;
      value.index_copy_(0, slot->rows, part);
    }
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
        result.push_back({"exp_avg." + slot.parameter.name, slot.whole(slot.exp_avg)});
        result.push_back({"exp_avg_sq." + slot.parameter.name, slot.whole(slot.exp_avg_sq)});
      }
  return result;
}

inline void AdamW::load_state(const Parameters& state) {
  const c10::AutoGradMode no_grad(false);
  for (Group& group : groups_)
    for (Slot& slot : group.slots) slot = Slot{slot.parameter, {}, {}, {}, {}};
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
  for (Group& group : groups_)
    for (Slot& slot : group.slots) {
      if (slot.step.defined() != slot.exp_avg.defined() || slot.step.defined() != slot.exp_avg_sq.defined())
        throw ConfigError("R147",
                          detail::cat("optimizer state: ", slot.parameter.name, " lacks its step, exp_avg or exp_avg_sq"));
      if (!slot.step.defined() || !detail::is_large_table(slot.parameter)) continue;
      const at::Tensor rows =
          detail::touched_rows(slot.exp_avg).add(detail::touched_rows(slot.exp_avg_sq)).nonzero().squeeze(1);
      if (rows.size(0) * 2 > slot.exp_avg.size(0)) continue;
      for (at::Tensor* moment : {&slot.exp_avg, &slot.exp_avg_sq}) *moment = moment->index_select(0, rows);
      slot.rows = rows;
    }
}

}  // namespace toller
