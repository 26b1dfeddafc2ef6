// SPDX-License-Identifier: Apache-2.0
// T2. The parts of a training run, checked against each other at compile time and against the data before the first step.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "toller/batch/collate.hpp"
#include "toller/batch/loader.hpp"
#include "toller/batch/rank_batch.hpp"
#include "toller/batch/sampler.hpp"
#include "toller/checkpoint/checkpoint_folder.hpp"
#include "toller/core/host_memory.hpp"
#include "toller/optimizer/adamw.hpp"
#include "toller/parallelism/single_device.hpp"
#include "toller/precision/fp32.hpp"
#include "toller/step/plain_step.hpp"
#include "toller/text/views.hpp"
#include "toller/train/callback.hpp"
#include "toller/train/data_print.hpp"
#include "toller/train/fits.hpp"
#include "toller/train/loop.hpp"
#include "toller/train/model.hpp"
#include "toller/train/recipe.hpp"

namespace toller {

/// Model, loss, precision, parallelism and step as one typed training run.
///
///   Trainer trainer{model, Contrastive<MaxSim>{}, Bf16Mixed{}, SingleDevice{}};
///   trainer.fit(pairs, {.epochs = 1, .batch_size = 32}, ProgressBar{});
///
/// Errors   compile time C101, C103, C104, C106, C107, C108, C110; `fit` adds C102 and C109 (train/README.md). Run
///          time: what `can_run` finds, as ConfigError; NumericError R501 when a loss is not finite.
template <class M, class Loss, class Precision = Fp32, class Parallelism = SingleDevice, class Step = PlainStep>
class Trainer {
  using Output = typename M::output_type;
  static_assert(LossPolicy<Loss>, "[toller C110] the second argument is not a LossPolicy. train/README.md#c110");
  static_assert(PrecisionPolicy<Precision>, "[toller C110] the third argument is not a PrecisionPolicy. train/README.md#c110");
  static_assert(ParallelismPolicy<Parallelism>,
                "[toller C110] the fourth argument is not a ParallelismPolicy. train/README.md#c110");
  static_assert(StepPolicy<Step>, "[toller C110] the fifth argument is not a StepPolicy. train/README.md#c110");
  static_assert(!fits::mismatch_is<Loss, Output, MultiVector, Embeddings>,
                "[toller C101] this loss compares MultiVector, the pooling gives Embeddings: use LateInteraction, or a "
                "Contrastive<Cosine> loss. train/README.md#c101");
  static_assert(!fits::mismatch_is<Loss, Output, Embeddings, MultiVector>,
                "[toller C101] this loss compares Embeddings, the pooling gives MultiVector: use MeanPooling, or a "
                "Contrastive<MaxSim> loss. train/README.md#c101");
  static_assert(fits::loss_takes<Loss, Output> || fits::mismatch_is<Loss, Output, MultiVector, Embeddings> ||
                    fits::mismatch_is<Loss, Output, Embeddings, MultiVector>,
                "[toller C101] the loss does not compare what the pooling gives. train/README.md#c101");
  static_assert(fits::supported_together<Loss, Precision> && fits::supported_together<Loss, Parallelism> &&
                    fits::supported_together<Loss, Step> && fits::supported_together<Precision, Parallelism> &&
                    fits::supported_together<Precision, Step> && fits::supported_together<Parallelism, Step>,
                "[toller C106] one of these policies lists another in its unsupported_with. train/README.md#c106");
  static_assert(fits::has_other_ranks<Loss, Parallelism>,
                "[toller C103] CrossDeviceNegatives need other ranks, this parallelism has none: use Ddp, or InBatchNegatives. "
                "train/README.md#c103");
  static_assert(fits::step_keeps_negatives<Loss, Step>,
                "[toller C104] accumulation takes in-batch negatives away: use GradCache, or accept fewer by "
                "Accumulate<MicroBatchNegatives>. train/README.md#c104");
  static_assert(fits::ranks_keep_negatives<Loss, Parallelism>,
                "[toller C107] ranks take in-batch negatives away: use CrossDeviceNegatives, or accept fewer by "
                "LocalNegatives. train/README.md#c107");
  static_assert(!fits::step_keeps_negatives<Loss, Step> || !fits::ranks_keep_negatives<Loss, Parallelism> ||
                    fits::parts_add_up<Loss, Parallelism, Step>,
                "[toller C108] this loss is not a mean over rows, so parts of a batch do not add up to it: use SingleDevice "
                "without Accumulate. train/README.md#c108");

public:
  explicit Trainer(M model, Loss loss = {}, Precision precision = {}, Parallelism parallelism = {}, Step step = {})
      : model_(std::move(model)), loss_(loss), precision_(precision), parallelism_(parallelism), step_(step) {}

  /// What would stop `fit` from starting, without starting it. Empty: it can run.
  template <class Data>
  [[nodiscard]] std::vector<Problem> can_run(const Data& data, const FitOptions& options) const;

  /// Trains the model in place.
  ///
  /// The data are any sized random-access range of records that the loss accepts; callbacks hear the events in their order.
  template <class Data, class... Callbacks>
  FitReport fit(const Data& data, const FitOptions& options, Callbacks&&... callbacks);

  [[nodiscard]] const M& model() const { return model_; }
  /// The run as data: every spec with every field.
  [[nodiscard]] std::string recipe(const FitOptions& options) const {
    return make_recipe(loss_, precision_, parallelism_, step_, options);
  }

private:
  template <class Data, class... Callbacks>
  FitReport fit_dataset(const Data& data, const FitOptions& given, Callbacks&... callbacks);
  template <class Data, class Team, class... Callbacks>
  FitReport fit_together(const Data& data, const FitOptions& options, const std::string& run, const Team& team,
                         Callbacks&... callbacks);

  M model_;
  Loss loss_;
  Precision precision_;
  Parallelism parallelism_;
  Step step_;
};

template <class M, class Loss, class Precision, class Parallelism, class Step>
template <class Data>
std::vector<Problem> Trainer<M, Loss, Precision, Parallelism, Step>::can_run(const Data& data,
                                                                             const FitOptions& options) const {
  std::vector<Problem> problems;
  const auto check = [&](bool good, const char* code, std::string message) {
    if (!good) problems.push_back({code, std::move(message)});
  };
  const auto checked = [&](const auto& part) {
    try {
      if constexpr (requires { part.check(); }) part.check();
    } catch (const ConfigError& error) {
      problems.push_back({error.code(), std::string(error.what()).substr(error.code().size() + 3)});
    }
  };
  checked(step_), checked(loss_);
  const std::int64_t rows = rows_of(data), batch = options.global_batch(parallelism_.ranks(), step_.micro_batches());
  check(!options.batch_size || !options.batch_size_per_rank, "R127",
        "batch_size and batch_size_per_rank are both set: they are two ways to say one thing");
  check(batch > 0, "R120", detail::cat("batch_size is ", batch, ": it must be at least 1"));
  check(rows >= batch, "R121", detail::cat("the data have ", rows, " rows, fewer than one batch of ", batch));
  check(options.epochs > 0 || options.steps > 0, "R122", "neither epochs nor steps is above 0");
  constexpr std::int64_t most = 1'000'000'000;
  check(options.steps >= 0 && options.epochs >= 0 && options.steps <= most && options.epochs <= most, "R123",
        "epochs and steps must be from 0 to 1000000000");
  check(options.workers >= -1 && options.workers <= 256, "R126",
        detail::cat("workers is ", options.workers, ": it must be from -1 to 256"));
  check(!parallelism_.target().is_cuda() || at::hasCUDA(), "R124",
        detail::cat("device ", parallelism_.target().str(), " was asked for, but no CUDA device can be used"));
  try {
    toller::check(options.optimizer);
  } catch (const ConfigError& error) {
    problems.push_back({error.code(), std::string(error.what()).substr(error.code().size() + 3)});
  }
  return problems;
}

template <class M, class Loss, class Precision, class Parallelism, class Step>
template <class Data, class... Callbacks>
FitReport Trainer<M, Loss, Precision, Parallelism, Step>::fit(const Data& data, const FitOptions& options,
                                                              Callbacks&&... callbacks) {
  static_assert((hears_event<std::remove_reference_t<Callbacks>> && ...),
                "[toller C109] a callback hears no event: it needs on(const Event&) for one of FitBegin, StepEnd, EpochEnd, "
                "FitEnd. train/README.md#c109");
  static_assert(
      Dataset<Data>,
      "[toller C102] the data are not a sized random-access range of records: a vector, read_jsonl, a transform view; "
      "keep_if instead of views::filter. train/README.md#c102");
  if constexpr (Dataset<Data>) {
    static_assert(fits::loss_accepts<Loss, record_t<Data>>,
                  "[toller C102] the dataset's record lacks what the loss needs: query and positive, as Pair and Triplet have. "
                  "train/README.md#c102");
    return fit_dataset(data, options, callbacks...);
  } else {
    return {};  // does not compile
  }
}

template <class M, class Loss, class Precision, class Parallelism, class Step>
template <class Data, class... Callbacks>
FitReport Trainer<M, Loss, Precision, Parallelism, Step>::fit_dataset(const Data& data, const FitOptions& given,
                                                                      Callbacks&... callbacks) {
  const auto team = parallelism_.join();
  try {
    if (const auto problems = can_run(data, given); !problems.empty()) throw ConfigError(problems[0].code, problems[0].message);
    FitOptions options = given;
    options.batch_size = given.global_batch(team.size(), step_.micro_batches());
    options.batch_size_per_rank.reset();
    const std::string run = recipe(options) + detail::cat("rows ", rows_of(data), "\n");
    team.agree("run", run);
    if (team.size() > 1) team.agree("data", detail::print_data(data));  // which reads rows
    return fit_together(data, options, run, team, callbacks...);
  } catch (const std::exception& error) {
    team.fail(error.what());
    throw;
  }
}

template <class M, class Loss, class Precision, class Parallelism, class Step>
template <class Data, class Team, class... Callbacks>
FitReport Trainer<M, Loss, Precision, Parallelism, Step>::fit_together(const Data& data, const FitOptions& options,
                                                                       const std::string& run, const Team& team,
                                                                       Callbacks&... callbacks) {
  const HostMemory memory;
  model_.to(parallelism_.target());
  const std::int64_t rows = rows_of(data), batch_size = *options.batch_size, micro_batches = step_.micro_batches();
  const BatchSampler sampler(rows, batch_size, options.seed, options.shuffle, options.drop_last);
  detail::LoopPlan plan;
  plan.steps_per_epoch = sampler.batches_per_epoch();
  plan.total_steps = options.steps > 0 ? options.steps : options.epochs * plan.steps_per_epoch;
  const std::int64_t epochs = (plan.total_steps + plan.steps_per_epoch - 1) / plan.steps_per_epoch;
  plan.warmup_steps = warmup_steps(options.optimizer.warmup, plan.total_steps);
  plan.writes_files = parallelism_.writes_files();

  using Batches = std::vector<RetrievalBatch>;
  const auto make = [&](std::int64_t epoch, std::int64_t k) -> Batches {
    if constexpr (fits::loss_accepts<Loss, record_t<Data>>) {
      Batches batches = rank_batches(
          sampler.rows(epoch, k), [&](std::int64_t row) { return row_of(data, row); }, model_.preprocessor(), team.rank(),
          team.size(), micro_batches);
      if (parallelism_.target().is_cuda())
        for (RetrievalBatch& batch : batches) batch = pin_memory(std::move(batch));
      return batches;
    } else {
      return {};  // does not compile: C102
    }
  };
  Loader<Batches> loader(plan.steps_per_epoch, make, {.workers = options.workers, .prefetch = options.prefetch});
  Parameters trained = model_.encoder().parameters();
  const Parameters head = model_.pooling().parameters();
  AdamW optimizer(parameter_groups(trained, head, options.optimizer), options.optimizer);
  trained.insert(trained.end(), head.begin(), head.end());

  if (const auto found = find_checkpoint(options.resume.dir, options.resume.required)) {
    plan.first_step = load_checkpoint(*found, run, model_, optimizer);
    if (plan.first_step > plan.total_steps)
      throw ConfigError("R125",
                        detail::cat(found->string(), ": has done ", plan.first_step, " steps, the run has ", plan.total_steps));
  }
  team.agree("first step", detail::cat("step ", plan.first_step));
  const auto replica = parallelism_.bind(trained, team);
  std::int64_t saved = plan.first_step;
  const auto save = [&](const std::filesystem::path& dir, std::int64_t step) {
    save_checkpoint(dir, step, run, model_, optimizer);
    saved = step;
  };

  team.phase("callbacks before the first step", /*busy=*/true);
  detail::notify(FitBegin{plan.total_steps, plan.first_step, plan.steps_per_epoch, epochs, rows, batch_size, run, team.rank(),
                          team.size(), micro_batches},
                 callbacks...);
  try {
    const FitReport report = detail::run_loop(plan, options, loader, model_, loss_, precision_, step_, replica, optimizer,
                                              trained, save, callbacks...);
    team.phase("callbacks after the last step", /*busy=*/true);
    const SaveCheckpoint save_here = [&](const std::filesystem::path& dir) { save(dir, report.steps); };
    const bool unsaved = report.stopped && saved != report.steps && plan.writes_files;
    detail::notify(
        FitEnd{report.steps, report.stopped, false, report.reason, report.seconds, team.rank(), unsaved ? &save_here : nullptr},
        callbacks...);
    team.phase("after the fit", /*busy=*/true);
    return report;
  } catch (const std::exception& error) {
    team.fail(error.what());  // before the callbacks, which may take their time
    detail::notify(FitEnd{0, true, true, error.what(), 0, team.rank(), nullptr}, callbacks...);
    throw;
  }
}

}  // namespace toller
