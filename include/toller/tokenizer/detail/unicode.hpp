// SPDX-License-Identifier: Apache-2.0
// T0. UTF-8 and the character classes that tokenizers split by.
#pragma once

#include <utf8proc.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

#include "toller/tokenizer/detail/unicode_tables.hpp"

namespace toller::detail {

/// The character that starts at byte `at` of valid UTF-8; moves `at` behind it.
[[nodiscard]] inline char32_t next_character(std::string_view text, std::size_t& at) {
  const auto byte = [&](std::size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[i])); };
  const char32_t lead = byte(at++);
  if (lead < 0x80) return lead;
  const auto trail = [&] { return byte(at++) & 0x3F; };
  if (lead < 0xE0) return (lead & 0x1F) << 6 | trail();
  char32_t c = lead < 0xF0 ? lead & 0x0F : lead & 0x07;
  for (int i = lead < 0xF0 ? 2 : 3; i > 0; --i) c = c << 6 | trail();
  return c;
}

/// The first byte of the character that ends before byte `at` (> 0).
[[nodiscard]] inline std::size_t previous_start(std::string_view text, std::size_t at) {
  do --at;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  return at;
}

inline void append_character(std::string& out, char32_t c) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (c < 0x80) return put(c);
  if (c < 0x800) return put(0xC0 | c >> 6), put(0x80 | (c & 0x3F));
  if (c < 0x10000)
    put(0xE0 | c >> 12);
  else
    put(0xF0 | c >> 18), put(0x80 | (c >> 12 & 0x3F));
  put(0x80 | (c >> 6 & 0x3F));
  put(0x80 | (c & 0x3F));
}

/// Where the text stops being UTF-8, if it does: overlong forms, surrogates and numbers beyond U+10FFFF are not.
[[nodiscard]] inline std::optional<std::size_t> invalid_utf8_at(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    utf8proc_int32_t c = 0;
    const auto left = static_cast<utf8proc_ssize_t>(text.size() - at);
    const auto used = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at, left, &c);
    if (used <= 0) return at;
    at += static_cast<std::size_t>(used);
  }
  return std::nullopt;
}

template <std::size_t N>
[[nodiscard]] bool in_ranges(const CodeRange (&ranges)[N], char32_t c) {
  const auto* range = std::lower_bound(std::begin(ranges), std::end(ranges), c,
                                       [](const CodeRange& r, char32_t value) { return r.last < value; });
  return range != std::end(ranges) && range->first <= c;
}

[[nodiscard]] inline utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

/// Unicode's White_Space.
[[nodiscard]] constexpr bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

[[nodiscard]] constexpr bool is_ascii_punctuation(char32_t c) {
  return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) || (c >= 123 && c <= 126);
}

/// ASCII's punctuation, its symbols among them, and Unicode's P*.
[[nodiscard]] inline bool is_punctuation(char32_t c) {
  return c < 0x80 ? is_ascii_punctuation(c) : in_ranges(punctuation_ranges, c);
}

[[nodiscard]] inline bool is_nonspacing_mark(char32_t c) {
  return c >= 0x300 && in_ranges(nonspacing_ranges, c);
}

[[nodiscard]] inline bool is_mark(char32_t c) {
  return c >= 0x300 && in_ranges(mark_ranges, c);
}

/// What cleaning drops: NUL, control and format characters but tab and line ends, private use, U+FFFD.
[[nodiscard]] inline bool is_invisible(char32_t c) {
  if (c < 0x80) return (c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7F;
  return in_ranges(invisible_ranges, c);
}

/// CJK ideographs, which BERT makes words of their own.
[[nodiscard]] constexpr bool is_chinese(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) || (c >= 0xF900 && c <= 0xFAFF) ||
         (c >= 0x2F800 && c <= 0x2FA1F);
}

/// A regular expression's `\w`: letters, marks, decimal digits, connectors, joiners, circled letters.
[[nodiscard]] inline bool is_word(char32_t c) {
  if (c < 0x80) return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
  const auto kind = category(c);
  const bool letter_or_mark = kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_ME;
  return letter_or_mark || kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_NL || kind == UTF8PROC_CATEGORY_PC ||
         c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
         (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
}

}  // namespace toller::detail
