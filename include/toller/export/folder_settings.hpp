// SPDX-License-Identifier: Apache-2.0
// T1. What a model folder says beside its weights, whoever wrote it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "toller/store/model_folder.hpp"

namespace toller {

/// Who wrote a folder. `plain`: an encoder of Hugging Face without a head. `pylate`: late interaction behind a `modules.json`,
/// of PyLate or of Sentence Transformers 6. `stanford`: ColBERT with its projection inside `model.safetensors`.
enum class FolderKind { plain, sentence_transformers, pylate, stanford };

/// Settings of a folder; what it does not say is empty.
///
/// Units    lengths in tokens, special tokens and marker included. A prefix is the marker token after the first token (empty
///          text: no marker); a prompt is text before the text.
struct FolderSettings {
  std::map<std::string, std::string> prompts{};
  std::optional<std::string> default_prompt_name{};
  std::optional<std::string> similarity{};
  std::optional<std::string> query_prefix{};
  std::optional<std::string> document_prefix{};
  std::optional<std::int64_t> query_length{};
  std::optional<std::int64_t> document_length{};
  std::optional<std::int64_t> max_seq_length{};  ///< of folders with one vector a text
  std::optional<bool> do_query_expansion{};
  std::optional<bool> attend_to_expansion{};
  std::optional<bool> lower_case{};
  std::optional<std::vector<std::string>> skiplist_words{};
  bool include_prompt = true;  ///< whether a pooling counts the prompt's tokens
};

/// A folder as read: where its encoder and tokenizer lie, the modules behind the encoder, and its settings.
struct ModelFolder {
  std::filesystem::path encoder_dir{};
  FolderKind kind = FolderKind::plain;
  FolderModules modules{};
  FolderSettings settings{};
};

}  // namespace toller
