// SPDX-License-Identifier: Apache-2.0
// T0. WordPiece: the longest piece of the vocabulary that begins a word, then the longest that continues it, and so on.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "toller/tokenizer/detail/json_field.hpp"
#include "toller/tokenizer/detail/model.hpp"
#include "toller/tokenizer/detail/vocabulary.hpp"

namespace toller::detail {

/// WordPiece; a word that cannot be split so, or has too many characters, is one unknown token.
///
/// Cost     linear in the word where its first guess is right, else the square of the longest piece.
/// Source   Schuster, Nakajima 2012; Devlin et al. 2018.
class WordPiece final : public TokenModel {
public:
  /// Errors   FileError R232 for a missing or malformed field, or an `unk_token` that the vocabulary lacks.
  explicit WordPiece(const JsonField& json) {
    const JsonField vocabulary = json.at("vocab");
    if (!vocabulary.value().is_object() || vocabulary.value().empty()) vocabulary.fail("an object of tokens and ids");
    const std::string prefix = json.has("continuing_subword_prefix") ? json.at("continuing_subword_prefix").string() : "##";
    if (json.has("max_input_chars_per_word"))
      longest_word_ = static_cast<std::size_t>(json.at("max_input_chars_per_word").count());

    const std::size_t most = 16 * vocabulary.value().size() + 65536;
    words_ = Vocabulary(vocabulary.value().size());
    continuations_ = Vocabulary(vocabulary.value().size());
    for (const auto& [token, id] : vocabulary.value().items()) {
      const std::size_t n = id.is_number_unsigned() ? id.get<std::size_t>() : most;
      if (n >= most) JsonField(id, vocabulary.file(), "model.vocab." + token).fail("an id near the size of the vocabulary");
      words_.insert(token, static_cast<std::int64_t>(n));
      if (token.size() > prefix.size() && token.starts_with(prefix))
        continuations_.insert(std::string_view(token).substr(prefix.size()), static_cast<std::int64_t>(n));
      if (tokens_.size() <= n) tokens_.resize(n + 1);
      tokens_[n] = token;
    }
    const JsonField unknown = json.at("unk_token");
    const auto id = words_.find(unknown.string());
    if (!id) unknown.fail("a token of the vocabulary");
    unknown_ = *id;
  }

  void split(std::string_view word, std::size_t base, Pieces& pieces) const override {
    const std::size_t before = pieces.size();
    const std::size_t size = word.size();
    bool bad = size > longest_word_ && characters(word) > longest_word_;
    for (std::size_t begin = 0; begin < size && !bad;) {
      const Vocabulary& vocabulary = begin == 0 ? words_ : continuations_;
      const Piece piece = longest(vocabulary, word, begin);
      bad = piece.id < 0;
      pieces.push_back({piece.id, base + begin, base + piece.end});
      begin = piece.end;
    }
    if (!bad) return;
    pieces.resize(before);
    pieces.push_back({unknown_, base, base + size});
  }

  [[nodiscard]] std::optional<std::int64_t> token_to_id(std::string_view token) const override { return words_.find(token); }
  [[nodiscard]] std::optional<std::string> id_to_token(std::int64_t id) const override {
    const auto n = static_cast<std::size_t>(id);
    if (id < 0 || n >= tokens_.size() || tokens_[n].empty()) return std::nullopt;
    return tokens_[n];
  }
  [[nodiscard]] std::int64_t size() const override { return static_cast<std::int64_t>(tokens_.size()); }
  [[nodiscard]] std::optional<std::int64_t> unknown_id() const override { return unknown_; }

private:
  [[nodiscard]] static std::size_t characters(std::string_view word) {
    return static_cast<std::size_t>(
        std::count_if(word.begin(), word.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
  }

  /// The longest word of a vocabulary at byte `begin`; id -1 where there is none.
  [[nodiscard]] static Piece longest(const Vocabulary& vocabulary, std::string_view word, std::size_t begin) {
    constexpr std::size_t most = 256;  // longer pieces are looked up with a hash made anew
    const std::size_t reach = std::min(word.size() - begin, vocabulary.longest());
    std::uint64_t hashes[most];
    std::uint64_t hash = Vocabulary::empty_hash;
    for (std::size_t n = 0; n < std::min(reach, most); ++n) hashes[n] = hash = Vocabulary::extend(hash, word[begin + n]);
    for (std::size_t n = reach; n > 0; --n) {
      const std::string_view piece = word.substr(begin, n);
      const std::int64_t id = n <= most ? vocabulary.find(piece, hashes[n - 1]) : vocabulary.find(piece).value_or(-1);
      if (id >= 0) return {id, begin, begin + n};
    }
    return {-1, begin, begin + 1};
  }

  Vocabulary words_{};
  Vocabulary continuations_{};
  std::vector<std::string> tokens_{};
  std::size_t longest_word_ = 100;
  std::int64_t unknown_ = 0;
};

}  // namespace toller::detail
