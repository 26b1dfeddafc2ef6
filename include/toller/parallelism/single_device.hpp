// SPDX-License-Identifier: Apache-2.0
// T1. One process, one device.
#pragma once

#include "toller/parallelism/parallelism.hpp"

namespace toller {

/// The only replica: its gradients are the gradients.
struct OnlyReplica {
  [[nodiscard]] SingleProcess communicator() const { return {}; }
  void begin_step() const {}
  void sync(const at::Tensor&) const {}
  [[nodiscard]] double end_step() const { return 0; }
};

/// Everything on one device: `SingleDevice{}` for the processor, `SingleDevice{cuda(0)}` for a GPU.
struct SingleDevice {
  static constexpr std::string_view name = "SingleDevice";
  static constexpr bool distributed = false;
  at::Device device = cpu();

  static void fields(auto& self, auto&& visit) { visit("device", self.device); }
  [[nodiscard]] at::Device target() const { return device; }
  [[nodiscard]] int ranks() const { return 1; }
  [[nodiscard]] SingleProcess join() const { return {}; }
  [[nodiscard]] OnlyReplica bind(const Parameters&, const SingleProcess&) const { return {}; }
  [[nodiscard]] bool writes_files() const { return true; }
};

static_assert(ParallelismPolicy<SingleDevice>);

}  // namespace toller
