// SPDX-License-Identifier: Apache-2.0
// T0. A progress bar in tqdm's form.
#pragma once

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "toller/train/callback.hpp"

namespace toller {

/// Where and how a progress bar is drawn; what is empty is found out.
///
/// Units   `width` columns; `interval` seconds between two drawings; `clock` seconds from any start.
struct ProgressBarOptions {
  std::ostream* out = nullptr;     ///< standard error
  std::optional<bool> terminal{};  ///< whether standard error is one, and `TERM` is not `dumb`
  std::optional<int> width{};      ///< of the terminal, asked at each drawing
  double interval = 0.1;
  std::function<double()> clock{};  ///< the steady clock
};

/// One bar an epoch, with rate, remaining time and the run's numbers; a line with totals at the end.
///
///   Epoch 1/1:  42%|████▏     | 84/200 [00:35<00:49,  2.37it/s, train_loss=0.412, train_accuracy=0.91, avg_similarity=24.3,
///   lr=2.1e-05]
///
/// Loss, accuracy and similarity are exponential means over about the last ten steps. Where there is no terminal, it writes
/// a line for every tenth of the epoch and moves no cursor. With several ranks it begins with `batch: 32 x 4 ranks x 1 = 128`.
/// Ranks    rank 0 draws.
class ProgressBar {
public:
  ProgressBar() = default;
  explicit ProgressBar(ProgressBarOptions options) : options_(std::move(options)) {}

  void on(const FitBegin& event);
  void on(const StepEnd& event);
  void on(const FitEnd& event);

private:
  /// An exponential mean whose start does not weigh more than its end.
  struct Mean {
    double sum = 0, weight = 0;
    void add(double x, double share) {
      sum = (1 - share) * sum + share * x;
      weight = (1 - share) * weight + share;
    }
    [[nodiscard]] double value() const { return weight > 0 ? sum / weight : 0; }
  };

  void begin_epoch(std::int64_t epoch, std::int64_t steps_done);
  void draw(double time);
  [[nodiscard]] std::string line(double time, int width) const;
  [[nodiscard]] std::ostream& out() const { return options_.out != nullptr ? *options_.out : std::cerr; }
  [[nodiscard]] bool terminal() const;
  [[nodiscard]] int width() const;
  [[nodiscard]] double now() const;

  ProgressBarOptions options_{};
  FitBegin fit_{};
  bool terminal_ = false;
  bool line_open_ = false;  ///< the cursor stands in a bar
  std::int64_t epoch_ = 0, epoch_first_ = 0, epoch_total_ = 0, done_ = 0, printed_tenth_ = 0;
  std::int64_t steps_ = 0, rows_ = 0;
  double fit_began_ = 0, epoch_began_ = 0, drawn_ = 0, last_step_ = 0, lr_ = 0;
  Mean loss_{}, accuracy_{}, similarity_{}, seconds_{};
};

namespace detail {

/// `01:23`, or `1:02:03` from an hour on.
[[nodiscard]] inline std::string print_duration(double seconds) {
  const auto s = static_cast<long long>(std::clamp(seconds, 0.0, 1e12));
  char text[48];
  if (s >= 3600)
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
  else
    std::snprintf(text, sizeof text, "%02lld:%02lld", s / 60, s % 60);
  return text;
}

[[nodiscard]] inline std::string print_number(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

/// A bar of `width` columns, filled to `share` in eighths of a column.
[[nodiscard]] inline std::string print_bar(double share, int width) {
  static constexpr const char* eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int filled = static_cast<int>(std::clamp(share, 0.0, 1.0) * width * 8);
  std::string bar;
  for (int i = 0; i < filled / 8; ++i) bar += "█";
  bar += eighths[filled % 8];
  bar.append(static_cast<std::size_t>(width - filled / 8 - (filled % 8 > 0 ? 1 : 0)), ' ');
  return bar;
}

}  // namespace detail

inline void ProgressBar::on(const FitBegin& event) {
  *this = ProgressBar(options_);
  if (event.rank != 0) return;
  if (event.ranks > 1 || event.micro_batches > 1) {
    const std::int64_t parts = event.ranks * event.micro_batches;
    out() << "batch: " << detail::print_number("%.4g", static_cast<double>(event.batch_size) / static_cast<double>(parts))
          << " x " << event.ranks << (event.ranks == 1 ? " rank x " : " ranks x ") << event.micro_batches << " = "
          << event.batch_size << '\n';
  }
  fit_ = event;
  fit_.steps_per_epoch = event.steps_per_epoch > 0 ? event.steps_per_epoch : std::max<std::int64_t>(1, event.total_steps);
  fit_.epochs = std::max<std::int64_t>(1, event.epochs);
  terminal_ = terminal();
  fit_began_ = last_step_ = now();
  if (event.steps_done >= event.total_steps) return;
  begin_epoch(event.steps_done / fit_.steps_per_epoch, event.steps_done);
  if (terminal_) draw(fit_began_);
}

inline void ProgressBar::on(const StepEnd& event) {
  if (event.rank != 0) return;
  const double time = now();
  if (event.epoch != epoch_) {
    if (line_open_) out() << '\n';
    begin_epoch(event.epoch, event.step - 1);
    epoch_began_ = last_step_;
  }
  constexpr double share = 0.1;
  loss_.add(event.loss, share);
  accuracy_.add(event.accuracy, share);
  similarity_.add(event.similarity, share);
  seconds_.add(time - last_step_, share);
  last_step_ = time;
  lr_ = event.lr;
  rows_ += event.rows;
  ++steps_;
  done_ = event.step - epoch_first_;
  const std::int64_t tenth = done_ * 10 / std::max<std::int64_t>(1, epoch_total_);
  const bool due = terminal_ ? done_ == epoch_total_ || time - drawn_ >= options_.interval : tenth > printed_tenth_;
  printed_tenth_ = tenth;
  if (due) draw(time);
}

inline void ProgressBar::on(const FitEnd& event) {
  if (event.rank != 0) return;
  const double seconds = now() - fit_began_;
  if (line_open_) {
    draw(now());
    out() << '\n';
    line_open_ = false;
  }
  if (event.failed) return;  // the exception says the rest
  out() << steps_ << (steps_ == 1 ? " step, " : " steps, ") << rows_ << (rows_ == 1 ? " row in " : " rows in ")
        << detail::print_duration(seconds) << ", "
        << detail::print_number("%.1f", seconds > 0 ? static_cast<double>(rows_) / seconds : 0) << " pairs/s";
  if (event.stopped) out() << ", stopped at step " << fit_.steps_done + steps_ << ": " << event.reason;
  out() << std::endl;
}

inline void ProgressBar::begin_epoch(std::int64_t epoch, std::int64_t steps_done) {
  epoch_ = epoch;
  epoch_first_ = epoch * fit_.steps_per_epoch;
  epoch_total_ = std::max<std::int64_t>(0, std::min(fit_.steps_per_epoch, fit_.total_steps - epoch_first_));
  done_ = steps_done - epoch_first_;
  printed_tenth_ = done_ * 10 / std::max<std::int64_t>(1, epoch_total_);
  epoch_began_ = now();
}

inline void ProgressBar::draw(double time) {
  // A shorter line than the one before must cover it: the terminal erases to the end of the line.
  if (terminal_)
    out() << '\r' << line(time, width()) << "\x1b[K" << std::flush;
  else
    out() << line(time, 0) << std::endl;
  line_open_ = terminal_;
  drawn_ = time;
}

/// The line, no wider than `width`: first the bar shrinks, then numbers go from the right. 0: without a bar, as wide as it is.
inline std::string ProgressBar::line(double time, int width) const {
  using detail::print_number;
  const double per_step = seconds_.value();
  const double share = epoch_total_ > 0 ? static_cast<double>(done_) / static_cast<double>(epoch_total_) : 1;
  const std::string left = "Epoch " + std::to_string(epoch_ + 1) + "/" + std::to_string(fit_.epochs) + ": " +
                           print_number("%3.0f%%", std::floor(share * 100));
  std::string right =
      std::to_string(done_) + "/" + std::to_string(epoch_total_) + " [" + detail::print_duration(time - epoch_began_) + "<" +
      (per_step > 0 ? detail::print_duration(per_step * static_cast<double>(epoch_total_ - done_)) : "?") + ", ";
  if (per_step <= 0)
    right += "?it/s";
  else
    right += per_step > 1 ? print_number("%5.2fs/it", per_step) : print_number("%5.2fit/s", 1 / per_step);
  std::vector<std::string> numbers;
  if (steps_ > 0)
    numbers = {print_number(", train_loss=%.3g", loss_.value()), print_number(", train_accuracy=%.3g", accuracy_.value()),
               print_number(", avg_similarity=%.3g", similarity_.value()), print_number(", lr=%.3g", lr_)};
  const auto joined = [&] {
    std::string all = right;
    for (const std::string& number : numbers) all += number;
    return all + "]";
  };
  if (width == 0) return left + " " + joined();
  constexpr int borders = 3, smallest_bar = 4;  // "|", "| "
  const auto room = [&] { return width - static_cast<int>(left.size() + joined().size()) - borders; };
  while (room() < smallest_bar && !numbers.empty()) numbers.pop_back();
  if (room() >= smallest_bar) return left + "|" + detail::print_bar(share, room()) + "| " + joined();
  return (left + " " + joined()).substr(0, static_cast<std::size_t>(std::max(0, width)));
}

inline bool ProgressBar::terminal() const {
  if (options_.terminal) return *options_.terminal;
  const char* term = std::getenv("TERM");
  return options_.out == nullptr && isatty(STDERR_FILENO) != 0 && (term == nullptr || std::string(term) != "dumb");
}

inline int ProgressBar::width() const {
  if (options_.width) return *options_.width;
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col - 1;
  const char* columns = std::getenv("COLUMNS");
  return columns != nullptr && std::atoi(columns) > 0 ? std::atoi(columns) - 1 : 120;
}

inline double ProgressBar::now() const {
  if (options_.clock) return options_.clock();
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace toller
