// SPDX-License-Identifier: Apache-2.0
// The token ids and masks of the reference ColBERT, exact.
#include "support/golden.hpp"
#include "toller/tokenizer/preprocessor.hpp"

using namespace toller;

namespace {

/// Row of a padded reference tensor, as far as `length` goes.
std::vector<std::int64_t> row(const at::Tensor& table, std::int64_t index, std::size_t length) {
  const at::Tensor values = table[index].slice(0, 0, static_cast<std::int64_t>(length)).contiguous();
  return {values.const_data_ptr<std::int64_t>(), values.const_data_ptr<std::int64_t>() + length};
}

std::vector<std::int64_t> numbers(const std::vector<std::uint8_t>& mask) {
  return {mask.begin(), mask.end()};
}

AutoTokenizer with_markers() {
  const auto folder = minilm_folder();
  if (!folder) SKIP("MiniLM's folder is not here: set TOLLER_MINILM");
  AutoTokenizer tokenizer = AutoTokenizer::from_pretrained(*folder);
  REQUIRE(tokenizer.add_token("[Q] ") == 30522);
  REQUIRE(tokenizer.add_token("[D] ") == 30523);
  return tokenizer;
}

std::vector<std::string> punctuation() {
  std::vector<std::string> result;
  for (const char c : std::string("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")) result.emplace_back(1, c);
  return result;
}

}  // namespace

TEST_CASE("the ColBERT's queries and documents have the reference's tokens and masks", "[golden]") {
  const AutoTokenizer tokenizer = with_markers();
  const nlohmann::json golden = golden_json("minilm/colbert.json");
  const auto tensors = golden_tensors("minilm/colbert.safetensors");
  REQUIRE(golden.at("variants").size() == 3);
  for (const auto& variant : golden.at("variants")) {
    const auto name = variant.at("name").get<std::string>();
    INFO(name);
    const bool expand = variant.value("do_query_expansion", true);
    const RoleFormat query{.marker = "[Q] ",
                           .max_length = variant.at("query_length").get<std::int64_t>(),
                           .expand = expand,
                           .attend_to_expansion = variant.value("attend_to_expansion_tokens", false)};
    const RoleFormat document{
        .marker = "[D] ", .max_length = variant.at("document_length").get<std::int64_t>(), .skiplist = punctuation()};
    const Preprocessor preprocess(tokenizer, query, document);

    std::int64_t index = 0;
    for (const auto& text : golden.at("queries")) {
      const TokenizedText tokens = preprocess(text.get<std::string>(), Role::query);
      INFO(text);
      REQUIRE(tokens.ids == row(tensors.at(name + ".query_ids"), index, tokens.ids.size()));
      REQUIRE(numbers(tokens.attended) == row(tensors.at(name + ".query_attention_mask"), index, tokens.ids.size()));
      REQUIRE(numbers(tokens.scored) == std::vector<std::int64_t>(tokens.ids.size(), 1));
      REQUIRE(static_cast<std::int64_t>(tokens.ids.size()) == tensors.at(name + ".query_lengths")[index].item<std::int64_t>());
      ++index;
    }
    index = 0;
    for (const auto& text : golden.at("documents")) {
      const TokenizedText tokens = preprocess(text.get<std::string>(), Role::document);
      INFO(text);
      const auto length = static_cast<std::int64_t>(tokens.ids.size());
      REQUIRE(tokens.ids == row(tensors.at("doc_ids"), index, tokens.ids.size()));
      REQUIRE(tensors.at("doc_attention_mask")[index].sum().item<std::int64_t>() == length);
      REQUIRE(numbers(tokens.attended) == row(tensors.at("doc_attention_mask"), index, tokens.ids.size()));
      REQUIRE(numbers(tokens.scored) == row(tensors.at("doc_keep_mask"), index, tokens.ids.size()));
      ++index;
    }
  }
}

TEST_CASE("PyLate's documented examples come out the same", "[golden]") {
  const Preprocessor preprocess(with_markers(), {.marker = "[Q] ", .max_length = 32, .expand = true},
                                {.marker = "[D] ", .max_length = 180, .skiplist = punctuation()});
  using Ids = std::vector<std::int64_t>;
  Ids query{101, 30522, 7592, 2088, 102};
  query.resize(32, 103);
  REQUIRE(preprocess("hello world", Role::query).ids == query);
  REQUIRE(preprocess("hello, world!", Role::document).ids == Ids{101, 30523, 7592, 1010, 2088, 999, 102});
  REQUIRE(preprocess("", Role::document).ids == Ids{101, 30523, 102});
  const TokenizedText marks = preprocess("!!! ... ,,,", Role::document);
  REQUIRE(std::count(marks.scored.begin(), marks.scored.end(), 1) == 3);
  std::string words;
  for (int i = 0; i < 1000; ++i) words += "word ";
  REQUIRE(preprocess(words, Role::document).ids.size() == 180);
  REQUIRE(preprocess(words, Role::document).ids.back() == 102);
  REQUIRE(preprocess(words, Role::query).ids.back() == 102);
  REQUIRE(preprocess("[Q] typed", Role::query).ids[2] == 30522);
}
