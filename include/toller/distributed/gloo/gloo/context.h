// SPDX-License-Identifier: Apache-2.0
// Declarations that torch/csrc/distributed/c10d/ProcessGroupGloo.hpp asks for; the code is in libtorch_cpu.so.
#pragma once

#include <chrono>

namespace gloo {

/// The connections of one rank to all others. Never made here, so its layout does not matter.
class Context {
public:
  void setTimeout(std::chrono::milliseconds timeout);
  /// Every operation under way fails, here and on the other side.
  void closeConnections();
};

}  // namespace gloo
