// SPDX-License-Identifier: Apache-2.0
// T0. Ctrl-C and SIGTERM end a fit at the end of its step instead of in the middle of it.
#pragma once

#include <time.h>

#include <array>
#include <csignal>
#include <cstddef>

namespace toller {

/// While one lives, the first SIGINT, SIGTERM or SIGHUP only sets a flag; another one more than a second later ends the
/// process.
///
/// A guard within another's life does nothing: a program may hold one from loading to saving, and `fit` holds one of its own.
/// Not for several fits at once on different threads: the handlers belong to the process.
class InterruptGuard {
public:
  InterruptGuard() {
    if (held_++ > 0) return;
    seen_ = 0;
    for (std::size_t i = 0; i < signals.size(); ++i) old_[i] = std::signal(signals[i], note);
  }
  ~InterruptGuard() {
    if (--held_ > 0) return;
    for (std::size_t i = 0; i < signals.size(); ++i) std::signal(signals[i], old_[i]);
  }
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  [[nodiscard]] static bool interrupted() noexcept { return seen_ != 0; }
  /// The signal that came, or 0.
  [[nodiscard]] static int signal() noexcept { return seen_; }

private:
  static constexpr std::array<int, 3> signals{SIGINT, SIGTERM, SIGHUP};
  /// A launcher passes a signal on that the whole group of processes had already: within a second it is the same one.
  static void note(int signal) {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    const auto time = now.tv_sec * 1000 + now.tv_nsec / 1'000'000;
    if (seen_ == 0) {
      seen_ = signal;
      time_ = time;
    } else if (time - time_ > 1000) {
      std::signal(signal, SIG_DFL);
      std::raise(signal);
    }
  }
  static inline volatile std::sig_atomic_t seen_ = 0;
  static inline volatile long time_ = 0;
  static inline int held_ = 0;
  std::array<void (*)(int), signals.size()> old_{};
};

}  // namespace toller
