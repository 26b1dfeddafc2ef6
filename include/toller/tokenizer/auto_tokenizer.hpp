// SPDX-License-Identifier: Apache-2.0
// T0. The tokenizer of a tokenizer.json, whatever its kind.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "toller/core/error.hpp"
#include "toller/tokenizer/detail/json_field.hpp"
#include "toller/tokenizer/detail/post_processor.hpp"
#include "toller/tokenizer/detail/tokenizer_file.hpp"
#include "toller/tokenizer/detail/truncation.hpp"
#include "toller/tokenizer/detail/unicode.hpp"
#include "toller/tokenizer/tokenizer.hpp"

namespace toller {

/// The tokenizer of a Hugging Face `tokenizer.json`: WordPiece files of any make. Copies share their state.
///
/// Truncation and padding that the file holds are ignored: the caller decides on length, and nothing is padded here.
/// Errors   FileError R401 unreadable or a folder, R230 not JSON or nested too deeply, R231 a part of a kind not supported,
///          R232 a missing or malformed field, R233 a folder without tokenizer.json; of `encode`: DataError R234 text that
///          is not UTF-8, ConfigError R235 max_length without room for the special tokens, DataError R236 too few tokens to
///          truncate.
/// Ranks    `encode` may run in many threads at once; `add_token` changes this copy alone.
class AutoTokenizer {
public:
  [[nodiscard]] static AutoTokenizer from_file(const std::filesystem::path& path);
  /// Reads `tokenizer.json`, and `tokenizer_config.json` where there is one.
  [[nodiscard]] static AutoTokenizer from_pretrained(const std::filesystem::path& folder);

  [[nodiscard]] Encoding encode(std::string_view text, const EncodeOptions& options = {}) const;
  [[nodiscard]] Encoding encode(std::string_view first, std::string_view second, const EncodeOptions& options = {}) const;

  /// The highest id and one: what the embedding table must have at least.
  [[nodiscard]] std::int64_t vocabulary_size() const;
  [[nodiscard]] std::optional<std::int64_t> token_to_id(std::string_view token) const;
  /// Errors   DataError R237 for an id without a token.
  [[nodiscard]] std::string id_to_token(std::int64_t id) const;

  /// Adds a token that is matched as a whole, and gives its id; a token that is there already keeps its id.
  ///
  /// Not special: matched in the normalised text, so an uncased tokenizer finds `[q] ` for `[Q] ` too, as Transformers'
  /// `add_tokens` has it. Special: matched in the raw text alone.
  std::int64_t add_token(std::string_view content, bool special = false);

  /// A tokenizer.json with the added tokens, and without truncation and padding.
  [[nodiscard]] std::string to_json() const;
  /// The tokenizer_config.json; an empty object where there was none.
  [[nodiscard]] const nlohmann::json& config() const { return file_->config; }

  /// Special tokens as tokenizer_config.json names them, else as an added token spells them.
  [[nodiscard]] std::optional<std::int64_t> pad_token_id() const { return special_id("pad_token", {"[PAD]", "<pad>"}); }
  [[nodiscard]] std::optional<std::int64_t> mask_token_id() const { return special_id("mask_token", {"[MASK]", "<mask>"}); }
  [[nodiscard]] std::optional<std::int64_t> cls_token_id() const { return special_id("cls_token", {"[CLS]", "<s>"}); }
  [[nodiscard]] std::optional<std::int64_t> sep_token_id() const { return special_id("sep_token", {"[SEP]", "</s>"}); }
  [[nodiscard]] std::optional<std::int64_t> bos_token_id() const { return special_id("bos_token", {"<s>"}); }
  [[nodiscard]] std::optional<std::int64_t> eos_token_id() const { return special_id("eos_token", {"</s>"}); }
  [[nodiscard]] std::optional<std::int64_t> unk_token_id() const { return file_->model->unknown_id(); }

private:
  explicit AutoTokenizer(detail::ReadTokenizer read) : file_(std::move(read.file)) { set_added(std::move(read.added)); }

  void set_added(detail::AddedTokens tokens);
  [[nodiscard]] std::optional<std::int64_t> special_id(const char* name, std::initializer_list<std::string_view> usual) const;
  [[nodiscard]] detail::TextTokens tokenize(std::string_view text, std::size_t enough) const;
  [[nodiscard]] std::size_t room(const detail::Template& parts, const EncodeOptions& options) const;
  [[nodiscard]] static Encoding assemble(const detail::Template& parts, const detail::TextTokens* const (&texts)[2],
                                         const std::size_t (&lengths)[2], const EncodeOptions& options);

  std::shared_ptr<const detail::TokenizerFile> file_{};
  std::shared_ptr<const detail::AddedTokenState> added_{};
};

// --- reading -------------------------------------------------------------------------------------------------------------

inline AutoTokenizer AutoTokenizer::from_file(const std::filesystem::path& path) {
  return AutoTokenizer(detail::read_tokenizer(path.string(), nlohmann::json::object()));
}

inline AutoTokenizer AutoTokenizer::from_pretrained(const std::filesystem::path& folder) {
  const auto path = folder / "tokenizer.json";
  if (!std::filesystem::exists(path)) {
    std::string advice;
    if (std::filesystem::exists(folder / "vocab.txt"))
      advice =
          "; vocab.txt alone does not say how to split text: save the tokenizer anew with Transformers "
          "(AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR))";
    throw FileError("R233", detail::cat(folder.string(), ": no tokenizer.json", advice));
  }
  nlohmann::json config = nlohmann::json::object();
  if (const auto config_path = folder / "tokenizer_config.json"; std::filesystem::exists(config_path)) {
    config = detail::parse_json(detail::read_text(config_path.string()), config_path.string());
    if (!config.is_object()) throw FileError("R232", config_path.string() + ": expected an object");
  }
  return AutoTokenizer(detail::read_tokenizer(path.string(), std::move(config)));
}

// --- added tokens --------------------------------------------------------------------------------------------------------

inline void AutoTokenizer::set_added(detail::AddedTokens tokens) {
  auto state = std::make_shared<detail::AddedTokenState>();
  state->raw = detail::AddedTokenMatcher(tokens, false, file_->normalizer);
  state->normalized = detail::AddedTokenMatcher(tokens, true, file_->normalizer);
  for (const detail::AddedToken& token : tokens) {
    state->ids[token.content] = token.id;
    const bool spaced = !token.content.empty() && (token.content.front() == ' ' || token.content.back() == ' ');
    state->strips = state->strips || token.lstrip || token.rstrip || spaced;
  }
  state->tokens = std::move(tokens);
  added_ = std::move(state);
}

inline std::int64_t AutoTokenizer::add_token(std::string_view content, bool special) {
  if (content.empty()) throw ConfigError("R238", "a token to add needs at least one character");
  if (const auto bad = detail::invalid_utf8_at(content))
    throw DataError("R234", detail::cat("token to add: not UTF-8 from byte ", *bad, " on"));
  if (const auto found = added_->ids.find(content); found != added_->ids.end()) return found->second;
  detail::AddedTokens tokens = added_->tokens;
  const std::int64_t id = file_->model->token_to_id(content).value_or(vocabulary_size());
  tokens.push_back({std::string(content), id, special, !special, false, false, false});
  set_added(std::move(tokens));
  return id;
}

inline std::int64_t AutoTokenizer::vocabulary_size() const {
  std::int64_t size = file_->model->size();
  for (const detail::AddedToken& token : added_->tokens) size = std::max(size, token.id + 1);
  return size;
}

inline std::optional<std::int64_t> AutoTokenizer::token_to_id(std::string_view token) const {
  const auto found = added_->ids.find(token);
  return found != added_->ids.end() ? found->second : file_->model->token_to_id(token);
}

inline std::string AutoTokenizer::id_to_token(std::int64_t id) const {
  for (const detail::AddedToken& token : added_->tokens)
    if (token.id == id) return token.content;
  if (auto token = file_->model->id_to_token(id)) return *std::move(token);
  throw DataError("R237", detail::cat(file_->path, ": no token has id ", id, "; ids are below ", vocabulary_size()));
}

inline std::optional<std::int64_t> AutoTokenizer::special_id(const char* name,
                                                             std::initializer_list<std::string_view> usual) const {
  if (const auto named = file_->config.find(name); named != file_->config.end()) {
    if (named->is_string()) return token_to_id(named->get<std::string>());
    if (named->is_object() && named->contains("content") && (*named)["content"].is_string())
      return token_to_id((*named)["content"].get<std::string>());
  }
  for (const std::string_view token : usual)
    if (const auto found = added_->ids.find(token); found != added_->ids.end()) return found->second;
  return std::nullopt;
}

inline std::string AutoTokenizer::to_json() const {
  auto json = nlohmann::ordered_json::parse(file_->text);
  json["truncation"] = nullptr;
  json["padding"] = nullptr;
  auto added = nlohmann::ordered_json::array();
  for (const detail::AddedToken& t : added_->tokens)
    added.push_back({{"id", t.id},
                     {"content", t.content},
                     {"single_word", t.single_word},
                     {"lstrip", t.lstrip},
                     {"rstrip", t.rstrip},
                     {"normalized", t.normalized},
                     {"special", t.special}});
  json["added_tokens"] = std::move(added);
  return json.dump(2) + "\n";
}

// --- encoding ------------------------------------------------------------------------------------------------------------

/// A text's tokens; may stop when it has `enough`.
inline detail::TextTokens AutoTokenizer::tokenize(std::string_view text, std::size_t enough) const {
  if (const auto bad = detail::invalid_utf8_at(text))
    throw DataError("R234", detail::cat("text: not UTF-8 from byte ", *bad, " on"));
  detail::TextTokens result;
  detail::NormalizedText normalized;
  detail::ByteRanges words;
  detail::Pieces pieces;
  added_->raw.split(text, [&](std::size_t begin, std::size_t end, const detail::AddedToken* token) {
    if (result.ids.size() >= enough) return;
    if (token != nullptr) {
      result.ids.push_back(token->id);
      result.offsets.emplace_back(begin, end);
      return;
    }
    file_->normalizer(text.substr(begin, end - begin), begin, normalized);
    const std::string_view clean = normalized.text;
    added_->normalized.split(clean, [&](std::size_t from, std::size_t to, const detail::AddedToken* inner) {
      if (result.ids.size() >= enough) return;
      if (inner != nullptr) {
        result.ids.push_back(inner->id);
        result.offsets.push_back(normalized.original(from, to));
        return;
      }
      const std::string_view part = clean.substr(from, to - from);
      file_->pre_tokenizer(part, words);
      for (const detail::ByteRange& word : words) {
        pieces.clear();
        file_->model->split(part.substr(word.begin, word.end - word.begin), from + word.begin, pieces);
        for (const detail::Piece& piece : pieces) {
          result.ids.push_back(piece.id);
          result.offsets.push_back(normalized.original(piece.begin, piece.end));
        }
        if (result.ids.size() >= enough) return;
      }
    });
  });
  if (file_->post_processor.trim_offsets && added_->strips)
    for (std::size_t i = 0; i < result.offsets.size(); ++i)
      file_->post_processor.trim(text, i == 0, result.offsets[i].first, result.offsets[i].second);
  return result;
}

inline std::size_t AutoTokenizer::room(const detail::Template& parts, const EncodeOptions& options) const {
  if (!options.max_length) return static_cast<std::size_t>(-1);
  const std::int64_t special =
      options.add_special_tokens ? static_cast<std::int64_t>(detail::PostProcessor::special_tokens(parts)) : 0;
  if (*options.max_length < special)
    throw ConfigError("R235",
                      detail::cat("max_length is ", *options.max_length, ", but ", special, " special tokens need room"));
  return static_cast<std::size_t>(*options.max_length - special);
}

inline Encoding AutoTokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  const detail::Template& parts = file_->post_processor.single;
  const std::size_t most = room(parts, options);
  const bool stops = options.truncation_side == Side::right && options.truncation == Truncation::longest_first;
  const detail::TextTokens tokens = tokenize(text, stops ? most : static_cast<std::size_t>(-1));
  if (tokens.ids.size() > most && options.truncation == Truncation::only_second)
    throw ConfigError("R235", "truncation only_second needs two texts");
  const std::size_t length = detail::truncated_lengths(tokens.ids.size(), 0, most, options.truncation).first;
  return assemble(parts, {&tokens, nullptr}, {length, 0}, options);
}

inline Encoding AutoTokenizer::encode(std::string_view first, std::string_view second, const EncodeOptions& options) const {
  const detail::Template& parts = file_->post_processor.pair;
  const std::size_t most = room(parts, options);
  const detail::TextTokens a = tokenize(first, static_cast<std::size_t>(-1));
  const detail::TextTokens b = tokenize(second, static_cast<std::size_t>(-1));
  const auto [keep_a, keep_b] = detail::truncated_lengths(a.ids.size(), b.ids.size(), most, options.truncation);
  return assemble(parts, {&a, &b}, {keep_a, keep_b}, options);
}

inline Encoding AutoTokenizer::assemble(const detail::Template& parts, const detail::TextTokens* const (&texts)[2],
                                        const std::size_t (&lengths)[2], const EncodeOptions& options) {
  Encoding result;
  const std::size_t total = lengths[0] + lengths[1] + parts.size();
  result.ids.reserve(total);
  result.types.reserve(total);
  result.special.reserve(total);
  result.offsets.reserve(total);
  result.sequence.reserve(total);
  for (const detail::TemplatePart& part : parts) {
    if (part.sequence < 0) {
      if (!options.add_special_tokens) continue;
      result.ids.push_back(part.id);
      result.offsets.emplace_back(0, 0);
    } else {
      const auto which = static_cast<std::size_t>(part.sequence);
      const detail::TextTokens& text = *texts[which];
      const std::size_t skip = options.truncation_side == Side::left ? text.ids.size() - lengths[which] : 0;
      const auto from = static_cast<std::ptrdiff_t>(skip);
      const auto to = from + static_cast<std::ptrdiff_t>(lengths[which]);
      result.ids.insert(result.ids.end(), text.ids.begin() + from, text.ids.begin() + to);
      result.offsets.insert(result.offsets.end(), text.offsets.begin() + from, text.offsets.begin() + to);
    }
    result.types.resize(result.ids.size(), part.type);
    result.special.resize(result.ids.size(), static_cast<std::uint8_t>(part.sequence < 0));
    result.sequence.resize(result.ids.size(), static_cast<std::int8_t>(part.sequence));
  }
  return result;
}

static_assert(Tokenizer<AutoTokenizer>);

}  // namespace toller
