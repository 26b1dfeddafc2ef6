// SPDX-License-Identifier: Apache-2.0
// T1. One process, one device.
#pragma once

#include "toller/parallelism/parallelism.hpp"

namespace toller {

/// Everything on one device: `SingleDevice{}` for the processor, `SingleDevice{cuda(0)}` for a GPU.
struct SingleDevice {
  static constexpr std::string_view name = "SingleDevice";
  static constexpr bool distributed = false;
  at::Device device = cpu();

  static void fields(auto& self, auto&& visit) { visit("device", self.device); }
  [[nodiscard]] at::Device target() const { return device; }
};

static_assert(ParallelismPolicy<SingleDevice>);

}  // namespace toller
