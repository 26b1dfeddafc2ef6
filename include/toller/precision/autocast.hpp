// SPDX-License-Identifier: Apache-2.0
// T2. Autocast for as long as a guard lives.
#pragma once

#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>

namespace toller {

/// Switches autocast on for a device's kind, and puts everything back as it was when it goes, also by an exception.
///
/// Guards nest. The weights that autocast has cast are kept while a guard lives and dropped when the outermost one goes: a
/// later pass must not see copies from before an update (pytorch issue 86136).
class AutocastGuard {
public:
  AutocastGuard(at::Device device, at::ScalarType dtype)
      : kind_(device.type()),
        enabled_(at::autocast::is_autocast_enabled(kind_)),
        dtype_(at::autocast::get_autocast_dtype(kind_)) {
    at::autocast::set_autocast_dtype(kind_, dtype);
    at::autocast::set_autocast_enabled(kind_, true);
    at::autocast::increment_nesting();
  }
  ~AutocastGuard() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(kind_, enabled_);
    at::autocast::set_autocast_dtype(kind_, dtype_);
  }
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

private:
  at::DeviceType kind_;
  bool enabled_;
  at::ScalarType dtype_;
};

}  // namespace toller
