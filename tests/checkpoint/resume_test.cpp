// SPDX-License-Identifier: Apache-2.0
// A stopped and resumed run ends with the bits of one that was never stopped.
#include "support/temporary_folder.hpp"
#include "support/tiny.hpp"
#include "toller/toller.hpp"

using namespace toller;

namespace {

using Colbert = Model<Bert, LateInteraction>;

Colbert tiny_colbert() {
  return Colbert::from_pretrained(tiny_folder(), {.dim = 16}, {.fresh_head = true, .query_length = 12, .document_length = 24});
}

/// Stops the run after a step.
struct StopAfter {
  std::int64_t step = 0;
  void on(const StepEnd& event) const {
    if (event.step == step) event.stop->ask("killed");
  }
};

FitOptions options() {
  return {.epochs = 4, .batch_size = 3, .optimizer = {.lr = 1e-3, .warmup = 3}};
}

std::vector<at::Tensor> weights(const Colbert& model) {
  std::vector<at::Tensor> result;
  for (const Parameters& list : {model.encoder().parameters(), model.pooling().parameters()})
    for (const Parameter& p : list) result.push_back(p.value.detach().clone());
  return result;
}

FitReport train(Colbert model, const FitOptions& options, const Checkpoint& checkpoint, std::int64_t stop_after = 0) {
  Trainer trainer{model, Contrastive<MaxSim>{}};
  return trainer.fit(tiny_pairs(), options, StopAfter{stop_after}, checkpoint);
}

}  // namespace

TEST_CASE("a run resumed in the middle of an epoch ends with the same bits") {
  const TemporaryFolder folder;
  const auto whole = tiny_colbert();
  train(whole, options(), {.dir = folder.path() / "unused", .every_steps = 0});

  const Checkpoint checkpoint{.dir = folder.path() / "run", .every_steps = 2, .keep = 1};
  for (const std::int64_t stop : {5, 6, 11}) {  // in an epoch, at its second batch, near the end
    auto resumed = options();
    resumed.resume = Resume::last(checkpoint.dir);
    const FitReport report = train(tiny_colbert(), resumed, checkpoint, stop);
    REQUIRE(report.stopped);
    REQUIRE(report.steps == stop);
    REQUIRE(std::filesystem::exists(checkpoint.dir / ("step-" + std::to_string(stop))));
  }
  auto resumed = options();
  resumed.resume = Resume::last(checkpoint.dir);
  auto last = tiny_colbert();
  REQUIRE(train(last, resumed, checkpoint).steps == 16);
  const auto expected = weights(whole), got = weights(last);
  for (std::size_t i = 0; i < expected.size(); ++i) REQUIRE(expected[i].equal(got[i]));
  REQUIRE(std::distance(std::filesystem::directory_iterator(checkpoint.dir), {}) == 1);  // keep = 1
}

TEST_CASE("a checkpoint is a model folder") {
  const TemporaryFolder folder;
  const auto model = tiny_colbert();
  train(model, options(), {.dir = folder.path(), .every_steps = 16});
  const auto loaded = Colbert::from_pretrained(folder.path() / "step-16");
  const std::vector<std::string> texts{"library for images"};
  REQUIRE(loaded.encode_queries(texts).values.equal(model.encode_queries(texts).values));
}

TEST_CASE("a checkpoint of another run is refused, with what differs") {
  const TemporaryFolder folder;
  train(tiny_colbert(), options(), {.dir = folder.path(), .every_steps = 2}, 2);
  auto other = options();
  other.seed = 7;
  other.resume = Resume::from(folder.path());
  REQUIRE_THROWS_WITH(
      train(tiny_colbert(), other, {.dir = folder.path()}),
      Catch::Matchers::StartsWith("[R463]") && Catch::Matchers::ContainsSubstring(": seed=7 now, seed=42 then"));
  auto longer = options();
  longer.epochs = 5;
  longer.resume = Resume::from(folder.path() / "step-2");
  REQUIRE_THROWS_AS(train(tiny_colbert(), longer, {.dir = folder.path()}), ConfigError);
}

TEST_CASE("no checkpoint: an error where one is required, a fresh start otherwise") {
  const TemporaryFolder folder;
  auto required = options();
  required.resume = Resume::from(folder.path() / "none");
  REQUIRE_THROWS_WITH(train(tiny_colbert(), required, {}),
                      "[R462] " + (folder.path() / "none").string() + ": is no checkpoint and holds none");
  auto fresh = options();
  fresh.resume = Resume::last(folder.path() / "none");
  REQUIRE(train(tiny_colbert(), fresh, {.dir = folder.path() / "none"}, 1).steps == 1);
}

TEST_CASE("a damaged checkpoint is an error, and a half-written one is not taken") {
  const TemporaryFolder folder;
  const Checkpoint checkpoint{.dir = folder.path(), .every_steps = 2, .keep = 0};
  train(tiny_colbert(), options(), checkpoint, 4);
  std::filesystem::rename(folder.path() / "step-4", folder.path() / "step-4.part");
  auto resumed = options();
  resumed.resume = Resume::last(folder.path());
  REQUIRE(train(tiny_colbert(), resumed, checkpoint, 3).steps == 3);  // went on from step 2
  std::filesystem::resize_file(folder.path() / "step-3" / "training.safetensors", 100);
  REQUIRE_THROWS_AS(train(tiny_colbert(), resumed, checkpoint), FileError);
}
