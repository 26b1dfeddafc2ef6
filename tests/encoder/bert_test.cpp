// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include "encoder/support.hpp"
#include "toller/store/write_safetensors.hpp"

using namespace toller;
using namespace toller::testing_encoder;

namespace {

/// A folder of a test's own, gone with it.
struct Folder {
  std::filesystem::path path = std::filesystem::temp_directory_path() / ("toller_encoder_" + std::to_string(::getpid()));
  Folder() {
    std::filesystem::remove_all(path);
    std::filesystem::create_directories(path);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  void write(const std::string& name, const std::string& text) const { std::ofstream(path / name, std::ios::binary) << text; }
  /// A safetensors file of float32 tensors, all of ones.
  void write_tensors(const std::string& name,
                     const std::vector<std::pair<std::string, std::vector<std::int64_t>>>& tensors) const {
    nlohmann::json header = nlohmann::json::object();
    std::size_t end = 0;
    for (const auto& [tensor, shape] : tensors) {
      std::size_t bytes = 4;
      for (const auto s : shape) bytes *= static_cast<std::size_t>(s);
      header[tensor] = {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {end, end + bytes}}};
      end += bytes;
    }
    const std::string text = header.dump();
    const std::uint64_t size = text.size();
    std::string file(8, '\0');
    std::memcpy(file.data(), &size, 8);
    file += text;
    const float one = 1;
    for (std::size_t i = 0; i < end; i += 4) file.append(reinterpret_cast<const char*>(&one), 4);
    write(name, file);
  }
};

std::string message(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

std::string config_with(const char* key, const nlohmann::json& value) {
  auto json = nlohmann::json::parse(small_config());
  json[key] = value;
  return json.dump();
}

std::vector<std::pair<std::string, std::vector<std::int64_t>>> all_tensors(const std::string& prefix) {
  std::vector<std::pair<std::string, std::vector<std::int64_t>>> list;
  for (const Parameter& p : small_bert().parameters()) list.emplace_back(prefix + p.name, p.value.sizes().vec());
  return list;
}

}  // namespace

TEST_CASE("a bad config.json is one clear error") {
  const auto parse = [](const std::string& text) { return message([&] { (void)BertConfig::parse(text, "c.json"); }); };
  CHECK(parse("{") == "[R432] c.json: not a JSON object");
  CHECK(parse(config_with("model_type", "t5")) == "[R433] c.json: model_type is \"t5\", supported: bert");
  CHECK(parse(config_with("hidden_size", nullptr)) == "[R432] c.json: field \"hidden_size\" is missing");
  CHECK(parse(config_with("hidden_size", "32")) == "[R432] c.json: field \"hidden_size\" is not a whole number");
  CHECK(parse(config_with("vocab_size", 0)) == "[R434] c.json: vocab_size is 0, expected 1 to 2147483647");
  CHECK(parse(config_with("num_attention_heads", 5)) == "[R434] c.json: num_attention_heads 5 does not divide hidden_size 32");
  CHECK(parse(config_with("hidden_dropout_prob", 1.0)) == "[R434] c.json: hidden_dropout_prob is 1.0, expected 0 <= p < 1");
  CHECK(parse(config_with("attention_probs_dropout_prob", -0.5)) ==
        "[R434] c.json: attention_probs_dropout_prob is -0.5, expected 0 <= p < 1");
  CHECK(parse(config_with("hidden_size", -3)) == "[R434] c.json: hidden_size is -3, expected 1 to 2147483647");
  CHECK(parse(config_with("hidden_size", 18446744073709551615U)) ==
        "[R434] c.json: hidden_size is 18446744073709551615, expected 1 to 2147483647");
  for (const auto& [eps, written] : {std::pair{0.0, "0.0"}, {-1e-12, "-1e-12"}, {1e300, "1e+300"}})
    CHECK(parse(config_with("layer_norm_eps", eps)) ==
          std::string("[R434] c.json: layer_norm_eps is ") + written + ", expected a number above 0 that float32 holds");
  CHECK(parse(config_with("initializer_range", -1)) ==
        "[R434] c.json: initializer_range is -1, expected 0 or more, that float32 holds");
  CHECK(parse(R"({"layer_norm_eps": 1e999})") == "[R432] c.json: key \"layer_norm_eps\": number overflow parsing '1e999'");
  const std::string deep = std::string(300'000, '[') + std::string(300'000, ']');
  CHECK(parse("{\"x\": " + deep + "}") == "[R432] c.json: JSON nested deeper than 64 levels");
  CHECK(parse(config_with("hidden_act", "swish")) ==
        "[R435] c.json: hidden_act is \"swish\", supported: gelu, gelu_new, gelu_pytorch_tanh, relu");
  CHECK(parse(config_with("position_embedding_type", "relative_key")) ==
        "[R435] c.json: position_embedding_type is \"relative_key\", supported: absolute");
}

TEST_CASE("a folder that is not whole is one clear error") {
  const Folder folder;
  const std::string at = folder.path.string();
  const auto open = [&] { return message([&] { (void)AutoEncoder::from_pretrained(folder.path); }); };
  CHECK(open() == "[R431] " + at + "/config.json: missing or not readable");
  std::filesystem::create_directory(folder.path / "config.json");
  CHECK(open() == "[R401] " + at + "/config.json: expected a file, found a folder");
  std::filesystem::remove(folder.path / "config.json");
  folder.write("config.json", small_config());
  CHECK(open() == "[R431] " + at + ": no model.safetensors and no model.safetensors.index.json");
  folder.write("pytorch_model.bin", "x");
  CHECK(open() == "[R431] " + at + ": only pytorch_model.bin is here: convert it to model.safetensors");

  auto tensors = all_tensors("");
  tensors[1].second = {41, 32};
  folder.write_tensors("model.safetensors", tensors);
  CHECK(open() == "[R437] " + at + ": tensor \"embeddings.position_embeddings.weight\": expected [40, 32], got [41, 32]");
  tensors.erase(tensors.begin() + 1);
  folder.write_tensors("model.safetensors", tensors);
  CHECK(open() == "[R436] " + at + ": tensor \"embeddings.position_embeddings.weight\" is missing");
}

TEST_CASE("weights that are not floating or not finite are one clear error") {
  const Folder folder;
  folder.write("config.json", small_config());
  const std::string file = (folder.path / "model.safetensors").string(), name = "embeddings.LayerNorm.weight";
  const auto open_with = [&](const at::Tensor& value) {
    std::vector<std::pair<std::string, at::Tensor>> tensors;
    for (const Parameter& p : small_bert().parameters())
      tensors.emplace_back(p.name, p.name == name ? value : p.value.detach());
    write_safetensors(folder.path / "model.safetensors", tensors);
    return message([&] { (void)Bert::from_pretrained(folder.path); });
  };
  const std::string start = "[R408] " + file + ": tensor \"" + name + "\": ";
  for (const auto type : {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble}) {
    CHECK(open_with(at::ones({32}, type)) == "nothing was thrown");
    for (const double bad : {std::numeric_limits<double>::quiet_NaN(), -std::numeric_limits<double>::infinity()}) {
      at::Tensor value = at::ones({32}, type);
      value[31] = bad;
      CHECK(open_with(value) == start + "a value is NaN or infinite (in float32)");
    }
  }
  CHECK(open_with(at::full({32}, 1e300, at::kDouble)) == start + "a value is NaN or infinite (in float32)");
  for (const auto& [type, written] : {std::pair{at::kInt, "I32"}, {at::kBool, "BOOL"}, {at::kComplexFloat, "C64"}})
    CHECK(open_with(at::ones({32}, type)) == start + "expected F16, BF16, F32 or F64, got " + written);
}

TEST_CASE("shards, the bert. prefix and the old names of layer norms are read") {
  const Folder folder;
  folder.write("config.json", small_config());
  auto tensors = all_tensors("bert.");
  for (auto& [name, shape] : tensors) {
    if (name.ends_with("LayerNorm.weight")) name.replace(name.size() - 6, 6, "gamma");
    if (name.ends_with("LayerNorm.bias")) name.replace(name.size() - 4, 4, "beta");
  }
  const auto half = tensors.begin() + 9;
  folder.write_tensors("one.safetensors", {tensors.begin(), half});
  folder.write_tensors("two.safetensors", {half, tensors.end()});
  nlohmann::json index;
  for (auto it = tensors.begin(); it != tensors.end(); ++it)
    index["weight_map"][it->first] = it < half ? "one.safetensors" : "two.safetensors";
  folder.write("model.safetensors.index.json", index.dump());
  const Bert bert = Bert::from_pretrained(folder.path);
  for (const Parameter& p : bert.parameters()) REQUIRE(p.value.equal(at::ones_like(p.value)));
  REQUIRE(bert.buffers().empty());

  const std::string at = (folder.path / "model.safetensors.index.json").string(), name = tensors.front().first;
  const auto complaint = [&](const nlohmann::json& shard) {
    index["weight_map"][name] = shard;
    folder.write("model.safetensors.index.json", index.dump());
    return message([&] { (void)Bert::from_pretrained(folder.path); });
  };
  CHECK(complaint("two.safetensors") == "[R406] " + at + ": tensor \"" + name + "\" is not in two.safetensors");
  CHECK(complaint("../one.safetensors").starts_with("[R406] " + at + ": tensor \"" + name + "\": "));
}

TEST_CASE("ids beyond the tables and texts beyond the positions are refused before they are looked up") {
  const Bert bert = small_bert();
  TokenBatch batch = random_batch({3, 4}, 1);
  batch.ids[2] = 50;
  CHECK(message([&] { (void)bert.forward(batch); }) == "[R438] token id 50: the encoder has 0 .. 49");
  batch.ids[2] = -1;
  CHECK(message([&] { (void)bert.forward(batch); }) == "[R438] token id -1: the encoder has 0 .. 49");
  batch.ids[2] = 1;
  batch.types = batch.types + 2;
  CHECK(message([&] { (void)bert.forward(batch); }) == "[R438] token type 2: the encoder has 0 .. 1");
  const TokenBatch longer = random_batch({3, 41}, 1);
  CHECK(message([&] { (void)bert.forward(longer); }) == "[R439] text 1: 41 tokens, the encoder takes at most 40");
}

TEST_CASE("an empty batch, empty texts and a single token go through") {
  const Bert bert = small_bert(0.1, 0.1);
  for (const Lengths& lengths : {Lengths{}, Lengths{0, 0}, Lengths{1}, Lengths{0, 1, 0}}) {
    TokenBatch batch = random_batch(lengths, 2);
    for (int round = 0; round < 2; ++round) {
      const at::Tensor out = bert.forward(batch).values;
      REQUIRE(out.sizes() == at::IntArrayRef({batch.tokens(), 32}));
      out.sum().backward();
      batch.dropout_key = 4;
    }
  }
}

TEST_CASE("random weights follow the configuration and the seed") {
  const Bert a = small_bert(), b = small_bert(), c = Bert::from_config(small_config(), 4);
  const at::Tensor words = a.parameters()[0].value;
  REQUIRE(words.equal(b.parameters()[0].value));
  REQUIRE_FALSE(words.equal(c.parameters()[0].value));
  REQUIRE(words[0].abs().max().item<double>() == 0);
  REQUIRE(std::abs(words.std().item<double>() - 0.3) < 0.02);
  REQUIRE(a.parameters().size() == 5 + 2 * 16);
}

TEST_CASE("the vocabulary grows and shrinks under the same handle") {
  Bert bert = small_bert();
  const Parameter words = bert.parameters()[0];
  const at::Tensor before = words.value.detach().clone();
  const Bert copy = bert;
  bert.resize_vocabulary(450, 1);
  REQUIRE(words.value.size(0) == 450);
  REQUIRE(words.value.requires_grad());
  REQUIRE(copy.vocabulary_size() == 450);
  REQUIRE(nlohmann::json::parse(bert.config_json())["vocab_size"] == 450);
  REQUIRE(words.value.narrow(0, 0, 50).equal(before));
  const at::Tensor fresh = words.value.narrow(0, 50, 400).detach();
  REQUIRE(((fresh.mean(0) - before.mean(0)).abs() < 4 * before.std(0, false) / 20).all().item<bool>());
  REQUIRE(std::abs((fresh.std(0) / before.std(0, false)).mean().item<double>() - 1) < 0.05);
  Bert twin = small_bert();
  twin.resize_vocabulary(450, 1);
  REQUIRE(twin.parameters()[0].value.equal(words.value));
  bert.forward(random_batch({5}, 1, 450)).values.sum().backward();
  bert.resize_vocabulary(20, 1);
  REQUIRE(words.value.equal(before.narrow(0, 0, 20)));
  REQUIRE(message([&] { (void)bert.forward(random_batch({40}, 1)); }).starts_with("[R438] token id "));
}

TEST_CASE("the choice of kernels prints and can be set") {
  linear_kernel_override() = LinearKernel::onednn;
  REQUIRE(describe_linear_kernels().ends_with(": fp32 onednn onednn onednn, bf16 onednn onednn onednn"));
  linear_kernel_override().reset();
  REQUIRE(describe_linear_kernels().find(": fp32 ") != std::string::npos);
}
