// SPDX-License-Identifier: Apache-2.0
// T0. Ctrl-C and SIGTERM end a fit at the end of its step instead of in the middle of it.
#pragma once

#include <csignal>

namespace toller {

/// While one lives, the first SIGINT or SIGTERM only sets a flag; the second has its former effect again.
///
/// Errors   none. Not for several fits at once on different threads: the handlers belong to the process.
class InterruptGuard {
public:
  InterruptGuard() {
    seen_ = 0;
    old_int_ = std::signal(SIGINT, note);
    old_term_ = std::signal(SIGTERM, note);
  }
  ~InterruptGuard() {
    std::signal(SIGINT, old_int_);
    std::signal(SIGTERM, old_term_);
  }
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  [[nodiscard]] static bool interrupted() noexcept { return seen_ != 0; }
  [[nodiscard]] static const char* reason() noexcept { return seen_ == SIGTERM ? "SIGTERM" : "Ctrl-C"; }

private:
  static void note(int signal) {
    seen_ = signal;
    std::signal(signal, SIG_DFL);
  }
  static inline volatile std::sig_atomic_t seen_ = 0;
  void (*old_int_)(int) = SIG_DFL;
  void (*old_term_)(int) = SIG_DFL;
};

}  // namespace toller
