// SPDX-License-Identifier: Apache-2.0
// T2. Writes folders that Sentence Transformers and PyLate load.
#pragma once

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "toller/core/error.hpp"
#include "toller/core/values.hpp"
#include "toller/core/version.hpp"
#include "toller/export/detail/model_card.hpp"
#include "toller/export/folder_settings.hpp"
#include "toller/store/atomic_folder.hpp"
#include "toller/store/write_safetensors.hpp"

namespace toller {

/// Everything a folder holds. `kind` is `sentence_transformers` or `pylate`; the texts are those of the files.
struct WriteModel {
  FolderKind kind = FolderKind::sentence_transformers;
  std::string config_json{};
  Parameters encoder_tensors{};
  FolderModules modules{};
  FolderSettings settings{};
  std::string tokenizer_json{};
  nlohmann::json tokenizer_config = nlohmann::json::object();
};

namespace detail {

using OrderedJson = nlohmann::ordered_json;

inline void write_json(const std::filesystem::path& path, const OrderedJson& json) {
  write_file_atomically(path, json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

/// The text of a JSON file that another room made, as an object.
[[nodiscard]] inline nlohmann::json parsed(const std::string& text, std::string_view what) {
  auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) throw FileError("R807", cat("cannot save: the model's ", what, " is not a JSON object"));
  return json;
}

/// What the folder says of itself; the versions are those whose layout it follows.
[[nodiscard]] inline OrderedJson library_config(const WriteModel& model) {
  const FolderSettings& settings = model.settings;
  OrderedJson json = OrderedJson::object();
  if (model.kind != FolderKind::pylate) json["model_type"] = "SentenceTransformer";  // PyLate leaves it out
  json["__version__"] = {
      {"sentence_transformers", "5.3.0"}, {"transformers", "5.3.0"}, {"pytorch", "2.11.0"}, {"toller", TOLLER_VERSION}};
  OrderedJson prompts = {{"query", ""}, {"document", ""}};
  for (const auto& [name, text] : settings.prompts) prompts[name] = text;
  json["prompts"] = prompts;
  json["default_prompt_name"] = nullptr;
  if (settings.default_prompt_name) json["default_prompt_name"] = *settings.default_prompt_name;
  if (model.kind != FolderKind::pylate) {
    json["similarity_fn_name"] = settings.similarity.value_or("cosine");
    return json;
  }
  json["similarity_fn_name"] = "MaxSim";
  const auto put = [&](const char* key, const auto& value) {
    if (value) json[key] = *value;
  };
  put("query_prefix", settings.query_prefix);
  put("document_prefix", settings.document_prefix);
  put("query_length", settings.query_length);
  put("document_length", settings.document_length);
  put("attend_to_expansion_tokens", settings.attend_to_expansion);
  put("skiplist_words", settings.skiplist_words);
  put("do_query_expansion", settings.do_query_expansion);
  return json;
}

/// A module's config with exactly the keys that its Python class takes, in their usual order.
[[nodiscard]] inline OrderedJson module_config(const FolderModule& module, FolderKind kind) {
  OrderedJson json = OrderedJson::object();
  const auto copy = [&](std::initializer_list<const char*> keys) {
    for (const char* key : keys)
      if (module.config.contains(key)) json[key] = module.config[key];
  };
  if (module.type == "Pooling") {
    copy({"word_embedding_dimension", "pooling_mode_cls_token", "pooling_mode_mean_tokens", "pooling_mode_max_tokens",
          "pooling_mode_mean_sqrt_len_tokens", "pooling_mode_weightedmean_tokens", "pooling_mode_lasttoken", "include_prompt"});
    for (const auto& [key, value] : module.config.items())  // a pooling of the user's own
      if (!json.contains(key)) json[key] = value;
  }
  if (module.type == "Dropout") copy({"dropout"});
  if (module.type == "Dense") copy({"in_features", "out_features", "bias", "activation_function"});
  if (module.type != "Dense") return json;
  const bool residual = module.config.value("use_residual", false);
  if (kind == FolderKind::pylate)
    json["use_residual"] = residual;
  else if (residual)
    throw FileError("R808", "cannot save: the Dense of Sentence Transformers has no residual");
  return json;
}

[[nodiscard]] inline std::string python_type(const FolderModule& module, FolderKind kind) {
  if (module.type == "Dense" && kind == FolderKind::pylate) return "pylate.models.Dense.Dense";
  if (module.type != "Pooling" && module.type != "Dense" && module.type != "Normalize" && module.type != "Dropout")
    throw FileError("R808", cat("cannot save: no module type ", in_quotes(module.type), " in this layout"));
  return "sentence_transformers.models." + module.type;
}

inline void write_modules(const std::filesystem::path& dir, const WriteModel& model) {
  OrderedJson lines = {{{"idx", 0}, {"name", "0"}, {"path", ""}, {"type", "sentence_transformers.models.Transformer"}}};
  for (const FolderModule& module : model.modules) {
    const std::string number = std::to_string(lines.size());
    const std::string folder = number + "_" + module.type;
    lines.push_back({{"idx", lines.size()}, {"name", number}, {"path", folder}, {"type", python_type(module, model.kind)}});
    std::filesystem::create_directory(dir / folder);
    if (module.type != "Normalize") write_json(dir / folder / "config.json", module_config(module, model.kind));
    if (!module.tensors.empty())
      write_safetensors(dir / folder / "model.safetensors", NamedTensors(module.tensors.begin(), module.tensors.end()), {});
  }
  write_json(dir / "modules.json", lines);
}

/// The tokenizer's config; PyLate pads with the mask token, on both sides, and saves that.
[[nodiscard]] inline OrderedJson written_tokenizer_config(const WriteModel& model, const nlohmann::json& tokenizer) {
  OrderedJson config = OrderedJson(model.tokenizer_config.is_object() ? model.tokenizer_config : nlohmann::json::object());
  if (model.kind != FolderKind::pylate) return config;
  for (const char* key : {"mask_token", "eos_token"})
    if (config.contains(key) && !config[key].is_null()) {
      config["pad_token"] = config[key];
      break;
    }
  for (const auto& marker : {model.settings.query_prefix, model.settings.document_prefix}) {
    if (!marker || marker->empty()) continue;
    const auto added = tokenizer.value("added_tokens", nlohmann::json::array());
    const bool is_added =
        std::any_of(added.begin(), added.end(), [&](const auto& t) { return t.value("content", "") == *marker; });
    const auto known = tokenizer.value("model", nlohmann::json::object()).value("vocab", nlohmann::json::object());
    if (!is_added && !known.contains(*marker))
      throw FileError("R807", cat("cannot save: the tokenizer has no token ", in_quotes(*marker), ", the marker of the model"));
  }
  return config;
}

/// Whether an entry of an old folder is a part of a model, and goes when a new one takes its place.
[[nodiscard]] inline bool is_model_entry(const std::string& name) {
  static const std::set<std::string> files{"config.json",
                                           "model.safetensors",
                                           "model.safetensors.index.json",
                                           "pytorch_model.bin",
                                           "tokenizer.json",
                                           "tokenizer_config.json",
                                           "special_tokens_map.json",
                                           "added_tokens.json",
                                           "vocab.txt",
                                           "vocab.json",
                                           "merges.txt",
                                           "sentencepiece.bpe.model",
                                           "spiece.model",
                                           "tokenizer.model",
                                           "modules.json",
                                           "config_sentence_transformers.json",
                                           "artifact.metadata",
                                           "README.md"};
  const bool settings =
      name.rfind("sentence_", 0) == 0 && name.size() > 12 && name.compare(name.size() - 12, 12, "_config.json") == 0;
  const bool shard =
      name.rfind("model-", 0) == 0 && name.size() > 12 && name.compare(name.size() - 12, 12, ".safetensors") == 0;
  const std::size_t digits = name.find_first_not_of("0123456789");
  const bool module =
      digits > 0 && digits + 1 < name.size() && name[digits] == '_' && name[digits + 1] >= 'A' && name[digits + 1] <= 'Z';
  return files.count(name) > 0 || settings || shard || module;
}

}  // namespace detail

/// Writes a model folder, whole or not at all: Sentence Transformers 5's layout, or PyLate's.
///
/// A folder that is there is replaced when the new one is complete; what in it is no part of a model (logs, notes) stays.
/// Errors   FileError R420: not writable or disk full; the old folder stays. R807, R808: a model that the layout cannot hold.
/// Source   The files that `save_pretrained` of Sentence Transformers 5.3 and PyLate 1.6 writes.
inline void write_model_folder(const std::filesystem::path& dir, const WriteModel& model) {
  if (model.kind != FolderKind::sentence_transformers && model.kind != FolderKind::pylate)
    throw FileError("R808", "cannot save: only the layouts of Sentence Transformers and PyLate are written");
  const auto config = detail::OrderedJson(detail::parsed(model.config_json, "config.json"));
  const auto tokenizer_config = detail::written_tokenizer_config(model, detail::parsed(model.tokenizer_json, "tokenizer.json"));
  NamedTensors tensors;
  for (const Parameter& parameter : model.encoder_tensors) tensors.emplace_back(parameter.name, parameter.value);

  AtomicFolder folder(dir);
  const auto& part = folder.path();
  detail::write_json(part / "config.json", config);
  detail::write_json(part / "config_sentence_transformers.json", detail::library_config(model));
  detail::OrderedJson transformer = {{"max_seq_length", nullptr}, {"do_lower_case", model.settings.lower_case.value_or(false)}};
  if (model.settings.max_seq_length) transformer["max_seq_length"] = *model.settings.max_seq_length;
  detail::write_json(part / "sentence_bert_config.json", transformer);
  detail::write_json(part / "tokenizer_config.json", tokenizer_config);
  write_file_atomically(part / "tokenizer.json", model.tokenizer_json);
  write_file_atomically(part / "README.md", detail::model_card(model.kind, model.modules, model.settings));
  detail::write_modules(part, model);
  write_safetensors(part / "model.safetensors", std::move(tensors));
  folder.commit(detail::is_model_entry);
}

}  // namespace toller
