// SPDX-License-Identifier: Apache-2.0
// Is a process that knows of no launcher really alone?
#pragma once

#include <signal.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "toller/core/error.hpp"
#include "toller/distributed/environment.hpp"

namespace program {

/// Looks for signs of other ranks: variables of launchers that are not understood, and processes like this one that started
/// within seconds beside it. Each leaves a file in the temporary folder while it looks; other machines are not seen.
class LoneProcess {
public:
  LoneProcess() {
    namespace fs = std::filesystem;
    std::error_code none;
    const fs::path temp = fs::temp_directory_path(none);
    folder_ = (none ? "/tmp" : temp) / ("toller-doctor-" + std::to_string(::getuid()));
    fs::create_directories(folder_, none);
    fs::permissions(folder_, fs::perms::owner_all, none);
    std::ifstream command("/proc/self/cmdline", std::ios::binary);
    mine_ = *toller::process_variable("toller.parent") + "\n" +
            std::string(std::istreambuf_iterator<char>(command), std::istreambuf_iterator<char>());
    std::ofstream(file(), std::ios::binary) << mine_;
  }
  ~LoneProcess() {
    std::error_code ignored;
    std::filesystem::remove(file(), ignored);
  }
  LoneProcess(const LoneProcess&) = delete;
  LoneProcess& operator=(const LoneProcess&) = delete;

  /// Takes two seconds, in which others may start.
  [[nodiscard]] std::vector<std::string> look() const {
    std::vector<std::string> faults = read_variables();
    std::string pids;
    for (int turn = 0; turn < 20; ++turn) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      const std::string found = others();
      if (found.size() > pids.size()) pids = found;
    }
    if (!pids.empty())
      faults.push_back(toller::detail::cat("each of several processes thinks that it is alone: ", ::getpid(), pids,
                                           "; what started them sets no variables that are understood: give each RANK, "
                                           "WORLD_SIZE, MASTER_ADDR and MASTER_PORT"));
    return faults;
  }

private:
  [[nodiscard]] std::filesystem::path file() const { return folder_ / std::to_string(::getpid()); }

  static std::vector<std::string> read_variables() {
    struct Stranger {
      const char *rank, *size, *who;
    };
    constexpr std::array<Stranger, 6> strangers{{{"FLUX_TASK_RANK", "FLUX_JOB_SIZE", "Flux"},
                                                 {"PALS_RANKID", "PALS_NRANKS", "PALS"},
                                                 {"ALPS_APP_PE", "ALPS_APP_SIZE", "ALPS"},
                                                 {"PMIX_RANK", "PMIX_SIZE", "PMIx"},
                                                 {"MPIRUN_RANK", "MPIRUN_NPROCS", "an mpirun"},
                                                 {"JOB_COMPLETION_INDEX", "JOB_COMPLETIONS", "a Kubernetes indexed job"}}};
    std::vector<std::string> faults;
    for (const auto& [rank, size, who] : strangers) {
      const std::string value = toller::process_variable(rank).value_or("");
      if (value.empty() || toller::process_variable(size).value_or("") == "1") continue;
      faults.push_back(toller::detail::cat(rank, " is ", value, ", so ", who, " seems to have started several processes, and ",
                                           "this one thinks it is alone: set RANK=$", rank,
                                           ", WORLD_SIZE, MASTER_ADDR and MASTER_PORT"));
    }
    for (const char* const name : {"LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"})
      if (const std::string value = toller::process_variable(name).value_or(""); faults.empty() && !value.empty())
        faults.push_back(toller::detail::cat(name, " is ", value, " but RANK and WORLD_SIZE are not set, so this process is ",
                                             "alone: set both, or unset ", name));
    return faults;
  }

  /// `, 17, 18`: running processes with this one's parent, or its command line.
  [[nodiscard]] std::string others() const {
    std::string found;
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(folder_, none)) {
      const std::string name = entry.path().filename().string();
      const pid_t pid = name.find_first_not_of("0123456789") == std::string::npos ? std::atoi(name.c_str()) : 0;
      if (pid <= 0 || pid == ::getpid()) continue;
      if (::kill(pid, 0) != 0) {
        std::filesystem::remove(entry.path(), none);
        continue;
      }
      std::ifstream in(entry.path(), std::ios::binary);
      const std::string theirs(std::istreambuf_iterator<char>(in), {});
      const auto parent = [](const std::string& text) { return text.substr(0, text.find('\n')); };
      const auto command = [](const std::string& text) { return text.substr(text.find('\n') + 1); };
      if (parent(theirs) == parent(mine_) || command(theirs) == command(mine_)) found += ", " + name;
    }
    return found;
  }

  std::filesystem::path folder_{};
  std::string mine_{};
};

}  // namespace program
