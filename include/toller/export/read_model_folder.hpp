// SPDX-License-Identifier: Apache-2.0
// T2. Reads the four kinds of model folders into one value.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "toller/export/detail/read_modules.hpp"
#include "toller/export/detail/read_settings.hpp"
#include "toller/export/folder_settings.hpp"

namespace toller {

/// Reads a folder of Sentence Transformers (2 to 6), PyLate or Stanford ColBERT, or a bare encoder of Hugging Face.
///
/// Module configs come in the spelling of Sentence Transformers 5; a late-interaction folder's modules are its Dense layers.
/// Errors   FileError R401, R410, R411: a file is missing, not JSON, or a key is of another kind. R801: modules.json is wrong.
///          R802: a module that is not supported. R804, R805: a module's config or weights are wrong. R806: a setting that is
///          not supported. R402-R408: damaged weights.
/// Source   Layouts as written by Sentence Transformers 5.3 and 6.2 and PyLate 1.6; `artifact.metadata` as PyLate 1.6 reads it.
[[nodiscard]] inline ModelFolder read_model_folder(const std::filesystem::path& dir) {
  if (!std::filesystem::is_directory(dir)) throw FileError("R401", detail::cat(dir.string(), ": is not a folder"));
  ModelFolder folder{dir, FolderKind::plain, {}, {}};
  if (!std::filesystem::exists(dir / "modules.json")) {
    folder.settings = detail::read_common(dir, dir);
    const auto path = dir / "config.json";
    const auto names =
        json_value<std::vector<std::string>>(read_json_file(path), "architectures", path).value_or(std::vector<std::string>());
    if (std::find(names.begin(), names.end(), "HF_ColBERT") != names.end()) {
      folder.kind = FolderKind::stanford;
      detail::read_stanford(folder, dir);
    } else {
      folder.settings.max_seq_length = detail::longest_text(dir);
    }
    return folder;
  }

  const auto lines = detail::read_module_lines(dir);
  folder.encoder_dir = lines.front().folder;
  folder.modules = detail::read_modules(dir, lines);
  folder.settings = detail::read_common(dir, folder.encoder_dir);
  const auto has = [&](const auto& test) { return std::any_of(lines.begin(), lines.end(), test); };
  const auto path = dir / "config_sentence_transformers.json";
  const std::string model_type = json_value<std::string>(detail::optional_json(path), "model_type", path).value_or("");
  if (model_type == "MultiVectorEncoder" || has([](const auto& line) { return line.type == "MultiVectorMask"; })) {
    folder.kind = FolderKind::pylate;
    detail::read_multi_vector(folder.settings, folder.modules, lines);
  } else if (model_type == "ColBERT" || folder.settings.similarity == "MaxSim" ||
             has([](const auto& line) { return line.python_type.rfind("pylate.", 0) == 0; })) {
    folder.kind = FolderKind::pylate;
    detail::read_pylate(folder.settings, dir);
    std::erase_if(folder.modules, [](const FolderModule& module) { return module.type != "Dense"; });  // as PyLate does
  } else {
    folder.kind = FolderKind::sentence_transformers;
    folder.settings.max_seq_length = detail::longest_text(folder.encoder_dir);
    for (const FolderModule& module : folder.modules)
      if (module.type == "Pooling") folder.settings.include_prompt = module.config["include_prompt"];
  }
  return folder;
}

}  // namespace toller
