// SPDX-License-Identifier: Apache-2.0
// T2. The config.json and the weights of an encoder's folder, whole or in shards, under the names of today.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "toller/core/check.hpp"
#include "toller/core/error.hpp"
#include "toller/store/json_file.hpp"
#include "toller/store/safetensors.hpp"

namespace toller {

/// An encoder's folder, open for reading.
///
/// Errors   FileError R431: no config.json, no weights, or only pickled ones. R436: a tensor is missing. R437: its shape is
/// wrong.
class PretrainedFolder {
public:
  /// Opens `model.safetensors`, or the shards that `model.safetensors.index.json` lists. Names lose `prefix` (`bert.`).
  [[nodiscard]] static PretrainedFolder open(const std::filesystem::path& dir, const std::string& prefix) {
    PretrainedFolder folder;
    folder.dir_ = dir;
    const auto single = dir / "model.safetensors", index = dir / "model.safetensors.index.json";
    std::set<std::string> shards;
    if (std::filesystem::exists(single)) {
      shards.insert(single.filename().string());
    } else if (std::filesystem::exists(index)) {
      const nlohmann::json json = read_json_file(index);
      if (!json.contains("weight_map") || !json["weight_map"].is_object())
        throw FileError("R431", index.string() + ": field \"weight_map\" is missing");
      for (const auto& shard : json["weight_map"])
        if (shard.is_string()) shards.insert(shard.get<std::string>());
    } else if (std::filesystem::exists(dir / "pytorch_model.bin")) {
      throw FileError("R431", dir.string() + ": only pytorch_model.bin is here: convert it to model.safetensors");
    } else {
      throw FileError("R431", dir.string() + ": no model.safetensors and no model.safetensors.index.json");
    }
    for (const std::string& shard : shards) {
      folder.files_.push_back(SafetensorsFile::open(dir / shard));
      for (const std::string& name : folder.files_.back().names())
        folder.places_[today(name, prefix)] = {folder.files_.size() - 1, name};
    }
    return folder;
  }

  [[nodiscard]] bool has(const std::string& name) const { return places_.count(name) > 0; }
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const auto& place : places_) result.push_back(place.first);
    return result;
  }

  /// The tensor as float32, in memory of its own.
  [[nodiscard]] at::Tensor read(const std::string& name) const {
    const auto found = places_.find(name);
    if (found == places_.end()) throw FileError("R436", detail::cat(dir_.string(), ": tensor \"", name, "\" is missing"));
    const at::Tensor stored = files_[found->second.first].tensor(found->second.second);
    return stored.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true).contiguous();
  }

  /// The same, and it must have this shape.
  [[nodiscard]] at::Tensor read(const std::string& name, const std::vector<std::int64_t>& shape) const {
    at::Tensor value = read(name);
    if (value.sizes() != at::IntArrayRef(shape))
      throw FileError("R437", detail::cat(dir_.string(), ": tensor \"", name, "\": expected ", detail::print_shape(shape),
                                          ", got ", detail::print_shape(value.sizes())));
    return value;
  }

private:
  static std::string today(std::string name, const std::string& prefix) {
    if (name.starts_with(prefix)) name.erase(0, prefix.size());
    const auto ending = [&](std::string_view old, std::string_view now) {
      if (name.ends_with(old)) name.replace(name.size() - old.size(), old.size(), now);
    };
    ending("LayerNorm.gamma", "LayerNorm.weight");
    ending("LayerNorm.beta", "LayerNorm.bias");
    return name;
  }

  std::filesystem::path dir_{};
  std::vector<SafetensorsFile> files_{};
  std::map<std::string, std::pair<std::size_t, std::string>> places_{};
};

/// The text of a folder's `config.json`.
///
/// Errors   FileError R431: it is missing or cannot be read.
[[nodiscard]] inline std::string read_config_text(const std::filesystem::path& dir) {
  std::ifstream file(dir / "config.json");
  if (!file) throw FileError("R431", (dir / "config.json").string() + ": missing or not readable");
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace toller
