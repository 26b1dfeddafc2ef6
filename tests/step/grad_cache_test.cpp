// SPDX-License-Identifier: Apache-2.0
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include "step/support.hpp"

using namespace toller;

namespace {

const std::vector<GradCache> sizes{{.mini_batch = 1},        {.mini_batch = 7},         {.mini_batch = 1000},
                                   {.mini_batch_tokens = 1}, {.mini_batch_tokens = 64}, {.mini_batch_tokens = 1'000'000}};

template <class M, class S>
void cached_equals_plain(const char* name) {
  INFO(name);
  const auto plain = alone<M>(four_directions<S>());
  REQUIRE(gradient_difference(alone<M>(four_directions<S>(), PlainStep{}, at::kDouble, {range(0, 10)}, false), plain) > 1e-3);
  for (const GradCache& step : sizes) {
    INFO("texts " << step.mini_batch << " tokens " << step.mini_batch_tokens);
    const auto cached = alone<M>(four_directions<S>(), step);
    check_equal(cached, plain);
    CHECK(cached.syncs == 1);
  }
}

/// Loss scaling as float16 has it.
struct Scaled : Fp32 {
  double scale = 1024;
  void backward(const at::Tensor& loss) const { loss.mul(scale).backward(); }
};

/// A model that writes down how many texts and tokens it is given.
template <class M>
struct Watched {
  using output_type = typename M::output_type;
  M model;
  std::vector<std::pair<std::int64_t, std::int64_t>>* seen;
  [[nodiscard]] output_type forward(const TokenBatch& batch) const {
    seen->push_back({batch.texts(), batch.tokens()});
    return model.forward(batch);
  }
  [[nodiscard]] const auto& encoder() const { return model.encoder(); }
  [[nodiscard]] const auto& pooling() const { return model.pooling(); }
  [[nodiscard]] const auto& preprocessor() const { return model.preprocessor(); }
};

/// The most memory that tensors of this thread held at once.
struct Peak : c10::MemoryReportingInfoBase {
  std::int64_t now = 0, most = 0;
  void reportMemoryUsage(void*, std::int64_t bytes, std::size_t, std::size_t, c10::Device) override {
    now += bytes;
    most = std::max(most, now);
  }
  bool memoryProfilingEnabled() const override { return true; }
};

}  // namespace

TEST_CASE("cached gradients are those of the whole batch, dropout and all", "[laws]") {
  cached_equals_plain<Dense, Cosine>("Cosine");
  cached_equals_plain<Colbert, MaxSim>("MaxSim");
}

TEST_CASE("cached gradients of ranks add up to those of one process", "[laws]") {
  const std::vector<std::vector<Places>> splits{{{range(0, 7)}, {range(7, 10)}}, {{{4, 1, 9, 0, 2, 3}}, {{}}, {{7, 5, 6, 8}}}};
  const auto check = [&]<class M, class S>() {
    const auto one = alone<M>(four_directions<S>());
    const auto loss = four_directions<S, CrossDeviceNegatives>();
    for (const auto& split : splits) {
      const auto plain = together<M>(loss, split);
      for (const GradCache& step : {GradCache{.mini_batch = 1}, GradCache{.mini_batch_tokens = 100}}) {
        const auto ranks = together<M>(loss, split, step);
        check_equal(added(ranks), one);
        for (std::size_t r = 0; r < ranks.size(); ++r) {
          CHECK(ranks[r].syncs == 1);
          CHECK(ranks[r].all_defined);
          for (const auto& [name, count] : plain[r].counts) CHECK(ranks[r].counts.at(name).calls == count.calls);
        }
      }
    }
  };
  check.operator()<Dense, Cosine>();
  check.operator()<Colbert, MaxSim>();
}

TEST_CASE("cached gradients in float32 and in mixed precision", "[laws]") {
  const Contrastive<MaxSim> loss{};
  const GradCache step{.mini_batch = 4};
  check_equal(alone<Colbert>(loss, step, at::kFloat), alone<Colbert>(loss, PlainStep{}, at::kFloat), 1e-6);
  const auto mixed = [&](const auto& how) { return alone<Colbert>(loss, how, at::kFloat, {range(0, 10)}, true, Bf16Mixed{}); };
  const auto plain = mixed(PlainStep{});
  CHECK(gradient_difference(plain, alone<Colbert>(loss, PlainStep{}, at::kFloat)) > 1e-4);
  check_equal(mixed(step), plain, 1e-2);
}

TEST_CASE("a scaled loss is scaled once") {
  const auto run = [](auto precision) {
    return alone<Dense>(Contrastive<Cosine>{}, GradCache{.mini_batch = 3}, at::kDouble, {range(0, 10)}, true, precision);
  };
  auto scaled = run(Scaled{});
  for (auto& [name, gradient] : scaled.gradients) gradient = gradient / 1024;
  CHECK(gradient_difference(scaled, run(Fp32{})) <= 1e-12);
}

TEST_CASE("no mini-batch is larger than asked for") {
  std::vector<std::pair<std::int64_t, std::int64_t>> seen;
  const Watched<Dense> model{make_model<Dense>(), &seen};
  const auto batches = deal(model, {range(0, 10)});
  const std::int64_t texts = batches[0].tokens.texts(), tokens = batches[0].tokens.tokens();
  const auto run = [&](const GradCache& step) {
    seen.clear();
    (void)run_step(model, Contrastive<Cosine>{}, step, SingleProcess{}, batches);
    REQUIRE(seen.size() % 2 == 0);
    std::int64_t all = 0, all_tokens = 0;
    for (std::size_t i = 0; i < seen.size() / 2; ++i) {
      all += seen[i].first, all_tokens += seen[i].second;
      CHECK(seen[i] == seen[i + seen.size() / 2]);
    }
    CHECK(all == texts);
    CHECK(all_tokens == tokens);
  };
  run({.mini_batch = 4});
  CHECK(std::ssize(seen) == 2 * ((texts + 3) / 4));
  for (const auto& [n, t] : seen) CHECK(n <= 4);
  run({.mini_batch_tokens = 50});
  std::int64_t next = 0;
  for (std::size_t i = 0; i < seen.size() / 2; ++i) {
    CHECK((seen[i].second <= 50 || seen[i].first == 1));
    next += seen[i].first;
    if (next < texts) CHECK(seen[i].second + batches[0].tokens.length(next) > 50);
  }
  run({.mini_batch_tokens = 1});
  for (const auto& [n, t] : seen) CHECK(n == 1);
}

TEST_CASE("the activations of one mini-batch are held, not those of the batch") {
  std::vector<Pair> pairs;
  while (pairs.size() < 320)
    for (const Pair& pair : tiny_pairs()) pairs.push_back(pair);
  const auto peak = [&](const auto& step, std::size_t rows) {
    const auto model = make_model<Dense>(at::kFloat);
    const std::vector<RetrievalBatch> batches{collate_retrieval(
        std::vector<Pair>(pairs.begin(), pairs.begin() + static_cast<std::ptrdiff_t>(rows)), model.preprocessor())};
    const auto held = std::make_shared<Peak>();
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, held);
    (void)run_step(model, Contrastive<Cosine>{}, step, SingleProcess{}, batches);
    return held->most;
  };
  const std::int64_t whole = peak(PlainStep{}, 320), part = peak(PlainStep{}, 20),
                     cached = peak(GradCache{.mini_batch = 40}, 320);
  CAPTURE(whole, part, cached);
  CHECK(cached <= 2 * part);
  CHECK(cached * 4 <= whole);
}

TEST_CASE("the size of a mini-batch is said once") {
  const auto code = [](const GradCache& step) -> std::string {
    try {
      step.check();
    } catch (const ConfigError& error) {
      return error.code();
    }
    return "";
  };
  CHECK(code({.mini_batch_tokens = 16384}).empty());
  CHECK(code({.mini_batch = 32}).empty());
  CHECK(code({}) == "R151");
  CHECK(code({.mini_batch_tokens = 1, .mini_batch = 1}) == "R151");
  CHECK(code({.mini_batch = -1}) == "R152");
}
