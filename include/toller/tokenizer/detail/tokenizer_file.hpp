// SPDX-License-Identifier: Apache-2.0
// T0. What a tokenizer.json becomes in memory, and the reading of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "toller/tokenizer/detail/added_tokens.hpp"
#include "toller/tokenizer/detail/json_field.hpp"
#include "toller/tokenizer/detail/model.hpp"
#include "toller/tokenizer/detail/normalizer.hpp"
#include "toller/tokenizer/detail/post_processor.hpp"
#include "toller/tokenizer/detail/pre_tokenizer.hpp"
#include "toller/tokenizer/detail/wordpiece.hpp"

namespace toller::detail {

/// What copies of a tokenizer share.
struct TokenizerFile {
  std::string path{};
  std::string text{};
  nlohmann::json config = nlohmann::json::object();
  Normalizer normalizer{};
  PreTokenizer pre_tokenizer{};
  PostProcessor post_processor{};
  std::unique_ptr<const TokenModel> model{};
};

/// The added tokens and what is made from them.
struct AddedTokenState {
  AddedTokens tokens{};
  std::map<std::string, std::int64_t, std::less<>> ids{};
  AddedTokenMatcher raw{};
  AddedTokenMatcher normalized{};
  bool strips = false;  // some token takes white space with it
};

/// One text's tokens, before special tokens are put in.
struct TextTokens {
  std::vector<std::int64_t> ids{};
  std::vector<std::pair<std::size_t, std::size_t>> offsets{};
};

/// A file just read: what copies share, and the added tokens.
struct ReadTokenizer {
  std::shared_ptr<const TokenizerFile> file{};
  AddedTokens added{};
};

[[nodiscard]] inline std::unique_ptr<const TokenModel> read_model(const JsonField& json) {
  std::string kind = "WordPiece";  // older files leave the type out
  if (json.has("type"))
    kind = json.at("type").string();
  else if (json.has("merges"))
    kind = "BPE";
  if (kind != "WordPiece") unsupported(json, "model", kind, "WordPiece");
  return std::make_unique<WordPiece>(json);
}

[[nodiscard]] inline AddedTokens read_added_tokens(const JsonField& json, const TokenModel& model) {
  AddedTokens result;
  std::map<std::int64_t, std::string> taken;
  for (const JsonField& item : json.items()) {
    AddedToken token;
    token.content = item.at("content").string();
    token.id = item.at("id").count();
    token.special = item.boolean("special", false);
    token.normalized = item.boolean("normalized", !token.special);
    token.lstrip = item.boolean("lstrip", false);
    token.rstrip = item.boolean("rstrip", false);
    token.single_word = item.boolean("single_word", false);
    const auto known = model.token_to_id(token.content);
    if (known && *known != token.id) item.at("id").fail(cat(*known, ", the vocabulary's id of \"", token.content, "\""));
    if (!known && (model.id_to_token(token.id) || taken.count(token.id) > 0))
      item.at("id").fail("an id that no other token has");
    taken[token.id] = token.content;
    result.push_back(std::move(token));
  }
  return result;
}

/// Reads a tokenizer.json. Errors: FileError R401, R230, R231, R232.
[[nodiscard]] inline ReadTokenizer read_tokenizer(const std::string& path, nlohmann::json config) {
  auto file = std::make_shared<TokenizerFile>();
  file->path = path;
  file->text = read_text(path);
  file->config = std::move(config);
  const nlohmann::json json = parse_json(file->text, path);
  const nlohmann::json nothing;
  const JsonField root(json, path);
  const auto part = [&](const char* name) { return root.has(name) ? root.at(name) : JsonField(nothing, path, name); };
  file->model = read_model(root.at("model"));
  file->normalizer = Normalizer::from_json(part("normalizer"));
  file->pre_tokenizer = PreTokenizer::from_json(part("pre_tokenizer"));
  file->post_processor = PostProcessor::from_json(part("post_processor"));
  AddedTokens added;
  if (root.has("added_tokens")) added = read_added_tokens(root.at("added_tokens"), *file->model);
  return {std::move(file), std::move(added)};
}

}  // namespace toller::detail
