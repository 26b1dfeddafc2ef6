// SPDX-License-Identifier: Apache-2.0
// T2. modules.json and the folders behind it, in the spelling of Sentence Transformers 5.
#pragma once

#include <array>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "toller/core/check.hpp"
#include "toller/core/error.hpp"
#include "toller/store/json_file.hpp"
#include "toller/store/model_folder.hpp"
#include "toller/store/safetensors_folder.hpp"

namespace toller::detail {

/// A line of modules.json.
struct ModuleLine {
  std::string python_type{};
  std::string type{};  ///< its last word
  std::filesystem::path folder{};
};

/// The spellings of a pooling: in versions up to 5 a key each, from 6 on one word.
struct PoolingSpelling {
  const char* key;
  const char* word;
};
inline constexpr std::array<PoolingSpelling, 6> pooling_spellings{
    {{"pooling_mode_cls_token", "cls"},
     {"pooling_mode_mean_tokens", "mean"},
     {"pooling_mode_max_tokens", "max"},
     {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens"},
     {"pooling_mode_weightedmean_tokens", "weightedmean"},
     {"pooling_mode_lasttoken", "lasttoken"}}};

[[noreturn]] inline void module_error(std::string_view code, const std::filesystem::path& place, const std::string& what) {
  throw FileError(code, cat(place.string(), ": ", what));
}

[[nodiscard]] inline std::vector<ModuleLine> read_module_lines(const std::filesystem::path& dir) {
  const auto path = dir / "modules.json";
  const nlohmann::json json = read_json_file(path);
  if (!json.is_array() || json.empty()) module_error("R801", path, "expected a list of modules");
  std::vector<ModuleLine> lines;
  for (const auto& entry : json) {
    const auto type = json_value<std::string>(entry, "type", path);
    const auto where = std::filesystem::path(json_value<std::string>(entry, "path", path).value_or(""));
    if (!type) module_error("R801", path, "a module has no type");
    const bool leaves = where.is_absolute() || std::find(where.begin(), where.end(), "..") != where.end();
    if (leaves) module_error("R801", path, cat("path ", in_quotes(where.string()), " leads out of the folder"));
    const bool known = type->rfind("sentence_transformers.", 0) == 0 || type->rfind("pylate.", 0) == 0;
    if (!known) module_error("R802", path, cat("module type ", in_quotes(*type), " is not supported"));
    lines.push_back({*type, type->substr(type->rfind('.') + 1), where.empty() ? dir : dir / where});
  }
  if (lines.front().type != "Transformer")
    module_error("R802", path, cat("the first module is ", in_quotes(lines.front().python_type), ", expected a Transformer"));
  return lines;
}

[[nodiscard]] inline FolderModule read_pooling(const ModuleLine& line) {
  const auto path = line.folder / "config.json";
  const nlohmann::json json = read_json_file(path);
  auto dimension = json_value<std::int64_t>(json, "word_embedding_dimension", path);
  if (!dimension) dimension = json_value<std::int64_t>(json, "embedding_dimension", path);
  if (!dimension) module_error("R804", path, "neither \"word_embedding_dimension\" nor \"embedding_dimension\" is there");
  FolderModule module{line.type, {{"word_embedding_dimension", *dimension}}, {}};
  for (const auto& spelling : pooling_spellings)
    module.config[spelling.key] = json_value<bool>(json, spelling.key, path).value_or(false);
  if (json.contains("pooling_mode")) {
    const auto& mode = json["pooling_mode"];
    for (const auto& word : mode.is_array() ? mode : nlohmann::json::array({mode})) {
      bool found = false;
      for (const auto& spelling : pooling_spellings)
        if (word == spelling.word) module.config[spelling.key] = found = true;
      if (!found) module_error("R804", path, cat("pooling_mode ", word.dump(), " is not known"));
    }
  }
  module.config["include_prompt"] = json_value<bool>(json, "include_prompt", path).value_or(true);
  return module;
}

/// Checks the weights of a Dense against its config.
inline void check_dense(const FolderModule& module, const std::filesystem::path& place) {
  const std::int64_t in = module.config["in_features"], out = module.config["out_features"];
  const auto expect = [&](const char* name, const std::vector<std::int64_t>& shape) {
    const auto found = module.tensors.find(name);
    if (found == module.tensors.end()) module_error("R805", place, cat("tensor ", in_quotes(name), " is missing"));
    if (found->second.sizes() != at::IntArrayRef(shape))
      module_error(
          "R805", place,
          cat("tensor ", in_quotes(name), ": expected ", print_shape(shape), ", got ", print_shape(found->second.sizes())));
  };
  expect("linear.weight", {out, in});
  if (module.config["bias"]) expect("linear.bias", {out});
  if (module.config["use_residual"] && in != out) expect("residual.weight", {out, in});
}

[[nodiscard]] inline FolderModule read_dense(const ModuleLine& line) {
  const auto path = line.folder / "config.json";
  const nlohmann::json json = read_json_file(path);
  const auto in = json_value<std::int64_t>(json, "in_features", path);
  const auto out = json_value<std::int64_t>(json, "out_features", path);
  if (!in || !out || *in < 1 || *out < 1) module_error("R804", path, "expected in_features and out_features of 1 or more");
  FolderModule module{line.type, {{"in_features", *in}, {"out_features", *out}}, {}};
  module.config["bias"] = json_value<bool>(json, "bias", path).value_or(true);
  module.config["activation_function"] =
      json_value<std::string>(json, "activation_function", path).value_or("torch.nn.modules.activation.Tanh");
  module.config["use_residual"] = json_value<bool>(json, "use_residual", path).value_or(false);
  const auto weights = SafetensorsFolder::open(line.folder);
  for (const std::string& name : weights.names()) module.tensors.emplace(name, weights.weight(name));
  check_dense(module, line.folder);
  return module;
}

/// The modules behind the encoder; a MultiVectorMask is a setting, not a module (see `read_multi_vector`).
[[nodiscard]] inline FolderModules read_modules(const std::filesystem::path& dir, const std::vector<ModuleLine>& lines) {
  FolderModules modules;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const ModuleLine& line = lines[i];
    if (line.type == "Pooling")
      modules.push_back(read_pooling(line));
    else if (line.type == "Dense")
      modules.push_back(read_dense(line));
    else if (line.type == "Dropout")
      modules.push_back({line.type, read_json_file(line.folder / "config.json"), {}});
    else if (line.type == "Normalize")
      modules.push_back({line.type, nlohmann::json::object(), {}});  // its folder may be absent
    else if (line.type != "MultiVectorMask")
      module_error("R802", dir / "modules.json", cat("module type ", in_quotes(line.python_type), " is not supported"));
  }
  return modules;
}

}  // namespace toller::detail
