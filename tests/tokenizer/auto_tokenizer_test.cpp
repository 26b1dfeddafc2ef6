// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/small_tokenizer.hpp"

using namespace toller;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("the truncation and padding of a file are ignored") {
  const AutoTokenizer tokenizer = small_tokenizer();
  REQUIRE(tokenizer.encode("bees, moss").ids == Ids{2, 5, 6, 8, 7, 3});
  REQUIRE(tokenizer.encode("").ids == Ids{2, 3});
  REQUIRE(tokenizer.encode("bees", {.add_special_tokens = false}).ids == Ids{5, 6});
}

TEST_CASE("a word that cannot be split, or is too long, is one unknown token") {
  const AutoTokenizer tokenizer = small_tokenizer();
  const EncodeOptions bare{.add_special_tokens = false};
  REQUIRE(tokenizer.encode("beesx a", bare).ids == Ids{1, 10});
  REQUIRE(tokenizer.encode("aaaaaaaaaa", bare).size() == 10);
  REQUIRE(tokenizer.encode("aaaaaaaaaaa", bare).ids == Ids{1});
}

TEST_CASE("offsets are bytes of the raw text, also where characters vanish or change size") {
  const AutoTokenizer tokenizer = small_tokenizer();
  const Encoding encoding = tokenizer.encode(
      "  CAF\xC3\x89, be\xE2\x80\x8B"
      "e\xCC\x81s");
  REQUIRE(encoding.ids == Ids{2, 9, 8, 5, 6, 3});
  REQUIRE(encoding.offsets == Offsets{{0, 0}, {2, 7}, {7, 8}, {9, 15}, {17, 18}, {0, 0}});
}

TEST_CASE("a text that is not UTF-8 is an error that names the byte") {
  const AutoTokenizer tokenizer = small_tokenizer();
  const std::string bad = GENERATE(std::string("bee\xFF"), std::string("bee\xC3"), std::string("bee\xC0\x80"),
                                   std::string("bee\xED\xA0\x80"), std::string("bee\xF4\x90\x80\x80"), std::string("bee\x80"));
  REQUIRE_THROWS_AS(tokenizer.encode(bad), DataError);
  REQUIRE_THROWS_WITH(tokenizer.encode(bad), "[R234] text: not UTF-8 from byte 3 on");
  REQUIRE_THROWS_WITH(tokenizer.encode("bee", bad), "[R234] text: not UTF-8 from byte 3 on");
}

TEST_CASE("truncation keeps room for the special tokens and says when there is none") {
  const AutoTokenizer tokenizer = small_tokenizer();
  REQUIRE(tokenizer.encode("a b a b", {.max_length = 4}).ids == Ids{2, 10, 13, 3});
  REQUIRE(tokenizer.encode("a a a b", {.max_length = 4, .truncation_side = Side::left}).ids == Ids{2, 10, 13, 3});
  REQUIRE(tokenizer.encode("a b", {.max_length = 2}).ids == Ids{2, 3});
  REQUIRE(tokenizer.encode("a b", {.add_special_tokens = false, .max_length = 0}).ids.empty());
  REQUIRE_THROWS_WITH(tokenizer.encode("a", {.max_length = 1}), "[R235] max_length is 1, but 2 special tokens need room");
  REQUIRE_THROWS_WITH(tokenizer.encode("a", {.add_special_tokens = false, .max_length = -1}),
                      ContainsSubstring("[R235] max_length is -1"));
  REQUIRE_THROWS_WITH(tokenizer.encode("a b a", {.max_length = 3, .truncation = Truncation::only_second}),
                      ContainsSubstring("[R235]"));
}

TEST_CASE("a pair has types and sequences, and can cut either text") {
  const AutoTokenizer tokenizer = small_tokenizer();
  const Encoding both = tokenizer.encode("a b", "moss");
  REQUIRE(both.ids == Ids{2, 10, 13, 3, 7, 3});
  REQUIRE(both.types == Ids{0, 0, 0, 0, 1, 1});
  REQUIRE(both.sequence == std::vector<std::int8_t>{-1, 0, 0, -1, 1, -1});
  REQUIRE(both.special == std::vector<std::uint8_t>{1, 0, 0, 1, 0, 1});
  REQUIRE(tokenizer.encode("a b a", "moss", {.max_length = 5, .truncation = Truncation::only_first}).ids ==
          Ids{2, 10, 3, 7, 3});
  REQUIRE(tokenizer.encode("a", "b b b", {.max_length = 5, .truncation = Truncation::only_second}).ids == Ids{2, 10, 3, 13, 3});
  REQUIRE_THROWS_AS(tokenizer.encode("a b a", "b", {.max_length = 5, .truncation = Truncation::only_second}), DataError);
  REQUIRE_THROWS_WITH(tokenizer.encode("a b a", "b", {.max_length = 5, .truncation = Truncation::only_second}),
                      ContainsSubstring("[R236] the second text has 1 tokens, too few to give up 2"));
}

TEST_CASE("ids and tokens go both ways") {
  const AutoTokenizer tokenizer = small_tokenizer();
  REQUIRE(tokenizer.vocabulary_size() == 14);
  REQUIRE(tokenizer.token_to_id("##s") == 6);
  REQUIRE(tokenizer.id_to_token(6) == "##s");
  REQUIRE_FALSE(tokenizer.token_to_id("wasp"));
  REQUIRE_THROWS_WITH(tokenizer.id_to_token(14), ContainsSubstring("[R237]"));
  REQUIRE_THROWS_AS(tokenizer.id_to_token(-1), DataError);
}

TEST_CASE("special tokens come from the configuration, else from the usual spellings") {
  const TemporaryFolder folder;
  folder.write("tokenizer.json", small_tokenizer_json().dump());
  const AutoTokenizer plain = AutoTokenizer::from_pretrained(folder.path());
  REQUIRE(plain.mask_token_id() == 4);
  REQUIRE(plain.pad_token_id() == 0);
  REQUIRE(plain.unk_token_id() == 1);
  REQUIRE_FALSE(plain.eos_token_id());
  REQUIRE(plain.config().empty());
  folder.write("tokenizer_config.json", R"({"mask_token": {"content": "moss"}, "eos_token": "bee", "pad_token": null})");
  const AutoTokenizer configured = AutoTokenizer::from_pretrained(folder.path());
  REQUIRE(configured.mask_token_id() == 7);
  REQUIRE(configured.eos_token_id() == 5);
  REQUIRE(configured.pad_token_id() == 0);
  REQUIRE(configured.config().at("eos_token") == "bee");
}

TEST_CASE("BERT, RoBERTa and template post-processors put special tokens where they belong") {
  nlohmann::json json = small_tokenizer_json();
  json["post_processor"] = {{"type", "RobertaProcessing"}, {"cls", {"[CLS]", 2}}, {"sep", {"[SEP]", 3}}};
  REQUIRE(tokenizer_of(json).encode("a", "b").ids == Ids{2, 10, 3, 3, 13, 3});
  REQUIRE(tokenizer_of(json).encode("a", "b").types == Ids{0, 0, 0, 0, 0, 0});
  json["post_processor"] = nullptr;
  REQUIRE(tokenizer_of(json).encode("a", "b").ids == Ids{10, 13});
  REQUIRE(tokenizer_of(json).encode("a", "b").types == Ids{0, 1});
  json["post_processor"] = nlohmann::json::parse(R"({"type": "Sequence", "processors": [{"type": "TemplateProcessing",
    "single": [{"Sequence": {"id": "A", "type_id": 3}}, {"SpecialToken": {"id": "end", "type_id": 4}}],
    "pair": [{"Sequence": {"id": "B", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 1}}],
    "special_tokens": {"end": {"id": "end", "ids": [3, 4], "tokens": ["[SEP]", "[MASK]"]}}}]})");
  const AutoTokenizer tokenizer = tokenizer_of(json);
  REQUIRE(tokenizer.encode("a").ids == Ids{10, 3, 4});
  REQUIRE(tokenizer.encode("a").types == Ids{3, 4, 4});
  REQUIRE(tokenizer.encode("a", "b").ids == Ids{13, 10});
  REQUIRE(tokenizer.encode("a b", {.max_length = 3}).ids == Ids{10, 3, 4});
}

TEST_CASE("normalisers and pre-tokenisers split as they say") {
  nlohmann::json json = small_tokenizer_json();
  json["post_processor"] = nullptr;
  json["model"]["vocab"] = {{"[UNK]", 1}, {"\xC3\xA9", 5}, {"e", 6},  {"##\xCC\x81", 7}, {"fi", 8},
                            {"-", 9},     {"--", 10},      {"a", 11}, {"a-a", 12},       {"##--", 13}};
  json["added_tokens"] = nlohmann::json::array();
  const auto ids = [&](const char* normalizer, const char* pre_tokenizer, const char* text) {
    json["normalizer"] = normalizer == nullptr ? nlohmann::json() : nlohmann::json{{"type", normalizer}};
    json["pre_tokenizer"] = pre_tokenizer == nullptr ? nlohmann::json() : nlohmann::json{{"type", pre_tokenizer}};
    return tokenizer_of(json).encode(text).ids;
  };
  REQUIRE(ids("NFC", nullptr, "e\xCC\x81") == Ids{5});
  REQUIRE(ids("NFD", nullptr, "\xC3\xA9") == Ids{6, 7});
  REQUIRE(ids("NFKC", nullptr, "\xEF\xAC\x81") == Ids{8});
  REQUIRE(ids("StripAccents", nullptr, "e\xCC\x81") == Ids{6});
  REQUIRE(ids("Lowercase", nullptr, "E") == Ids{6});
  REQUIRE(ids(nullptr, "WhitespaceSplit", "a-a a") == Ids{12, 11});
  REQUIRE(ids(nullptr, "Whitespace", "a-- a") == Ids{11, 10, 11});
  REQUIRE(ids(nullptr, "Punctuation", "a--a") == Ids{11, 9, 9, 11});
  REQUIRE(ids(nullptr, "BertPreTokenizer", "a-- a") == Ids{11, 9, 9, 11});
  REQUIRE(ids(nullptr, nullptr, "a--") == Ids{11, 13});
}
