// SPDX-License-Identifier: Apache-2.0
// T2. The training loop.
#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <utility>

#include "toller/core/seed.hpp"
#include "toller/optimizer/clip.hpp"
#include "toller/optimizer/schedule.hpp"
#include "toller/train/events.hpp"
#include "toller/train/interrupt.hpp"
#include "toller/train/notify.hpp"
#include "toller/train/options.hpp"

namespace toller::detail {

/// The numbers of a run that are known before it starts.
struct LoopPlan {
  std::int64_t first_step = 0;  ///< not 0 when a run is resumed
  std::int64_t total_steps = 0;
  std::int64_t steps_per_epoch = 0;
  std::int64_t warmup_steps = 0;
};

[[nodiscard]] inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Steps until the plan is done, a callback asks to stop, or a signal comes.
///
/// Errors   NumericError R501: the loss of a step is not finite; the weights are those before that step.
template <class Loader, class Model, class Loss, class Precision, class Step, class OptimizerState, class Save,
          class... Callbacks>
FitReport run_loop(const LoopPlan& plan, const FitOptions& options, Loader& loader, const Model& model, const Loss& loss,
                   Precision& precision, const Step& step, OptimizerState& optimizer, const Parameters& trained,
                   const Save& save, Callbacks&... callbacks) {
  const InterruptGuard interrupts;
  const at::Device device = model.device();
  const auto start = std::chrono::steady_clock::now();
  FitReport report;
  report.steps = plan.first_step;
  StopRequest stop;
  if (InterruptGuard::interrupted()) stop.ask(InterruptGuard::reason());  // while the model was loaded
  std::int64_t epoch = plan.first_step / plan.steps_per_epoch;
  loader.seek(epoch, plan.first_step % plan.steps_per_epoch);
  while (report.steps < plan.total_steps && !stop.asked()) {
    const auto step_start = std::chrono::steady_clock::now();
    auto batch = loader.next();
    if (!batch) {
      notify(EpochEnd{epoch, report.steps}, callbacks...);
      loader.start_epoch(++epoch);
      continue;
    }
    batch->tokens = batch->tokens.to(device);
    batch->relevance = batch->relevance.to(device);
    if (options.dropout) batch->tokens.dropout_key = mix_seed(options.seed, Stream::dropout, report.steps);

    const StepReport result = step.run(*batch, model, loss, precision);  // leaves gradients
    const auto expect_finite = [&](double value, const char* what) {
      if (!std::isfinite(value))
        throw NumericError("R501", cat("the ", what, " of step ", report.steps + 1, " is ",
                                       value < 0   ? "-inf"
                                       : value > 0 ? "inf"
                                                   : "nan",
                                       " (first row ", batch->rows.front(), " of the data); the weights are those before it"));
    };
    expect_finite(result.loss, "loss");
    const double norm = clip_grad_norm(trained, options.optimizer.max_grad_norm);
    expect_finite(norm, "gradient");
    const double factor = lr_factor(options.optimizer.schedule, report.steps, plan.warmup_steps, plan.total_steps);
    precision.step([&] { optimizer.step(factor); });
    optimizer.zero_grad();

    ++report.steps;
    report.loss = result.loss;
    if (InterruptGuard::interrupted()) stop.ask(InterruptGuard::reason());
    const SaveCheckpoint save_here = [&](const std::filesystem::path& dir) { save(dir, report.steps); };
    notify(
        StepEnd{report.steps, plan.total_steps, epoch, result.loss, result.accuracy, result.similarity,
                options.optimizer.lr * factor, norm, result.rows, result.tokens, seconds_since(step_start), &stop, &save_here},
        callbacks...);
    if (InterruptGuard::interrupted()) stop.ask(InterruptGuard::reason());  // while the callbacks ran
  }
  if (report.steps == plan.total_steps) notify(EpochEnd{epoch, report.steps}, callbacks...);
  report.stopped = stop.asked() && report.steps < plan.total_steps;
  report.reason = stop.reason();
  report.seconds = seconds_since(start);
  return report;
}

}  // namespace toller::detail
