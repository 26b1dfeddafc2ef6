// SPDX-License-Identifier: Apache-2.0
// Which processes work together: those of a launcher, or `--ranks` of this machine.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>

#include "common.hpp"
#include "toller/parallelism/ddp.hpp"

namespace program {

/// `--ranks` and `--timeout`.
struct Ranks {
  std::string ranks{};
  std::int64_t timeout = 1800;

  void add_to(CLI::App& command) {
    command
        .add_option("--ranks", ranks,
                    "Start this many ranks on this machine, or auto: one a CUDA device (without CUDA one, on all cores). Not "
                    "under torchrun, mpirun or srun, which start them")
        ->check(CLI::IsMember({"auto"}) | CLI::Range(1, 4096));
    command.add_option("--timeout", timeout, "Seconds that ranks wait for one that shows no sign of life; 30min and 2h do too")
        ->transform(CLI::AsNumberWithUnit(std::map<std::string, std::int64_t>{{"s", 1}, {"min", 60}, {"h", 3600}}))
        ->check(CLI::Range(1, 1'000'000'000))
        ->capture_default_str();
  }

  /// Runs `f` as the rank that this process is, or starts the ranks, which run it, and ends as they did.
  ///
  /// Errors   ConfigError R138: `--ranks` within a launcher.
  void run(const std::function<void()>& f) const;
  /// This process among the ranks, on the device that was asked for.
  [[nodiscard]] toller::Ddp ddp(const Compute& compute) const;
};

/// Says why in one line on standard error, `toller: rank 1: [R501] ...`, or without the rank where there is one process; ends
/// with status 1.
[[noreturn]] void end_with(const std::exception& error);

}  // namespace program
