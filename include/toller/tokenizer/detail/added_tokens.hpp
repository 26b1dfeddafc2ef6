// SPDX-License-Identifier: Apache-2.0
// T0. Added tokens: found in the text before anything splits it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "toller/tokenizer/detail/normalizer.hpp"
#include "toller/tokenizer/detail/unicode.hpp"

namespace toller::detail {

/// A token that is matched as a whole: in the raw text, or in the normalised one (`normalized`).
struct AddedToken {
  std::string content{};
  std::int64_t id = 0;
  bool special = false;
  bool normalized = false;
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // and behind it
  bool single_word = false;  // only where no word character touches it
};
using AddedTokens = std::vector<AddedToken>;

/// Finds added tokens: leftmost first, of those the longest, without overlap.
class AddedTokenMatcher {
public:
  AddedTokenMatcher() = default;
  /// A matcher for the raw or for the normalised tokens of a list.
  AddedTokenMatcher(const AddedTokens& tokens, bool normalized, const Normalizer& normalizer) {
    NormalizedText text;
    for (const AddedToken& token : tokens) {
      if (token.normalized != normalized || token.content.empty()) continue;
      text.text = token.content;
      if (normalized) normalizer(token.content, 0, text);
      if (text.text.empty()) continue;
      by_first_byte_[static_cast<unsigned char>(text.text[0])].push_back({text.text, token});
      empty_ = false;
    }
    for (Patterns& patterns : by_first_byte_)
      std::stable_sort(patterns.begin(), patterns.end(),
                       [](const Pattern& a, const Pattern& b) { return a.text.size() > b.text.size(); });
  }

  /// Calls `visit(begin, end, token or nullptr)` for the tokens and what lies between them, in order.
  template <class Visit>
  void split(std::string_view text, Visit&& visit) const {
    std::size_t done = 0;
    for (std::size_t at = 0; !empty_ && at < text.size();) {
      const Pattern* found = match(text.substr(at), by_first_byte_[static_cast<unsigned char>(text[at])]);
      if (found == nullptr) {
        ++at;
        continue;
      }
      std::size_t begin = at;
      std::size_t end = at += found->text.size();
      if (found->token.single_word && touches_word(text, begin, end)) continue;
      if (found->token.lstrip) begin = std::max(spaces_before(text, begin), done);
      if (found->token.rstrip) end = spaces_after(text, end);
      if (done < begin) visit(done, begin, static_cast<const AddedToken*>(nullptr));
      visit(begin, end, &found->token);
      done = end;
    }
    if (done < text.size()) visit(done, text.size(), static_cast<const AddedToken*>(nullptr));
  }

private:
  struct Pattern {
    std::string text{};
    AddedToken token{};
  };
  using Patterns = std::vector<Pattern>;

  [[nodiscard]] static const Pattern* match(std::string_view rest, const Patterns& patterns) {
    for (const Pattern& pattern : patterns)
      if (rest.starts_with(pattern.text)) return &pattern;
    return nullptr;
  }
  [[nodiscard]] static bool touches_word(std::string_view text, std::size_t begin, std::size_t end) {
    std::size_t before = begin > 0 ? previous_start(text, begin) : 0;
    return (begin > 0 && is_word(next_character(text, before))) || (end < text.size() && is_word(next_character(text, end)));
  }
  [[nodiscard]] static std::size_t spaces_before(std::string_view text, std::size_t at) {
    while (at > 0) {
      std::size_t start = previous_start(text, at);
      const std::size_t next = start;
      if (!is_space(next_character(text, start))) break;
      at = next;
    }
    return at;
  }
  [[nodiscard]] static std::size_t spaces_after(std::string_view text, std::size_t at) {
    while (at < text.size()) {
      std::size_t next = at;
      if (!is_space(next_character(text, next))) break;
      at = next;
    }
    return at;
  }

  std::array<Patterns, 256> by_first_byte_{};
  bool empty_ = true;
};

}  // namespace toller::detail
