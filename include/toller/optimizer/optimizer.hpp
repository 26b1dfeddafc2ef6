// SPDX-License-Identifier: Apache-2.0
// T0. The settings of an optimizer.
#pragma once

#include <cmath>
#include <optional>
#include <string_view>

#include "toller/core/error.hpp"
#include "toller/core/fields.hpp"

namespace toller {

/// How a gradient becomes an update.
enum class Optimizer { adamw };

/// How the learning rate goes over the steps: `constant` stays after the warm-up, `linear` falls to 0 at the last step.
enum class Schedule { constant, linear };

/// What moves the weights, and how far.
///
/// Units   lr a step; `head_lr` is that of the pooling's own parameters (empty: `lr`). `max_grad_norm` 0 does not clip.
///         `gradient_scale` multiplies the gradients before that: AdamW hardly depends on it, clipping does, so it is there to
///         compare with libraries whose gradients are not those of the mean. `warmup` below 1 is a share of all steps, rounded
///         up; from 1 on a number of steps.
struct OptimizerOptions {
  static constexpr std::string_view name = "OptimizerOptions";
  Optimizer kind = Optimizer::adamw;
  double lr = 3e-5;
  std::optional<double> head_lr{};
  double weight_decay = 0.01;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double max_grad_norm = 1.0;
  double gradient_scale = 1.0;
  Schedule schedule = Schedule::linear;
  double warmup = 0;

  static void fields(auto& self, auto&& visit) {
    visit("kind", self.kind);
    visit("lr", self.lr);
    visit("head_lr", self.head_lr);
    visit("weight_decay", self.weight_decay);
    visit("beta1", self.beta1);
    visit("beta2", self.beta2);
    visit("eps", self.eps);
    visit("max_grad_norm", self.max_grad_norm);
    visit("gradient_scale", self.gradient_scale);
    visit("schedule", self.schedule);
    visit("warmup", self.warmup);
  }
};

/// Throws unless every setting is in its range.
///
/// Errors   ConfigError R140 - R145 and R148, one a setting: `optimizer.lr: expected a finite number >= 0, got -1`.
inline void check(const OptimizerOptions& options) {
  const auto expect = [](bool fits, std::string_view code, std::string_view field, std::string_view range, double value) {
    if (!fits) throw ConfigError(code, detail::cat("optimizer.", field, ": expected ", range, ", got ", value));
  };
  const auto not_negative = [&](std::string_view code, std::string_view field, double value) {
    expect(std::isfinite(value) && value >= 0, code, field, "a finite number >= 0", value);
  };
  not_negative("R140", "lr", options.lr);
  if (options.head_lr) not_negative("R140", "head_lr", *options.head_lr);
  not_negative("R141", "weight_decay", options.weight_decay);
  expect(options.beta1 >= 0 && options.beta1 < 1, "R142", "beta1", "a number in [0, 1)", options.beta1);
  expect(options.beta2 >= 0 && options.beta2 < 1, "R142", "beta2", "a number in [0, 1)", options.beta2);
  not_negative("R143", "eps", options.eps);
  not_negative("R144", "max_grad_norm", options.max_grad_norm);
  not_negative("R145", "warmup", options.warmup);
  expect(std::isfinite(options.gradient_scale) && options.gradient_scale > 0, "R148", "gradient_scale", "a finite number > 0",
         options.gradient_scale);
}

}  // namespace toller
