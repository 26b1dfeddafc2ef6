// SPDX-License-Identifier: Apache-2.0
// T0. Several ranks on this machine without a launcher: `toller::spawn(4, [&] { ... })`.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <concepts>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>

#include "toller/core/error.hpp"
#include "toller/distributed/child_processes.hpp"
#include "toller/distributed/environment.hpp"
#include "toller/distributed/launch.hpp"

namespace toller {

/// A spawned rank failed (R608, or R609 after a signal). `exit_status` is the first one's, -1 when a signal ended it.
class RankFailed : public DistributedError {
public:
  RankFailed(std::string_view code, const std::string& message, int status)
      : DistributedError(code, message), exit_status(status) {}
  int exit_status = -1;
};

/// How `spawn` ends its ranks.
struct SpawnOptions {
  std::chrono::milliseconds grace = std::chrono::seconds(20);     ///< for the other ranks, after one failed
  std::chrono::milliseconds stopping = std::chrono::seconds(60);  ///< after a signal: the rest of a step, and saving
};

/// Whether `spawn` started this process.
[[nodiscard]] inline bool in_spawned_process() {
  return !process_variable("TOLLER_SPAWN").value_or("").empty();
}

/// The cores that this process may run on.
[[nodiscard]] inline int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int counted = ::sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 0;
  return std::max(1, counted > 0 ? counted : static_cast<int>(std::thread::hardware_concurrency()));
}

namespace detail {

/// Calls of `spawn` are told apart by their number; this is the next one's.
inline int next_spawn_call() {
  static std::atomic<int> calls = 0;
  return calls++;
}

/// A folder of this user's own, removed at the end.
class PrivateFolder {
public:
  PrivateFolder() {
    std::error_code none;
    const std::filesystem::path temp = std::filesystem::temp_directory_path(none);
    std::string name = (std::filesystem::absolute(none ? "/tmp" : temp) / "toller-spawn-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr)
      throw DistributedError("R607", cat(name, ": no folder there: ", std::strerror(errno)));
    path_ = name;
  }
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;
  ~PrivateFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

private:
  std::filesystem::path path_{};
};

/// A rank that got to its call of `spawn` leaves this file, so that one that took another way is found out.
[[nodiscard]] inline std::filesystem::path reached_file(const std::filesystem::path& folder, const std::string& rank) {
  return folder / ("reached-" + rank);
}

inline void start_ranks(int ranks, int call, const SpawnOptions& options) {
  const PrivateFolder folder;
  std::cout.flush(), std::fflush(nullptr);
  ChildProcesses children;
  for (int rank = 0; rank < ranks; ++rank) {
    ChildProcesses::Variables variables{{"TOLLER_SPAWN", std::to_string(call)},
                                        {"TOLLER_INIT_METHOD", "file://" + (folder.path() / "address").string()}};
    for (const char* const name : {"RANK", "LOCAL_RANK"}) variables[name] = std::to_string(rank);
    for (const char* const name : {"WORLD_SIZE", "LOCAL_WORLD_SIZE"}) variables[name] = std::to_string(ranks);
    if (process_variable("OMP_NUM_THREADS").value_or("").empty())
      variables["OMP_NUM_THREADS"] = std::to_string(std::max(1, usable_cores() / ranks));
    children.start(variables);
  }
  const std::optional<ChildFailure> failure = children.wait(options.grace, options.stopping, [&](int rank) {
    return std::filesystem::exists(reached_file(folder.path(), std::to_string(rank)));
  });
  if (!failure) return;
  std::string others;
  for (const int rank : failure->ended) others += (others.empty() ? "" : ", ") + std::to_string(rank);
  if (!others.empty())
    others = cat("; still running ",
                 std::chrono::duration<double>(failure->because_of.empty() ? options.grace : options.stopping).count(),
                 " s later and ended: ", others);
  const std::string first = cat("rank ", failure->child, " of ", ranks, " ended first, with ", failure->how, others);
  if (!failure->because_of.empty())
    throw RankFailed("R609", cat("stopped by ", failure->because_of, ": ", first), failure->exit_status);
  throw RankFailed("R608", first, failure->exit_status);
}

/// One line on standard error, in one piece.
inline void say_failed(std::string_view rank, std::string_view what) {
  const std::string line = cat("rank ", rank, ": toller: ", what.substr(0, what.find('\n')), "\n");
  std::cout.flush();
  if (::write(STDERR_FILENO, line.data(), line.size()) < 0) return;
}

/// Runs `f` as the rank that this process is, and ends the process.
template <class F>
[[noreturn]] void be_rank(F& f) {
  const std::string rank = process_variable("RANK").value_or("?");
  const std::string address = process_variable("TOLLER_INIT_METHOD").value_or("");
  const std::filesystem::path folder = std::filesystem::path(address.substr(address.find("//") + 2)).parent_path();
  const int reached = ::open(reached_file(folder, rank).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (reached >= 0) ::close(reached);
  try {
    f();
  } catch (const std::exception& error) {
    say_failed(rank, error.what());
    std::exit(1);
  } catch (...) {
    say_failed(rank, "an exception that is no std::exception");
    std::exit(1);
  }
  std::exit(0);
}

}  // namespace detail

/// Runs `f` as `ranks` ranks on this machine, each in a fresh process, and waits for all of them.
///
/// This program is started `ranks` times again with the same arguments: main runs up to this call there (calls before it are
/// skipped), then `f`, then the process ends. So what `f` leaves, it leaves in files; what main prints before this call, every
/// rank prints unless it asks `in_spawned_process()`. `spawn(1, f)` runs `f` in this process.
///
/// Ranks    Told by the variables that `read_launch` reads; OMP_NUM_THREADS, unless set, is cores / ranks. They share this
///          process's output, and end with it. SIGINT, SIGTERM and SIGHUP are passed on to them.
/// Errors   DistributedError R606 (within another launcher or another spawn), R607 (a process could not be started);
///          RankFailed R608 (a rank failed: which one, and how), R609 (the same, after a signal). The others have
///          `grace`, or `stopping`, to end by themselves; then they are sent SIGTERM, five seconds later SIGKILL. A
///          rank's own message is on its standard error.
template <std::invocable F>
void spawn(int ranks, F&& f, SpawnOptions options = {}) {
  const int call = detail::next_spawn_call();
  if (ranks < 1) throw DistributedError("R606", detail::cat("spawn of ", ranks, " ranks: expected at least 1"));
  if (in_spawned_process()) {
    const std::string wanted = *process_variable("TOLLER_SPAWN");
    if (std::to_string(call) == wanted) detail::be_rank(f);
    if (detail::small_number(wanted) < call)
      throw DistributedError("R606",
                             detail::cat("spawn of ", ranks, " ranks within rank ", process_variable("RANK").value_or("?"),
                                         " of another spawn: expected it outside"));
    return;  // an earlier call, which the parent has behind it
  }
  if (const Launch launch = read_launch(process_variable); launch.world_size > 1)
    throw DistributedError("R606", detail::cat("spawn of ", ranks, " ranks in rank ", launch.rank, " of ", launch.world_size,
                                               " (", launch.launcher, "): expected a process that no launcher started"));
  if (ranks == 1)
    f();
  else
    detail::start_ranks(ranks, call, options);
}

}  // namespace toller
