// SPDX-License-Identifier: Apache-2.0
// T2. The config.json and the weights of an encoder's folder, whole or in shards, under the names of today.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "toller/core/check.hpp"
#include "toller/core/error.hpp"
#include "toller/core/mapped_file.hpp"
#include "toller/store/safetensors_folder.hpp"

namespace toller {

/// An encoder's folder, open for reading.
///
/// Errors   FileError R431: no config.json, no weights, or only pickled ones. R436: a tensor is missing. R437: its shape is
///          wrong. R402-R408: those of `SafetensorsFolder`.
class PretrainedFolder {
public:
  /// Opens `model.safetensors`, or the shards that `model.safetensors.index.json` lists. Names lose `prefix` (`bert.`).
  [[nodiscard]] static PretrainedFolder open(const std::filesystem::path& dir, const std::string& prefix) {
    const auto has = [&](const char* file) { return std::filesystem::exists(dir / file); };
    if (!has("model.safetensors") && !has("model.safetensors.index.json")) {
      const bool pickled = has("pytorch_model.bin");
      throw FileError("R431", dir.string() + (pickled ? ": only pytorch_model.bin is here: convert it to model.safetensors"
                                                      : ": no model.safetensors and no model.safetensors.index.json"));
    }
    return {dir, prefix};
  }

  [[nodiscard]] bool has(const std::string& name) const { return stored_names_.count(name) > 0; }
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const auto& [name, stored_name] : stored_names_) result.push_back(name);
    return result;
  }

  /// The tensor as float32, in memory of its own, every value finite.
  [[nodiscard]] at::Tensor read(const std::string& name) const {
    const auto found = stored_names_.find(name);
    if (found == stored_names_.end())
      throw FileError("R436", detail::cat(weights_.path().string(), ": tensor \"", name, "\" is missing"));
    return weights_.weight(found->second);
  }

  /// The same, and it must have this shape.
  [[nodiscard]] at::Tensor read(const std::string& name, const std::vector<std::int64_t>& shape) const {
    at::Tensor value = read(name);
    if (value.sizes() != at::IntArrayRef(shape))
      throw FileError("R437", detail::cat(weights_.path().string(), ": tensor \"", name, "\": expected ",
                                          detail::print_shape(shape), ", got ", detail::print_shape(value.sizes())));
    return value;
  }

private:
  PretrainedFolder(const std::filesystem::path& dir, const std::string& prefix) : weights_(SafetensorsFolder::open(dir)) {
    for (const std::string& name : weights_.names()) stored_names_[today(name, prefix)] = name;
  }

  static std::string today(std::string name, const std::string& prefix) {
    if (name.starts_with(prefix)) name.erase(0, prefix.size());
    const auto ending = [&](std::string_view old, std::string_view now) {
      if (name.ends_with(old)) name.replace(name.size() - old.size(), old.size(), now);
    };
    ending("LayerNorm.gamma", "LayerNorm.weight");
    ending("LayerNorm.beta", "LayerNorm.bias");
    return name;
  }

  SafetensorsFolder weights_;
  std::map<std::string, std::string> stored_names_{};  // by today's name
};

/// The text of a folder's `config.json`.
///
/// Errors   FileError R431: it is missing. R401: it cannot be read, or is a folder.
[[nodiscard]] inline std::string read_config_text(const std::filesystem::path& dir) {
  const auto path = dir / "config.json";
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) throw FileError("R431", path.string() + ": missing or not readable");
  return std::string(MappedFile(path).bytes());
}

}  // namespace toller
