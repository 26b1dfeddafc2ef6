// SPDX-License-Identifier: Apache-2.0
// T0. Normalisers: text -> the text that is split, which remembers where each of its bytes came from.
#pragma once

#include <utf8proc.h>

#include <algorithm>
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

/// A normalised stretch of a text that starts at byte `base` of it.
///
/// `begins`, `ends` give, for each byte, the bytes of the stretch that it stands for; both empty: each byte for itself.
struct NormalizedText {
  std::string text{};
  std::vector<std::uint32_t> begins{};
  std::vector<std::uint32_t> ends{};
  std::size_t base = 0;

  /// Bytes of the whole text that the normalised bytes `begin .. end` (not empty) stand for.
  [[nodiscard]] std::pair<std::size_t, std::size_t> original(std::size_t begin, std::size_t end) const {
    if (begins.empty()) return {base + begin, base + end};
    return {base + begins[begin], base + ends[end - 1]};
  }
};

enum class NormalizerStep { clean, chinese, nfc, nfd, nfkc, nfkd, strip_nonspacing, strip_marks, lowercase };

/// The normaliser of a tokenizer.json as a list of steps; an empty list changes nothing.
class Normalizer {
public:
  Normalizer() { prepare(); }

  /// Errors   FileError R231 for a kind it does not know, R232 for a malformed field.
  [[nodiscard]] static Normalizer from_json(const JsonField& json) {
    Normalizer result;
    if (!json.value().is_null()) result.add(json);
    result.prepare();
    return result;
  }

  /// Normalises valid UTF-8 that starts at byte `base` of its text.
  void operator()(std::string_view text, std::size_t base, NormalizedText& out) const {
    out.base = base;
    out.begins.clear();
    out.ends.clear();
    if (!ascii(text, out.text)) any(text, out);
  }

private:
  struct Character {
    char32_t code = 0;
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
  };
  using Characters = std::vector<Character>;

  void add(const JsonField& json) {
    using enum NormalizerStep;
    const std::string kind = json.at("type").string();
    if (kind == "Sequence") {
      for (const JsonField& part : json.at("normalizers").items()) add(part);
    } else if (kind == "BertNormalizer") {
      const bool lower = json.boolean("lowercase", true);
      if (json.boolean("clean_text", true)) steps_.push_back(clean);
      if (json.boolean("handle_chinese_chars", true)) steps_.push_back(chinese);
      if (json.boolean("strip_accents", lower)) steps_.insert(steps_.end(), {nfd, strip_nonspacing});
      if (lower) steps_.push_back(lowercase);
    } else {
      static constexpr std::pair<std::string_view, NormalizerStep> simple[] = {
          {"NFC", nfc}, {"NFD", nfd}, {"NFKC", nfkc}, {"NFKD", nfkd}, {"StripAccents", strip_marks}, {"Lowercase", lowercase}};
      const auto* found = std::find_if(std::begin(simple), std::end(simple), [&](const auto& s) { return s.first == kind; });
      if (found == std::end(simple))
        unsupported(json, "normalizer", kind, "BertNormalizer, NFC, NFD, NFKC, NFKD, StripAccents, Lowercase, Sequence");
      steps_.push_back(found->second);
    }
  }

  [[nodiscard]] bool does(NormalizerStep step) const { return std::find(steps_.begin(), steps_.end(), step) != steps_.end(); }

  /// What becomes of each ASCII character that stays one character; 0 for all other bytes.
  void prepare() {
    for (std::size_t c = 1; c < 0x80; ++c) {
      char to = static_cast<char>(c);
      if (does(NormalizerStep::clean))
        to = is_invisible(static_cast<char32_t>(c)) ? '\0' : is_space(static_cast<char32_t>(c)) ? ' ' : to;
      if (does(NormalizerStep::lowercase) && to >= 'A' && to <= 'Z') to = static_cast<char>(to + 32);
      ascii_[c] = to;
    }
  }

  [[nodiscard]] bool ascii(std::string_view text, std::string& out) const {
    out.resize(text.size());
    for (std::size_t i = 0; i < text.size(); ++i) {
      const char c = ascii_[static_cast<unsigned char>(text[i])];
      if (c == '\0') return false;
      out[i] = c;
    }
    return true;
  }

  void any(std::string_view text, NormalizedText& out) const {
    Characters characters;
    characters.reserve(text.size());
    for (std::size_t at = 0; at < text.size();) {
      const auto begin = static_cast<std::uint32_t>(at);
      const char32_t code = next_character(text, at);
      characters.push_back({code, begin, static_cast<std::uint32_t>(at)});
    }
    for (const NormalizerStep step : steps_) apply(step, characters);
    out.text.clear();
    for (const Character& c : characters) {
      append_character(out.text, c.code);
      out.begins.resize(out.text.size(), c.begin);
      out.ends.resize(out.text.size(), c.end);
    }
  }

  static void apply(NormalizerStep step, Characters& characters) {
    using enum NormalizerStep;
    switch (step) {
      case clean:
        std::erase_if(characters, [](const Character& c) { return is_invisible(c.code); });
        for (Character& c : characters)
          if (is_space(c.code)) c.code = ' ';
        return;
      case chinese:
        return surround_chinese(characters);
      case nfd:
        return unicode_form(characters, false, false);
      case nfkd:
        return unicode_form(characters, true, false);
      case nfc:
        return unicode_form(characters, false, true);
      case nfkc:
        return unicode_form(characters, true, true);
      case strip_nonspacing:
        std::erase_if(characters, [](const Character& c) { return is_nonspacing_mark(c.code); });
        return;
      case strip_marks:
        std::erase_if(characters, [](const Character& c) { return is_mark(c.code); });
        return;
      case lowercase:
        return lower(characters);
    }
  }

  static void surround_chinese(Characters& characters) {
    if (std::none_of(characters.begin(), characters.end(), [](const Character& c) { return is_chinese(c.code); })) return;
    Characters result;
    result.reserve(characters.size() * 3);
    for (const Character& c : characters) {
      if (!is_chinese(c.code))
        result.push_back(c);
      else
        result.insert(result.end(), {{' ', c.begin, c.end}, c, {' ', c.begin, c.end}});
    }
    characters = std::move(result);
  }

  static void lower(Characters& characters) {
    Characters result;
    result.reserve(characters.size());
    for (Character c : characters) {
      const bool dotted = c.code == 0x130;  // the one letter whose small form is two characters
      c.code = dotted ? U'i' : static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c.code)));
      result.push_back(c);
      if (dotted) result.push_back({0x307, c.begin, c.end});
    }
    characters = std::move(result);
  }

  [[nodiscard]] static int combining_class(char32_t c) {
    return c < 0x300 ? 0 : utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class;
  }

  /// A character of a Unicode form and how it uses the old ones up: 0 takes the next, 1 stands for the one before, and
  /// -n takes the next and drops the n behind it.
  struct Part {
    char32_t code = 0;
    int change = 0;
  };
  using Parts = std::vector<Part>;

  /// Unicode's forms NFD, NFC, NFKD, NFKC. Where marks change places, their places in the text stay; a composed character
  /// stands for the place of its first alone.
  static void unicode_form(Characters& characters, bool compatible, bool composed) {
    const char32_t first = compatible ? 0xA0 : composed ? 0x300 : 0xC0;  // the first character that changes or combines
    if (std::all_of(characters.begin(), characters.end(), [&](const Character& c) { return c.code < first; })) return;
    Parts parts = decompose(characters, compatible);
    if (composed) parts = compose(parts);
    Characters result;
    result.reserve(parts.size());
    std::size_t next = 0;
    for (const Part& part : parts) {
      const std::size_t from = part.change > 0 ? std::max<std::size_t>(next, 1) - 1 : next;
      result.push_back({part.code, characters[from].begin, characters[from].end});
      if (part.change <= 0) next += static_cast<std::size_t>(1 - part.change);
    }
    characters = std::move(result);
  }

  [[nodiscard]] static Parts decompose(const Characters& characters, bool compatible) {
    const auto options = static_cast<utf8proc_option_t>(compatible ? UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT : UTF8PROC_DECOMPOSE);
    Parts parts;
    parts.reserve(characters.size() * 2);
    std::size_t marks = 0;  // marks at the end of `parts` that may still change places
    for (const Character& c : characters) {
      std::array<utf8proc_int32_t, 32> codes{static_cast<utf8proc_int32_t>(c.code)};
      utf8proc_ssize_t n = 1;
      int boundary = 0;
      if (c.code >= 0xA0) n = utf8proc_decompose_char(codes[0], codes.data(), codes.size(), options, &boundary);
      for (utf8proc_ssize_t i = 0; i < n; ++i) {
        const auto code = static_cast<char32_t>(codes[static_cast<std::size_t>(i)]);
        const int order = combining_class(code);
        marks = order == 0 ? 0 : marks + 1;
        std::size_t place = parts.size();
        for (std::size_t back = 1; back < marks && combining_class(parts[place - 1].code) > order; ++back) --place;
        parts.insert(parts.begin() + static_cast<std::ptrdiff_t>(place), {code, i > 0 ? 1 : 0});
      }
    }
    return parts;
  }

  [[nodiscard]] static Parts compose(const Parts& parts) {
    Parts result;
    result.reserve(parts.size());
    std::size_t starter = parts.size();  // in `result`
    int last_class = -1;                 // of what follows the starter there
    for (const Part& part : parts) {
      const int order = combining_class(part.code);
      if (starter < result.size() && last_class < order) {
        std::array<utf8proc_int32_t, 2> pair{static_cast<utf8proc_int32_t>(result[starter].code),
                                             static_cast<utf8proc_int32_t>(part.code)};
        const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        if (utf8proc_normalize_utf32(pair.data(), 2, options) == 1) {
          result[starter].code = static_cast<char32_t>(pair[0]);
          result[starter].change += part.change - 1;
          continue;
        }
      }
      if (order == 0)
        starter = result.size(), last_class = -1;
      else
        last_class = order;
      result.push_back(part);
    }
    return result;
  }

  std::vector<NormalizerStep> steps_{};
  std::array<char, 256> ascii_{};
};

}  // namespace toller::detail
