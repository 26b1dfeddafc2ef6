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
#include "toller/train/meeting.hpp"
#include "toller/train/notify.hpp"
#include "toller/train/options.hpp"

namespace toller::detail {

/// The numbers of a run that are known before it starts.
struct LoopPlan {
  std::int64_t first_step = 0;  ///< not 0 when a run is resumed
  std::int64_t total_steps = 0;
  std::int64_t steps_per_epoch = 0;
  std::int64_t warmup_steps = 0;
  bool writes_files = true;
};

[[nodiscard]] inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Steps until the plan is done, a callback asks to stop, or a signal comes; on several ranks all of them together.
///
/// Errors   NumericError R501: the loss of a step is not finite; the weights are those before that step.
template <class Loader, class Model, class Loss, class Precision, class Step, class Replica, class OptimizerState, class Save,
          class... Callbacks>
FitReport run_loop(const LoopPlan& plan, const FitOptions& options, Loader& loader, const Model& model, const Loss& loss,
                   Precision& precision, const Step& step, const Replica& replica, OptimizerState& optimizer,
                   const Parameters& trained, const Save& save, Callbacks&... callbacks) {
  const InterruptGuard interrupts;
  const at::Device device = model.device();
  const auto& team = replica.communicator();
  const auto start = std::chrono::steady_clock::now();
  Meeting meeting(team);
  FitReport report;
  report.steps = plan.first_step;
  StopRequest stop;
  double computed = 0;
  std::int64_t epoch = plan.first_step / plan.steps_per_epoch;
  loader.seek(epoch, plan.first_step % plan.steps_per_epoch);
  while (report.steps < plan.total_steps) {
    const auto step_start = std::chrono::steady_clock::now();
    const std::int64_t number = report.steps + 1;
    team.phase(cat("the data of step ", number));
    auto batches = loader.next();
    if (!batches) {
      team.phase(cat("callbacks after epoch ", epoch + 1), /*busy=*/true);
      notify(EpochEnd{epoch, report.steps, team.rank()}, callbacks...);
      loader.start_epoch(++epoch);
      continue;
    }
    std::int64_t rows = 0, tokens = 0, first_row = -1;
    for (auto& batch : *batches) {
      rows += batch.queries, tokens += batch.tokens.tokens();
      if (first_row < 0 && !batch.rows.empty()) first_row = batch.rows.front();
      batch.tokens = batch.tokens.to(device);
      batch.relevance = batch.relevance.to(device);
      if (options.dropout) batch.tokens.dropout_key = mix_seed(options.seed, Stream::dropout, report.steps);
    }
    const StepStart global = meeting.begin(number, rows, batches->front().global_rows, tokens, computed, stop_code(stop), stop);
    if (stop.asked()) break;

    replica.begin_step();
    team.phase(cat("step ", number));
    const StepReport share = team.guarded([&] { return step.run(*batches, model, loss, precision, replica); });
    computed = replica.end_step();
    const StepReport result = meeting.end(number, share, first_row, stop_code(stop), stop);
    const double norm = clip_grad_norm(trained, options.optimizer.max_grad_norm, options.optimizer.gradient_scale);
    if (!std::isfinite(norm))
      throw NumericError("R501", cat("the gradient of step ", number, " is ", print_not_finite(norm), " (first row ", first_row,
                                     " of the data); the weights are those before it"));
    const double factor = lr_factor(options.optimizer.schedule, report.steps, plan.warmup_steps, plan.total_steps);
    precision.step([&] { optimizer.step(factor); });
    optimizer.zero_grad();

    ++report.steps;
    report.loss = result.loss;
    team.phase(cat("callbacks after step ", number), /*busy=*/true);
    const SaveCheckpoint save_here = [&](const std::filesystem::path& dir) { save(dir, report.steps); };
    notify(StepEnd{report.steps, plan.total_steps, epoch, result.loss, result.accuracy, result.similarity,
                   options.optimizer.lr * factor, norm, global.rows, global.tokens, seconds_since(step_start), &stop,
                   plan.writes_files ? &save_here : nullptr, team.rank(), global.imbalance},
           callbacks...);
  }
  if (report.steps == plan.total_steps) notify(EpochEnd{epoch, report.steps, team.rank()}, callbacks...);
  report.stopped = stop.asked() && report.steps < plan.total_steps;
  report.reason = stop.reason();
  report.seconds = seconds_since(start);
  return report;
}

}  // namespace toller::detail
