// SPDX-License-Identifier: Apache-2.0
// The training runs of the reference libraries, step by step: same loss, gradient norm, learning rate and final weights.
#include "support/golden.hpp"
#include "toller/toller.hpp"

using namespace toller;

namespace {

/// Keeps every step's numbers.
struct Recorder {
  std::vector<StepEnd> steps{};
  void on(const StepEnd& event) { steps.push_back(event); }
};

/// The rows of the run's batches, one after the other.
std::vector<Triplet> rows_in_order(const nlohmann::json& run) {
  std::vector<Triplet> rows;
  for (const auto& batch : run["batches"])
    for (const std::size_t row : batch) {
      const auto texts = run["data"]["texts"][row].get<std::vector<std::string>>();
      rows.push_back({texts[0], texts[1], {texts.begin() + 2, texts.end()}});
    }
  return rows;
}

std::map<std::string, at::Tensor> by_name(const Parameters& parameters) {
  std::map<std::string, at::Tensor> result;
  for (const Parameter& p : parameters) result[p.name] = p.value.detach();
  return result;
}

/// Trains as the reference did and compares; `prefix` is what the reference puts before the encoder's names.
template <class M, class Loss>
void compare_run(const std::string& file, M model, Loss loss) {
  const nlohmann::json run = golden_json("training/" + file);
  const auto& h = run["hyperparameters"];
  FitOptions options{.batch_size = h["batch"].get<std::int64_t>(), .shuffle = false, .dropout = false};
  options.optimizer = {
      .lr = h["lr"], .weight_decay = h["weight_decay"], .max_grad_norm = h["max_grad_norm"], .warmup = h["warmup_steps"]};
  Recorder recorder;
  Trainer trainer{model, loss};
  const FitReport report = trainer.fit(rows_in_order(run), options, recorder);

  REQUIRE(report.steps == h["steps"].get<std::int64_t>());
  for (std::size_t i = 0; i < recorder.steps.size(); ++i) {
    INFO("step " << i);
    const auto& expected = run["steps"][i];
    const double reference = expected["loss"], norm = expected["grad_norm"];
    CHECK(std::abs(recorder.steps[i].loss - reference) <= 2e-6 + 1e-5 * std::abs(reference));
    CHECK(std::abs(recorder.steps[i].grad_norm - norm) <= 1e-5 + 1e-3 * norm);
    CHECK(std::abs(recorder.steps[i].lr - expected["lr"].get<double>()) <= 1e-12);
  }
  auto weights = by_name(model.encoder().parameters());
  for (const auto& [name, value] : by_name(model.pooling().parameters())) weights["head." + name] = value;
  for (const auto& expected : run["weights"]) {
    std::string name = expected["name"];
    INFO(name);
    const std::string encoder_prefix = "0.auto_model.";
    at::Tensor weight;
    if (name.rfind(encoder_prefix, 0) == 0) weight = weights.at(name.substr(encoder_prefix.size()));
    else weight = model.pooling().parameters().front().value.detach();  // the one Dense of the ColBERT
    REQUIRE(weight.sizes().vec() == expected["shape"].get<std::vector<std::int64_t>>());
    const at::Tensor flat = weight.reshape(-1).to(at::kDouble);
    CHECK(std::abs(flat.mean().item<double>() - expected["mean"].get<double>()) <= 1e-6);
    CHECK(std::abs(flat.std(false).item<double>() - expected["std"].get<double>()) <= 1e-6);
    for (std::size_t i = 0; i < expected["flat_index"].size(); ++i) {
      const auto at = expected["flat_index"][i].get<std::int64_t>();
      CHECK(std::abs(flat[at].item<double>() - expected["after"][i].get<double>()) <= 1e-6);
    }
  }
}

using Dense = Model<Bert, MeanPooling>;
using Colbert = Model<Bert, LateInteraction>;

}  // namespace

TEST_CASE("a dense run equals Sentence Transformers", "[golden]") {
  const auto folder = minilm_folder();
  if (!folder) SKIP("needs the MiniLM folder: scripts/fetch_model.sh");
  const std::string file = GENERATE("mnrl_minilm.json", "mnrl_minilm_hard_negatives.json");
  INFO(file);
  compare_run(file, Dense::from_pretrained(*folder), Contrastive<Cosine>{.temperature = 1.0 / 20});
}

TEST_CASE("a ColBERT run equals PyLate", "[golden]") {
  const auto folder = minilm_folder();
  if (!folder) SKIP("needs the MiniLM folder: scripts/fetch_model.sh");
  auto model = Colbert::from_pretrained(*folder, {}, {.fresh_head = true, .query_length = 32, .document_length = 48});
  const auto weights = golden_tensors("minilm/colbert_weights.safetensors");
  {
    const at::NoGradGuard no_grad;
    model.pooling().parameters().front().value.copy_(weights.at("linear.weight"));
    for (const Parameter& p : model.encoder().parameters())
      if (p.name == "embeddings.word_embeddings.weight") p.value.slice(0, 30522, 30524).copy_(weights.at("marker_rows"));
  }
  compare_run("pylate_contrastive.json", model, Contrastive<MaxSim>{.temperature = 1.0, .similarity = {.padded_length = 48}});
}
