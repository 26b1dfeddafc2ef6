// SPDX-License-Identifier: Apache-2.0
// T0. Environment variables, looked up through a function so that a table can stand in for them.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>
#include <string>

namespace toller {

/// A look-up of environment variables: the value, or nothing if it is not set.
using Environment = std::function<std::optional<std::string>(const std::string&)>;

/// This process's environment variable.
///
/// Two more names, for what launchers don't say: `toller.parent` is the parent process, in a form no later process has again,
/// and `toller.uid` the user's number.
[[nodiscard]] inline std::optional<std::string> process_variable(const std::string& name) {
  if (name == "toller.uid") return std::to_string(::getuid());
  if (name == "toller.parent") {
    const std::string parent = std::to_string(::getppid());
    std::ifstream file("/proc/" + parent + "/stat");
    std::string line;
    std::getline(file, line);
    // After the name, in brackets: state is field 3, the start time in ticks since boot is field 22.
    std::istringstream fields(line.substr(std::min(line.size(), line.rfind(')') + 1)));
    std::string started;
    for (int field = 3; field <= 22; ++field) fields >> started;
    return parent + "-" + started;
  }
  const char* const value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

}  // namespace toller
