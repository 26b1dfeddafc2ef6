// SPDX-License-Identifier: Apache-2.0
#include "encoder/support.hpp"

using namespace toller;
using namespace toller::testing_encoder;

namespace {

const Lengths mixed{1, 7, 19, 2, 33, 8, 8, 40};

/// The texts of a batch in another order; they keep their numbers.
TokenBatch permuted(const TokenBatch& batch, const std::vector<std::int64_t>& order) {
  TokenBatch result = batch.slice(0, 0);
  std::vector<at::Tensor> ids, positions, types, attended;
  for (const std::int64_t i : order) {
    const TokenBatch one = batch.slice(i, i + 1);
    ids.push_back(one.ids), positions.push_back(one.positions), types.push_back(one.types), attended.push_back(one.attended);
    result.offsets.push_back(result.offsets.back() + one.tokens());
    result.text_index.push_back(one.text_index[0]);
  }
  result.ids = at::cat(ids), result.positions = at::cat(positions), result.types = at::cat(types);
  result.attended = result.scored = at::cat(attended);
  result.all_attended = batch.all_attended;
  return result;
}

/// Gradients of all parameters for a fixed weighted sum of the outputs.
std::vector<at::Tensor> gradients(const Bert& bert, const TokenBatch& batch) {
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(9);
  const at::Tensor weight = at::normal(0, 1, {batch.tokens(), bert.hidden_size()}, generator);
  for (const Parameter& p : bert.parameters()) at::Tensor(p.value).mutable_grad() = at::Tensor();
  const at::Tensor out = bert.forward(batch).values;
  (out * weight.to(out.scalar_type())).sum().backward();
  std::vector<at::Tensor> result;
  for (const Parameter& p : bert.parameters()) result.push_back(p.value.grad().clone());
  return result;
}

}  // namespace

TEST_CASE("a text's embeddings do not depend on the other texts, their order or the cut of the batch", "[laws]") {
  const bool dropped = GENERATE(false, true);
  const Bert bert = small_bert(0.2, 0.3);
  TokenBatch batch = random_batch(mixed, 1);
  if (dropped) batch.dropout_key = 77;
  const TokenEmbeddings whole = bert.forward(batch);
  for (std::int64_t i = 0; i < batch.texts(); ++i)
    REQUIRE(furthest(bert.forward(batch.slice(i, i + 1)).values, text(whole, i)) < 1e-5);
  const std::vector<std::int64_t> order{3, 7, 0, 1, 6, 2, 5, 4};
  const TokenEmbeddings other = bert.forward(permuted(batch, order));
  for (std::size_t k = 0; k < order.size(); ++k)
    REQUIRE(furthest(text(other, static_cast<std::int64_t>(k)), text(whole, order[k])) < 1e-5);
}

TEST_CASE("the CPU kernel, the blocks and float64 agree in outputs and gradients", "[laws]") {
  const bool dropped = GENERATE(false, true);
  const bool masked = GENERATE(false, true);
  const auto isa = GENERATE(toller::detail::Isa::baseline, toller::detail::Isa::avx2, toller::detail::Isa::avx512);
  if (isa > toller::detail::best_isa()) SKIP("this CPU lacks the instruction set");
  toller::detail::isa_override() = isa;
  const Bert bert = small_bert(0.2, 0.3), exact = small_bert(0.2, 0.3);
  Bert(exact).to_type(at::kDouble);
  TokenBatch batch = random_batch(mixed, 2);
  if (dropped) batch.dropout_key = 5;
  if (masked) {
    batch.attended = batch.positions.remainder(3) != 1;
    batch.all_attended = false;
  }
  REQUIRE(furthest(bert.forward(batch).values, exact.forward(batch).values) < 1e-5);
  const auto ours = gradients(bert, batch), wanted = gradients(exact, batch);
  for (std::size_t i = 0; i < ours.size(); ++i)
    REQUIRE(furthest(ours[i], wanted[i]) < 2e-5 * std::max(1.0, wanted[i].abs().max().item<double>()));
  toller::detail::isa_override().reset();
}

TEST_CASE("an unattended token changes no other token, and a text of none stays finite", "[laws]") {
  const bool dropped = GENERATE(false, true);
  const Bert bert = small_bert(0.2, 0.3);
  TokenBatch batch = random_batch({6, 9}, 3);
  if (dropped) batch.dropout_key = 1;
  batch.attended = batch.attended.clone();
  batch.attended.narrow(0, 4, 2).fill_(false);
  batch.all_attended = false;
  const at::Tensor before = bert.forward(batch).values;
  batch.ids = batch.ids.clone();
  batch.ids[4] = (batch.ids[4] + 7).remainder(50);
  const at::Tensor after = bert.forward(batch).values;
  REQUIRE(furthest(before.narrow(0, 0, 4), after.narrow(0, 0, 4)) == 0);
  REQUIRE(furthest(before.narrow(0, 5, 10), after.narrow(0, 5, 10)) == 0);
  REQUIRE(furthest(before[4], after[4]) > 1e-3);

  batch.attended.fill_(false);
  const auto grads = gradients(bert, batch);
  for (const at::Tensor& g : grads) REQUIRE(g.isfinite().all().item<bool>());
}

TEST_CASE("attention and dense layers have the gradients of finite differences, dropout on", "[laws]") {
  TokenBatch batch = random_batch({3, 5, 4}, 4);
  batch.dropout_key = 11;
  AttentionPlan plan = AttentionPlan::build(batch);
  plan.build_blocks(cpu());
  const Dropout dropout = make_dropout(batch, plan.offsets, 0.3, 0, DropoutSite::attention);
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(4);
  const auto random = [&](at::IntArrayRef shape) { return at::normal(0, 1, shape, generator).to(at::kDouble); };
  const at::Tensor x = random({12, 6}).set_requires_grad(true), w = random({24, 6}).set_requires_grad(true),
                   b = random({24}).set_requires_grad(true), weight = random({12, 8});
  const auto act = GENERATE(Activation::none, Activation::gelu, Activation::gelu_tanh);
  const auto f = [&] { return (attention(linear(x, w, b, act), 2, plan, dropout) * weight).sum(); };
  f().backward();
  const c10::NoGradGuard no_grad;
  for (const at::Tensor& p : {x, w, b})
    for (std::int64_t i = 0; i < p.numel(); i += 5) {
      double& value = p.data_ptr<double>()[i];
      const double kept = value, step = 1e-5;
      value = kept + step;
      const double high = f().item<double>();
      value = kept - step;
      const double low = f().item<double>();
      value = kept;
      REQUIRE(std::abs((high - low) / (2 * step) - p.grad().flatten()[i].item<double>()) < 1e-6);
    }
}

TEST_CASE("dropout keeps its rate, and its masks differ by key, text, layer, site and position", "[laws]") {
  TokenBatch batch = random_batch({40, 40}, 5);
  batch.dropout_key = 123;
  const auto offsets = std::make_shared<const std::vector<std::int64_t>>(batch.offsets);
  const double p = GENERATE(0.1, 0.5);
  const auto mask = [&](std::uint64_t key, std::int64_t layer, DropoutSite site) {
    batch.dropout_key = key;
    return toller::detail::hidden_dropout_mask(4000, make_dropout(batch, offsets, p, layer, site), cpu());
  };
  const at::Tensor one = mask(1, 0, DropoutSite::embeddings);
  const double n = static_cast<double>(one.numel());
  const double kept = (one > 0).sum().item<double>() / n;
  REQUIRE(std::abs(kept - (1 - p)) < 4 * std::sqrt(p * (1 - p) / n));
  REQUIRE(std::abs(one.max().item<double>() - 1 / (1 - p)) < 1e-6);
  const double agree = p * p + (1 - p) * (1 - p), noise = 4 * std::sqrt(agree * (1 - agree) / n);
  for (const at::Tensor& other :
       {mask(2, 0, DropoutSite::embeddings), mask(1, 1, DropoutSite::embeddings), mask(1, 0, DropoutSite::feed_forward_output),
        one.roll(40, 0), one.roll(1, 0), one.roll(1, 1)})
    REQUIRE(std::abs((one == other).sum().item<double>() / n - agree) < noise);
}

TEST_CASE("the fast dropout gives the same bits as tensor operations, on every instruction set and thread count", "[laws]") {
  TokenBatch batch = random_batch({3, 30, 300}, 6);
  batch.dropout_key = 9;
  const std::int64_t features = GENERATE(1, 48, 101);
  const auto offsets = std::make_shared<const std::vector<std::int64_t>>(batch.offsets);
  const Dropout dropout = make_dropout(batch, offsets, 0.25, 2, DropoutSite::attention_output);
  const at::Tensor wanted = toller::detail::hidden_dropout_mask(features, dropout, cpu());
  const at::Tensor ones = at::ones({batch.tokens(), features}).set_requires_grad(true);
  const int threads = at::get_num_threads();
  for (const auto isa : {toller::detail::Isa::baseline, toller::detail::Isa::avx2, toller::detail::Isa::avx512}) {
    if (isa > toller::detail::best_isa()) continue;
    toller::detail::isa_override() = isa;
    for (const int count : {1, 2}) {
      at::set_num_threads(count);
      ones.mutable_grad() = at::Tensor();
      const at::Tensor out = dropout_add(ones, {}, dropout);
      REQUIRE(out.equal(wanted));
      out.sum().backward();
      REQUIRE(ones.grad().equal(wanted));
      REQUIRE(dropout_add(ones, ones, dropout).equal(wanted + 1));
    }
  }
  at::set_num_threads(threads);
  toller::detail::isa_override().reset();
}

TEST_CASE("bfloat16 stays close to float32", "[laws]") {
  const Bert bert = small_bert(0.1, 0.1);
  TokenBatch batch = random_batch(mixed, 7);
  batch.dropout_key = 3;
  const auto exact = gradients(bert, batch);
  const at::Tensor wanted = bert.forward(batch).values;
  for (const auto kernel : {LinearKernel::aten, LinearKernel::onednn, LinearKernel::widened}) {
    linear_kernel_override() = kernel;
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::set_autocast_enabled(at::kCPU, true);
    const at::Tensor out = bert.forward(batch).values;
    const auto close = gradients(bert, batch);
    at::autocast::set_autocast_enabled(at::kCPU, false);
    linear_kernel_override().reset();
    REQUIRE(out.scalar_type() == at::kFloat);
    REQUIRE(furthest(out, wanted) > 0);
    REQUIRE((out - wanted).norm().item<double>() < 0.02 * wanted.norm().item<double>());
    for (std::size_t i = 0; i < close.size(); ++i) {
      INFO(bert.parameters()[i].name);
      if (bert.parameters()[i].name.ends_with("key.bias")) continue;  // zero but for rounding
      REQUIRE((close[i] - exact[i]).norm().item<double>() < 0.06 * exact[i].norm().item<double>());
    }
  }
}

TEST_CASE("all kernels of dense layers agree", "[laws]") {
  const Bert bert = small_bert();
  const TokenBatch batch = random_batch(mixed, 8);
  const at::Tensor wanted = bert.forward(batch).values;
  const auto exact = gradients(bert, batch);
  linear_kernel_override() = GENERATE(LinearKernel::aten, LinearKernel::onednn, LinearKernel::widened);
  REQUIRE(furthest(bert.forward(batch).values, wanted) < 1e-5);
  const auto ours = gradients(bert, batch);
  linear_kernel_override().reset();
  for (std::size_t i = 0; i < ours.size(); ++i)
    REQUIRE(furthest(ours[i], exact[i]) < 1e-5 * std::max(1.0, exact[i].abs().max().item<double>()));
}
