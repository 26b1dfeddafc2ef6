// SPDX-License-Identifier: Apache-2.0
#include <ATen/autocast_mode.h>

#include "support/gradients.hpp"
#include "toller/similarity/cosine.hpp"
#include "toller/similarity/dot.hpp"
#include "toller/similarity/max_sim.hpp"

using namespace toller;

TEST_CASE("what a similarity must have is checked by the compiler") {
  STATIC_REQUIRE(Similarity<Dot>);
  STATIC_REQUIRE(Similarity<Cosine>);
  STATIC_REQUIRE(Similarity<MaxSim>);
  STATIC_REQUIRE_FALSE(Similarity<int>);
  REQUIRE(describe(MaxSim{.padded_length = 3}) == "MaxSim{padded_length=3}");
}

TEST_CASE("dot and cosine score every query against every document") {
  const Embeddings q{at::tensor(std::vector<float>{3, 4, 0, 2}).view({2, 2})},
      d{at::tensor(std::vector<float>{1, 0}).view({1, 2})};
  REQUIRE(Dot{}.scores(q, d).equal(at::tensor(std::vector<float>{3, 0}).view({2, 1})));
  REQUIRE(near(Cosine{}.scores(q, d), at::tensor(std::vector<double>{0.6, 0}).view({2, 1}), 1e-7));
}

TEST_CASE("a zero vector has cosine 0 and no gradient") {
  const Embeddings q{leaf(at::zeros({1, 3}), at::kFloat)}, d{leaf(at::ones({2, 3}), at::kFloat)};
  const at::Tensor scores = Cosine{}.scores(q, d);
  scores.sum().backward();
  REQUIRE(scores.equal(at::zeros({1, 2})));
  REQUIRE(q.values.grad().equal(at::zeros({1, 3})));
  REQUIRE(d.values.grad().equal(at::zeros({2, 3})));
}

TEST_CASE("autocast does not reach dot and cosine") {
  at::manual_seed(1);
  const Embeddings q{at::randn({2, 8})}, d{at::randn({3, 8})};
  const at::Tensor dot = Dot{}.scores(q, d), cosine = Cosine{}.scores(q, d);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const at::Tensor same_dot = Dot{}.scores(q, d), same_cosine = Cosine{}.scores(q, d);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  REQUIRE(same_dot.equal(dot));
  REQUIRE(same_cosine.equal(cosine));
}

TEST_CASE("vectors of two sizes are refused") {
  REQUIRE_THROWS_WITH(Dot{}.scores({at::ones({1, 3})}, {at::ones({1, 4})}), "[R310] Dot: queries have size 3, documents 4");
}
