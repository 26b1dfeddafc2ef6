// SPDX-License-Identifier: Apache-2.0
// T0. Pre-tokenisers: normalised text -> the words that the model splits further.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "toller/tokenizer/detail/json_field.hpp"
#include "toller/tokenizer/detail/unicode.hpp"

namespace toller::detail {

/// Bytes `begin .. end` of a text.
struct ByteRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};
using ByteRanges = std::vector<ByteRange>;

/// What a splitter does with a character: part of a run of its own class, a word alone, or dropped.
enum class CharacterRole : std::uint8_t { run, other_run, alone, dropped };

/// One way to split, as a role for every character.
class Splitter {
public:
  using RoleOf = CharacterRole (*)(char32_t);

  explicit Splitter(RoleOf role) : role_(role) {
    for (std::size_t c = 0; c < ascii_.size(); ++c) ascii_[c] = role(static_cast<char32_t>(c));
  }

  void operator()(std::string_view text, ByteRange range, ByteRanges& words) const {
    std::size_t begin = range.begin;
    CharacterRole run = CharacterRole::dropped;
    for (std::size_t at = range.begin; at < range.end;) {
      const std::size_t here = at;
      const auto byte = static_cast<unsigned char>(text[at]);
      const CharacterRole role = byte < 0x80 ? (++at, ascii_[byte]) : role_(next_character(text, at));
      if (role == run && role <= CharacterRole::other_run) continue;
      if (run != CharacterRole::dropped) words.push_back({begin, here});
      begin = here;
      run = role;
    }
    if (run != CharacterRole::dropped) words.push_back({begin, range.end});
  }

private:
  RoleOf role_;
  std::array<CharacterRole, 0x80> ascii_{};
};

/// The pre-tokeniser of a tokenizer.json: splitters, one after the other; none leaves the text whole.
class PreTokenizer {
public:
  /// Errors   FileError R231 for a kind it does not know, R232 for a malformed field.
  [[nodiscard]] static PreTokenizer from_json(const JsonField& json) {
    PreTokenizer result;
    if (!json.value().is_null()) result.add(json);
    return result;
  }

  void operator()(std::string_view text, ByteRanges& words) const {
    words.clear();
    if (text.empty()) return;
    if (splitters_.empty()) return words.push_back({0, text.size()});
    splitters_.front()(text, {0, text.size()}, words);
    for (std::size_t i = 1; i < splitters_.size(); ++i) {
      ByteRanges parts;
      for (const ByteRange& word : words) splitters_[i](text, word, parts);
      words = std::move(parts);
    }
  }

private:
  void add(const JsonField& json) {
    using enum CharacterRole;
    const std::string kind = json.at("type").string();
    if (kind == "Sequence") {
      for (const JsonField& part : json.at("pretokenizers").items()) add(part);
    } else if (kind == "BertPreTokenizer") {
      splitters_.emplace_back([](char32_t c) { return is_space(c) ? dropped : is_punctuation(c) ? alone : run; });
    } else if (kind == "Whitespace") {
      splitters_.emplace_back([](char32_t c) { return is_space(c) ? dropped : is_word(c) ? run : other_run; });
    } else if (kind == "WhitespaceSplit") {
      splitters_.emplace_back([](char32_t c) { return is_space(c) ? dropped : run; });
    } else if (kind == "Punctuation") {
      if (json.has("behavior") && json.at("behavior").string() != "Isolated") json.at("behavior").fail("\"Isolated\"");
      splitters_.emplace_back([](char32_t c) { return is_punctuation(c) ? alone : run; });
    } else {
      unsupported(json, "pre_tokenizer", kind, "BertPreTokenizer, Whitespace, WhitespaceSplit, Punctuation, Sequence");
    }
  }

  std::vector<Splitter> splitters_{};
};

}  // namespace toller::detail
