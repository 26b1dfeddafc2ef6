// SPDX-License-Identifier: Apache-2.0
// T2. What the ranks tell each other in a step: before it how much there is to do and whether to stop, after it how it went.
#pragma once

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "toller/core/error.hpp"
#include "toller/step/step.hpp"
#include "toller/train/events.hpp"
#include "toller/train/interrupt.hpp"

namespace toller::detail {

/// Why a rank asks to stop, as a number.
enum class StopCode : std::int64_t { none, callback, interrupt, terminate, hang_up };

/// Why this rank asks to stop: a signal, or `stop`, which a callback asked.
[[nodiscard]] inline StopCode stop_code(const StopRequest& stop) {
  switch (InterruptGuard::signal()) {
    case 0:
      return stop.asked() ? StopCode::callback : StopCode::none;
    case SIGTERM:
      return StopCode::terminate;
    case SIGHUP:
      return StopCode::hang_up;
    default:
      return StopCode::interrupt;
  }
}

[[nodiscard]] inline std::string print_stop(StopCode code) {
  switch (code) {
    case StopCode::callback:
      return "a callback";
    case StopCode::interrupt:
      return "Ctrl-C";
    case StopCode::terminate:
      return "SIGTERM";
    case StopCode::hang_up:
      return "SIGHUP";
    default:
      return "";
  }
}

[[nodiscard]] inline const char* print_not_finite(double value) {
  return value < 0 ? "-inf" : value > 0 ? "inf" : "nan";
}

/// A step's beginning, as all ranks know it.
struct StepStart {
  std::int64_t rows = 0;
  std::int64_t tokens = 0;
  double imbalance = 1;
};

/// Finds the rank that keeps the others waiting, step after step.
class Stragglers {
public:
  /// Takes each rank's seconds of computing in a step; gives a rank once its mean over about the last ten steps has been 1.5
  /// times the median rank's for 20 steps, the first time, else -1.
  int add(const std::vector<double>& seconds) {
    ranks_.resize(seconds.size());
    std::vector<double> sorted;
    for (std::size_t r = 0; r < seconds.size(); ++r) {
      ranks_[r].mean += (first_ ? 1.0 : 0.1) * (seconds[r] - ranks_[r].mean);
      sorted.push_back(ranks_[r].mean);
    }
    first_ = false;
    std::sort(sorted.begin(), sorted.end());
    typical_ = sorted[(sorted.size() - 1) / 2];
    int found = -1;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      Rank& rank = ranks_[r];
      rank.slow_steps = rank.mean > 1.5 * typical_ ? rank.slow_steps + 1 : 0;
      if (rank.slow_steps == 20 && !std::exchange(rank.named, true)) found = static_cast<int>(r);
    }
    return found;
  }
  [[nodiscard]] double seconds(int rank) const { return ranks_[static_cast<std::size_t>(rank)].mean; }
  [[nodiscard]] double typical() const { return typical_; }

private:
  struct Rank {
    double mean = 0;
    int slow_steps = 0;
    bool named = false;
  };
  std::vector<Rank> ranks_{};
  double typical_ = 0;
  bool first_ = true;
};

/// The two meetings of a step.
template <class Team>
class Meeting {
public:
  explicit Meeting(const Team& team) : team_(team) {}

  /// Waits until every rank has its batch. A rank that asked to stop stops all: then `stop` holds why.
  ///
  /// Errors   DistributedError R618: a rank is at another step, or the rows do not add up.
  [[nodiscard]] StepStart begin(std::int64_t step, std::int64_t rows, std::int64_t global_rows, std::int64_t tokens,
                                double seconds, StopCode code, StopRequest& stop) {
    at::Tensor mine = at::empty({5}, at::kLong);
    auto* m = mine.mutable_data_ptr<std::int64_t>();
    m[0] = step, m[1] = rows, m[2] = tokens, m[3] = static_cast<std::int64_t>(code),
    m[4] = static_cast<std::int64_t>(seconds * 1e6);
    const at::Tensor all = team_.meet(mine, cat("the beginning of step ", step));
    const auto* a = all.template const_data_ptr<std::int64_t>();
    const int size = team_.size();
    StepStart start;
    std::int64_t most = 0;
    std::vector<double> busy;
    for (int r = 0; r < size; ++r, a += 5) {
      if (a[0] != step)
        throw DistributedError("R618", cat(team_.name(r), " is at step ", a[0], ", ", team_.name(team_.rank()), " at ", step));
      start.rows += a[1], start.tokens += a[2], most = std::max(most, a[2]);
      busy.push_back(static_cast<double>(a[4]) / 1e6);
      ask(stop, static_cast<StopCode>(a[3]), r);
    }
    if (start.rows != global_rows)
      throw DistributedError("R618", cat("step ", step, ": the ranks hold ", start.rows, " rows of a batch of ", global_rows));
    if (start.tokens > 0) start.imbalance = static_cast<double>(most) * size / static_cast<double>(start.tokens);
    if (size > 1) warn(busy);
    return start;
  }

  /// Adds up the ranks' shares.
  ///
  /// Errors   NumericError R501 on every rank: which one's loss is not finite.
  [[nodiscard]] StepReport end(std::int64_t step, const StepReport& share, std::int64_t first_row, StopCode code,
                               StopRequest& stop) {
    at::Tensor mine = at::empty({5}, at::kDouble);
    auto* m = mine.mutable_data_ptr<double>();
    m[0] = share.loss, m[1] = share.accuracy, m[2] = share.similarity, m[3] = static_cast<double>(first_row),
    m[4] = static_cast<double>(code);
    const at::Tensor all = team_.all_gather(mine);
    const auto* a = all.template const_data_ptr<double>();
    StepReport sum{0, 0, 0, share.rows, share.tokens};
    for (int r = 0; r < team_.size(); ++r, a += 5) {
      if (!std::isfinite(a[0])) {
        const std::string where = team_.size() == 1 ? "" : cat(" on ", team_.name(r));
        throw NumericError("R501", cat("the loss of step ", step, " is ", print_not_finite(a[0]), where, " (first row ",
                                       static_cast<std::int64_t>(a[3]), " of the data); the weights are those before it"));
      }
      sum.loss += a[0], sum.accuracy += a[1], sum.similarity += a[2];
      ask(stop, static_cast<StopCode>(static_cast<std::int64_t>(a[4])), r);
    }
    return sum;
  }

private:
  void ask(StopRequest& stop, StopCode code, int rank) const {
    if (code == StopCode::none) return;
    stop.ask(team_.size() == 1 ? print_stop(code) : cat(print_stop(code), " on ", team_.name(rank)));
  }
  void warn(const std::vector<double>& busy) {
    const int slow = stragglers_.add(busy);
    if (slow < 0 || team_.rank() != 0) return;
    std::fprintf(stderr, "toller: %s is slow: it computes %.3g s a step, the others %.3g s, and they wait for it\n",
                 team_.name(slow).c_str(), stragglers_.seconds(slow), stragglers_.typical());
  }

  const Team& team_;
  Stragglers stragglers_{};
};

}  // namespace toller::detail
