// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "support/temporary_folder.hpp"
#include "support/tiny.hpp"
#include "toller/toller.hpp"

using namespace toller;

namespace {

using Dense = Model<Bert, MeanPooling>;
using Colbert = Model<Bert, LateInteraction>;

Dense tiny_dense() {
  return Dense::from_pretrained(tiny_folder(), {}, {.fresh_head = true});
}
Colbert tiny_colbert() {
  return Colbert::from_pretrained(tiny_folder(), {.dim = 16}, {.fresh_head = true, .query_length = 12, .document_length = 24});
}

std::vector<at::Tensor> weights(const auto& model) {
  std::vector<at::Tensor> result;
  for (const Parameters& list : {model.encoder().parameters(), model.pooling().parameters()})
    for (const Parameter& p : list) result.push_back(p.value.detach().clone());
  return result;
}

bool same_bits(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const at::Tensor& x, const at::Tensor& y) { return x.equal(y); });
}

struct Recorder {
  std::vector<StepEnd> steps{};
  std::vector<EpochEnd> epochs{};
  std::vector<FitEnd> ends{};
  std::int64_t total = 0;
  void on(const FitBegin& e) { total = e.total_steps; }
  void on(const StepEnd& e) { steps.push_back(e); }
  void on(const EpochEnd& e) { epochs.push_back(e); }
  void on(const FitEnd& e) { ends.push_back(e); }
};

struct CallAt {
  std::int64_t step = 0;
  std::function<void(const StepEnd&)> act{};
  void on(const StepEnd& e) {
    if (e.step == step) act(e);
  }
};

const FitOptions quick{.epochs = 3, .batch_size = 4, .optimizer = {.lr = 1e-3}};

}  // namespace

TEST_CASE("a ColBERT and a dense model learn ten pairs, and callbacks hear every event") {
  const auto learn = [](auto model, auto loss) {
    Recorder heard;
    Trainer trainer{model, loss};
    const FitReport report = trainer.fit(tiny_pairs(), {.epochs = 30, .batch_size = 5, .optimizer = {.lr = 3e-3}}, heard);
    REQUIRE(report.steps == 60);
    REQUIRE(heard.total == 60);
    REQUIRE(heard.steps.size() == 60);
    REQUIRE(heard.epochs.size() == 30);
    REQUIRE(heard.ends.size() == 1);
    REQUIRE_FALSE(report.stopped);
    REQUIRE(heard.steps.back().loss < 0.2 * heard.steps.front().loss);
    REQUIRE(heard.steps.back().accuracy == 1.0);
    REQUIRE(heard.steps.front().lr == 3e-3);
    REQUIRE(heard.steps.front().rows == 5);
  };
  learn(tiny_dense(), Contrastive<Cosine>{});
  learn(tiny_colbert(), Contrastive<MaxSim>{});
}

TEST_CASE("the same seed gives the same bits, with any number of workers; another seed gives others") {
  const auto train = [](std::uint64_t seed, int workers) {
    auto model = tiny_colbert();
    Trainer trainer{model, Contrastive<MaxSim>{}};
    FitOptions options = quick;
    options.seed = seed;
    options.workers = workers;
    trainer.fit(tiny_pairs(), options);
    return weights(model);
  };
  const auto once = train(1, 0);
  REQUIRE(same_bits(once, train(1, 0)));
  REQUIRE(same_bits(once, train(1, 3)));
  REQUIRE_FALSE(same_bits(once, train(2, 0)));
}

TEST_CASE("what cannot run is said before anything is computed") {
  auto model = tiny_dense();
  const auto before = weights(model);
  Trainer trainer{model, Contrastive<Cosine>{}};
  const auto fails = [&](const FitOptions& options, const std::string& message) {
    REQUIRE_THROWS_WITH(trainer.fit(tiny_pairs(), options), message);
    REQUIRE(same_bits(before, weights(model)));
  };
  fails({.batch_size = 11}, "[R121] the data have 10 rows, fewer than one batch of 11");
  fails({.batch_size = 0}, "[R120] batch_size is 0: it must be at least 1");
  fails({.epochs = 0, .batch_size = 4}, "[R122] neither epochs nor steps is above 0");
  fails({.epochs = 2, .steps = -1, .batch_size = 4}, "[R123] epochs and steps must be from 0 to 1000000000");
  fails({.batch_size = 2, .optimizer = {.lr = -1}}, "[R140] optimizer.lr: expected a finite number >= 0, got -1");
  Trainer cold{model, Contrastive<Cosine>{.temperature = 0}};
  REQUIRE(cold.can_run(tiny_pairs(), quick).size() == 1);
  REQUIRE_THROWS_AS(cold.fit(tiny_pairs(), quick), ConfigError);
  if (!at::hasCUDA()) {
    Trainer far{model, Contrastive<Cosine>{}, Fp32{}, SingleDevice{cuda(0)}};
    REQUIRE(far.can_run(tiny_pairs(), quick).front().code == "R124");
  }
}

TEST_CASE("a loss that is not finite names its step and leaves the weights as they were") {
  auto model = tiny_dense();
  const auto poisoned = model.encoder().parameters().back().value;
  std::vector<at::Tensor> before;
  CallAt poison{2, [&](const StepEnd&) {
                  const at::NoGradGuard no_grad;
                  poisoned.fill_(std::numeric_limits<float>::quiet_NaN());
                  before = weights(model);
                }};
  Recorder heard;
  Trainer trainer{model, Contrastive<Cosine>{}};
  REQUIRE_THROWS_WITH(trainer.fit(tiny_pairs(), quick, poison, heard),
                      Catch::Matchers::StartsWith("[R501] the loss of step 3 is"));
  const auto after = weights(model);
  for (std::size_t i = 0; i < before.size(); ++i) REQUIRE(at::allclose(before[i], after[i], 0, 0, /*equal_nan=*/true));
  REQUIRE(heard.steps.size() == 2);
  REQUIRE(heard.ends.size() == 1);
}

TEST_CASE("a callback, Ctrl-C and SIGTERM stop at the end of the step") {
  const auto stop = [](auto act, const std::string& reason) {
    CallAt call{2, act};
    Recorder heard;
    Trainer trainer{tiny_dense(), Contrastive<Cosine>{}};
    const FitReport report = trainer.fit(tiny_pairs(), quick, call, heard);
    REQUIRE(report.stopped);
    REQUIRE(report.steps == 2);
    REQUIRE(report.reason == reason);
    REQUIRE(heard.ends.front().reason == reason);
  };
  stop([](const StepEnd& e) { e.stop->ask("enough"); }, "enough");
  stop([](const StepEnd&) { std::raise(SIGINT); }, "Ctrl-C");
  stop([](const StepEnd&) { std::raise(SIGTERM); }, "SIGTERM");
}

TEST_CASE("a stop that comes after the callbacks of a step, or before its checkpoint asked, is saved at the end of the fit") {
  const auto saves = [](auto act, std::int64_t every) {
    const TemporaryFolder folder;
    CallAt call{2, act};
    const Checkpoint checkpoint{.dir = folder.path(), .every_steps = every};
    Trainer trainer{tiny_dense(), Contrastive<Cosine>{}};
    const FitReport report = trainer.fit(tiny_pairs(), quick, checkpoint, call);
    REQUIRE(report.steps == 2);
    std::set<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path())) found.insert(entry.path().filename().string());
    return found;
  };
  const std::set<std::string> second{"step-2"}, both{"step-1", "step-2"};
  REQUIRE(saves([](const StepEnd&) { std::raise(SIGTERM); }, 100) == second);
  REQUIRE(saves([](const StepEnd& e) { e.stop->ask("enough"); }, 100) == second);
  REQUIRE(saves([](const StepEnd& e) { e.stop->ask("enough"); }, 1) == both);
}

TEST_CASE("steps win over epochs and go through the data again") {
  Recorder heard;
  Trainer trainer{tiny_dense(), Contrastive<Cosine>{}};
  REQUIRE(trainer.fit(tiny_pairs(), {.steps = 7, .batch_size = 4}, heard).steps == 7);
  REQUIRE(heard.steps[2].rows == 2);  // the epoch's short last batch
  REQUIRE(heard.steps[6].epoch == 2);
}

TEST_CASE("bf16 trains to about the same place as fp32") {
  const auto last_loss = [](auto precision) {
    Trainer trainer{tiny_dense(), Contrastive<Cosine>{}, precision};
    return trainer.fit(tiny_pairs(), {.epochs = 10, .batch_size = 5, .optimizer = {.lr = 1e-3}, .dropout = false}).loss;
  };
  const double full = last_loss(Fp32{}), mixed = last_loss(Bf16Mixed{});
  REQUIRE(std::abs(full - mixed) < 0.1 * std::max(full, 0.1));
  REQUIRE(full != mixed);
}

TEST_CASE("a scale of the gradients changes what is clipped, and nothing else") {
  const auto run = [](const OptimizerOptions& optimizer) {
    const Dense model = tiny_dense();
    Recorder heard;
    Trainer trainer{model, Contrastive<Cosine>{}};
    trainer.fit(tiny_pairs(), {.epochs = 3, .batch_size = 4, .optimizer = optimizer}, heard);
    std::vector<double> norms;
    for (const StepEnd& step : heard.steps) norms.push_back(step.grad_norm);
    return std::pair(weights(model), norms);
  };
  const auto [plain, norms] = run({.lr = 1e-3, .eps = 1e-6, .max_grad_norm = 0.125});
  const auto [scaled, scaled_norms] = run({.lr = 1e-3, .eps = 8e-6, .max_grad_norm = 1, .gradient_scale = 8});
  REQUIRE(norms.size() == 9);
  REQUIRE(*std::min_element(norms.begin(), norms.end()) > 0.125);  // all are clipped
  for (std::size_t i = 0; i < norms.size(); ++i) REQUIRE(std::abs(scaled_norms[i] - 8 * norms[i]) < 1e-4 * 8 * norms[i]);
  for (std::size_t i = 0; i < plain.size(); ++i) REQUIRE(at::allclose(plain[i], scaled[i], 1e-4, 1e-5));
}

TEST_CASE("the recipe holds every setting") {
  Trainer trainer{tiny_colbert(), Contrastive<MaxSim>{}};
  const std::string recipe = trainer.recipe(quick);
  for (const char* part : {"Contrastive", "MaxSim", "Fp32", "SingleDevice", "batch_size=4", "lr=0.001"}) {
    INFO(part);
    REQUIRE(recipe.find(part) != std::string::npos);
  }
}
