// SPDX-License-Identifier: Apache-2.0
#include "toller/core/values.hpp"
#include "toller/core/check.hpp"
#include "toller/core/fields.hpp"
#include "toller/core/seed.hpp"
#include "toller/parallelism/single_device.hpp"

using namespace toller;

TEST_CASE("a slice of a batch keeps its texts' numbers and starts its offsets at zero") {
  TokenBatch batch;
  batch.ids = at::arange(6);
  batch.positions = batch.types = at::zeros({6}, at::kLong);
  batch.attended = batch.scored = at::ones({6}, at::kBool);
  batch.offsets = {0, 2, 2, 5, 6};
  batch.text_index = {10, 11, 12, 13};
  const TokenBatch part = batch.slice(1, 3);
  REQUIRE(part.texts() == 2);
  REQUIRE(part.tokens() == 3);
  REQUIRE(part.offsets == std::vector<std::int64_t>{0, 0, 3});
  REQUIRE(part.text_index == std::vector<std::int64_t>{11, 12});
  REQUIRE(part.ids.equal(at::arange(2, 5)));
}

TEST_CASE("a wrong shape names the tensor, what was expected and what came") {
  REQUIRE_NOTHROW(expect_shape("queries", at::zeros({3, 4}), {any_size, 4}));
  REQUIRE_THROWS_WITH(expect_shape("queries", at::zeros({3, 4}), {any_size, 5}),
                      "[R301] queries: expected [any, 5], got [3, 4]");
  REQUIRE_THROWS_WITH(expect_shape("queries", at::Tensor(), {2}), "[R301] queries: expected [2], got no tensor");
}

TEST_CASE("specs print and compare through their fields") {
  REQUIRE(describe(SingleDevice{}) == "SingleDevice{device=cpu}");
  REQUIRE(same_spec(SingleDevice{}, SingleDevice{cpu()}));
  REQUIRE_FALSE(same_spec(SingleDevice{}, SingleDevice{cuda(1)}));
}

TEST_CASE("seeds of different streams differ and stay the same for ever") {
  STATIC_REQUIRE(mix_seed(0, 1) != mix_seed(0, 2));
  STATIC_REQUIRE(hash_text("a") != hash_text("b"));
  STATIC_REQUIRE(hash_text("") == hash_text(""));
  REQUIRE(mix_seed(42, 7) == mix_seed(42, 7));
}
