// SPDX-License-Identifier: Apache-2.0
// T0. Which of the ranks this process is.
#pragma once

#include <exception>

#include "toller/distributed/launch.hpp"

namespace toller {

namespace detail {

/// What the ranks agreed on when they met; nothing before.
struct JoinedRanks {
  bool joined = false;
  Launch launch{};
};
inline JoinedRanks& joined_ranks() {
  static JoinedRanks ranks;
  return ranks;
}

}  // namespace detail

/// This process as its launcher describes it, or as the ranks agreed once they met.
///
/// Errors   DistributedError R600-R609: contradictory variables.
[[nodiscard]] inline Launch this_launch() {
  return detail::joined_ranks().joined ? detail::joined_ranks().launch : read_launch(process_variable);
}

namespace detail {

/// `this_launch()`, or a process alone where the variables contradict each other: whoever reports that asks for the rank.
inline Launch launch_or_alone() noexcept {
  try {
    return this_launch();
  } catch (const std::exception&) {
    return {};
  }
}

}  // namespace detail

/// This process's number among the ranks; 0 without a launcher, or where its variables contradict each other (`Ddp::from_env`
/// and `this_launch` throw then).
[[nodiscard]] inline int get_rank() noexcept {
  return detail::launch_or_alone().rank;
}
/// How many ranks there are; 1 without a launcher.
[[nodiscard]] inline int get_world_size() noexcept {
  return detail::launch_or_alone().world_size;
}
/// Whether this is rank 0, which prints and saves.
[[nodiscard]] inline bool is_main() noexcept {
  return get_rank() == 0;
}
/// Whether this is the first rank on its host.
[[nodiscard]] inline bool is_main_on_node() noexcept {
  return detail::launch_or_alone().local_rank.value_or(0) == 0;
}

namespace detail {

/// Whether this process writes what all ranks hold: always before the ranks have met, then only rank 0, or the first rank of
/// each host.
[[nodiscard]] inline bool writes_files(bool on_each_node) {
  const JoinedRanks& ranks = joined_ranks();
  if (!ranks.joined) return true;
  return on_each_node ? ranks.launch.local_rank.value_or(0) == 0 : ranks.launch.rank == 0;
}

}  // namespace detail
}  // namespace toller
