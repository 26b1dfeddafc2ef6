// SPDX-License-Identifier: Apache-2.0
#include <ATen/autocast_mode.h>

#include "toller/precision/bf16_mixed.hpp"
#include "toller/precision/fp32.hpp"

using namespace toller;

namespace {
struct NoStep {
  static constexpr std::string_view name = "NoStep";
  static void fields(auto&, auto&&) {}
  int guard(at::Device) const { return 0; }
  void backward(const at::Tensor&) const {}
};
at::ScalarType product_type(const at::Tensor& w) {
  return at::mm(at::ones({2, 2}), w).scalar_type();
}
bool on() {
  return at::autocast::is_autocast_enabled(at::kCPU);
}
}  // namespace

TEST_CASE("what a precision must have is checked by the compiler") {
  STATIC_REQUIRE(PrecisionPolicy<Fp32>);
  STATIC_REQUIRE(PrecisionPolicy<Bf16Mixed>);
  STATIC_REQUIRE_FALSE(PrecisionPolicy<NoStep>);
  STATIC_REQUIRE_FALSE(PrecisionPolicy<int>);
  REQUIRE(describe(Bf16Mixed{}) == "Bf16Mixed{}");
}

TEST_CASE("bf16-mixed computes products in bfloat16 and gives float32 gradients") {
  const at::Tensor w = at::ones({2, 2}).requires_grad_(true);
  Bf16Mixed precision;
  at::Tensor loss;
  {
    const auto guard = precision.guard(cpu());
    const at::Tensor y = at::mm(at::ones({2, 2}), w);
    REQUIRE(y.scalar_type() == at::kBFloat16);
    loss = y.to(at::kFloat).sum();
  }
  precision.backward(loss);
  REQUIRE(w.grad().scalar_type() == at::kFloat);
  REQUIRE(w.grad().equal(at::full({2, 2}, 2.0f)));
  REQUIRE(product_type(w) == at::kFloat);
  const auto guard = Fp32{}.guard(cpu());
  REQUIRE(product_type(w) == at::kFloat);
}

TEST_CASE("guards nest and put back what was there, also by an exception") {
  const at::Tensor w = at::ones({2, 2});
  const Bf16Mixed precision;
  const auto dtype = at::autocast::get_autocast_dtype(at::kCPU);
  at::autocast::set_autocast_dtype(at::kCPU, at::kHalf);
  REQUIRE_FALSE(on());
  try {
    const auto outer = precision.guard(cpu());
    {
      const auto inner = precision.guard(cpu());
      REQUIRE(product_type(w) == at::kBFloat16);
    }
    REQUIRE(on());
    REQUIRE(product_type(w) == at::kBFloat16);
    throw std::runtime_error("in the middle");
  } catch (const std::runtime_error&) {
  }
  REQUIRE_FALSE(on());
  REQUIRE(at::autocast::get_autocast_dtype(at::kCPU) == at::kHalf);
  at::autocast::set_autocast_dtype(at::kCPU, dtype);
}

TEST_CASE("a guard after an update sees the new weights, and a pass without a graph costs the next no gradient") {
  const at::Tensor w = at::ones({2, 2}).requires_grad_(true);
  const Bf16Mixed precision;
  const auto total = [&] {
    const auto guard = precision.guard(cpu());
    return at::mm(at::ones({2, 2}), w).to(at::kFloat).sum();
  };
  {
    const c10::AutoGradMode no_grad(false);
    REQUIRE(total().item<float>() == 8);
    w.fill_(3);
  }
  const at::Tensor loss = total();
  REQUIRE(loss.item<float>() == 24);
  REQUIRE(loss.requires_grad());
}

TEST_CASE("a step calls the update and says so") {
  int calls = 0;
  REQUIRE(Fp32{}.step([&] { ++calls; }));
  REQUIRE(Bf16Mixed{}.step([&] { ++calls; }));
  REQUIRE(calls == 2);
}
