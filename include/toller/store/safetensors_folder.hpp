// SPDX-License-Identifier: Apache-2.0
// T2. The weights of a model folder: one safetensors file, or several behind an index.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "toller/store/json_file.hpp"
#include "toller/store/safetensors.hpp"

namespace toller {

/// `model.safetensors` of a folder, or the shards that its `model.safetensors.index.json` lists, as one set of tensors.
///
/// Errors   FileError R407: no weights in the folder (names a `pytorch_model.bin` that is there instead). R406: the index is
///          wrong, or names a tensor that its shard lacks. R408: of `weight`. R401-R405 as `SafetensorsFile`.
class SafetensorsFolder {
public:
  [[nodiscard]] static SafetensorsFolder open(const std::filesystem::path& folder) { return SafetensorsFolder(folder); }

  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const auto& [name, shard] : shard_of_) result.push_back(name);
    return result;
  }
  [[nodiscard]] bool has(const std::string& name) const { return shard_of_.count(name) > 0; }
  [[nodiscard]] at::Tensor tensor(const std::string& name) const { return shard(name).tensor(name); }
  /// The tensor as a weight: in float32, in memory of its own, every value finite.
  ///
  /// Errors   FileError R408: stored otherwise than as F16, BF16, F32 or F64; or a value that is NaN or infinite.
  [[nodiscard]] at::Tensor weight(const std::string& name) const {
    const SafetensorsFile& file = shard(name);
    const auto fail = [&](const std::string& what) {
      throw FileError("R408", detail::cat(file.path().string(), ": tensor ", detail::in_quotes(name), ": ", what));
    };
    const at::ScalarType type = file.dtype(name);
    if (type != at::kHalf && type != at::kBFloat16 && type != at::kFloat && type != at::kDouble)
      fail(detail::cat("expected F16, BF16, F32 or F64, got ", detail::name_of_dtype(type).value_or("another type")));
    at::Tensor value = file.tensor(name).to(at::kFloat, /*non_blocking=*/false, /*copy=*/true).contiguous();
    if (!value.isfinite().all().item<bool>()) fail("a value is NaN or infinite (in float32)");
    return value;
  }
  [[nodiscard]] const std::vector<std::int64_t>& shape(const std::string& name) const { return shard(name).shape(name); }
  [[nodiscard]] at::ScalarType dtype(const std::string& name) const { return shard(name).dtype(name); }
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return folder_; }

private:
  explicit SafetensorsFolder(const std::filesystem::path& folder) : folder_(folder) {
    const auto single = folder / "model.safetensors";
    const auto index = folder / "model.safetensors.index.json";
    if (!std::filesystem::is_directory(folder)) throw FileError("R401", detail::cat(folder.string(), ": is not a folder"));
    if (std::filesystem::exists(single)) {
      add(SafetensorsFile::open(single));
    } else if (std::filesystem::exists(index)) {
      read_index(index);
    } else {
      const bool pickled = std::filesystem::exists(folder / "pytorch_model.bin");
      throw FileError("R407",
                      detail::cat(folder.string(), ": no model.safetensors",
                                  pickled ? " but a pytorch_model.bin, which is not read: convert it to safetensors" : ""));
    }
  }

  void add(const SafetensorsFile& file) {
    for (const std::string& name : file.names()) shard_of_.emplace(name, shards_.size());
    shards_.push_back(file);
  }

  void read_index(const std::filesystem::path& index) {
    const nlohmann::json json = read_json_file(index);
    const auto fail = [&](const std::string& what) { throw FileError("R406", detail::cat(index.string(), ": ", what)); };
    if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object()) fail("no weight_map");
    std::map<std::string, std::size_t> opened;
    for (const auto& [name, value] : json["weight_map"].items()) {
      const std::string file = value.is_string() ? value.get<std::string>() : "";
      if (file.empty() || std::filesystem::path(file).filename() != file)
        fail(detail::cat("tensor ", detail::in_quotes(name), ": ", value.dump(), " is not the name of a file in this folder"));
      const auto [place, is_new] = opened.emplace(file, shards_.size());
      if (is_new) shards_.push_back(SafetensorsFile::open(folder_ / file));
      if (!shards_[place->second].has(name)) fail(detail::cat("tensor ", detail::in_quotes(name), " is not in ", file));
      shard_of_.emplace(name, place->second);
    }
  }

  [[nodiscard]] const SafetensorsFile& shard(const std::string& name) const {
    const auto found = shard_of_.find(name);
    if (found == shard_of_.end())
      throw FileError("R405",
                      detail::cat(folder_.string(), ": no tensor ", detail::in_quotes(name), " in its safetensors files"));
    return shards_[found->second];
  }

  std::filesystem::path folder_;
  std::vector<SafetensorsFile> shards_;
  std::map<std::string, std::size_t> shard_of_;
};

}  // namespace toller
