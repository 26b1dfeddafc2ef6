// SPDX-License-Identifier: Apache-2.0
// T0. Tells an event to the callbacks that hear it.
#pragma once

namespace toller::detail {

/// Calls `on(event)` of each callback that has it, in the order of the pack.
template <class Event, class... Callbacks>
void notify([[maybe_unused]] const Event& event, Callbacks&... callbacks) {
  [[maybe_unused]] const auto tell = [&event](auto& callback) {
    if constexpr (requires { callback.on(event); }) callback.on(event);
  };
  (tell(callbacks), ...);
}

}  // namespace toller::detail
