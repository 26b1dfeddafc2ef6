// SPDX-License-Identifier: Apache-2.0
#include "ranks.hpp"

#include <iostream>

#include "toller/distributed/spawn.hpp"

namespace program {

void end_with(const std::exception& error) {
  std::string rank;
  try {
    const toller::Launch launch = toller::this_launch();
    if (launch.world_size > 1) rank = toller::detail::cat("rank ", launch.rank, ": ");
  } catch (const toller::Error&) {  // variables that contradict each other: the error is about them
  }
  const std::string message = error.what();
  std::cout.flush();
  std::cerr << "toller: " + rank + message.substr(0, message.find('\n')) + "\n" << std::flush;
  std::exit(1);
}

void Ranks::run(const std::function<void()>& f) const {
  using namespace toller;
  if (ranks.empty()) return f();
  if (const Launch launch = read_launch(process_variable); launch.world_size > 1 && !in_spawned_process())
    throw ConfigError("R138", toller::detail::cat("--ranks ", ranks, ": this process is rank ", launch.rank, " of ",
                                                  launch.world_size, " already (", launch.launcher, "): leave --ranks out"));
  const int devices = at::hasCUDA() ? at::detail::getCUDAHooks().deviceCount() : 0;
  const int count = ranks == "auto" ? std::max(1, devices) : std::stoi(ranks);
  if (count == 1) return f();
  const auto rank = [&] {
    try {
      f();
    } catch (const std::exception& error) {
      end_with(error);
    }
  };
  try {
    spawn(count, rank);
  } catch (const RankFailed& error) {
    if (error.exit_status == 130) std::exit(130);  // all stopped at the same step and said so
    if (error.exit_status == 1) std::exit(1);      // it has said why
    throw;
  }
}

toller::Ddp Ranks::ddp(const Compute& compute) const {
  return {.timeout = std::chrono::seconds(timeout),
          .device = compute.chosen(),
          .launch = toller::read_launch(toller::process_variable)};  // unlike from_env, it says nothing of a process alone
}

}  // namespace program
