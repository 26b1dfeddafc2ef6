// SPDX-License-Identifier: Apache-2.0
// A WordPiece tokenizer of a few words, written out, for tests to change.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/temporary_folder.hpp"
#include "toller/tokenizer/auto_tokenizer.hpp"

[[nodiscard]] inline nlohmann::json small_tokenizer_json() {
  return nlohmann::json::parse(R"({
    "version": "1.0", "truncation": {"max_length": 3, "strategy": "LongestFirst", "stride": 0, "direction": "Right"},
    "padding": {"strategy": {"Fixed": 9}, "direction": "Right", "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"},
    "added_tokens": [
      {"id": 0, "content": "[PAD]", "special": true, "normalized": false},
      {"id": 1, "content": "[UNK]", "special": true, "normalized": false},
      {"id": 4, "content": "[MASK]", "special": true, "normalized": false}],
    "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null,
      "lowercase": true},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "post_processor": {"type": "BertProcessing", "cls": ["[CLS]", 2], "sep": ["[SEP]", 3]},
    "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 10,
      "vocab": {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "bee": 5, "##s": 6, "moss": 7, ",": 8, "cafe": 9,
                "a": 10, "##a": 11, "!": 12, "b": 13}}})");
}

/// Writes the JSON to a file and reads it as a tokenizer.
[[nodiscard]] inline toller::AutoTokenizer tokenizer_of(const nlohmann::json& json) {
  const TemporaryFolder folder;
  return toller::AutoTokenizer::from_file(folder.write("tokenizer.json", json.dump()));
}

[[nodiscard]] inline toller::AutoTokenizer small_tokenizer() {
  return tokenizer_of(small_tokenizer_json());
}

using Ids = std::vector<std::int64_t>;
using Offsets = std::vector<std::pair<std::size_t, std::size_t>>;
