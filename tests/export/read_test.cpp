// SPDX-License-Identifier: Apache-2.0
#include "support/golden.hpp"
#include "support/temporary_folder.hpp"
#include "toller/export/model_folder.hpp"

using namespace toller;

namespace {

const std::string st5 = "sentence_transformers.models.";
const std::string st6 = "sentence_transformers.base.modules.";

/// modules.json of (type, folder) pairs.
std::string modules(const std::vector<std::pair<std::string, std::string>>& lines) {
  nlohmann::json json = nlohmann::json::array();
  for (const auto& [type, path] : lines)
    json.push_back({{"idx", json.size()}, {"name", std::to_string(json.size())}, {"path", path}, {"type", type}});
  return json.dump();
}

const char* const dense_config =
    R"({"in_features":4,"out_features":3,"bias":false,"activation_function":"torch.nn.modules.linear.Identity"})";

}  // namespace

TEST_CASE("a bare encoder is plain") {
  const TemporaryFolder folder;
  folder.write("config.json", R"({"architectures":["BertModel"],"max_position_embeddings":512})");
  ModelFolder read = read_model_folder(folder.path());
  REQUIRE(read.kind == FolderKind::plain);
  REQUIRE(read.encoder_dir == folder.path());
  REQUIRE(read.modules.empty());
  REQUIRE(read.settings.max_seq_length == 512);
  folder.write("tokenizer_config.json", R"({"model_max_length":1000000000000000019884624838656})");
  REQUIRE(read_model_folder(folder.path()).settings.max_seq_length == 512);
  folder.write("tokenizer_config.json", R"({"model_max_length":128})");
  REQUIRE(read_model_folder(folder.path()).settings.max_seq_length == 128);
}

TEST_CASE("Sentence Transformers 5: encoder in a folder of its own, no folder for Normalize") {
  const TemporaryFolder folder;
  folder.write("modules.json", modules({{st5 + "Transformer", "0_Transformer"},
                                        {st5 + "Pooling", "1_Pooling"},
                                        {st5 + "Dense", "2_Dense"},
                                        {st5 + "Normalize", "3_Normalize"}}));
  folder.write("0_Transformer/config.json", R"({"max_position_embeddings":512})");
  folder.write("0_Transformer/sentence_roberta_config.json", R"({"max_seq_length":200,"do_lower_case":true})");
  folder.write("1_Pooling/config.json",
               R"({"word_embedding_dimension":4,"pooling_mode_cls_token":true,"pooling_mode_mean_tokens":false})");
  folder.write("2_Dense/config.json", dense_config);
  const at::Tensor weight = at::rand({3, 4});
  write_safetensors(folder.path() / "2_Dense/model.safetensors", {{"linear.weight", weight}});
  const ModelFolder read = read_model_folder(folder.path());
  REQUIRE(read.kind == FolderKind::sentence_transformers);
  REQUIRE(read.encoder_dir == folder.path() / "0_Transformer");
  REQUIRE(read.settings.max_seq_length == 200);
  REQUIRE(read.settings.lower_case == true);
  REQUIRE(read.settings.include_prompt);
  REQUIRE(read.modules.size() == 3);
  REQUIRE(read.modules[0].config == nlohmann::json::parse(R"({"word_embedding_dimension":4,"pooling_mode_cls_token":true,
      "pooling_mode_mean_tokens":false,"pooling_mode_max_tokens":false,"pooling_mode_mean_sqrt_len_tokens":false,
      "pooling_mode_weightedmean_tokens":false,"pooling_mode_lasttoken":false,"include_prompt":true})"));
  REQUIRE(read.modules[1].config["use_residual"] == false);
  REQUIRE(read.modules[1].tensors.at("linear.weight").equal(weight));
  REQUIRE(read.modules[2].type == "Normalize");
}

TEST_CASE("Sentence Transformers 6: new spelling, longest text from the tokenizer") {
  const TemporaryFolder folder;
  folder.write("modules.json", modules({{st6 + "transformer.Transformer", ""},
                                        {"sentence_transformers.sentence_transformer.modules.pooling.Pooling", "1_Pooling"},
                                        {st6 + "normalize.Normalize", "2_Normalize"}}));
  folder.write("config.json", R"({"max_position_embeddings":512})");
  folder.write("sentence_bert_config.json",
               R"({"transformer_task":"feature-extraction","module_output_name":"token_embeddings"})");
  folder.write("tokenizer_config.json", R"({"model_max_length":256})");
  folder.write("config_sentence_transformers.json",
               R"({"model_type":"SentenceTransformer","prompts":{"document":"","query":"q: "},)"
               R"("default_prompt_name":null,"similarity_fn_name":"cosine"})");
  folder.write("2_Normalize/config.json", R"({"module_input_name":"sentence_embedding"})");
  folder.write("1_Pooling/config.json",
               R"({"embedding_dimension":384,"pooling_mode":["cls","weightedmean"],"include_prompt":false})");
  const ModelFolder read = read_model_folder(folder.path());
  REQUIRE(read.kind == FolderKind::sentence_transformers);
  REQUIRE(read.settings.max_seq_length == 256);
  REQUIRE(read.settings.prompts.at("query") == "q: ");
  REQUIRE_FALSE(read.settings.include_prompt);
  const auto& config = read.modules[0].config;
  REQUIRE(config["word_embedding_dimension"] == 384);
  REQUIRE(config["pooling_mode_cls_token"] == true);
  REQUIRE(config["pooling_mode_weightedmean_tokens"] == true);
  REQUIRE(config["pooling_mode_mean_tokens"] == false);
  REQUIRE(read.modules[1].config.empty());

  folder.write("1_Pooling/config.json", R"({"embedding_dimension":384,"pooling_mode":"median"})");
  REQUIRE_THROWS_WITH(read_model_folder(folder.path()), "[R804] " + (folder.path() / "1_Pooling/config.json").string() +
                                                            ": pooling_mode \"median\" is not known");
}

TEST_CASE("Sentence Transformers 6: late interaction comes out in PyLate's terms") {
  const TemporaryFolder folder;
  const auto path = folder.path();
  const auto lines = [&](bool normalised) {
    std::vector<std::pair<std::string, std::string>> all{
        {st6 + "transformer.Transformer", ""},
        {st6 + "dense.Dense", "1_Dense"},
        {"sentence_transformers.multi_vector_encoder.modules.multi_vector_mask.MultiVectorMask", "2_MultiVectorMask"}};
    if (normalised) all.emplace_back(st6 + "normalize.Normalize", "3_Normalize");
    folder.write("modules.json", modules(all));
  };
  lines(true);
  folder.write("config.json", R"({"max_position_embeddings":512})");
  folder.write("tokenizer_config.json", R"({"model_max_length":256,"mask_token":"[MASK]"})");
  folder.write("tokenizer.json",
               R"({"added_tokens":[{"id":1,"content":"[unused0]"},{"id":8,"content":"[Q]"},{"id":9,"content":"[Q] "}]})");
  folder.write("config_sentence_transformers.json",
               R"({"model_type":"MultiVectorEncoder","prompts":{"document":"passage: ","query":"[Q] find: "},)"
               R"("similarity_fn_name":"maxsim"})");
  const auto expansion = [&](const std::string& text) {
    return folder.write("sentence_bert_config.json", R"({"document_length":48,"query_expansion":)" + text + "}");
  };
  expansion(R"({"strategy":"fixed","attend":true,"token":null,"length":24})");
  const auto mask = [&](const std::string& rest) {
    return folder.write("2_MultiVectorMask/config.json", R"({"skiplist_words":["!"],)" + rest + "}");
  };
  mask(R"("skiplist_tasks":["document"],"keep_only_token_ids":null)");
  folder.write("1_Dense/config.json", dense_config);
  write_safetensors(path / "1_Dense/model.safetensors", {{"linear.weight", at::rand({3, 4})}});

  ModelFolder read = read_model_folder(path);
  REQUIRE(read.kind == FolderKind::pylate);
  REQUIRE(read.modules.size() == 1);
  REQUIRE(read.modules[0].type == "Dense");
  REQUIRE(read.settings.similarity == "MaxSim");
  REQUIRE(read.settings.query_prefix == "[Q] ");
  REQUIRE(read.settings.document_prefix == "");
  REQUIRE(read.settings.prompts == std::map<std::string, std::string>{{"query", "find: "}, {"document", "passage: "}});
  REQUIRE(read.settings.query_length == 24);
  REQUIRE(read.settings.document_length == 48);
  REQUIRE(read.settings.do_query_expansion == true);
  REQUIRE(read.settings.attend_to_expansion == true);
  REQUIRE(read.settings.skiplist_words == std::vector<std::string>{"!"});

  expansion("null");
  read = read_model_folder(path);
  REQUIRE(read.settings.do_query_expansion == false);
  REQUIRE(read.settings.query_length == 256);

  auto where = expansion(R"({"strategy":"min","length":24})");
  REQUIRE_THROWS_WITH(read_model_folder(path),
                      "[R806] " + where.string() + ": query_expansion strategy \"min\" is not supported");
  expansion(R"({"strategy":"fixed","token":"[PAD]","length":24})");
  REQUIRE_THROWS_WITH(read_model_folder(path),
                      "[R806] " + where.string() + ": query_expansion token \"[PAD]\" is not supported");
  expansion("null");
  where = mask(R"("skiplist_tasks":["query"])");
  REQUIRE_THROWS_WITH(read_model_folder(path),
                      "[R806] " + where.string() + ": skiplist_tasks other than [\"document\"] are not supported");
  mask(R"("keep_only_token_ids":[1])");
  REQUIRE_THROWS_WITH(read_model_folder(path), "[R806] " + where.string() + ": keep_only_token_ids is not supported");
  mask(R"("skiplist_tasks":null)");
  lines(false);
  REQUIRE_THROWS_WITH(read_model_folder(path),
                      "[R806] " + path.string() + ": late interaction without a Normalize at its end is not supported");
}

TEST_CASE("PyLate: dense layers in order, what it drops is dropped") {
  const TemporaryFolder folder;
  folder.write("modules.json", modules({{st5 + "Transformer", ""},
                                        {"pylate.models.Dense.Dense", "1_Dense"},
                                        {"pylate.models.Dense.Dense", "2_Dense"},
                                        {st5 + "Normalize", "3_Normalize"}}));
  folder.write("1_Dense/config.json", dense_config);
  folder.write("2_Dense/config.json",
               R"({"in_features":3,"out_features":2,"bias":true,"activation_function":"torch.nn.modules.activation.GELU",)"
               R"("use_residual":true})");
  write_safetensors(folder.path() / "1_Dense/model.safetensors", {{"linear.weight", at::rand({3, 4})}});
  write_safetensors(
      folder.path() / "2_Dense/model.safetensors",
      {{"linear.weight", at::rand({2, 3})}, {"linear.bias", at::rand({2})}, {"residual.weight", at::rand({2, 3})}});
  const ModelFolder read = read_model_folder(folder.path());  // without config_sentence_transformers.json: all defaults
  REQUIRE(read.kind == FolderKind::pylate);
  REQUIRE(read.modules.size() == 2);
  REQUIRE(read.modules[1].config["activation_function"] == "torch.nn.modules.activation.GELU");
  REQUIRE(read.modules[1].config["use_residual"] == true);
  REQUIRE(read.modules[1].tensors.size() == 3);
  REQUIRE(read.settings.query_prefix == std::nullopt);
  REQUIRE(read.settings.skiplist_words == std::nullopt);
}

TEST_CASE("Stanford: the projection is in the root file") {
  const TemporaryFolder folder;
  folder.write("config.json", R"({"architectures":["HF_ColBERT"],"max_position_embeddings":512})");
  const at::Tensor weight = at::rand({3, 4});
  write_safetensors(folder.path() / "model.safetensors",
                    {{"bert.embeddings.word_embeddings.weight", at::rand({5, 4})}, {"linear.weight", weight}});
  ModelFolder read = read_model_folder(folder.path());
  REQUIRE(read.kind == FolderKind::stanford);
  REQUIRE(read.modules.size() == 1);
  REQUIRE(read.modules[0].config["in_features"] == 4);
  REQUIRE(read.modules[0].config["out_features"] == 3);
  REQUIRE(read.modules[0].tensors.at("linear.weight").equal(weight));
  REQUIRE(read.settings.query_prefix == "[unused0]");
  REQUIRE(read.settings.query_length == std::nullopt);
  REQUIRE(read.settings.skiplist_words == std::nullopt);
  folder.write("artifact.metadata",
               R"({"query_token_id":"[unused3]","doc_token_id":"[unused4]","query_maxlen":16,"doc_maxlen":220,
                                        "attend_to_mask_tokens":true,"mask_punctuation":false,"query_token":"[Q]"})");
  read = read_model_folder(folder.path());
  REQUIRE(read.settings.query_prefix == "[unused3]");
  REQUIRE(read.settings.document_prefix == "[unused4]");
  REQUIRE(read.settings.query_length == 16);
  REQUIRE(read.settings.document_length == 220);
  REQUIRE(read.settings.attend_to_expansion == true);
  REQUIRE(read.settings.skiplist_words == std::vector<std::string>{});
}

TEST_CASE("folders that are wrong give one line") {
  const TemporaryFolder folder;
  const auto path = folder.path();
  const auto expect = [&](const std::string& message) { REQUIRE_THROWS_WITH(read_model_folder(path), message); };
  const std::string json = (path / "modules.json").string();
  REQUIRE_THROWS_WITH(read_model_folder(path / "none"), "[R401] " + (path / "none").string() + ": is not a folder");
  expect("[R401] " + (path / "config.json").string() + ": no such file");
  folder.write("modules.json", "{}");
  expect("[R801] " + json + ": expected a list of modules");
  folder.write("modules.json", "[{\"path\":\"\"}]");
  expect("[R801] " + json + ": a module has no type");
  folder.write("modules.json", "[1]");
  expect("[R411] " + json + ": expected a JSON object, got number");
  folder.write("modules.json", modules({{st5 + "Transformer", "../x"}}));
  expect("[R801] " + json + ": path \"../x\" leads out of the folder");
  folder.write("modules.json", modules({{"custom.Transformer", ""}}));
  expect("[R802] " + json + ": module type \"custom.Transformer\" is not supported");
  folder.write("modules.json", modules({{st5 + "Pooling", ""}}));
  expect("[R802] " + json + ": the first module is \"sentence_transformers.models.Pooling\", expected a Transformer");
  folder.write("modules.json", modules({{st5 + "Transformer", ""}, {st5 + "CNN", "1_CNN"}}));
  expect("[R802] " + json + ": module type \"sentence_transformers.models.CNN\" is not supported");

  folder.write("modules.json", modules({{st5 + "Transformer", ""}, {st5 + "Dense", "1_Dense"}}));
  const auto dense = path / "1_Dense";
  expect("[R401] " + (dense / "config.json").string() + ": no such file");
  folder.write("1_Dense/config.json", R"({"in_features":0,"out_features":3})");
  expect("[R804] " + (dense / "config.json").string() + ": expected in_features and out_features of 1 or more");
  folder.write("1_Dense/config.json", R"({"in_features":4,"out_features":3,"use_residual":true})");
  expect("[R407] " + dense.string() + ": no model.safetensors");
  write_safetensors(dense / "model.safetensors", {{"linear.weight", at::rand({3, 4})}});
  expect("[R805] " + dense.string() + ": tensor \"linear.bias\" is missing");
  write_safetensors(dense / "model.safetensors", {{"linear.weight", at::rand({3, 4})}, {"linear.bias", at::rand({3})}});
  expect("[R805] " + dense.string() + ": tensor \"residual.weight\" is missing");
  write_safetensors(dense / "model.safetensors", {{"linear.weight", at::rand({4, 3})}});
  expect("[R805] " + dense.string() + ": tensor \"linear.weight\": expected [3, 4], got [4, 3]");
  const auto weights = dense / "model.safetensors";
  write_safetensors(weights, {{"linear.weight", at::full({3, 4}, std::numeric_limits<double>::quiet_NaN())}});
  expect("[R408] " + weights.string() + ": tensor \"linear.weight\": a value is NaN or infinite (in float32)");
  write_safetensors(weights, {{"linear.weight", at::ones({3, 4}, at::kInt)}});
  expect("[R408] " + weights.string() + ": tensor \"linear.weight\": expected F16, BF16, F32 or F64, got I32");
  folder.write("modules.json", std::string(300'000, '[') + std::string(300'000, ']'));
  expect("[R410] " + json + ": JSON nested deeper than 64 levels");
}

TEST_CASE("MiniLM's folder") {
  const auto minilm = minilm_folder();
  if (!minilm) SKIP("TOLLER_MINILM names no folder");
  const ModelFolder read = read_model_folder(*minilm);
  REQUIRE(read.kind == FolderKind::sentence_transformers);
  REQUIRE(read.settings.max_seq_length == 256);
  REQUIRE(read.modules.size() == 2);
  REQUIRE(read.modules[0].config["pooling_mode_mean_tokens"] == true);
  REQUIRE(read.modules[1].type == "Normalize");
  REQUIRE(SafetensorsFolder::open(read.encoder_dir).names().size() == 104);
}
