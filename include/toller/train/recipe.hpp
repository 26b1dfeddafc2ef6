// SPDX-License-Identifier: Apache-2.0
// T0. The run as data.
#pragma once

#include <string>

#include "toller/core/fields.hpp"

namespace toller {

/// Every spec of a run with every field, a line each: equal recipes on equal data give equal runs.
template <Spec... Specs>
[[nodiscard]] std::string make_recipe(const Specs&... specs) {
  std::string lines;
  ((lines += describe(specs) + "\n"), ...);
  return lines;
}

}  // namespace toller
