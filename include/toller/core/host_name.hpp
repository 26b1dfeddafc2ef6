// SPDX-License-Identifier: Apache-2.0
// T0. What this machine calls itself.
#pragma once

#include <unistd.h>

#include <array>
#include <string>

namespace toller::detail {

[[nodiscard]] inline std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

}  // namespace toller::detail
