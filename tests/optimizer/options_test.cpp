// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "toller/optimizer/groups.hpp"
#include "toller/optimizer/optimizer.hpp"
#include "toller/optimizer/schedule.hpp"

using namespace toller;

namespace {
std::string complaint(OptimizerOptions options) {
  try {
    check(options);
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "";
}
}  // namespace

TEST_CASE("settings out of range are one line that names the field and the value") {
  REQUIRE(complaint({}).empty());
  REQUIRE(complaint({.lr = 0, .weight_decay = 0, .beta1 = 0, .max_grad_norm = 0}).empty());
  REQUIRE(complaint({.lr = -1}) == "[R140] optimizer.lr: expected a finite number >= 0, got -1");
  REQUIRE(complaint({.lr = std::nan("")}).starts_with("[R140] optimizer.lr"));
  REQUIRE(complaint({.head_lr = -2.0}).starts_with("[R140] optimizer.head_lr"));
  REQUIRE(complaint({.weight_decay = -0.1}).starts_with("[R141] optimizer.weight_decay"));
  REQUIRE(complaint({.beta1 = 1}).starts_with("[R142] optimizer.beta1"));
  REQUIRE(complaint({.beta2 = std::nan("")}).starts_with("[R142] optimizer.beta2"));
  REQUIRE(complaint({.eps = -1e-8}).starts_with("[R143] optimizer.eps"));
  REQUIRE(complaint({.max_grad_norm = std::numeric_limits<double>::infinity()}).starts_with("[R144]"));
  for (const double scale : {0.0, -1.0, std::numeric_limits<double>::infinity(), std::nan("")})
    REQUIRE(complaint({.gradient_scale = scale}).starts_with("[R148] optimizer.gradient_scale"));
  REQUIRE(complaint({.warmup = -3}).starts_with("[R145] optimizer.warmup"));
}

TEST_CASE("a warm-up below one is a share of the steps, rounded up") {
  REQUIRE(warmup_steps(0, 100) == 0);
  REQUIRE(warmup_steps(0.1, 101) == 11);
  REQUIRE(warmup_steps(1, 100) == 1);
  REQUIRE(warmup_steps(25, 100) == 25);
  REQUIRE(warmup_steps(0.5, 0) == 0);
}

TEST_CASE("constant and linear schedules give the reference's rates", "[golden]") {
  const auto golden = nlohmann::json::parse(std::ifstream(TOLLER_GOLDEN "/schedules/learning_rates.json"));
  int compared = 0;
  for (const auto& c : golden["cases"]) {
    const std::string scheduler = c["scheduler"];
    if (scheduler != "linear" && scheduler != "constant" && scheduler != "constant_with_warmup") continue;
    const Schedule schedule = scheduler == "linear" ? Schedule::linear : Schedule::constant;
    const std::int64_t warmup = scheduler == "constant" ? 0 : c["num_warmup_steps"].get<std::int64_t>();
    const auto bases = c["base_lrs"].get<std::vector<double>>();
    for (std::size_t i = 0; i < c["lr"].size(); ++i)
      for (std::size_t g = 0; g < bases.size(); ++g) {
        const auto& entry = c["lr"][i];
        const double expected = entry.is_array() ? entry[g].get<double>() : entry.get<double>();
        const double rate = bases[g] * lr_factor(schedule, static_cast<std::int64_t>(i), warmup, c["num_training_steps"]);
        INFO(scheduler << " warmup " << warmup << " step " << i << " group " << g);
        REQUIRE(std::abs(rate - expected) <= 1e-9 * std::abs(expected) + 1e-12);
        ++compared;
      }
  }
  REQUIRE(compared > 100);
}

TEST_CASE("biases and normalisations are not decayed") {
  for (const char* name : {"encoder.layer.0.attention.self.query.bias", "embeddings.LayerNorm.weight", "a.LayerNorm.gamma",
                           "layers.0.input_layernorm.weight", "norm.weight", "layers.1.attn_norm.weight", "final_norm",
                           "layers.0.self_attn.q_norm.weight", "x.RMSNorm.weight"})
    CHECK_FALSE(is_decayed(name));
  for (const char* name : {"embeddings.word_embeddings.weight", "encoder.layer.0.output.dense.weight", "linear.weight",
                           "normal.weight", "layer.normalised.weight", "prenorm.weight"})
    CHECK(is_decayed(name));
}

TEST_CASE("head parameters have a learning rate of their own when one is set") {
  const Parameters encoder{{"w.weight", {}}, {"w.bias", {}}};
  const Parameters head{{"linear.weight", {}}};
  const auto groups = parameter_groups(encoder, head, {.lr = 1e-5, .head_lr = 1e-3, .weight_decay = 0.1});
  REQUIRE(groups.size() == 3);
  REQUIRE((groups[0].lr == 1e-5 && groups[0].weight_decay == 0.1 && groups[0].parameters[0].name == "w.weight"));
  REQUIRE((groups[1].lr == 1e-5 && groups[1].weight_decay == 0 && groups[1].parameters[0].name == "w.bias"));
  REQUIRE((groups[2].lr == 1e-3 && groups[2].weight_decay == 0.1 && groups[2].parameters[0].name == "linear.weight"));
  REQUIRE(parameter_groups(encoder, head, {.lr = 1e-5}).back().lr == 1e-5);
}
