// SPDX-License-Identifier: Apache-2.0
// Every reference case of the WordPiece tokenizers, exact.
#include <cctype>

#include "support/golden.hpp"
#include "toller/tokenizer/auto_tokenizer.hpp"

using namespace toller;

namespace {

using Offsets = std::vector<std::pair<std::size_t, std::size_t>>;

std::filesystem::path folder_of(const std::string& name) {
  if (name != "bert_minilm") return std::filesystem::path(TOLLER_GOLDEN) / "tokenizers" / name;
  const auto folder = minilm_folder();
  if (!folder) SKIP("MiniLM's folder is not here: set TOLLER_MINILM");
  return *folder;
}

/// Byte offsets as numbers of code points.
Offsets in_characters(const std::string& text, const Offsets& bytes) {
  std::vector<std::size_t> number(text.size() + 1);
  for (std::size_t i = 0; i < text.size(); ++i)
    number[i + 1] = number[i] + ((i + 1 == text.size() || (static_cast<unsigned char>(text[i + 1]) & 0xC0) != 0x80) ? 1 : 0);
  Offsets result;
  for (const auto& [begin, end] : bytes) result.emplace_back(number[begin], number[end]);
  return result;
}

std::string stripped(std::string text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) text.erase(0, 1);
  return text;
}

void require_case(const AutoTokenizer& tokenizer, const nlohmann::json& expected) {
  const auto text = expected.at("text").get<std::string>();
  INFO("case " << expected.at("index") << ": " << text);
  const Encoding encoding = tokenizer.encode(text);
  REQUIRE(encoding.ids == expected.at("ids").get<std::vector<std::int64_t>>());
  REQUIRE(encoding.types == expected.at("type_ids").get<std::vector<std::int64_t>>());
  REQUIRE(encoding.special == expected.at("special_tokens_mask").get<std::vector<std::uint8_t>>());
  REQUIRE(encoding.offsets == expected.at("offsets_byte").get<Offsets>());
  REQUIRE(in_characters(text, encoding.offsets) == expected.at("offsets_char").get<Offsets>());
  for (std::size_t i = 0; i < encoding.size(); ++i)
    REQUIRE(tokenizer.id_to_token(encoding.ids[i]) == stripped(expected.at("tokens")[i].get<std::string>()));
  for (const auto side : {Side::right, Side::left})
    for (const std::int64_t length : {8, 32}) {
      const std::string name = std::string("truncated_") + (side == Side::right ? "right_" : "left_") + std::to_string(length);
      const Encoding cut = tokenizer.encode(text, {.max_length = length, .truncation_side = side});
      INFO(name);
      if (!expected.contains(name)) {
        if (encoding.size() <= static_cast<std::size_t>(length)) REQUIRE(cut == encoding);
        continue;
      }
      REQUIRE(cut.ids == expected.at(name).at("ids").get<std::vector<std::int64_t>>());
      REQUIRE(in_characters(text, cut.offsets) == expected.at(name).at("offsets_char").get<Offsets>());
    }
}

void require_pair(const AutoTokenizer& tokenizer, const nlohmann::json& cases, const nlohmann::json& expected) {
  INFO(expected.dump());
  const auto text_of = [&](const char* side) {
    return cases.at(expected.at(side).get<std::size_t>()).at("text").get<std::string>();
  };
  const std::string a = text_of("a"), b = text_of("b");
  EncodeOptions options;
  if (!expected.at("max_length").is_null()) options.max_length = expected.at("max_length").get<std::int64_t>();
  if (expected.at("strategy") == "only_second") options.truncation = Truncation::only_second;
  if (expected.contains("error")) {
    REQUIRE_THROWS_AS(tokenizer.encode(a, b, options), DataError);
    return;
  }
  const Encoding encoding = tokenizer.encode(a, b, options);
  REQUIRE(encoding.ids == expected.at("ids").get<std::vector<std::int64_t>>());
  REQUIRE(encoding.types == expected.at("type_ids").get<std::vector<std::int64_t>>());
  const Offsets in_a = in_characters(a, [&] {
    Offsets mine;
    for (std::size_t i = 0; i < encoding.size(); ++i)
      if (encoding.sequence[i] == 0) mine.push_back(encoding.offsets[i]);
    return mine;
  }());
  const Offsets in_b = in_characters(b, [&] {
    Offsets mine;
    for (std::size_t i = 0; i < encoding.size(); ++i)
      if (encoding.sequence[i] == 1) mine.push_back(encoding.offsets[i]);
    return mine;
  }());
  Offsets offsets;
  std::size_t next_a = 0, next_b = 0;
  for (std::size_t i = 0; i < encoding.size(); ++i) {
    const auto& sequence = expected.at("sequence_ids")[i];
    REQUIRE((sequence.is_null() ? -1 : sequence.get<int>()) == encoding.sequence[i]);
    offsets.push_back(encoding.sequence[i] < 0    ? std::pair<std::size_t, std::size_t>{}
                      : encoding.sequence[i] == 0 ? in_a[next_a++]
                                                  : in_b[next_b++]);
  }
  REQUIRE(offsets == expected.at("offsets_char").get<Offsets>());
}

void require_all(const std::string& name) {
  INFO(name);
  const AutoTokenizer tokenizer = AutoTokenizer::from_pretrained(folder_of(name));
  const nlohmann::json golden = golden_json("tokenizers/" + name + ".cases.json");
  REQUIRE(tokenizer.vocabulary_size() == golden.at("vocab_size_with_added").get<std::int64_t>());
  REQUIRE(golden.at("cases").size() == 309);
  for (const auto& expected : golden.at("cases")) require_case(tokenizer, expected);
  REQUIRE(golden.at("pairs").size() >= 105);
  for (const auto& expected : golden.at("pairs")) require_pair(tokenizer, golden.at("cases"), expected);
}

}  // namespace

TEST_CASE("WordPiece tokenizers give the reference's tokens, offsets, truncations and pairs", "[golden]") {
  require_all(GENERATE("wordpiece_small", "wordpiece_cased", "wordpiece_mpnet"));
}

TEST_CASE("MiniLM's tokenizer gives the reference's tokens, offsets, truncations and pairs", "[golden]") {
  require_all("bert_minilm");
}

TEST_CASE("MiniLM's tokenizer gives the ids of the reference sentences", "[golden]") {
  const AutoTokenizer tokenizer = AutoTokenizer::from_pretrained(folder_of("bert_minilm"));
  const nlohmann::json golden = golden_json("minilm/sentences.json");
  const EncodeOptions options{.max_length = golden.at("max_seq_length").get<std::int64_t>()};
  REQUIRE(golden.at("sentences").size() == 60);
  for (const auto& expected : golden.at("sentences"))
    REQUIRE(tokenizer.encode(expected.at("text").get<std::string>(), options).ids ==
            expected.at("ids").get<std::vector<std::int64_t>>());
}
