// SPDX-License-Identifier: Apache-2.0
// T0. What a fit can be told.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "toller/core/error.hpp"
#include "toller/optimizer/optimizer.hpp"

namespace toller {

/// Where a run starts: anew, or at a checkpoint that `Checkpoint` wrote.
///
/// A resumed run ends with the same bits as one that was never stopped, on the same kind of processor and as many threads.
struct Resume {
  std::filesystem::path dir{};
  bool required = false;

  /// From this checkpoint.
  [[nodiscard]] static Resume from(std::filesystem::path checkpoint) { return {std::move(checkpoint), true}; }
  /// From the newest checkpoint in a folder; anew if it has none, so that one command line serves first and later starts.
  [[nodiscard]] static Resume last(std::filesystem::path folder) { return {std::move(folder), false}; }
};

/// How long, how large, how fast.
///
/// Units    `steps` optimizer steps, 0: as many as `epochs` takes, else the run goes through the data until they are done;
///          `batch_size` rows of the global batch, over all ranks and micro-batches (32 when neither it nor the other is set);
///          `batch_size_per_rank` rows of one rank's micro-batch, the other way to say it; `workers` threads that make batches,
///          -1: half the cores, 0: none.
struct FitOptions {
  static constexpr std::string_view name = "FitOptions";
  std::int64_t epochs = 1;
  std::int64_t steps = 0;
  std::optional<std::int64_t> batch_size{};
  std::optional<std::int64_t> batch_size_per_rank{};
  OptimizerOptions optimizer{};
  std::uint64_t seed = 42;
  bool shuffle = true;
  bool drop_last = false;
  bool dropout = true;  ///< with the probabilities of the model's config
  int workers = -1;
  std::int64_t prefetch = 4;
  Resume resume{};

  static void fields(auto& self, auto&& visit) {
    visit("epochs", self.epochs);
    visit("steps", self.steps);
    visit("batch_size", self.batch_size);
    visit("optimizer", self.optimizer);
    visit("seed", self.seed);
    visit("shuffle", self.shuffle);
    visit("drop_last", self.drop_last);
    visit("dropout", self.dropout);
  }  // not how fast, nor from where: neither changes the result

  /// Rows of the global batch.
  [[nodiscard]] std::int64_t global_batch(std::int64_t ranks, std::int64_t micro_batches) const {
    return batch_size_per_rank ? *batch_size_per_rank * ranks * micro_batches : batch_size.value_or(32);
  }
};

/// Why a fit cannot start, found before it does.
struct Problem {
  std::string code{};
  std::string message{};
};

/// What a fit did.
struct FitReport {
  std::int64_t steps = 0;
  double loss = 0;  ///< of the last step
  double seconds = 0;
  bool stopped = false;
  std::string reason{};
};

}  // namespace toller
