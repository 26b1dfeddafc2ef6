// SPDX-License-Identifier: Apache-2.0
// The vectors of a real model, from text to numbers, against Sentence Transformers and PyLate.
#include "support/golden.hpp"
#include "toller/pooling/auto_pooling.hpp"
#include "toller/toller.hpp"

using namespace toller;

namespace {

double furthest(const at::Tensor& a, const at::Tensor& b) {
  REQUIRE(a.sizes() == b.sizes());
  return (a - b).abs().max().item<double>();
}

std::vector<std::string> sentences() {
  std::vector<std::string> texts;
  const nlohmann::json golden = golden_json("minilm/sentences.json");
  for (const auto& sentence : golden["sentences"]) texts.push_back(sentence["text"]);
  return texts;
}

}  // namespace

TEST_CASE("MiniLM's sentence embeddings and poolings equal Sentence Transformers'", "[golden]") {
  const auto folder = minilm_folder();
  if (!folder) SKIP("needs the MiniLM folder: scripts/fetch_model.sh");
  const auto golden = golden_tensors("minilm/sentences.safetensors");
  const auto texts = sentences();

  const auto as_saved = Model<Bert, MeanPooling>::from_pretrained(*folder);
  REQUIRE(as_saved.preprocessor().format(Role::document).max_length == 256);
  CHECK(furthest(as_saved.encode_documents(texts).values, golden.at("embeddings")) <= 2e-6);

  const auto raw = [&](auto pooling, const std::string& mode, double tolerance) {
    INFO(mode);
    pooling.normalize = false;
    using Pooling = decltype(pooling);
    const auto model = Model<Bert, Pooling>::from_pretrained(*folder, pooling, {.fresh_head = true, .max_length = 256});
    CHECK(furthest(model.encode_documents(texts).values, golden.at("pooling." + mode)) <= tolerance);
  };
  raw(ClsPooling{}, "cls", 2e-5);
  raw(MeanPooling{}, "mean", 2e-5);
  raw(MaxPooling{}, "max", 2e-5);
  raw(WeightedMeanPooling{}, "weightedmean", 2e-5);
  raw(LastTokenPooling{}, "lasttoken", 2e-5);
  raw(MeanSqrtLengthPooling{}, "mean_sqrt_len_tokens", 1e-4);
}

TEST_CASE("a ColBERT's vectors and scores equal PyLate's", "[golden]") {
  const auto folder = minilm_folder();
  if (!folder) SKIP("needs the MiniLM folder: scripts/fetch_model.sh");
  const nlohmann::json about = golden_json("minilm/colbert.json");
  const auto golden = golden_tensors("minilm/colbert.safetensors");
  const auto weights = golden_tensors("minilm/colbert_weights.safetensors");
  const auto queries = about["queries"].get<std::vector<std::string>>();
  const auto documents = about["documents"].get<std::vector<std::string>>();
  for (const auto& variant : about["variants"]) {
    const std::string name = variant["name"];
    INFO(name);
    auto model =
        Model<Bert, LateInteraction>::from_pretrained(*folder, {},
                                                      {.fresh_head = true,
                                                       .query_length = variant["query_length"].get<std::int64_t>(),
                                                       .document_length = variant["document_length"].get<std::int64_t>(),
                                                       .query_expansion = name != "no_expansion",
                                                       .attend_to_expansion = name == "attend"});
    {
      const at::NoGradGuard no_grad;
      model.pooling().parameters().front().value.copy_(weights.at("linear.weight"));
      for (const Parameter& p : model.encoder().parameters())
        if (p.name == "embeddings.word_embeddings.weight") p.value.slice(0, 30522, 30524).copy_(weights.at("marker_rows"));
    }
    const MultiVector q = model.encode_queries(queries), d = model.encode_documents(documents);
    CHECK(furthest(q.values, golden.at(name + ".query_embeddings")) <= 5e-6);
    CHECK(furthest(d.values, golden.at("doc_embeddings")) <= 5e-6);
    const at::Tensor lengths = golden.at("doc_lengths");
    for (std::int64_t i = 0; i < d.size(); ++i) REQUIRE(d.slice(i, i + 1).values.size(0) == lengths[i].item<std::int64_t>());
    CHECK(furthest(MaxSim{}.scores(q, d), golden.at(name + ".scores_unpadded")) <= 1e-4);
    CHECK(furthest(MaxSim{.padded_length = 48}.scores(q, d), golden.at(name + ".scores_padded")) <= 1e-4);
  }
}
