// SPDX-License-Identifier: Apache-2.0
#include <set>

#include "support/golden.hpp"
#include "support/temporary_folder.hpp"
#include "toller/export/model_folder.hpp"

using namespace toller;

namespace {

FolderModule dense(std::int64_t in, std::int64_t out, bool bias = false, bool residual = false) {
  FolderModule module{"Dense",
                      {{"in_features", in},
                       {"out_features", out},
                       {"bias", bias},
                       {"use_residual", residual},
                       {"activation_function", "torch.nn.modules.linear.Identity"}},
                      {{"linear.weight", at::rand({out, in})}}};
  if (bias) module.tensors["linear.bias"] = at::rand({out});
  if (residual && in != out) module.tensors["residual.weight"] = at::rand({out, in});
  return module;
}

FolderModule mean_pooling(std::int64_t dimension) {
  return {"Pooling",
          {{"word_embedding_dimension", dimension},
           {"pooling_mode_cls_token", false},
           {"pooling_mode_mean_tokens", true},
           {"pooling_mode_max_tokens", false},
           {"pooling_mode_mean_sqrt_len_tokens", false},
           {"pooling_mode_weightedmean_tokens", false},
           {"pooling_mode_lasttoken", false},
           {"include_prompt", true}},
          {}};
}

/// A model with the settings of the golden ColBERT.
WriteModel colbert(const nlohmann::json& golden) {
  const auto& library = golden["json"]["config_sentence_transformers.json"];
  WriteModel model;
  model.kind = FolderKind::pylate;
  model.config_json = golden["json"]["config.json"].dump();
  model.settings.query_prefix = "[Q] ";
  model.settings.document_prefix = "[D] ";
  model.settings.query_length = 32;
  model.settings.document_length = 48;
  model.settings.max_seq_length = 47;
  model.settings.do_query_expansion = true;
  model.settings.attend_to_expansion = false;
  model.settings.skiplist_words = library["skiplist_words"].get<std::vector<std::string>>();
  model.tokenizer_json = R"({"added_tokens":[{"id":6,"content":"[Q] "},{"id":7,"content":"[D] "}],"model":{"vocab":{}}})";
  model.tokenizer_config = golden["json"]["tokenizer_config.json"];
  model.tokenizer_config["pad_token"] = "[PAD]";
  model.modules = {dense(384, 128)};
  for (const auto& [name, entry] : golden["safetensors"]["model.safetensors"]["tensors"].items())
    model.encoder_tensors.push_back({name, at::zeros(entry[1].get<std::vector<std::int64_t>>())});
  return model;
}

WriteModel embedder() {
  WriteModel model;
  model.config_json = R"({"model_type":"bert","max_position_embeddings":512})";
  model.encoder_tensors = {{"embeddings.word_embeddings.weight", at::rand({4, 3})}};
  model.modules = {mean_pooling(3), dense(3, 2, true), {"Normalize", nlohmann::json::object(), {}}};
  model.settings.max_seq_length = 256;
  model.settings.prompts = {{"query", "query: "}};
  model.tokenizer_json = "{}";
  return model;
}

std::set<std::string> files_below(const std::filesystem::path& dir) {
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(dir))
    if (entry.is_regular_file()) files.insert(entry.path().lexically_relative(dir).string());
  return files;
}

}  // namespace

TEST_CASE("a late-interaction folder is the one PyLate writes", "[golden]") {
  const auto golden = golden_json("minilm/colbert_saved_layout.json");
  const TemporaryFolder folder;
  const auto dir = folder.path() / "model";
  write_model_folder(dir, colbert(golden));

  const auto files = files_below(dir);
  REQUIRE(files == golden["files"].get<std::set<std::string>>());
  for (const char* file :
       {"1_Dense/config.json", "config.json", "modules.json", "sentence_bert_config.json", "tokenizer_config.json"}) {
    INFO(file);
    REQUIRE(read_json_file(dir / file) == golden["json"][file]);
  }
  auto library = read_json_file(dir / "config_sentence_transformers.json");
  REQUIRE(library["__version__"]["sentence_transformers"] == "5.3.0");
  library["__version__"] = golden["json"]["config_sentence_transformers.json"]["__version__"];
  REQUIRE(library == golden["json"]["config_sentence_transformers.json"]);

  for (const auto& [name, expected] : golden["safetensors"].items()) {
    const auto written = SafetensorsFile::open(dir / name);
    REQUIRE(nlohmann::json(written.metadata()).size() == expected["metadata"].size());
    for (const auto& [key, text] : written.metadata()) REQUIRE(expected["metadata"][key] == text);
    REQUIRE(written.names().size() == expected["tensors"].size());
    for (const auto& [tensor, entry] : expected["tensors"].items()) {
      INFO(tensor);
      REQUIRE(written.dtype(tensor) == at::kFloat);
      REQUIRE(written.shape(tensor) == entry[1].get<std::vector<std::int64_t>>());
    }
  }
}

TEST_CASE("what was written is read back") {
  const TemporaryFolder folder;
  SECTION("one vector a text") {
    const WriteModel model = embedder();
    write_model_folder(folder.path() / "m", model);
    REQUIRE(std::filesystem::is_directory(folder.path() / "m/3_Normalize"));
    const ModelFolder read = read_model_folder(folder.path() / "m");
    REQUIRE(read.kind == FolderKind::sentence_transformers);
    REQUIRE(read.encoder_dir == folder.path() / "m");
    REQUIRE(read.modules.size() == 3);
    REQUIRE(read.modules[0].config == model.modules[0].config);
    REQUIRE(read.modules[1].config == model.modules[1].config);
    for (const auto& [name, tensor] : model.modules[1].tensors) REQUIRE(read.modules[1].tensors.at(name).equal(tensor));
    REQUIRE(read.modules[2].type == "Normalize");
    REQUIRE(read.settings.prompts == std::map<std::string, std::string>{{"query", "query: "}, {"document", ""}});
    REQUIRE(read.settings.similarity == "cosine");
    REQUIRE(read.settings.max_seq_length == 256);
    REQUIRE(read.settings.lower_case == false);
    REQUIRE(SafetensorsFolder::open(read.encoder_dir)
                .tensor("embeddings.word_embeddings.weight")
                .equal(model.encoder_tensors[0].value));
  }
  SECTION("one vector a token, several layers, residual") {
    WriteModel model = colbert(golden_json("minilm/colbert_saved_layout.json"));
    model.encoder_tensors.resize(1);
    model.modules = {dense(384, 256, true, true), dense(256, 256, false, true), dense(256, 64)};
    model.settings.skiplist_words = {"."};
    model.settings.query_prefix = "";
    write_model_folder(folder.path() / "m", model);
    const ModelFolder read = read_model_folder(folder.path() / "m");
    REQUIRE(read.kind == FolderKind::pylate);
    REQUIRE(read.modules.size() == 3);
    for (std::size_t i = 0; i < 3; ++i) {
      REQUIRE(read.modules[i].config == model.modules[i].config);
      REQUIRE(read.modules[i].tensors.size() == model.modules[i].tensors.size());
      for (const auto& [name, tensor] : model.modules[i].tensors) REQUIRE(read.modules[i].tensors.at(name).equal(tensor));
    }
    REQUIRE(read.settings.query_prefix == "");
    REQUIRE(read.settings.document_prefix == "[D] ");
    REQUIRE(read.settings.query_length == 32);
    REQUIRE(read.settings.document_length == 48);
    REQUIRE(read.settings.do_query_expansion == true);
    REQUIRE(read.settings.attend_to_expansion == false);
    REQUIRE(read.settings.skiplist_words == std::vector<std::string>{"."});
    REQUIRE(read.settings.max_seq_length == std::nullopt);
    REQUIRE(read.settings.similarity == "MaxSim");
  }
}

TEST_CASE("saving over a model drops its old parts and keeps the user's files") {
  const TemporaryFolder folder;
  const auto dir = folder.path() / "m";
  write_model_folder(dir, embedder());
  for (const char* file : {"m/vocab.txt", "m/model-00001-of-00002.safetensors", "m/sentence_roberta_config.json", "m/7_Dense/x",
                           "m/runs/log", "m/notes.md"})
    folder.write(file, "x");
  WriteModel model = embedder();
  model.modules = {mean_pooling(3)};
  write_model_folder(dir, model);
  REQUIRE(files_below(dir) == std::set<std::string>{"1_Pooling/config.json", "README.md", "config.json",
                                                    "config_sentence_transformers.json", "model.safetensors", "modules.json",
                                                    "notes.md", "runs/log", "sentence_bert_config.json", "tokenizer.json",
                                                    "tokenizer_config.json"});
  REQUIRE_FALSE(std::filesystem::exists(dir / "2_Dense"));
}

TEST_CASE("models that the layout cannot hold are refused, and the old folder stays") {
  const TemporaryFolder folder;
  const auto dir = folder.path() / "m";
  folder.write("m/config.json", "old");
  const auto refuse = [&](const std::string& message, const std::function<void(WriteModel&)>& change) {
    WriteModel model = embedder();
    change(model);
    REQUIRE_THROWS_WITH(write_model_folder(dir, model), message);
    REQUIRE(file_bytes(dir / "config.json") == "old");
    REQUIRE(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
  };
  refuse("[R808] cannot save: only the layouts of Sentence Transformers and PyLate are written",
         [](WriteModel& m) { m.kind = FolderKind::stanford; });
  refuse("[R807] cannot save: the model's config.json is not a JSON object", [](WriteModel& m) { m.config_json = "[1"; });
  refuse("[R808] cannot save: no module type \"Scores\" in this layout", [](WriteModel& m) {
    m.modules.push_back({"Scores", {}, {}});
  });
  refuse("[R808] cannot save: the Dense of Sentence Transformers has no residual",
         [](WriteModel& m) { m.modules.push_back(dense(2, 2, false, true)); });
  refuse("[R807] cannot save: the tokenizer has no token \"[Q] \", the marker of the model", [](WriteModel& m) {
    m.kind = FolderKind::pylate;
    m.settings.query_prefix = "[Q] ";
  });
}
