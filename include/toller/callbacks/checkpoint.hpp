// SPDX-License-Identifier: Apache-2.0
// T0. Checkpoints during a fit.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <system_error>
#include <vector>

#include "toller/train/callback.hpp"

namespace toller {

/// Saves the run into `dir/step-<n>`: every `every_steps` steps, after the last one and when it is stopped; keeps the newest
/// `keep`.
///
/// Units    `every_steps` optimizer steps; the newest `keep` stay, 0: all.
/// Errors   FileError R461 and R4xx: the fit ends with it, the checkpoints before stay.
/// Cost     the size of the weights three times (weights and both moments), written while the run waits.
struct Checkpoint {
  std::filesystem::path dir = "checkpoints";
  std::int64_t every_steps = 500;
  std::int64_t keep = 2;

  void on(const StepEnd& event) const {
    const bool due = every_steps > 0 && (event.step % every_steps == 0 || event.step == event.total_steps);
    if (due || (event.stop != nullptr && event.stop->asked())) write(event.save, event.step);
  }
  void on(const FitEnd& event) const { write(event.save, event.step); }

private:
  void write(const SaveCheckpoint* save, std::int64_t step) const {
    if (save == nullptr) return;
    (*save)(dir / ("step-" + std::to_string(step)));
    remove_old();
  }
  /// Only folders that this callback named are ever removed.
  void remove_old() const {
    std::vector<std::int64_t> steps;
    for (const auto& entry : std::filesystem::directory_iterator(dir)) {
      const std::string name = entry.path().filename().string();
      const bool ours =
          name.starts_with("step-") && name.size() > 5 && name.find_first_not_of("0123456789", 5) == std::string::npos;
      if (ours && name.size() < 20) steps.push_back(std::stoll(name.substr(5)));
    }
    std::sort(steps.begin(), steps.end(), std::greater<>());
    std::error_code ignored;
    for (std::size_t i = static_cast<std::size_t>(keep); keep > 0 && i < steps.size(); ++i)
      std::filesystem::remove_all(dir / ("step-" + std::to_string(steps[i])), ignored);
  }
};

static_assert(hears_event<Checkpoint>);

}  // namespace toller
