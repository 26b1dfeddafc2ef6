// SPDX-License-Identifier: Apache-2.0
#include "toller/pooling/late_interaction.hpp"

#include "support/gradients.hpp"
#include "tokens.hpp"

using namespace toller;

TEST_CASE("late interaction gives a vector of length one for each scored token") {
  at::manual_seed(1);
  TokenEmbeddings input = tokens(at::randn({6, 8}), {0, 3, 6});
  input.batch.scored[1].fill_(false);
  for (const std::int64_t t : {3, 4, 5}) input.batch.scored[t].fill_(false);
  const auto pooling = LateInteraction{.dim = 4}.bind(8, 7U);
  const MultiVector out = pooling.pool(input);
  REQUIRE(out.offsets == std::vector<std::int64_t>{0, 2, 2});
  const at::Tensor weight = pooling.parameters().front().value;
  REQUIRE(weight.sizes() == at::IntArrayRef{4, 8});
  REQUIRE(pooling.parameters().size() == 1);  // no bias
  const at::Tensor kept = at::stack({input.values[0], input.values[2]}).mm(weight.t());
  REQUIRE(near(out.values, kept / kept.norm(2, {1}, true), 1e-6));
  REQUIRE(LateInteraction{}.bind(8, 7U).output_size() == 128);
  REQUIRE(near(LateInteraction{.dim = 4, .normalize = false}.bind(8, 7U).pool(input).values, kept, 1e-6));
}

TEST_CASE("unscored tokens never matter, not even when they are not finite", "[laws]") {
  at::manual_seed(2);
  const auto pooling = LateInteraction{.dim = 4}.bind(8, 7U);
  TokenEmbeddings input = tokens(at::randn({4, 8}), {0, 4});
  input.batch.scored[2].fill_(false);
  const at::Tensor before = pooling.pool(input).values;
  input.values[2].fill_(std::numeric_limits<double>::quiet_NaN());
  const at::Tensor after = pooling.pool(input).values;
  REQUIRE(after.equal(before));
  after.sum().backward();
  REQUIRE(pooling.parameters().front().value.grad().isfinite().all().item<bool>());
}

TEST_CASE("a head is made from its seed alone") {
  at::manual_seed(3);
  const at::Tensor first = LateInteraction{}.bind(384, 5U).parameters().front().value;
  at::manual_seed(4);
  REQUIRE(LateInteraction{}.bind(384, 5U).parameters().front().value.equal(first));
  REQUIRE_FALSE(LateInteraction{}.bind(384, 6U).parameters().front().value.equal(first));
  const double bound = 1 / std::sqrt(384.0);
  REQUIRE(first.abs().max().item<double>() <= bound);
  REQUIRE(first.abs().max().item<double>() > 0.999 * bound);
  REQUIRE(std::abs(first.mean().item<double>()) < 0.01 * bound);
}

TEST_CASE("layers stack, with activations, biases and residuals") {
  at::manual_seed(5);
  const LateInteraction spec{.layers = {{.out = 8, .activation = DenseActivation::gelu, .residual = true},
                                        {.out = 3, .bias = false, .activation = DenseActivation::tanh, .residual = true}},
                             .normalize = false};
  const auto pooling = spec.bind(8, 1U);
  const Parameters p = pooling.parameters();
  REQUIRE(p.size() == 4);  // weight and bias; weight and a residual between the sizes
  const at::Tensor x = at::randn({5, 8});
  const at::Tensor one = at::gelu(at::linear(x, p[0].value, p[1].value)) + x;
  const at::Tensor two = at::tanh(at::linear(one, p[2].value)) + at::linear(one, p[3].value);
  REQUIRE(near(pooling.pool(tokens(x, {0, 5})).values, two, 1e-6));

  const FolderModules modules = pooling.modules();
  REQUIRE(modules.size() == 2);
  REQUIRE(modules[1].config == nlohmann::json{{"in_features", 8},
                                              {"out_features", 3},
                                              {"bias", false},
                                              {"activation_function", "torch.nn.modules.activation.Tanh"},
                                              {"use_residual", true}});
  REQUIRE(modules[1].tensors.size() == 2);
  const auto loaded = LateInteraction{.normalize = false}.bind(8, modules);
  REQUIRE(loaded.pool(tokens(x, {0, 5})).values.equal(pooling.pool(tokens(x, {0, 5})).values));
  REQUIRE_NOTHROW(spec.bind(8, modules));
}

TEST_CASE("what contradicts the folder is refused") {
  const FolderModules saved = LateInteraction{.dim = 4}.bind(8, 1U).modules();
  REQUIRE_NOTHROW(LateInteraction{.dim = 4, .bias = false}.bind(8, saved));
  REQUIRE_THROWS_WITH(LateInteraction{.dim = 5}.bind(8, saved),
                      "[R322] LateInteraction: dim is 5 but the folder's head gives 4");
  REQUIRE_THROWS_WITH(LateInteraction{.bias = true}.bind(8, saved),
                      "[R322] LateInteraction: bias is true, in the folder it is not");
  REQUIRE_THROWS_WITH((LateInteraction{.layers = {{.out = 4}}}.bind(8, saved)), Catch::Matchers::StartsWith("[R322] "));
  REQUIRE_THROWS_WITH(LateInteraction{}.bind(8, FolderModules{{"Pooling"}, {"Normalize"}}),
                      Catch::Matchers::StartsWith("[R803] "));
  REQUIRE_THROWS_AS(LateInteraction{}.bind(8, FolderModules{{"Pooling"}, {"Normalize"}}), FileError);
  FolderModules dense_embedder = saved;
  dense_embedder.insert(dense_embedder.begin(), {"Pooling"});
  REQUIRE_THROWS_WITH(LateInteraction{}.bind(8, dense_embedder), Catch::Matchers::StartsWith("[R320] "));
  REQUIRE_THROWS_WITH(LateInteraction{}.bind(9, saved),
                      "[R301] the folder's Dense module: linear.weight: expected [4, 9], got [4, 8]");
  FolderModules broken = saved;
  broken[0].config["activation_function"] = "torch.nn.modules.activation.Mish";
  REQUIRE_THROWS_WITH(LateInteraction{}.bind(8, broken), Catch::Matchers::StartsWith("[R323] "));
  broken = saved;
  broken[0].tensors.clear();
  REQUIRE_THROWS_WITH(LateInteraction{}.bind(8, broken),
                      "[R323] the folder's Dense module: tensor \"linear.weight\" is missing");
  broken = saved;
  broken[0].config.erase("out_features");
  REQUIRE_THROWS_WITH(LateInteraction{}.bind(8, broken),
                      "[R323] the folder's Dense module: setting \"out_features\" is missing or of another type");
  for (const std::int64_t size : {std::int64_t{-1}, std::int64_t{0}, std::int64_t{65537}, std::int64_t{1} << 62}) {
    REQUIRE_THROWS_AS((LateInteraction{.dim = size}.bind(8, 1U)), ConfigError);
    REQUIRE_THROWS_WITH((LateInteraction{.dim = size}.bind(8, 1U)),
                        "[R324] LateInteraction: dim must be in 1 .. 65536, got " + std::to_string(size));
    REQUIRE_THROWS_WITH((LateInteraction{.layers = {{.out = size}}}.bind(8, 1U)),
                        "[R324] a dense layer must have 1 to 65536 outputs (out), got " + std::to_string(size));
  }
  REQUIRE(LateInteraction{.dim = 65536}.bind(1, 1U).output_size() == 65536);
  REQUIRE_THROWS_AS((LateInteraction{.dim = 3, .layers = {{.out = 4}}}.bind(8, 1U)), ConfigError);
  REQUIRE_THROWS_AS((LateInteraction{.bias = true, .layers = {{.out = 4}}}.bind(8, 1U)), ConfigError);
  REQUIRE_THROWS_AS((LateInteraction{.layers = {{.out = 4, .dropout = 1}}}.bind(8, 1U)), ConfigError);
}

TEST_CASE("a head's dropout is on in training only, and follows the text through any batch", "[laws]") {
  at::manual_seed(6);
  const auto pooling = LateInteraction{.layers = {{.out = 64, .dropout = 0.25}}, .normalize = false}.bind(8, 1U);
  TokenEmbeddings input = tokens(at::randn({40, 8}), {0, 10, 25, 40});
  const at::Tensor still = pooling.pool(input).values;
  REQUIRE(still.equal(pooling.pool(input).values));
  input.batch.dropout_key = 9;
  const at::Tensor dropped = pooling.pool(input).values;
  const at::Tensor zero = dropped.eq(0);
  REQUIRE(std::abs(zero.to(at::kDouble).mean().item<double>() - 0.25) < 0.03);  // 2560 draws: 3.5 standard deviations
  REQUIRE(near(dropped, at::where(zero, at::zeros_like(still), still / 0.75), 1e-6));
  const TokenEmbeddings last{input.values.slice(0, 10, 40), input.batch.slice(1, 3)};
  REQUIRE(near(pooling.pool(last).values, dropped.slice(0, 10, 40), 1e-6));
  input.batch.dropout_key = 10;
  REQUIRE_FALSE(pooling.pool(input).values.eq(0).equal(zero));
}

TEST_CASE("what a pooling must have is checked by the compiler; copies of a bound one share weights") {
  STATIC_REQUIRE(PoolingPolicy<LateInteraction>);
  STATIC_REQUIRE_FALSE(PoolingPolicy<int>);
  auto pooling = LateInteraction{.dim = 2}.bind(4, 1U);
  const auto copy = pooling;
  {
    const at::NoGradGuard no_grad;
    pooling.parameters().front().value.fill_(3);
  }
  pooling.to(cpu());
  REQUIRE(copy.parameters().front().value.eq(3).all().item<bool>());
  REQUIRE(copy.parameters().front().value.requires_grad());
  REQUIRE(describe(LateInteraction{.dim = 2}) == "LateInteraction{dim=2, bias=none, layers=[], normalize=none}");
}
