// SPDX-License-Identifier: Apache-2.0
// T2. The settings of a folder, from the several files in which its writers keep them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "toller/export/detail/read_modules.hpp"
#include "toller/export/folder_settings.hpp"
#include "toller/store/json_file.hpp"

namespace toller::detail {

/// A JSON object of a file that may be absent (then empty).
[[nodiscard]] inline nlohmann::json optional_json(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return nlohmann::json::object();
  nlohmann::json json = read_json_file(path);
  if (!json.is_object()) module_error("R411", path, "expected a JSON object, got " + std::string(json.type_name()));
  return json;
}

/// sentence_bert_config.json, or the same under one of the names that early versions gave it.
[[nodiscard]] inline std::filesystem::path transformer_config(const std::filesystem::path& encoder_dir) {
  for (const char* kind : {"bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet"}) {
    const auto path = encoder_dir / cat("sentence_", kind, "_config.json");
    if (std::filesystem::exists(path)) return path;
  }
  return encoder_dir / "sentence_bert_config.json";
}

/// The longest text: as said, else the least of what the tokenizer and the encoder take.
[[nodiscard]] inline std::optional<std::int64_t> longest_text(const std::filesystem::path& encoder_dir) {
  const auto path = transformer_config(encoder_dir);
  if (const auto said = json_value<std::int64_t>(optional_json(path), "max_seq_length", path)) return said;
  std::optional<std::int64_t> least;
  for (const auto& [file, key] :
       {std::pair{"tokenizer_config.json", "model_max_length"}, {"config.json", "max_position_embeddings"}}) {
    const auto value = json_value<double>(optional_json(encoder_dir / file), key, encoder_dir / file);  // may be 1e30
    if (value && *value >= 1 && *value < 1e9) least = std::min(least.value_or(INT64_MAX), static_cast<std::int64_t>(*value));
  }
  return least;
}

[[nodiscard]] inline FolderSettings read_common(const std::filesystem::path& dir, const std::filesystem::path& encoder_dir) {
  FolderSettings settings;
  const auto path = dir / "config_sentence_transformers.json";
  const nlohmann::json json = optional_json(path);
  if (json.contains("prompts") && json["prompts"].is_object())
    for (const auto& [name, text] : json["prompts"].items())
      if (text.is_string()) settings.prompts.emplace(name, text.get<std::string>());
  settings.default_prompt_name = json_value<std::string>(json, "default_prompt_name", path);
  settings.similarity = json_value<std::string>(json, "similarity_fn_name", path);
  const auto lower = transformer_config(encoder_dir);
  settings.lower_case = json_value<bool>(optional_json(lower), "do_lower_case", lower);
  return settings;
}

/// PyLate's keys. Its max_seq_length is left out: it is whatever the last text left there.
inline void read_pylate(FolderSettings& settings, const std::filesystem::path& dir) {
  const auto path = dir / "config_sentence_transformers.json";
  const nlohmann::json json = optional_json(path);
  settings.query_prefix = json_value<std::string>(json, "query_prefix", path);
  settings.document_prefix = json_value<std::string>(json, "document_prefix", path);
  settings.query_length = json_value<std::int64_t>(json, "query_length", path);
  settings.document_length = json_value<std::int64_t>(json, "document_length", path);
  settings.do_query_expansion = json_value<bool>(json, "do_query_expansion", path);
  settings.attend_to_expansion = json_value<bool>(json, "attend_to_expansion_tokens", path);
  settings.skiplist_words = json_value<std::vector<std::string>>(json, "skiplist_words", path);
}

/// Splits a prompt that begins with an added token into that marker and the text behind it.
inline std::string split_marker(const std::filesystem::path& encoder_dir, std::string& prompt) {
  const auto path = encoder_dir / "tokenizer.json";
  const nlohmann::json json = optional_json(path);
  std::string marker;
  if (json.contains("added_tokens") && json["added_tokens"].is_array())
    for (const auto& token : json["added_tokens"]) {
      const std::string content = json_value<std::string>(token, "content", path).value_or("");
      if (content.size() > marker.size() && prompt.rfind(content, 0) == 0) marker = content;
    }
  prompt.erase(0, marker.size());
  return marker;
}

/// Sentence Transformers 6: lengths and expansion beside the Transformer, skiplist in a module, markers as prompts.
inline void read_multi_vector(FolderSettings& settings, FolderModules& modules, const std::vector<ModuleLine>& lines) {
  const auto& encoder_dir = lines.front().folder;
  const auto path = transformer_config(encoder_dir);
  const nlohmann::json json = optional_json(path);
  const auto longest = longest_text(encoder_dir);
  settings.query_length = json_value<std::int64_t>(json, "query_length", path);
  settings.document_length = json_value<std::int64_t>(json, "document_length", path);
  if (!settings.query_length) settings.query_length = longest;
  if (!settings.document_length) settings.document_length = longest;
  settings.do_query_expansion = json.contains("query_expansion") && !json["query_expansion"].is_null();
  if (*settings.do_query_expansion) {
    const auto& expansion = json["query_expansion"];
    const auto strategy = json_value<std::string>(expansion, "strategy", path).value_or("fixed");
    const auto token = json_value<std::string>(expansion, "token", path);
    const auto tokenizer = encoder_dir / "tokenizer_config.json";
    const auto mask = json_value<std::string>(optional_json(tokenizer), "mask_token", tokenizer).value_or("[MASK]");
    if (strategy != "fixed")
      module_error("R806", path, "query_expansion strategy " + in_quotes(strategy) + " is not supported");
    if (token && *token != mask) module_error("R806", path, "query_expansion token " + in_quotes(*token) + " is not supported");
    settings.query_length = json_value<std::int64_t>(expansion, "length", path).value_or(32);
    settings.attend_to_expansion = json_value<bool>(expansion, "attend", path).value_or(false);
  }
  settings.similarity = "MaxSim";
  settings.query_prefix = split_marker(encoder_dir, settings.prompts["query"]);
  settings.document_prefix = split_marker(encoder_dir, settings.prompts["document"]);

  settings.skiplist_words.emplace();
  for (const ModuleLine& line : lines) {
    if (line.type != "MultiVectorMask") continue;
    const auto mask_path = line.folder / "config.json";
    const nlohmann::json mask = optional_json(mask_path);
    settings.skiplist_words =
        json_value<std::vector<std::string>>(mask, "skiplist_words", mask_path).value_or(std::vector<std::string>());
    const auto tasks = json_value<std::vector<std::string>>(mask, "skiplist_tasks", mask_path);
    if (tasks && *tasks != std::vector<std::string>{"document"} && !settings.skiplist_words->empty())
      module_error("R806", mask_path, "skiplist_tasks other than [\"document\"] are not supported");
    if (mask.contains("keep_only_token_ids") && !mask["keep_only_token_ids"].is_null())
      module_error("R806", mask_path, "keep_only_token_ids is not supported");
  }
  if (modules.empty() || modules.back().type != "Normalize")
    module_error("R806", encoder_dir, "late interaction without a Normalize at its end is not supported");
  modules.pop_back();  // late interaction always normalises
}

/// Stanford's ColBERT: the projection is `linear.weight` of the root file, the settings are in artifact.metadata.
inline void read_stanford(ModelFolder& folder, const std::filesystem::path& dir) {
  const at::Tensor weight = SafetensorsFolder::open(dir).weight("linear.weight");
  if (weight.dim() != 2)
    module_error("R805", dir, "tensor \"linear.weight\" has " + std::to_string(weight.dim()) + " dimensions, expected 2");
  folder.modules = {{"Dense",
                     {{"in_features", weight.size(1)},
                      {"out_features", weight.size(0)},
                      {"bias", false},
                      {"activation_function", "torch.nn.modules.linear.Identity"},
                      {"use_residual", false}},
                     {{"linear.weight", weight}}}};
  const auto path = dir / "artifact.metadata";
  const nlohmann::json json = optional_json(path);
  FolderSettings& settings = folder.settings;
  settings.similarity = "MaxSim";
  settings.query_prefix = json_value<std::string>(json, "query_token_id", path).value_or("[unused0]");
  settings.document_prefix = json_value<std::string>(json, "doc_token_id", path).value_or("[unused1]");
  settings.query_length = json_value<std::int64_t>(json, "query_maxlen", path);
  settings.document_length = json_value<std::int64_t>(json, "doc_maxlen", path);
  settings.attend_to_expansion = json_value<bool>(json, "attend_to_mask_tokens", path);
  if (!json_value<bool>(json, "mask_punctuation", path).value_or(true)) settings.skiplist_words.emplace();
}

}  // namespace toller::detail
