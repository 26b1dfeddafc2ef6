// SPDX-License-Identifier: Apache-2.0
// T0. What happens during a fit, as callbacks hear it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>

namespace toller {

/// How a callback asks the loop to end after this step.
class StopRequest {
public:
  void ask(std::string reason) {
    if (reason_.empty()) reason_ = std::move(reason);
  }
  [[nodiscard]] bool asked() const noexcept { return !reason_.empty(); }
  [[nodiscard]] const std::string& reason() const noexcept { return reason_; }

private:
  std::string reason_;
};

/// Writes all that a later run needs to go on from here into a folder, whole or not at all.
using SaveCheckpoint = std::function<void(const std::filesystem::path& dir)>;

/// Before the first step. `steps_done` is not 0 when a run was resumed.
///
/// Ranks    every rank hears every event; `rank` 0 is the one that prints. A global batch is `batch_size` rows, dealt to
/// `ranks` in
///          `micro_batches` parts.
struct FitBegin {
  std::int64_t total_steps = 0;
  std::int64_t steps_done = 0;
  std::int64_t steps_per_epoch = 0;
  std::int64_t epochs = 0;
  std::int64_t rows = 0;
  std::int64_t batch_size = 0;
  std::string recipe{};
  int rank = 0;
  int ranks = 1;
  std::int64_t micro_batches = 1;
};

/// After each optimizer step. Units: lr per update; seconds of wall time for this step; tokens real ones, of all texts.
///
/// Ranks    numbers are those of the global batch. In a fit `stop` is always there; `save` on the ranks that write, rank 0 or
///          the first of each host. A stop that one rank asks for stops all of them.
struct StepEnd {
  std::int64_t step = 0;  ///< steps done, this one included
  std::int64_t total_steps = 0;
  std::int64_t epoch = 0;  ///< from 0
  double loss = 0;         ///< mean over the step's rows
  double accuracy = 0;     ///< share of rows whose positive scored highest
  double similarity = 0;   ///< mean similarity of the positives
  double lr = 0;
  double grad_norm = 0;  ///< before clipping
  std::int64_t rows = 0;
  std::int64_t tokens = 0;
  double seconds = 0;
  StopRequest* stop = nullptr;
  const SaveCheckpoint* save = nullptr;
  int rank = 0;
  double imbalance = 1;  ///< most tokens of a rank / mean tokens of a rank
};

/// After the last step of an epoch.
struct EpochEnd {
  std::int64_t epoch = 0;
  std::int64_t step = 0;
  int rank = 0;
};

/// After the last step, also when the run was stopped (`reason` says by what) or failed. `save` is there, on the ranks that
/// write, when a stop came after the callbacks of the last step and nobody saved that step.
struct FitEnd {
  std::int64_t step = 0;
  bool stopped = false;
  bool failed = false;  ///< an exception is on its way, `reason` is its text
  std::string reason{};
  double seconds = 0;
  int rank = 0;
  const SaveCheckpoint* save = nullptr;
};

}  // namespace toller
