// SPDX-License-Identifier: Apache-2.0
// T2. BERT: token ids to token embeddings, without a padded token.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/normal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "toller/core/check.hpp"
#include "toller/core/seed.hpp"
#include "toller/encoder/attention.hpp"
#include "toller/encoder/bert_config.hpp"
#include "toller/encoder/encoder.hpp"
#include "toller/encoder/linear.hpp"
#include "toller/encoder/pretrained.hpp"

namespace toller {

/// The encoder of BERT, MiniLM, BGE, E5 and the like. A handle: copies share weights.
///
/// x = LN(word + position + type); for each layer: x = LN(x + attention(x)); x = LN(x + W2 act(W1 x + b1) + b2).
/// Shapes   batch of T tokens -> [T, H].
/// Types    weights float32 (float64 after `to_type`); under autocast dense layers and attention run in its type, layer norms,
///          softmax and the residual stream in float32.
/// Masks    tokens with `attended` false see the attended ones of their text and are seen by none.
/// Errors   reading: see PretrainedFolder and BertConfig. forward: DataError R438, an id, type or position that the tables
///          lack; ConfigError R439, a text longer than `max_positions`.
/// Source   Devlin et al. 2018, https://arxiv.org/abs/1810.04805; names as in Hugging Face's BertModel.
class Bert {
public:
  /// Reads a folder with `config.json` and `model.safetensors` (or shards).
  [[nodiscard]] static Bert from_pretrained(const std::filesystem::path& dir);

  /// Random weights as BERT starts: N(0, initializer_range), biases 0, layer norms 1 and 0, the padding row 0.
  [[nodiscard]] static Bert from_config(const std::string& config_json, std::uint64_t seed);

  [[nodiscard]] TokenEmbeddings forward(const TokenBatch& batch) const;

  [[nodiscard]] std::int64_t hidden_size() const { return state_->config.hidden; }
  [[nodiscard]] std::int64_t vocabulary_size() const { return state_->config.vocabulary; }
  [[nodiscard]] std::int64_t max_positions() const { return state_->config.positions; }
  [[nodiscard]] const BertConfig& config() const { return state_->config; }

  /// What is trained, in the order of Hugging Face's module.
  [[nodiscard]] Parameters parameters() const { return state_->parameters; }
  /// What is kept from the file but not used here (the pooler); it has no gradient.
  [[nodiscard]] Parameters buffers() const { return state_->buffers; }
  /// All that a saved file holds: parameters, then buffers.
  [[nodiscard]] Parameters saved_tensors() const;

  /// The `config.json` to save: as read, with `vocab_size` of now.
  [[nodiscard]] std::string config_json() const;

  /// Grows or cuts the word embedding to `rows`; new rows ~ N(mean, std) of the old ones, each dimension by itself.
  void resize_vocabulary(std::int64_t rows, std::uint64_t seed);

  /// Moves the weights; handles and copies follow.
  void to(at::Device device) {
    convert([&](const at::Tensor& t) { return t.to(device); });
  }
  /// Converts the weights to a type; float64 is for tests.
  void to_type(at::ScalarType type) {
    convert([&](const at::Tensor& t) { return t.to(type); });
  }

private:
  struct Dense {
    at::Tensor weight{}, bias{};
  };
  struct Layer {
    Dense query{}, key{}, value{}, attention_output{}, attention_norm{}, intermediate{}, output{}, output_norm{};
  };
  struct State {
    BertConfig config{};
    at::Tensor words{}, positions{}, types{};
    Dense norm{};
    std::vector<Layer> layers{};
    Parameters parameters{}, buffers{};
  };
  enum class Kind { embedding, weight, bias, norm_weight };
  using Source = std::function<at::Tensor(const std::string& name, const std::vector<std::int64_t>& shape, Kind kind)>;

  explicit Bert(std::shared_ptr<State> state) : state_(std::move(state)) {}
  [[nodiscard]] static Bert build(BertConfig config, const Source& source);
  void check(const TokenBatch& batch) const;
  void convert(const std::function<at::Tensor(const at::Tensor&)>& change);

  std::shared_ptr<State> state_;
};

// ---------------------------------------------------------------------------------------------------------------- making

inline Bert Bert::build(BertConfig config, const Source& source) {
  auto state = std::make_shared<State>();
  state->config = std::move(config);
  const BertConfig& c = state->config;
  const auto take = [&](const std::string& name, std::vector<std::int64_t> shape, Kind kind) {
    at::Tensor value = source(name, shape, kind);
    value.set_requires_grad(true);
    state->parameters.push_back({name, value, kind == Kind::embedding});
    return value;
  };
  const auto dense = [&](const std::string& name, std::int64_t out, std::int64_t in) {
    at::Tensor weight = take(name + ".weight", {out, in}, Kind::weight);
    return Dense{weight, take(name + ".bias", {out}, Kind::bias)};
  };
  const auto norm = [&](const std::string& name) {
    at::Tensor weight = take(name + ".weight", {c.hidden}, Kind::norm_weight);
    return Dense{weight, take(name + ".bias", {c.hidden}, Kind::bias)};
  };
  state->words = take("embeddings.word_embeddings.weight", {c.vocabulary, c.hidden}, Kind::embedding);
  state->positions = take("embeddings.position_embeddings.weight", {c.positions, c.hidden}, Kind::embedding);
  state->types = take("embeddings.token_type_embeddings.weight", {c.types, c.hidden}, Kind::embedding);
  state->norm = norm("embeddings.LayerNorm");
  for (std::int64_t i = 0; i < c.layers; ++i) {
    const std::string at = "encoder.layer." + std::to_string(i) + ".";
    Layer layer;
    layer.query = dense(at + "attention.self.query", c.hidden, c.hidden);
    layer.key = dense(at + "attention.self.key", c.hidden, c.hidden);
    layer.value = dense(at + "attention.self.value", c.hidden, c.hidden);
    layer.attention_output = dense(at + "attention.output.dense", c.hidden, c.hidden);
    layer.attention_norm = norm(at + "attention.output.LayerNorm");
    layer.intermediate = dense(at + "intermediate.dense", c.intermediate, c.hidden);
    layer.output = dense(at + "output.dense", c.hidden, c.intermediate);
    layer.output_norm = norm(at + "output.LayerNorm");
    state->layers.push_back(std::move(layer));
  }
  return Bert(std::move(state));
}

inline Bert Bert::from_pretrained(const std::filesystem::path& dir) {
  BertConfig config = BertConfig::parse(read_config_text(dir), (dir / "config.json").string());
  const auto folder = PretrainedFolder::open(dir, "bert.");
  Bert bert = build(std::move(config), [&](const std::string& name, const std::vector<std::int64_t>& shape, Kind) {
    return folder.read(name, shape);
  });
  for (const char* name : {"pooler.dense.weight", "pooler.dense.bias"})
    if (folder.has(name)) bert.state_->buffers.push_back({name, folder.read(name)});
  return bert;
}

inline Bert Bert::from_config(const std::string& config_json, std::uint64_t seed) {
  BertConfig config = BertConfig::parse(config_json, "config");
  const double deviation = config.initializer_range;
  const std::int64_t padding = config.padding_id;
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(mix_seed(seed, Stream::init));
  return build(std::move(config), [&](const std::string& name, const std::vector<std::int64_t>& shape, Kind kind) {
    if (kind == Kind::norm_weight) return at::ones(shape);
    if (kind == Kind::bias) return at::zeros(shape);
    at::Tensor value = at::normal(0, deviation, shape, generator);
    if (name == "embeddings.word_embeddings.weight" && padding >= 0 && padding < shape[0]) value[padding].zero_();
    return value;
  });
}

inline Parameters Bert::saved_tensors() const {
  Parameters all = state_->parameters;
  all.insert(all.end(), state_->buffers.begin(), state_->buffers.end());
  return all;
}

inline std::string Bert::config_json() const {
  nlohmann::json json = state_->config.source;
  json["vocab_size"] = state_->config.vocabulary;
  return json.dump(2);
}

inline void Bert::resize_vocabulary(std::int64_t rows, std::uint64_t seed) {
  if (rows < 1) throw ConfigError("R434", detail::cat("vocabulary: ", rows, " rows, expected at least 1"));
  const c10::NoGradGuard no_grad;
  at::Tensor& words = state_->words;
  const at::Tensor old = words.detach();
  const std::int64_t before = old.size(0);
  at::Tensor resized;
  if (rows <= before) {
    resized = old.narrow(0, 0, rows).clone();
  } else {
    const auto generator = at::make_generator<at::CPUGeneratorImpl>(mix_seed(seed, Stream::init));
    const at::Tensor noise = at::normal(0, 1, {rows - before, old.size(1)}, generator).to(old.options());
    resized = at::cat({old, old.mean(0) + noise * old.std(0, /*unbiased=*/false)});
  }
  words.mutable_grad() = at::Tensor();
  words.set_data(resized);
  state_->config.vocabulary = rows;
}

inline void Bert::convert(const std::function<at::Tensor(const at::Tensor&)>& change) {
  const c10::NoGradGuard no_grad;
  for (Parameters* list : {&state_->parameters, &state_->buffers})
    for (Parameter& p : *list) {
      p.value.set_data(change(p.value.detach()));
      p.value.mutable_grad() = at::Tensor();
    }
}

// --------------------------------------------------------------------------------------------------------------- forward

inline void Bert::check(const TokenBatch& batch) const {
  const BertConfig& c = state_->config;
  const std::int64_t tokens = batch.tokens();
  expect_shape("ids", batch.ids, {tokens});
  expect_shape("positions", batch.positions, {tokens});
  expect_shape("types", batch.types, {tokens});
  if (!batch.all_attended) expect_shape("attended", batch.attended, {tokens});
  for (std::int64_t i = 0; i < batch.texts(); ++i)
    if (batch.length(i) > c.positions)
      throw ConfigError("R439",
                        detail::cat("text ", i, ": ", batch.length(i), " tokens, the encoder takes at most ", c.positions));
  if (batch.dropout_key && static_cast<std::int64_t>(batch.text_index.size()) != batch.texts())
    throw ShapeError("R301", detail::cat("text_index: expected ", batch.texts(), " numbers, got ", batch.text_index.size()));
  if (tokens == 0) return;
  const auto within = [&](const char* what, const at::Tensor& numbers, std::int64_t size) {
    const auto [low, high] = at::aminmax(numbers);
    const std::int64_t least = low.item<std::int64_t>(), most = high.item<std::int64_t>();
    if (least < 0 || most >= size)
      throw DataError("R438", detail::cat(what, " ", least < 0 ? least : most, ": the encoder has 0 .. ", size - 1));
  };
  within("token id", batch.ids, c.vocabulary);
  within("position", batch.positions, c.positions);
  within("token type", batch.types, c.types);
}

inline TokenEmbeddings Bert::forward(const TokenBatch& batch) const {
  check(batch);
  const State& s = *state_;
  const BertConfig& c = s.config;
  const at::Device device = s.words.device();
  const bool autocast = at::autocast::is_autocast_enabled(device.type());
  const at::ScalarType type = autocast ? at::autocast::get_autocast_dtype(device.type()) : s.words.scalar_type();
  const c10::impl::ExcludeDispatchKeyGuard explicit_casts(c10::autocast_dispatch_keyset);  // every cast below is written

  AttentionPlan plan = AttentionPlan::build(batch);
  if (detail::attention_needs_blocks(device, type)) plan.build_blocks(device);
  const auto dropout = [&](double p, std::int64_t layer, DropoutSite site) {
    return make_dropout(batch, plan.offsets, p, layer, site);
  };
  const auto layer_norm = [&](const at::Tensor& x, const Dense& norm) {
    return at::layer_norm(x, {c.hidden}, norm.weight, norm.bias, c.layer_norm_eps);
  };

  const std::int64_t padding = c.padding_id >= 0 && c.padding_id < c.vocabulary ? c.padding_id : -1;
  at::Tensor x = at::embedding(s.words, batch.ids, padding) + at::embedding(s.types, batch.types) +
                 at::embedding(s.positions, batch.positions);
  x = dropout_add(layer_norm(x, s.norm), {}, dropout(c.hidden_dropout, 0, DropoutSite::embeddings));
  for (std::int64_t i = 0; i < c.layers; ++i) {
    const Layer& l = s.layers[static_cast<std::size_t>(i)];
    const at::Tensor qkv = linear_side_by_side(x.to(type), {l.query.weight, l.key.weight, l.value.weight},
                                               {l.query.bias, l.key.bias, l.value.bias});
    const at::Tensor context = attention(qkv, c.heads, plan, dropout(c.attention_dropout, i, DropoutSite::attention));
    const at::Tensor attended = linear(context, l.attention_output.weight, l.attention_output.bias);
    x = layer_norm(dropout_add(attended, x, dropout(c.hidden_dropout, i, DropoutSite::attention_output)), l.attention_norm);
    const at::Tensor inner = linear(x.to(type), l.intermediate.weight, l.intermediate.bias, c.activation);
    const at::Tensor fed = linear(inner, l.output.weight, l.output.bias);
    x = layer_norm(dropout_add(fed, x, dropout(c.hidden_dropout, i, DropoutSite::feed_forward_output)), l.output_norm);
  }
  return {x, batch};
}

}  // namespace toller
