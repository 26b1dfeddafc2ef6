// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>

#include "encoder/support.hpp"

using namespace toller;
using namespace toller::testing_encoder;

namespace {

const std::filesystem::path bert_dir = std::filesystem::path(TOLLER_GOLDEN) / "encoders/bert";

TokenBatch golden_batch(const SafetensorsFile& io, const std::string& set, const std::string& keep) {
  return from_padded(io.tensor(set + ".input_ids"), io.tensor(set + ".attention_mask"), io.tensor(set + ".token_type_ids"),
                     io.tensor(set + "." + keep));
}

}  // namespace

TEST_CASE("BERT gives the reference's outputs, loss and gradients on ragged texts", "[golden]") {
  const auto io = SafetensorsFile::open(bert_dir / "io.safetensors");
  const Bert bert = Bert::from_pretrained(bert_dir);
  const TokenBatch batch = golden_batch(io, "ragged", "attention_mask");
  REQUIRE(batch.all_attended);
  const at::Tensor out = bert.forward(batch).values;
  const at::Tensor real = io.tensor("ragged.attention_mask").to(at::kBool);
  REQUIRE(furthest(out, io.tensor("ragged.output").index({real})) < 5e-5);

  const at::Tensor loss = (out * io.tensor("ragged.weight").index({real})).sum();
  const double expected = io.tensor("ragged.loss").item<double>();
  REQUIRE(std::abs(loss.item<double>() - expected) < 1e-5 * std::abs(expected) + 1e-3);
  loss.backward();
  int compared = 0;
  for (const Parameter& p : bert.parameters()) {
    REQUIRE(p.value.grad().defined());
    if (!io.has("ragged.grad." + p.name)) continue;
    const at::Tensor grad = io.tensor("ragged.grad." + p.name);
    INFO(p.name);
    REQUIRE(furthest(p.value.grad(), grad) < 5e-5 * grad.abs().max().item<double>());
    ++compared;
  }
  REQUIRE(compared == 10);
}

TEST_CASE("BERT gives the reference's outputs with query expansion, also at the unattended tokens", "[golden]") {
  const auto io = SafetensorsFile::open(bert_dir / "io.safetensors");
  const Bert bert = Bert::from_pretrained(bert_dir);
  const TokenBatch batch = golden_batch(io, "expansion", "compare_mask");
  REQUIRE_FALSE(batch.all_attended);
  const at::Tensor wanted = io.tensor("expansion.output").index({io.tensor("expansion.compare_mask").to(at::kBool)});
  REQUIRE(furthest(bert.forward(batch).values, wanted) < 5e-5);
}

TEST_CASE("the configuration of transformers 4 reads the same", "[golden]") {
  std::ifstream file(bert_dir / "config_v4.json");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const BertConfig old = BertConfig::parse(text, "config_v4.json"), now = Bert::from_pretrained(bert_dir).config();
  REQUIRE(old.hidden == now.hidden);
  REQUIRE(old.activation == now.activation);
  REQUIRE(old.layer_norm_eps == now.layer_norm_eps);
}

TEST_CASE("MiniLM gives the reference's hidden states", "[golden]") {
  const char* folder = std::getenv("TOLLER_MINILM");
  if (folder == nullptr) SKIP("TOLLER_MINILM does not name the folder of all-MiniLM-L6-v2");
  const auto io = SafetensorsFile::open(std::filesystem::path(TOLLER_GOLDEN) / "minilm/sentences.safetensors");
  const at::Tensor ids = io.tensor("hidden.input_ids"), mask = io.tensor("hidden.attention_mask");
  const AutoEncoder encoder = AutoEncoder::from_pretrained(folder);
  const TokenBatch batch = from_padded(ids, mask, at::zeros_like(ids), mask);
  const at::Tensor wanted = io.tensor("hidden.last_hidden_state").index({mask.to(at::kBool)});
  REQUIRE(furthest(encoder.forward(batch).values, wanted) < 2e-5);
  REQUIRE(encoder.saved_tensors().size() == encoder.parameters().size() + 2);
}
