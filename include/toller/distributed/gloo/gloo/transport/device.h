// SPDX-License-Identifier: Apache-2.0
// Declarations that torch/csrc/distributed/c10d/ProcessGroupGloo.hpp asks for; the code is in libtorch_cpu.so.
#pragma once

namespace gloo::transport {

class Device;
class UnboundBuffer;

}  // namespace gloo::transport
