// SPDX-License-Identifier: Apache-2.0
// T0. What a callback must have.
#pragma once

#include "toller/train/events.hpp"

namespace toller {

namespace detail {

/// Turns into an event of exactly this type and into nothing else. It uses up the one conversion of its own that the
/// language allows, so that a parameter of a type that an event merely converts to does not count as hearing the event.
template <class Event>
struct EventProbe {
  operator const Event&() const;
};

}  // namespace detail

/// Whether `C` has `void on(const Event&)`.
template <class C, class Event>
concept CallbackFor = requires(C& callback, const detail::EventProbe<Event>& event) {
  callback.on(event);
};

/// Whether `C` hears at least one of the events of a fit. A callback that hears none has misspelt one.
template <class C>
inline constexpr bool hears_event =
    CallbackFor<C, FitBegin> || CallbackFor<C, StepEnd> || CallbackFor<C, EpochEnd> || CallbackFor<C, FitEnd>;

}  // namespace toller
