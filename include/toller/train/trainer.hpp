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
#include "toller/batch/sampler.hpp"
#include "toller/checkpoint/checkpoint_folder.hpp"
#include "toller/optimizer/adamw.hpp"
#include "toller/parallelism/single_device.hpp"
#include "toller/precision/fp32.hpp"
#include "toller/step/plain_step.hpp"
#include "toller/text/views.hpp"
#include "toller/train/callback.hpp"
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
/// Errors   compile time C101, C106, C110; `fit` adds C102 and C109 (train/README.md). Run time: what `can_run` finds, as
///          ConfigError; NumericError R501 when a loss is not finite.
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
  FitReport fit_dataset(const Data& data, const FitOptions& options, Callbacks&... callbacks);

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
  const std::int64_t rows = rows_of(data);
  check(options.batch_size > 0, "R120", detail::cat("batch_size is ", options.batch_size, ": it must be at least 1"));
  check(rows >= options.batch_size, "R121",
        detail::cat("the data have ", rows, " rows, fewer than one batch of ", options.batch_size));
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
    if constexpr (requires { loss_.check(); }) loss_.check();
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
FitReport Trainer<M, Loss, Precision, Parallelism, Step>::fit_dataset(const Data& data, const FitOptions& options,
                                                                      Callbacks&... callbacks) {
  if (const auto problems = can_run(data, options); !problems.empty()) throw ConfigError(problems[0].code, problems[0].message);

  model_.to(parallelism_.target());
  const std::int64_t rows = rows_of(data);
  const BatchSampler sampler(rows, options.batch_size, options.seed, options.shuffle, options.drop_last);
  detail::LoopPlan plan;
  plan.steps_per_epoch = sampler.batches_per_epoch();
  plan.total_steps = options.steps > 0 ? options.steps : options.epochs * plan.steps_per_epoch;
  plan.warmup_steps = warmup_steps(options.optimizer.warmup, plan.total_steps);

  const auto make = [&](std::int64_t epoch, std::int64_t k) -> RetrievalBatch {
    if constexpr (fits::loss_accepts<Loss, record_t<Data>>) {
      std::vector<record_t<Data>> records;
      const std::vector<std::int64_t> chosen = sampler.rows(epoch, k);
      for (const std::int64_t row : chosen) records.push_back(row_of(data, row));
      RetrievalBatch batch = collate_retrieval(records, model_.preprocessor(), chosen);
      return parallelism_.target().is_cuda() ? pin_memory(std::move(batch)) : batch;
    } else {
      return {};  // does not compile: C102
    }
  };
  Loader<RetrievalBatch> loader(plan.steps_per_epoch, make, {.workers = options.workers, .prefetch = options.prefetch});
  Parameters trained = model_.encoder().parameters();
  const Parameters head = model_.pooling().parameters();
  AdamW optimizer(parameter_groups(trained, head, options.optimizer), options.optimizer);
  trained.insert(trained.end(), head.begin(), head.end());

  const std::string run = recipe(options) + detail::cat("rows ", rows, "\n");
  if (const auto found = find_checkpoint(options.resume.dir, options.resume.required)) {
    plan.first_step = load_checkpoint(*found, run, model_, optimizer);
    if (plan.first_step > plan.total_steps)
      throw ConfigError("R125",
                        detail::cat(found->string(), ": has done ", plan.first_step, " steps, the run has ", plan.total_steps));
  }
  const auto save = [&](const std::filesystem::path& dir, std::int64_t step) {
    save_checkpoint(dir, step, run, model_, optimizer);
  };

  detail::notify(
      FitBegin{plan.total_steps, plan.first_step, plan.steps_per_epoch, options.epochs, rows, options.batch_size, run},
      callbacks...);
  try {
    const FitReport report =
        detail::run_loop(plan, options, loader, model_, loss_, precision_, step_, optimizer, trained, save, callbacks...);
    detail::notify(FitEnd{report.steps, report.stopped, false, report.reason, report.seconds}, callbacks...);
    return report;
  } catch (const std::exception& error) {
    detail::notify(FitEnd{0, true, true, error.what(), 0}, callbacks...);
    throw;
  }
}

}  // namespace toller
