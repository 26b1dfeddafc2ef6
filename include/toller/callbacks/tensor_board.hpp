// SPDX-License-Identifier: Apache-2.0
// T0. Curves for TensorBoard.
#pragma once

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "toller/callbacks/detail/tf_events.hpp"
#include "toller/core/error.hpp"
#include "toller/core/host_name.hpp"
#include "toller/train/callback.hpp"

namespace toller {

/// Writes `train/loss`, `train/accuracy`, `train/similarity`, `train/grad_norm`, `train/lr` and `train/pairs_per_second` of
/// every step into an event file in `folder`. A resumed run adds a file; TensorBoard joins them.
///
/// Ranks    rank 0 writes; several ranks add `train/tokens_max_over_mean`, how evenly the work is dealt.
/// Errors   FileError R450: the file cannot be made. When writing fails later, the run goes on without curves and says so.
/// Cost     about 200 bytes a step; on disk after 20 steps or 2 seconds.
class TensorBoard {
public:
  explicit TensorBoard(std::filesystem::path folder) : folder_(std::move(folder)) {}

  void on(const FitBegin& event);
  void on(const StepEnd& event);
  void on(const FitEnd&) { flush(); }

private:
  [[nodiscard]] static double wall_time() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  }
  void write(const std::string& event) { file_ << detail::tf_record(event); }
  void flush();

  std::filesystem::path folder_;
  std::filesystem::path path_{};
  std::ofstream file_{};
  int ranks_ = 1;
  int waiting_ = 0;
  double flushed_ = 0;
};

inline void TensorBoard::on(const FitBegin& event) {
  if (event.rank != 0) return;
  ranks_ = event.ranks;
  static std::atomic<int> files{0};
  const double time = wall_time();
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  path_ = folder_ / detail::cat("events.out.tfevents.", static_cast<std::int64_t>(time), '.', detail::host_name(), '.',
                                getpid(), '.', files++);
  file_ = std::ofstream(path_, std::ios::binary | std::ios::trunc);
  write(detail::tf_version_event(time));
  file_.flush();
  if (!file_) throw FileError("R450", detail::cat(path_.string(), ": cannot be written"));
  flushed_ = time;
}

inline void TensorBoard::on(const StepEnd& event) {
  if (!file_.is_open()) return;
  std::vector<std::pair<std::string_view, double>> scalars{{"train/loss", event.loss},
                                                           {"train/accuracy", event.accuracy},
                                                           {"train/similarity", event.similarity},
                                                           {"train/grad_norm", event.grad_norm},
                                                           {"train/lr", event.lr}};
  if (event.seconds > 0) scalars.emplace_back("train/pairs_per_second", static_cast<double>(event.rows) / event.seconds);
  if (ranks_ > 1) scalars.emplace_back("train/tokens_max_over_mean", event.imbalance);
  const double time = wall_time();
  write(detail::tf_scalar_event(time, event.step, scalars));
  if (++waiting_ >= 20 || time - flushed_ >= 2) flush();
}

inline void TensorBoard::flush() {
  if (!file_.is_open()) return;
  file_.flush();
  if (!file_) {
    std::cerr << path_.string() << ": cannot be written any more; the run goes on without curves\n";
    file_.close();
  }
  waiting_ = 0;
  flushed_ = wall_time();
}

}  // namespace toller
