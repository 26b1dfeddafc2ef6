// SPDX-License-Identifier: Apache-2.0
// T0. What a tokenizer is: text in, token ids with their places in the text out.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace toller {

/// The tokens of one text, or of a pair of texts, in model order.
///
/// Types    ids, types: one number a token; special: 1 for tokens that the template put in (`[CLS]`, `[SEP]`), 0 also for a
///          special token that the user typed; sequence: 0 first text, 1 second text, -1 put in by the template.
/// Units    offsets are bytes of the UTF-8 text that `sequence` names, `begin <= end`; (0, 0) for tokens put in.
struct Encoding {
  std::vector<std::int64_t> ids{};
  std::vector<std::int64_t> types{};
  std::vector<std::uint8_t> special{};
  std::vector<std::pair<std::size_t, std::size_t>> offsets{};
  std::vector<std::int8_t> sequence{};

  [[nodiscard]] std::size_t size() const { return ids.size(); }
  friend bool operator==(const Encoding&, const Encoding&) = default;
};

/// Which text gives tokens up when there are too many.
///
/// `longest_first` keeps the shorter text whole as long as it can: with room m and lengths s <= l, the longer one keeps
/// max(s, m - s), or s when s > m; if that is still too much, the halves are m / 2 and m - m / 2.
/// Source   tokenizers 0.22.2, measured; it does not remove tokens one by one.
enum class Truncation { longest_first, only_first, only_second };

/// The end at which tokens are cut off.
enum class Side { right, left };

/// How to encode.
///
/// Units    max_length counts all tokens, special ones too; empty: no truncation, whatever the tokenizer's file says.
struct EncodeOptions {
  bool add_special_tokens = true;
  std::optional<std::int64_t> max_length{};
  Truncation truncation = Truncation::longest_first;
  Side truncation_side = Side::right;
};

/// A tokenizer: a value that encodes texts, from many threads at once.
template <class T>
concept Tokenizer = requires(const T& tokenizer, std::string_view text, const EncodeOptions& options) {
  { tokenizer.encode(text, options) } -> std::same_as<Encoding>;
  { tokenizer.encode(text, text, options) } -> std::same_as<Encoding>;
  { tokenizer.vocabulary_size() } -> std::convertible_to<std::int64_t>;
  { tokenizer.token_to_id(text) } -> std::same_as<std::optional<std::int64_t>>;
};

}  // namespace toller
