// SPDX-License-Identifier: Apache-2.0
// Forward and backward of a MiniLM-shaped encoder on ragged texts: milliseconds a step, as one line of JSON.
//
//   encoder_step [pairs=32] [query_tokens=10] [document_tokens=110] [steps=6]
#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <random>

#include "toller/encoder/bert.hpp"
#include "toller/precision/autocast.hpp"

namespace {

using toller::Bert;
using toller::TokenBatch;

/// Texts whose lengths spread around a mean as real ones do: half to one and a half times.
TokenBatch make_batch(std::int64_t pairs, std::int64_t query, std::int64_t document, std::uint32_t seed) {
  std::mt19937 random(seed);
  TokenBatch batch;
  std::vector<at::Tensor> positions;
  const auto add = [&](std::int64_t mean) {
    const auto length = mean / 2 + static_cast<std::int64_t>(random() % static_cast<std::uint32_t>(mean + 1));
    positions.push_back(at::arange(length, at::kLong));
    batch.text_index.push_back(batch.texts());
    batch.offsets.push_back(batch.offsets.back() + length);
  };
  for (std::int64_t i = 0; i < pairs; ++i) add(query);
  for (std::int64_t i = 0; i < pairs; ++i) add(document);
  batch.positions = at::cat(positions);
  batch.ids = at::randint(1, 30000, {batch.tokens()}, at::kLong);
  batch.types = at::zeros({batch.tokens()}, at::kLong);
  batch.attended = batch.scored = at::ones({batch.tokens()}, at::kBool);
  return batch;
}

struct Times {
  double forward = 1e9, backward = 1e9;
  std::int64_t tokens = 0;
};

Times measure(const Bert& bert, const std::vector<TokenBatch>& batches, bool dropout, bool bf16) {
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point begin) {
    return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  };
  std::vector<double> forward, backward;
  Times times;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    TokenBatch batch = batches[i];
    if (dropout) batch.dropout_key = i;
    for (const auto& p : bert.parameters()) at::Tensor(p.value).mutable_grad() = at::Tensor();
    auto begin = Clock::now();
    at::Tensor loss;
    {
      const auto guard = bf16 ? std::make_unique<toller::AutocastGuard>(toller::cpu(), at::kBFloat16) : nullptr;
      loss = bert.forward(batch).values.square().sum();
    }
    forward.push_back(since(begin));
    begin = Clock::now();
    loss.backward();
    backward.push_back(since(begin));
    times.tokens += batch.tokens();
  }
  const auto median = [](std::vector<double> v) { return std::sort(v.begin(), v.end()), v[v.size() / 2]; };
  times.forward = median(forward);
  times.backward = median(backward);
  times.tokens /= static_cast<std::int64_t>(batches.size());
  return times;
}

}  // namespace

int main(int argc, char** argv) {
  const auto argument = [&](int i, std::int64_t otherwise) { return argc > i ? std::atoll(argv[i]) : otherwise; };
  const std::int64_t pairs = argument(1, 32), query = argument(2, 10), document = argument(3, 110), steps = argument(4, 6);
  const Bert bert = Bert::from_config(
      R"({"model_type": "bert", "vocab_size": 30522, "hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12,
          "intermediate_size": 1536, "max_position_embeddings": 512})",
      0);
  std::vector<TokenBatch> batches;
  for (std::int64_t i = 0; i < steps; ++i) batches.push_back(make_batch(pairs, query, document, static_cast<std::uint32_t>(i)));
  nlohmann::json result{{"benchmark", "encoder_step"},
                        {"pairs", pairs},
                        {"threads", at::get_num_threads()},
                        {"kernels", toller::describe_linear_kernels()}};
  measure(bert, {batches[0]}, true, false);
  for (const bool bf16 : {false, true})
    for (const bool dropout : {false, true}) {
      const Times t = measure(bert, batches, dropout, bf16);
      result["tokens"] = t.tokens;
      result[std::string(bf16 ? "bf16" : "fp32") + (dropout ? "_dropout" : "")] = {
          {"forward_ms", t.forward},
          {"backward_ms", t.backward},
          {"pairs_per_s", static_cast<double>(pairs) * 1000 / (t.forward + t.backward)}};
    }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  result["peak_mb"] = static_cast<double>(usage.ru_maxrss) / 1024;
  std::cout << result.dump() << '\n';
}
