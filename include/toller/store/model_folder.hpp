// SPDX-License-Identifier: Apache-2.0
// T1. A model folder in memory: what poolings read themselves from and write themselves to, free of any peer's spelling.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace toller {

/// One module behind the encoder, in the order of `modules.json`.
///
/// `type` is the last word of the Python type: `Pooling`, `Dense`, `Normalize`, `LayerNorm`, ...; `config` is its `config.json`
/// in the spelling of Sentence Transformers 5 (`pooling_mode_mean_tokens`, `in_features`, ...), whatever spelling the folder
/// had.
struct FolderModule {
  std::string type{};
  nlohmann::json config = nlohmann::json::object();
  std::map<std::string, at::Tensor> tensors{};
};
using FolderModules = std::vector<FolderModule>;

}  // namespace toller
