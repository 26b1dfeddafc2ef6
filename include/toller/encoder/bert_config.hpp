// SPDX-License-Identifier: Apache-2.0
// T0. The config.json of a BERT encoder, read and checked.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <type_traits>

#include "toller/core/error.hpp"
#include "toller/encoder/activation.hpp"
#include "toller/store/json_file.hpp"

namespace toller {

/// What the encoder needs from `config.json`; `source` is the whole file, kept so that saving it loses nothing.
struct BertConfig {
  std::int64_t vocabulary = 0;
  std::int64_t hidden = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t intermediate = 0;
  std::int64_t positions = 0;
  std::int64_t types = 2;
  std::int64_t padding_id = 0;
  double layer_norm_eps = 1e-12;
  double hidden_dropout = 0.1;
  double attention_dropout = 0.1;
  double initializer_range = 0.02;
  Activation activation = Activation::gelu;
  nlohmann::json source = nlohmann::json::object();

  /// Reads the text of a `config.json`; `where` begins the error messages.
  ///
  /// Errors   ConfigError R432: not JSON or nested too deeply, or a field missing or of the wrong kind. R433: another
  ///          architecture. R434: a size, probability or epsilon out of range, or sizes that do not go together. R435: an
  ///          activation or position embedding that is not supported.
  [[nodiscard]] static BertConfig parse(const std::string& text, const std::string& where);
};

namespace detail {

/// Parses the text of a config.json and says which architecture it names.
inline nlohmann::json parse_config(const std::string& text, const std::string& where) {
  const auto fail = [&](const std::string& what) { throw ConfigError("R432", cat(where, ": ", what)); };
  nlohmann::json json;
  try {
    json = parse_shallow_json(text, fail);
  } catch (const nlohmann::json::exception&) {
  }
  if (!json.is_object()) fail("not a JSON object");
  return json;
}

inline std::string model_type(const nlohmann::json& json) {
  return json.contains("model_type") && json["model_type"].is_string() ? json["model_type"].get<std::string>() : "none";
}

template <class T>
void read_field(const nlohmann::json& json, const std::string& where, const char* key, T& value, bool required = false) {
  if (!json.contains(key) || json[key].is_null()) {
    if (required) throw ConfigError("R432", cat(where, ": field \"", key, "\" is missing"));
    return;
  }
  const bool fits = std::is_integral_v<T> ? json[key].is_number_integer() : json[key].is_number();
  if (!fits)
    throw ConfigError("R432",
                      cat(where, ": field \"", key, "\" is not ", std::is_integral_v<T> ? "a whole number" : "a number"));
  if constexpr (std::is_integral_v<T>)
    if (json[key].is_number_unsigned() && json[key].get<std::uint64_t>() > std::uint64_t{INT64_MAX}) {
      value = std::numeric_limits<T>::max();  // which no size can be
      return;
    }
  value = json[key].get<T>();
}

}  // namespace detail

inline BertConfig BertConfig::parse(const std::string& text, const std::string& where) {
  BertConfig c;
  c.source = detail::parse_config(text, where);
  const std::string type = detail::model_type(c.source);
  if (type != "bert") throw ConfigError("R433", where + ": model_type is \"" + type + "\", supported: bert");

  const auto read = [&](const char* key, auto& value, bool required = false) {
    detail::read_field(c.source, where, key, value, required);
  };
  read("vocab_size", c.vocabulary, true);
  read("hidden_size", c.hidden, true);
  read("num_hidden_layers", c.layers, true);
  read("num_attention_heads", c.heads, true);
  read("intermediate_size", c.intermediate, true);
  read("max_position_embeddings", c.positions, true);
  read("type_vocab_size", c.types);
  read("pad_token_id", c.padding_id);
  read("layer_norm_eps", c.layer_norm_eps);
  read("hidden_dropout_prob", c.hidden_dropout);
  read("attention_probs_dropout_prob", c.attention_dropout);
  read("initializer_range", c.initializer_range);

  const auto expect = [&](bool holds, const char* key, std::string_view expected) {
    if (!holds) throw ConfigError("R434", detail::cat(where, ": ", key, " is ", c.source[key].dump(), ", expected ", expected));
  };
  const auto positive = [&](const char* key, std::int64_t value) {
    expect(value >= 1 && value <= INT32_MAX, key, "1 to 2147483647");
  };
  positive("vocab_size", c.vocabulary);
  positive("hidden_size", c.hidden);
  positive("num_hidden_layers", c.layers);
  positive("num_attention_heads", c.heads);
  positive("intermediate_size", c.intermediate);
  positive("max_position_embeddings", c.positions);
  positive("type_vocab_size", c.types);
  if (c.hidden % c.heads != 0)
    throw ConfigError("R434", detail::cat(where, ": num_attention_heads ", c.heads, " does not divide hidden_size ", c.hidden));
  const auto probability = [&](const char* key, double p) { expect(p >= 0 && p < 1, key, "0 <= p < 1"); };
  probability("hidden_dropout_prob", c.hidden_dropout);
  probability("attention_probs_dropout_prob", c.attention_dropout);
  // In float32, as the layer norms compute.
  const auto in_float = static_cast<float>(c.layer_norm_eps);
  expect(in_float > 0 && std::isfinite(in_float), "layer_norm_eps", "a number above 0 that float32 holds");
  expect(c.initializer_range >= 0 && std::isfinite(static_cast<float>(c.initializer_range)), "initializer_range",
         "0 or more, that float32 holds");

  const std::string act = c.source.value("hidden_act", nlohmann::json("gelu")).is_string()
                              ? c.source.value("hidden_act", std::string("gelu"))
                              : std::string("not a string");
  if (act == "gelu")
    c.activation = Activation::gelu;
  else if (act == "gelu_new" || act == "gelu_pytorch_tanh" || act == "gelu_tanh")
    c.activation = Activation::gelu_tanh;
  else if (act == "relu")
    c.activation = Activation::relu;
  else
    throw ConfigError("R435", where + ": hidden_act is \"" + act + "\", supported: gelu, gelu_new, gelu_pytorch_tanh, relu");
  if (c.source.contains("position_embedding_type") && c.source["position_embedding_type"] != "absolute")
    throw ConfigError(
        "R435", where + ": position_embedding_type is " + c.source["position_embedding_type"].dump() + ", supported: absolute");
  return c;
}

}  // namespace toller
