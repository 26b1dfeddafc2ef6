// SPDX-License-Identifier: Apache-2.0
// T0. Ctrl-C and SIGTERM end a fit at the end of its step instead of in the middle of it.
#pragma once

#include <array>
#include <csignal>
#include <cstddef>

namespace toller {

/// While one lives, the first SIGINT, SIGTERM or SIGHUP only sets a flag; the second has its former effect again.
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
  [[nodiscard]] static const char* reason() noexcept {
    return seen_ == SIGTERM ? "SIGTERM" : seen_ == SIGHUP ? "SIGHUP" : "Ctrl-C";
  }

private:
  static constexpr std::array<int, 3> signals{SIGINT, SIGTERM, SIGHUP};
  static void note(int signal) {
    seen_ = signal;
    std::signal(signal, SIG_DFL);
  }
  static inline volatile std::sig_atomic_t seen_ = 0;
  static inline int held_ = 0;
  std::array<void (*)(int), signals.size()> old_{};
};

}  // namespace toller
