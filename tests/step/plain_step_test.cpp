// SPDX-License-Identifier: Apache-2.0
#include "step/support.hpp"

using namespace toller;

namespace {

const std::vector<std::vector<Places>> splits{
    {{range(0, 5)}, {range(5, 10)}},             // even
    {{range(0, 9)}, {range(9, 10)}},             // uneven
    {{{}}, {range(0, 10)}},                      // one has none
    {{{3, 1, 8}}, {{0, 2, 9, 7, 6}}, {{5, 4}}},  // as rows are dealt by tokens
    {{range(0, 6)}, {{}}, {range(6, 10)}},       //
    {{{}}, {range(0, 10)}, {{}}},                //
};

template <class M, class S>
void ranks_equal_one_process(const char* name) {
  INFO(name);
  const auto one = alone<M>(Contrastive<S>{});
  const auto one_symmetric = alone<M>(four_directions<S>());
  CHECK(one.syncs == 1);
  REQUIRE(gradient_difference(one, one_symmetric) > 1e-3);
  for (std::size_t i = 0; i < splits.size(); ++i) {
    INFO("split " << i);
    const auto ranks = together<M>(Contrastive<S, CrossDeviceNegatives>{}, splits[i]);
    check_equal(added(ranks), one);
    for (const Outcome& rank : ranks) {
      CHECK(rank.syncs == 1);
      CHECK(rank.all_defined);
    }
    check_equal(added(together<M>(four_directions<S, CrossDeviceNegatives>(), splits[i])), one_symmetric);
  }
}

}  // namespace

TEST_CASE("the gradients of ranks add up to those of one process", "[laws]") {
  ranks_equal_one_process<Dense, Cosine>("Cosine");
  ranks_equal_one_process<Colbert, MaxSim>("MaxSim");
}

TEST_CASE("they do in float32 too, with a rank without rows", "[laws]") {
  for (const auto& split : splits) {
    check_equal(added(together<Dense>(Contrastive<Cosine, CrossDeviceNegatives>{}, split, PlainStep{}, at::kFloat)),
                alone<Dense>(Contrastive<Cosine>{}, PlainStep{}, at::kFloat), 1e-6);
    check_equal(added(together<Colbert>(Contrastive<MaxSim, CrossDeviceNegatives>{}, split, PlainStep{}, at::kFloat)),
                alone<Colbert>(Contrastive<MaxSim>{}, PlainStep{}, at::kFloat), 1e-6);
  }
}

TEST_CASE("a batch of no rows leaves gradients of zero, and every parameter has one") {
  const auto empty = [](const auto& model, const auto& loss, auto precision) {
    const auto outcome = run_step(model, loss, PlainStep{}, SingleProcess{}, deal(model, {{}}), precision);
    CHECK(outcome.all_defined);
    CHECK(outcome.report.rows == 0);
    CHECK(outcome.report.loss == 0);
    for (const auto& [name, gradient] : outcome.gradients) CHECK(gradient.eq(0).all().template item<bool>());
  };
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    empty(make_model<Dense>(type), four_directions<Cosine>(), Fp32{});
    empty(make_model<Colbert>(type), four_directions<MaxSim>(), Fp32{});
  }
  empty(make_model<Dense>(at::kFloat), Contrastive<Dot>{}, Bf16Mixed{});
  empty(make_model<Colbert>(at::kFloat), Contrastive<MaxSim>{}, Bf16Mixed{});
  empty(make_model<Dense>(at::kFloat, {.head = projection_head(48, 8)}), Contrastive<Cosine>{}, Fp32{});
  empty(make_model<Colbert>(at::kFloat, {.layers = projection_head(48, 8)}), Contrastive<MaxSim>{}, Fp32{});
  empty(make_model<Model<Bert, ClsPooling>>(), Contrastive<Cosine>{}, Fp32{});
  empty(make_model<Model<Bert, MaxPooling>>(), Contrastive<Cosine>{}, Fp32{});
  empty(make_model<Model<Bert, LastTokenPooling>>(), Contrastive<Cosine>{}, Fp32{});
  empty(make_model<Model<Bert, WeightedMeanPooling>>(), Contrastive<Cosine>{}, Fp32{});
  empty(make_model<Model<Bert, MeanSqrtLengthPooling>>(), Contrastive<Cosine>{}, Fp32{});
}

TEST_CASE("accumulation adds the mean over rows of its parts", "[laws]") {
  const Contrastive<Cosine> loss{};
  const Places parts{range(0, 4), range(4, 8), range(8, 10)};
  const auto accumulated = alone<Dense>(loss, Accumulate<MicroBatchNegatives>{.steps = 3}, at::kDouble, parts, false);
  CHECK(accumulated.syncs == 1);
  CHECK(accumulated.report.rows == 10);

  double mean = 0;
  std::map<std::string, at::Tensor> gradients;
  for (const auto& part : parts) {
    const auto model = make_model<Dense>();
    auto batches = deal(model, {part}, false);
    batches.front().global_rows = std::ssize(part);  // by itself
    const auto one = run_step(model, loss, PlainStep{}, SingleProcess{}, batches);
    const double weight = static_cast<double>(part.size()) / 10;
    mean += weight * one.report.loss;
    for (const auto& [name, gradient] : one.gradients)
      gradients[name] = gradients[name].defined() ? gradients[name] + gradient * weight : gradient * weight;
  }
  CHECK_THAT(accumulated.report.loss, Catch::Matchers::WithinRel(mean, 1e-12));
  CHECK(gradient_difference(accumulated, {.gradients = gradients}) <= 1e-12);
  CHECK(gradient_difference(accumulated, alone<Dense>(loss, PlainStep{}, at::kDouble, {range(0, 10)}, false)) > 1e-3);
}

TEST_CASE("accumulated parts gather from the ranks that share them", "[laws]") {
  const Accumulate<MicroBatchNegatives> step{.steps = 3};
  const auto one = alone<Colbert>(Contrastive<MaxSim>{}, step, at::kDouble, {range(0, 4), range(4, 8), range(8, 10)});
  const auto ranks = together<Colbert>(Contrastive<MaxSim, CrossDeviceNegatives>{},
                                       {{range(0, 1), range(4, 7), {}}, {range(1, 4), range(7, 8), range(8, 10)}}, step);
  check_equal(added(ranks), one);
  for (const Outcome& rank : ranks) CHECK(rank.syncs == 1);
}

TEST_CASE("a number of steps below one is refused") {
  CHECK(Accumulate<>{.steps = 4}.micro_batches() == 4);
  CHECK_NOTHROW(Accumulate<>{}.check());
  CHECK_THROWS_AS((Accumulate<>{.steps = 0}.check()), ConfigError);
}
