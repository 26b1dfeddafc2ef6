// SPDX-License-Identifier: Apache-2.0
// T0. A text in its role -> what the encoder reads: prompt, marker, truncation, query expansion, skiplist.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "toller/core/error.hpp"
#include "toller/tokenizer/auto_tokenizer.hpp"
#include "toller/tokenizer/tokenizer.hpp"

namespace toller {

/// What a text is to the model.
enum class Role { query, document };

/// How texts of one role are prepared. The defaults prepare nothing, as dense models have it.
///
/// Units    max_length counts all tokens: special ones, the marker and the expansion.
/// Source   PyLate 1.6: the marker is one token behind the first; queries are filled up to max_length with the mask token.
struct RoleFormat {
  std::string prompt{};  // put before the text
  std::string marker{};  // a token of the tokenizer, put behind the first token
  std::int64_t max_length = 512;
  bool expand = false;                  // fill up to max_length with the mask token
  bool attend_to_expansion = false;     // whether other tokens see these
  std::vector<std::string> skiplist{};  // tokens that are encoded, but not scored; unknown ones are ignored
};

/// One text, ready for a batch; all four have one entry a token.
///
/// Masks    attended 0: no other token sees it; scored 0: late interaction drops its vector.
struct TokenizedText {
  std::vector<std::int64_t> ids{};
  std::vector<std::int64_t> types{};
  std::vector<std::uint8_t> attended{};
  std::vector<std::uint8_t> scored{};
};

/// A tokenizer and the two formats.
///
/// Errors   ConfigError R239 a marker that is no token, R240 `expand` without a token to fill with, R241 a max_length too
///          short for the special tokens, the marker and one token of text; of a call: DataError R234 for text that is not
///          UTF-8.
/// Ranks    Calls may run in many threads at once.
class Preprocessor {
public:
  Preprocessor(AutoTokenizer tokenizer, RoleFormat query, RoleFormat document)
      : tokenizer_(std::move(tokenizer)),
        query_(bind(std::move(query), "query")),
        document_(bind(std::move(document), "document")) {}

  [[nodiscard]] TokenizedText operator()(std::string_view text, Role role) const {
    const Bound& bound = role == Role::query ? query_ : document_;
    const RoleFormat& format = bound.format;
    const EncodeOptions options{.max_length = format.max_length - (bound.marker ? 1 : 0)};
    Encoding encoding = format.prompt.empty() ? tokenizer_.encode(text, options)
                                              : tokenizer_.encode(format.prompt + std::string(text), options);
    TokenizedText result{std::move(encoding.ids), std::move(encoding.types)};
    if (bound.marker) {
      const std::ptrdiff_t place = result.ids.empty() ? 0 : 1;
      result.ids.insert(result.ids.begin() + place, *bound.marker);
      result.types.insert(result.types.begin() + place, 0);
    }
    result.attended.assign(result.ids.size(), 1);
    result.scored.assign(result.ids.size(), 1);
    if (!bound.skipped.empty())
      for (std::size_t i = 0; i < result.ids.size(); ++i)
        result.scored[i] = std::binary_search(bound.skipped.begin(), bound.skipped.end(), result.ids[i]) ? 0 : 1;
    if (format.expand) {
      const auto length = static_cast<std::size_t>(format.max_length);
      result.ids.resize(length, *bound.filler);
      result.types.resize(length, 0);
      result.attended.resize(length, format.attend_to_expansion ? 1 : 0);
      result.scored.resize(length, 1);
    }
    return result;
  }

  [[nodiscard]] const AutoTokenizer& tokenizer() const { return tokenizer_; }
  [[nodiscard]] const RoleFormat& format(Role role) const { return (role == Role::query ? query_ : document_).format; }

private:
  struct Bound {
    RoleFormat format{};
    std::optional<std::int64_t> marker{};
    std::optional<std::int64_t> filler{};
    std::vector<std::int64_t> skipped{};  // sorted
  };

  [[nodiscard]] Bound bind(RoleFormat format, std::string_view role) const {
    Bound bound;
    if (!format.marker.empty()) {
      bound.marker = tokenizer_.token_to_id(format.marker);
      if (!bound.marker)
        throw ConfigError(
            "R239", detail::cat(role, ": marker \"", format.marker, "\" is no token of the tokenizer: add_token it first"));
    }
    if (format.expand) {
      bound.filler = tokenizer_.mask_token_id();
      if (!bound.filler) bound.filler = tokenizer_.eos_token_id();
      if (!bound.filler) bound.filler = tokenizer_.pad_token_id();
      if (!bound.filler)
        throw ConfigError("R240", detail::cat(role, ": expand needs a mask, end or padding token, and the tokenizer has none"));
    }
    const auto around = static_cast<std::int64_t>(tokenizer_.encode("").size());
    const std::int64_t least = std::max<std::int64_t>(bound.marker ? 3 : 2, around + (bound.marker ? 1 : 0));
    if (format.max_length < least)
      throw ConfigError("R241",
                        detail::cat(role, ": max_length is ", format.max_length, ", at least ", least, " tokens are needed"));
    for (const std::string& token : format.skiplist)
      if (const auto id = tokenizer_.token_to_id(token)) bound.skipped.push_back(*id);
    std::sort(bound.skipped.begin(), bound.skipped.end());
    bound.format = std::move(format);
    return bound;
  }

  AutoTokenizer tokenizer_;
  Bound query_;
  Bound document_;
};

}  // namespace toller
