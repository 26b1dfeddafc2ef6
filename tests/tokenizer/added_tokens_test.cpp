// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/small_tokenizer.hpp"

using namespace toller;
using Catch::Matchers::ContainsSubstring;

namespace {

AutoTokenizer with(const nlohmann::json& token) {
  nlohmann::json json = small_tokenizer_json();
  json["post_processor"] = nullptr;
  json["added_tokens"].push_back(token);
  return tokenizer_of(json);
}

}  // namespace

TEST_CASE("a token is added to this copy alone, once, with the next id") {
  const AutoTokenizer original = small_tokenizer();
  AutoTokenizer tokenizer = original;
  REQUIRE(tokenizer.add_token("[Q] ") == 14);
  REQUIRE(tokenizer.add_token("[Q] ") == 14);
  REQUIRE(tokenizer.add_token("[MASK]") == 4);
  REQUIRE(tokenizer.add_token("moss") == 7);
  REQUIRE(tokenizer.vocabulary_size() == 15);
  REQUIRE(original.vocabulary_size() == 14);
  REQUIRE(tokenizer.token_to_id("[Q] ") == 14);
  REQUIRE(tokenizer.id_to_token(14) == "[Q] ");
  REQUIRE(tokenizer.encode("[Q] bees").ids == Ids{2, 14, 5, 6, 3});
  REQUIRE(original.encode("[Q] bees").ids == Ids{2, 1, 1, 1, 5, 6, 3});
  REQUIRE_THROWS_AS(tokenizer.add_token(""), ConfigError);
  REQUIRE_THROWS_WITH(tokenizer.add_token("\xFF"), ContainsSubstring("[R234]"));
}

TEST_CASE("an added token is found in normalised text, a special one in raw text") {
  AutoTokenizer tokenizer = small_tokenizer();
  tokenizer.add_token("[Q] ");
  tokenizer.add_token("[D] ", true);
  const EncodeOptions bare{.add_special_tokens = false};
  REQUIRE(tokenizer.encode("[q] [Q\xCC\x81] ", bare).ids == Ids{14, 14});
  REQUIRE(tokenizer.encode("[q] [Q\xCC\x81] ", bare).offsets == Offsets{{0, 4}, {4, 10}});
  REQUIRE(tokenizer.encode("[D] [d] ", bare).ids == Ids{15, 1, 1, 1});
}

TEST_CASE("the saved file holds the added tokens and gives the same encodings") {
  AutoTokenizer tokenizer = small_tokenizer();
  tokenizer.add_token("[Q] ");
  tokenizer.add_token("[D] ", true);
  const auto json = nlohmann::json::parse(tokenizer.to_json());
  REQUIRE(json.at("truncation").is_null());
  REQUIRE(json.at("padding").is_null());
  REQUIRE(json.at("added_tokens").size() == 5);
  const AutoTokenizer again = tokenizer_of(json);
  REQUIRE(again.vocabulary_size() == tokenizer.vocabulary_size());
  for (const char* text : {"[Q] bees", "[q] x", "[D] [d] moss [MASK]", "", "caf\xC3\xA9"})
    REQUIRE(again.encode(text) == tokenizer.encode(text));
  REQUIRE(again.to_json() == tokenizer.to_json());
}

TEST_CASE("the leftmost token wins, then the longest") {
  AutoTokenizer tokenizer = with({{"id", 14}, {"content", "xy"}, {"normalized", false}});
  tokenizer.add_token("xyz", true);
  tokenizer.add_token("yzzz", true);
  REQUIRE(tokenizer.encode("xyzzz").ids == Ids{15, 1});
  REQUIRE(tokenizer.encode("axya").ids == Ids{10, 14, 10});
}

TEST_CASE("a single-word token does not touch words") {
  const AutoTokenizer tokenizer = with({{"id", 14}, {"content", "xy"}, {"single_word", true}, {"normalized", false}});
  REQUIRE(tokenizer.encode("xy").ids == Ids{14});
  REQUIRE(tokenizer.encode("a xy!").ids == Ids{10, 14, 12});
  REQUIRE(tokenizer.encode("axy").ids == Ids{1});
  REQUIRE(tokenizer.encode("xy_").ids == Ids{1, 1});
  REQUIRE(tokenizer.encode("xy\xC3\xA9").ids == Ids{1});
}

TEST_CASE("stripping tokens take white space with them, of every kind") {
  const AutoTokenizer left = with({{"id", 14}, {"content", "<m>"}, {"lstrip", true}, {"normalized", false}});
  REQUIRE(left.encode("a \xE3\x80\x80<m> b").offsets == Offsets{{0, 1}, {1, 8}, {9, 10}});
  const AutoTokenizer right = with({{"id", 14}, {"content", "<m>"}, {"rstrip", true}, {"normalized", false}});
  REQUIRE(right.encode("a <m> \t b").offsets == Offsets{{0, 1}, {2, 8}, {8, 9}});
}

TEST_CASE("trimmed offsets leave that white space out") {
  nlohmann::json json = small_tokenizer_json();
  json["added_tokens"].push_back({{"id", 14}, {"content", "<m>"}, {"lstrip", true}, {"rstrip", true}, {"normalized", false}});
  json["post_processor"] = {{"type", "RobertaProcessing"},
                            {"cls", {"[CLS]", 2}},
                            {"sep", {"[SEP]", 3}},
                            {"trim_offsets", true},
                            {"add_prefix_space", false}};
  REQUIRE(tokenizer_of(json).encode("  <m>  b").offsets == Offsets{{0, 0}, {2, 5}, {7, 8}, {0, 0}});
  json["post_processor"]["trim_offsets"] = false;
  REQUIRE(tokenizer_of(json).encode("  <m>  b").offsets == Offsets{{0, 0}, {0, 7}, {7, 8}, {0, 0}});
}
