// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "toller/optimizer/adamw.hpp"
#include "toller/optimizer/clip.hpp"
#include "toller/optimizer/schedule.hpp"

using namespace toller;

namespace {

at::Tensor leaf(at::IntArrayRef sizes, at::ScalarType type = at::kDouble) {
  return at::randn(sizes, at::TensorOptions(type)).requires_grad_(true);
}

void set_grad(const at::Tensor& value, at::Tensor grad) {
  value.mutable_grad() = std::move(grad);
}

/// AdamW of one tensor, written down once more from the paper.
struct Reference {
  at::Tensor p, m, v;
  int t = 0;
  explicit Reference(const at::Tensor& value)
      : p(value.detach().to(at::kDouble).clone()), m(at::zeros_like(p)), v(at::zeros_like(p)) {}
  void step(const at::Tensor& grad, double lr, double decay, const OptimizerOptions& o) {
    const at::Tensor g = grad.to(at::kDouble);
    ++t;
    m = m * o.beta1 + g * (1 - o.beta1);
    v = v * o.beta2 + g * g * (1 - o.beta2);
    const at::Tensor m_hat = m / (1 - std::pow(o.beta1, t));
    const at::Tensor v_hat = v / (1 - std::pow(o.beta2, t));
    p = p * (1 - lr * decay) - m_hat * lr / (v_hat.sqrt() + o.eps);
  }
};

double distance(const at::Tensor& a, const at::Tensor& b) {
  return (a.detach().to(at::kDouble) - b).abs().max().item<double>();
}

}  // namespace

TEST_CASE("AdamW follows the formula, group by group", "[laws]") {
  at::manual_seed(GENERATE(1U, 2U, 3U));
  const auto type = GENERATE(at::kDouble, at::kFloat);
  const OptimizerOptions options{.lr = 1e-2, .head_lr = 3e-2, .weight_decay = 0.3, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6};
  const Parameters encoder{{"w.weight", leaf({7, 5}, type)}, {"w.bias", leaf({5}, type)}, {"unused.weight", leaf({3}, type)}};
  const Parameters head{{"linear.weight", leaf({2, 5}, type)}};
  const at::Tensor unused = encoder[2].value.detach().clone();
  Reference weight(encoder[0].value), bias(encoder[1].value), linear(head[0].value);
  AdamW adamw(parameter_groups(encoder, head, options), options);
  for (int step = 0; step < 12; ++step) {
    const double factor = lr_factor(Schedule::linear, step, 3, 10);  // 0 in the first and the last steps
    for (const Parameter& p : {encoder[0], encoder[1], head[0]}) set_grad(p.value, at::randn_like(p.value.detach()));
    if (step % 4 == 2) set_grad(encoder[1].value, {});  // a step without a gradient leaves it alone
    weight.step(encoder[0].value.grad(), 1e-2 * factor, 0.3, options);
    if (encoder[1].value.grad().defined()) bias.step(encoder[1].value.grad(), 1e-2 * factor, 0, options);
    linear.step(head[0].value.grad(), 3e-2 * factor, 0.3, options);
    adamw.step(factor);
    adamw.zero_grad();
    REQUIRE_FALSE(encoder[0].value.grad().defined());
  }
  const double tolerance = type == at::kDouble ? 1e-13 : 1e-5;
  REQUIRE(distance(encoder[0].value, weight.p) < tolerance);
  REQUIRE(distance(encoder[1].value, bias.p) < tolerance);
  REQUIRE(distance(head[0].value, linear.p) < tolerance);
  REQUIRE(encoder[2].value.equal(unused));
  REQUIRE(adamw.state().size() == 9);
}

TEST_CASE("a gradient in another order of storage is the same gradient") {
  at::manual_seed(0);
  const at::Tensor start = at::randn({6, 4}), grad = at::randn({4, 6}).t();
  const Parameters one{{"a", start.clone().requires_grad_(true)}}, other{{"a", start.clone().requires_grad_(true)}};
  for (const auto& [parameters, g] : {std::pair(one, grad), std::pair(other, grad.contiguous())}) {
    set_grad(parameters[0].value, g);
    AdamW({{parameters, 1e-2, 0.01}}, {}).step(1);
  }
  REQUIRE(one[0].value.equal(other[0].value));
}

TEST_CASE("a loaded state goes on to the same bits") {
  at::manual_seed(0);
  const OptimizerOptions options{.lr = 1e-2};
  const auto make = [&](const at::Tensor& start) { return Parameters{{"a.b.weight", start.clone().requires_grad_(true)}}; };
  const at::Tensor start = at::randn({40, 9});
  const Parameters whole = make(start);
  AdamW first({{whole, 1e-2, 0.01}}, options);
  std::vector<at::Tensor> grads;
  for (int i = 0; i < 6; ++i) grads.push_back(at::randn({40, 9}));
  for (int i = 0; i < 3; ++i) set_grad(whole[0].value, grads[static_cast<std::size_t>(i)]), first.step(1);
  const Parameters resumed = make(whole[0].value.detach());
  AdamW second({{resumed, 1e-2, 0.01}}, options);
  second.load_state(first.state());
  for (std::size_t i = 3; i < 6; ++i) {
    set_grad(whole[0].value, grads[i]), first.step(1);
    set_grad(resumed[0].value, grads[i]), second.step(1);
  }
  REQUIRE(whole[0].value.equal(resumed[0].value));
  REQUIRE_FALSE(whole[0].value.equal(start));
}

TEST_CASE(
    "of a large embedding, rows that no batch touched have no moments, and all weights are those of a whole update to the bit",
    "[laws]") {
  at::manual_seed(GENERATE(7U, 8U));
  const double decay = GENERATE(0.0, 0.3);
  const std::int64_t rows = 40'000, width = 64;  // 10 MiB
  const OptimizerOptions options{.lr = 1e-2};
  const at::Tensor start = at::randn({rows, width});
  const Parameters table{{"words", start.clone().requires_grad_(true), /*embedding=*/true}};
  AdamW adamw({{table, 1e-2, decay}}, options);
  at::Tensor p = start.clone(), m = at::zeros_like(p), v = at::zeros_like(p), t = at::zeros({});
  const auto step = [&](double share, AdamW& optimizer, const Parameters& parameters) {
    const at::Tensor grad = at::randn({rows, width}).masked_fill(at::rand({rows, 1}).ge(share), 0);
    set_grad(parameters[0].value, grad);
    optimizer.step(0.5);
    t.add_(1);
    at::_fused_adamw_({p}, {grad}, {m}, {v}, {}, {t}, 5e-3, options.beta1, options.beta2, decay, options.eps, false, false);
    REQUIRE(parameters[0].value.detach().equal(p));
  };
  for (int i = 0; i < 4; ++i) step(i == 2 ? 0 : 0.05, adamw, table);  // once with no row at all
  const auto state = [](const AdamW& optimizer) {
    std::map<std::string, at::Tensor> named;
    for (const Parameter& entry : optimizer.state()) named[entry.name] = entry.value;
    return named;
  };
  REQUIRE(state(adamw)["exp_avg.words"].equal(m));
  REQUIRE(state(adamw)["exp_avg_sq.words"].equal(v));
  REQUIRE(state(adamw)["step.words"].equal(t));
  // It is held for the touched rows only: the state is made whole anew, and the whole is not kept.
  REQUIRE_FALSE(state(adamw)["exp_avg.words"].is_alias_of(state(adamw)["exp_avg.words"]));

  const Parameters resumed{{"words", table[0].value.detach().clone().requires_grad_(true), /*embedding=*/true}};
  AdamW second({{resumed, 1e-2, decay}}, options);
  second.load_state(adamw.state());
  REQUIRE_FALSE(state(second)["exp_avg.words"].is_alias_of(state(second)["exp_avg.words"]));
  for (int i = 0; i < 3; ++i) step(0.1, second, resumed);
  step(0.6, second, resumed);  // from here on more than half of the rows
  REQUIRE(state(second)["exp_avg.words"].is_alias_of(state(second)["exp_avg.words"]));
  for (int i = 0; i < 2; ++i) step(0.1, second, resumed);
  REQUIRE(state(second)["exp_avg.words"].equal(m));
  REQUIRE(state(second)["exp_avg_sq.words"].equal(v));
  // Nor is a weight that is no embedding, however large.
  const Parameters weight{{"weight", start.clone().requires_grad_(true)}};
  set_grad(weight[0].value, at::zeros_like(start));
  AdamW dense({{weight, 1e-2, decay}}, options);
  dense.step(1);
  REQUIRE(state(dense)["exp_avg.weight"].is_alias_of(state(dense)["exp_avg.weight"]));

  AdamW third({{resumed, 1e-2, decay}}, options);
  third.load_state(second.state());
  REQUIRE(state(third)["exp_avg.words"].is_alias_of(state(third)["exp_avg.words"]));
  step(0.1, third, resumed);
}

TEST_CASE("a state of another model is refused in one line") {
  const Parameters parameters{{"w", leaf({2, 3})}};
  AdamW adamw({{parameters, 1e-2, 0}}, {});
  const at::Tensor one = at::ones({}), moment = at::zeros({2, 3});
  REQUIRE_NOTHROW(adamw.load_state({{"step.w", one}, {"exp_avg.w", moment}, {"exp_avg_sq.w", moment}}));
  REQUIRE_THROWS_WITH(adamw.load_state({{"exp_avg.v", moment}}),
                      "[R147] optimizer state: exp_avg.v belongs to no parameter of this model");
  REQUIRE_THROWS_WITH(adamw.load_state({{"momentum", moment}}),
                      "[R147] optimizer state: momentum belongs to no parameter of this model");
  REQUIRE_THROWS_WITH(adamw.load_state({{"exp_avg.w", at::zeros({3, 2})}}),
                      "[R301] optimizer state: exp_avg.w: expected [2, 3], got [3, 2]");
  REQUIRE_THROWS_WITH(adamw.load_state({{"step.w", one}}), "[R147] optimizer state: w lacks its step, exp_avg or exp_avg_sq");
  REQUIRE_THROWS_WITH(AdamW({{parameters, 1e-2, 0}, {parameters, 1e-2, 0}}, {}),
                      "[R146] optimizer: two parameters are named w");
  REQUIRE_THROWS_AS(AdamW({{parameters, 1e-2, 0}}, {.beta2 = 2}), ConfigError);
}

TEST_CASE("clipping equals the norm written out", "[laws]") {
  at::manual_seed(GENERATE(4U, 5U, 6U));
  const auto type = GENERATE(at::kDouble, at::kFloat);
  const double max_norm = GENERATE(0.0, 1.0, 1e6), scale = GENERATE(1.0, 8.0, 1e-3);
  Parameters parameters{{"a", leaf({1, 3}, type)},   {"b", leaf({2048}, type)}, {"c", leaf({37, 61}, type)},
                        {"d", leaf({30, 40}, type)}, {"e", leaf({}, type)},     {"none", leaf({4}, type)}};
  std::vector<at::Tensor> before;
  double sum = 0;
  for (std::size_t i = 0; i + 1 < parameters.size(); ++i) {
    at::Tensor grad = at::randn_like(parameters[i].value.detach());
    if (parameters[i].name == "d") grad = at::randn({40, 30}, grad.options()).t();  // not contiguous
    before.push_back(grad.clone());
    set_grad(parameters[i].value, grad);
    sum += grad.to(at::kDouble).square().sum().item<double>();
  }
  const double norm = scale * std::sqrt(sum);
  REQUIRE(std::abs(clip_grad_norm(parameters, max_norm, scale) - norm) <= norm * (type == at::kDouble ? 1e-13 : 1e-6));
  const double factor = scale * (max_norm == 0 ? 1 : std::min(1.0, max_norm / (norm + 1e-6)));
  for (std::size_t i = 0; i < before.size(); ++i)
    REQUIRE(at::allclose(parameters[i].value.grad(), before[i] * factor, type == at::kDouble ? 1e-12 : 1e-5, 1e-12));
}

TEST_CASE("the norm of a gradient as large as a word embedding keeps its digits") {
  at::manual_seed(7);
  const at::Tensor value = leaf({30522, 384}, at::kFloat);
  at::Tensor grad = at::zeros_like(value.detach());
  grad.slice(0, 0, 4000).normal_();
  set_grad(value, grad);
  const double norm = grad.to(at::kDouble).square().sum().sqrt().item<double>();
  REQUIRE(std::abs(clip_grad_norm({{"w", value}}, 0) - norm) < norm * 1e-7);
}

TEST_CASE("a norm that is not finite is reported") {
  const at::Tensor value = leaf({3});
  set_grad(value, at::full({3}, std::numeric_limits<double>::quiet_NaN(), at::kDouble));
  REQUIRE(std::isnan(clip_grad_norm({{"w", value}}, 1)));
  set_grad(value, at::full({3}, std::numeric_limits<double>::infinity(), at::kDouble));
  REQUIRE(std::isinf(clip_grad_norm({{"w", value}}, 1)));
  REQUIRE(clip_grad_norm({}, 1) == 0);
}
