// SPDX-License-Identifier: Apache-2.0
// T0. The learning rate as a function of the step.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "toller/optimizer/optimizer.hpp"

namespace toller {

/// How many steps `OptimizerOptions::warmup` means for a run of `total_steps`.
[[nodiscard]] inline std::int64_t warmup_steps(double warmup, std::int64_t total_steps) {
  return static_cast<std::int64_t>(warmup < 1 ? std::ceil(warmup * static_cast<double>(total_steps)) : warmup);
}

/// What the learning rate is multiplied by in the update that follows `step` finished ones.
///
/// step / warmup during the warm-up (so the first update has 0); then 1, or (total - step) / (total - warmup) down to 0.
///
/// Source   the `constant_with_warmup` and `linear` schedules of transformers.
[[nodiscard]] inline double lr_factor(Schedule schedule, std::int64_t step, std::int64_t warmup, std::int64_t total_steps) {
  const auto ratio = [](std::int64_t part, std::int64_t whole) {
    return static_cast<double>(part) / static_cast<double>(std::max<std::int64_t>(1, whole));
  };
  if (step < warmup) return ratio(step, warmup);
  if (schedule == Schedule::constant) return 1;
  return std::max(0.0, ratio(total_steps - step, total_steps - warmup));
}

}  // namespace toller
