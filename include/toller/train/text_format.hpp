// SPDX-License-Identifier: Apache-2.0
// T2. How queries and documents are written as tokens: what the caller says, else what the folder says, else the default.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "toller/core/values.hpp"
#include "toller/export/model_folder.hpp"
#include "toller/tokenizer/preprocessor.hpp"

namespace toller {

/// What loading a model can be told. An empty field is as saved, else the default.
///
/// Units    lengths in tokens, special tokens and marker included.
struct ModelOptions {
  bool fresh_head = false;                        ///< start a new head instead of the saved one
  std::uint64_t seed = 0;                         ///< of fresh weights
  std::optional<std::int64_t> query_length{};     ///< late interaction 32, else `max_length`
  std::optional<std::int64_t> document_length{};  ///< late interaction 180, else `max_length`
  std::optional<std::int64_t> max_length{};       ///< of one-vector models
  std::optional<std::string> query_prefix{};      ///< late interaction's marker, "[Q] "; "" for none
  std::optional<std::string> document_prefix{};   ///< "[D] "
  std::optional<std::string> query_prompt{};      ///< text put before every query
  std::optional<std::string> document_prompt{};
  std::optional<bool> query_expansion{};               ///< pad queries to `query_length` with [MASK], true
  std::optional<bool> attend_to_expansion{};           ///< false
  std::optional<std::vector<std::string>> skiplist{};  ///< words without a vector of their own: ASCII punctuation
};

/// The formats of the two roles.
///
/// Source   defaults of PyLate 1.6 (late interaction) and Sentence Transformers 5.3 (one vector).
struct TextFormat {
  RoleFormat query{};
  RoleFormat document{};

  template <class Output>
  [[nodiscard]] static TextFormat make(const FolderSettings& saved, const ModelOptions& options, bool saved_late,
                                       std::int64_t max_positions);

  /// As a folder's settings; what the format does not say stays as in `base`.
  template <class Output>
  [[nodiscard]] FolderSettings settings(FolderSettings base) const;
};

namespace detail {

template <class T>
[[nodiscard]] T first_of(const std::optional<T>& said, const std::optional<T>& saved, T otherwise) {
  return said ? *said : saved ? *saved : std::move(otherwise);
}

[[nodiscard]] inline std::vector<std::string> ascii_punctuation() {
  std::vector<std::string> words;
  for (const char c : std::string("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")) words.emplace_back(1, c);
  return words;
}

[[nodiscard]] inline std::optional<std::string> saved_prompt(const FolderSettings& saved, const std::string& role) {
  for (const std::string& name : {role, saved.default_prompt_name.value_or("")})
    if (const auto found = saved.prompts.find(name); found != saved.prompts.end()) return found->second;
  return {};
}

}  // namespace detail

template <class Output>
TextFormat TextFormat::make(const FolderSettings& saved, const ModelOptions& options, bool saved_late,
                            std::int64_t max_positions) {
  using detail::first_of;
  TextFormat format;
  if constexpr (std::is_same_v<Output, MultiVector>) {
    // Only a late-interaction folder's lengths speak of this use; a dense folder's max_seq_length does not.
    const FolderSettings kept = saved_late ? saved : FolderSettings{.prompts = saved.prompts};
    format.query.marker = first_of(options.query_prefix, kept.query_prefix, std::string("[Q] "));
    format.document.marker = first_of(options.document_prefix, kept.document_prefix, std::string("[D] "));
    format.query.max_length = first_of(options.query_length, kept.query_length, std::min<std::int64_t>(32, max_positions));
    format.document.max_length =
        first_of(options.document_length, kept.document_length, std::min<std::int64_t>(180, max_positions));
    format.query.expand = first_of(options.query_expansion, kept.do_query_expansion, true);
    format.query.attend_to_expansion =
        format.query.expand && first_of(options.attend_to_expansion, kept.attend_to_expansion, false);
    format.document.skiplist = first_of(options.skiplist, kept.skiplist_words, detail::ascii_punctuation());
  } else {
    const std::int64_t length =
        first_of<std::int64_t>(options.max_length, saved.max_seq_length, std::min<std::int64_t>(512, max_positions));
    format.query.max_length = options.query_length.value_or(length);
    format.document.max_length = options.document_length.value_or(length);
  }
  format.query.prompt = first_of(options.query_prompt, detail::saved_prompt(saved, "query"), std::string());
  format.document.prompt = first_of(options.document_prompt, detail::saved_prompt(saved, "document"), std::string());
  for (const RoleFormat* role : {&format.query, &format.document})
    if (role->max_length > max_positions)
      throw ConfigError("R111", detail::cat(role == &format.query ? "query" : "document", " length ", role->max_length,
                                            " is beyond the encoder's ", max_positions, " positions"));
  return format;
}

template <class Output>
FolderSettings TextFormat::settings(FolderSettings base) const {
  base.prompts["query"] = query.prompt;
  base.prompts["document"] = document.prompt;
  if constexpr (std::is_same_v<Output, MultiVector>) {
    base.similarity = "MaxSim";
    base.query_prefix = query.marker;
    base.document_prefix = document.marker;
    base.query_length = query.max_length;
    base.document_length = document.max_length;
    base.max_seq_length = document.max_length - (document.marker.empty() ? 0 : 1);
    base.do_query_expansion = query.expand;
    base.attend_to_expansion = query.attend_to_expansion;
    base.skiplist_words = document.skiplist;
  } else {
    base.similarity = "cosine";
    base.max_seq_length = std::max(query.max_length, document.max_length);
  }
  return base;
}

}  // namespace toller
