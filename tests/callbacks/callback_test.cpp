// SPDX-License-Identifier: Apache-2.0
#include "toller/train/callback.hpp"
#include "toller/callbacks/progress_bar.hpp"
#include "toller/callbacks/tensor_board.hpp"
#include "toller/train/notify.hpp"

using namespace toller;

namespace {

struct Losses {
  std::vector<double> seen{};
  void on(const StepEnd& event) { seen.push_back(event.loss); }
};
struct ByValue {
  void on(FitEnd) const {}
};
struct Everything {
  int heard = 0;
  void on(const auto&) { ++heard; }
};
struct StepEnded {
  StepEnded(const StepEnd& event) : loss(event.loss) {}  // NOLINT: implicit on purpose
  double loss;
};
struct Misspelt {
  void on(const StepEnded&) {}
};
struct Deaf {};

}  // namespace

TEST_CASE("a callback hears the events that it names, exactly") {
  STATIC_REQUIRE(CallbackFor<Losses, StepEnd>);
  STATIC_REQUIRE_FALSE(CallbackFor<Losses, FitEnd>);
  STATIC_REQUIRE(hears_event<Losses>);
  STATIC_REQUIRE(hears_event<const ByValue>);
  STATIC_REQUIRE_FALSE(hears_event<const Losses>);
  STATIC_REQUIRE(CallbackFor<Everything, EpochEnd>);
  STATIC_REQUIRE(hears_event<ProgressBar>);
  STATIC_REQUIRE(hears_event<TensorBoard>);
}

TEST_CASE("a callback for a type that an event merely converts to hears nothing") {
  STATIC_REQUIRE_FALSE(hears_event<Misspelt>);
  STATIC_REQUIRE_FALSE(hears_event<Deaf>);
  STATIC_REQUIRE_FALSE(hears_event<int>);
}

TEST_CASE("events reach the callbacks that hear them") {
  Losses losses;
  Everything all;
  ByValue end;
  toller::detail::notify(StepEnd{.step = 1, .loss = 0.5}, losses, all, end);
  toller::detail::notify(EpochEnd{}, losses, all, end);
  REQUIRE(losses.seen == std::vector<double>{0.5});
  REQUIRE(all.heard == 2);
}
