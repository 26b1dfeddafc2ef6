// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>
#include <sstream>

#include "toller/callbacks/progress_bar.hpp"

using namespace toller;
using Catch::Matchers::ContainsSubstring;

namespace {

/// A bar on a string, with a clock that the test moves.
struct Stage {
  std::ostringstream out{};
  double time = 100;
  ProgressBar bar{};
  explicit Stage(bool terminal, int width = 140) {
    bar = ProgressBar(ProgressBarOptions{
        .out = &out, .terminal = terminal, .width = width, .interval = 0.1, .clock = [this] { return time; }});
  }
  Stage(const Stage&) = delete;
  void step(std::int64_t number, std::int64_t epoch, double seconds, double loss = 0.412) {
    time += seconds;
    bar.on(
        StepEnd{.step = number, .epoch = epoch, .loss = loss, .accuracy = 0.91, .similarity = 24.3, .lr = 2.1e-5, .rows = 32});
  }
  /// What stands on the screen: the lines, each as last drawn.
  std::vector<std::string> lines() const {
    std::vector<std::string> result{""};
    std::string text = out.str();
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\n')
        result.emplace_back();
      else if (text[i] == '\r')
        result.back().clear();
      else if (text.compare(i, 3, "\x1b[K") == 0)
        i += 2;
      else
        result.back() += text[i];
    }
    return result;
  }
};

std::size_t columns(const std::string& line) {
  std::size_t count = 0;
  for (const char c : line) count += (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  return count;
}

}  // namespace

TEST_CASE("the bar has tqdm's form") {
  Stage stage(true);
  stage.bar.on(FitBegin{.total_steps = 200, .steps_per_epoch = 200, .epochs = 1});
  for (int i = 1; i <= 84; ++i) stage.step(i, 0, 0.5);
  const std::string line = stage.lines().back();
  REQUIRE_THAT(line, ContainsSubstring("Epoch 1/1:  42%|██"));
  REQUIRE_THAT(line, ContainsSubstring("| 84/200 [00:42<00:58,  2.00it/s, train_loss=0.412, train_accuracy=0.91, "
                                       "avg_similarity=24.3, lr=2.1e-05]"));
  REQUIRE(columns(line) == 140);
}

TEST_CASE("slow steps are shown in seconds, hours with three parts") {
  Stage stage(true);
  stage.bar.on(FitBegin{.total_steps = 1000, .steps_per_epoch = 1000, .epochs = 1});
  stage.step(1, 0, 7.25);
  REQUIRE_THAT(stage.lines().back(), ContainsSubstring("  0%|"));
  REQUIRE_THAT(stage.lines().back(), ContainsSubstring("1/1000 [00:07<2:00:42,  7.25s/it, "));
}

TEST_CASE("the line never grows wider than the terminal") {
  for (int width = 1; width <= 150; ++width) {
    Stage stage(true, width);
    stage.bar.on(FitBegin{.total_steps = 200, .steps_per_epoch = 200, .epochs = 1});
    for (int i = 1; i <= 130; ++i) {
      stage.step(i, 0, 0.5);
      REQUIRE(columns(stage.lines().back()) <= static_cast<std::size_t>(width));
    }
  }
}

TEST_CASE("it redraws ten times a second at most, and always the last step") {
  Stage stage(true);
  stage.bar.on(FitBegin{.total_steps = 1000, .steps_per_epoch = 1000, .epochs = 1});
  for (int i = 1; i <= 1000; ++i) stage.step(i, 0, 0.001);
  const std::string text = stage.out.str();
  const auto drawings = std::count(text.begin(), text.end(), '\r');
  REQUIRE(drawings >= 10);
  REQUIRE(drawings <= 12);
  REQUIRE_THAT(stage.lines().back(), ContainsSubstring("100%|"));
  REQUIRE_THAT(stage.lines().back(), ContainsSubstring("| 1000/1000 ["));
}

TEST_CASE("each epoch has its bar, the last a line of totals") {
  Stage stage(true);
  stage.bar.on(FitBegin{.total_steps = 5, .steps_per_epoch = 2, .epochs = 3});
  for (int i = 1; i <= 5; ++i) stage.step(i, (i - 1) / 2, 1);
  stage.bar.on(FitEnd{.step = 5});
  const auto lines = stage.lines();
  REQUIRE(lines.size() == 5);
  REQUIRE_THAT(lines[0], ContainsSubstring("Epoch 1/3: 100%|") && ContainsSubstring("| 2/2 [00:02<00:00,"));
  REQUIRE_THAT(lines[1], ContainsSubstring("Epoch 2/3: 100%|") && ContainsSubstring("| 2/2 [00:02<00:00,"));
  REQUIRE_THAT(lines[2], ContainsSubstring("Epoch 3/3: 100%|") && ContainsSubstring("| 1/1 [00:01<00:00,"));
  REQUIRE(lines[3] == "5 steps, 160 rows in 00:05, 32.0 pairs/s");
  REQUIRE(lines[4].empty());
}

TEST_CASE("a resumed run goes on where it was") {
  Stage stage(true);
  stage.bar.on(FitBegin{.total_steps = 200, .steps_done = 150, .steps_per_epoch = 100, .epochs = 2});
  REQUIRE_THAT(stage.lines().back(), ContainsSubstring("Epoch 2/2:  50%|") && ContainsSubstring("| 50/100 [00:00<?, ?it/s]"));
  stage.step(151, 1, 2);
  REQUIRE_THAT(stage.lines().back(), ContainsSubstring("| 51/100 [00:02<01:38,  2.00s/it, "));
  REQUIRE(stage.lines().size() == 1);
}

TEST_CASE("runs of one step and of none, and stopped ones, end well") {
  const bool terminal = GENERATE(true, false);
  Stage one(terminal);
  one.bar.on(FitBegin{.total_steps = 1, .steps_per_epoch = 1, .epochs = 1});
  one.step(1, 0, 0);
  one.bar.on(FitEnd{.step = 1});
  REQUIRE_THAT(one.out.str(), ContainsSubstring("100%") && ContainsSubstring("1/1 [") &&
                                  ContainsSubstring("\n1 step, 32 rows in 00:00, 0.0 pairs/s\n"));
  Stage none(terminal);
  none.bar.on(FitBegin{});
  none.bar.on(FitEnd{.stopped = true, .reason = "interrupted"});
  REQUIRE(none.out.str() == "0 steps, 0 rows in 00:00, 0.0 pairs/s, stopped at step 0: interrupted\n");
}

TEST_CASE("without a terminal there is a line for each tenth and no cursor movement") {
  Stage stage(false);
  stage.bar.on(FitBegin{.total_steps = 200, .steps_per_epoch = 200, .epochs = 1});
  for (int i = 1; i <= 200; ++i) stage.step(i, 0, 0.5);
  stage.bar.on(FitEnd{.step = 200});
  const auto lines = stage.lines();
  REQUIRE(lines.size() == 12);
  REQUIRE(lines[3].starts_with("Epoch 1/1:  40% 80/200 [00:40<01:00,  2.00it/s, train_loss=0.412, "));
  REQUIRE(stage.out.str().find_first_of("\r\x1b") == std::string::npos);
}

TEST_CASE("the shown loss is a mean that begins unbiased and follows") {
  Stage stage(true);
  stage.bar.on(FitBegin{.total_steps = 100, .steps_per_epoch = 100, .epochs = 1});
  stage.step(1, 0, 1, 4.0);
  REQUIRE_THAT(stage.lines().back(), ContainsSubstring("train_loss=4,"));
  for (int i = 2; i <= 90; ++i) stage.step(i, 0, 1, 1.0);
  REQUIRE_THAT(stage.lines().back(), ContainsSubstring("train_loss=1,"));
}
