// SPDX-License-Identifier: Apache-2.0
#include "toller/tokenizer/preprocessor.hpp"

#include "tokenizer/small_tokenizer.hpp"

using namespace toller;
using Catch::Matchers::ContainsSubstring;
using Mask = std::vector<std::uint8_t>;

TEST_CASE("a dense model's text is only cut") {
  const Preprocessor preprocess(small_tokenizer(), {.prompt = "moss, ", .max_length = 6}, {.max_length = 3});
  REQUIRE(preprocess("bees a a a", Role::query).ids == Ids{2, 7, 8, 5, 6, 3});
  const TokenizedText document = preprocess("bees", Role::document);
  REQUIRE(document.ids == Ids{2, 5, 3});
  REQUIRE(document.types == Ids{0, 0, 0});
  REQUIRE(document.attended == Mask{1, 1, 1});
  REQUIRE(document.scored == Mask{1, 1, 1});
}

TEST_CASE("a marker takes the second place and is counted") {
  AutoTokenizer tokenizer = small_tokenizer();
  tokenizer.add_token("[D] ");
  const Preprocessor preprocess(tokenizer, {}, {.marker = "[D] ", .max_length = 5, .skiplist = {",", "!", "wasp"}});
  const TokenizedText text = preprocess("a, b b b", Role::document);
  REQUIRE(text.ids == Ids{2, 14, 10, 8, 3});
  REQUIRE(text.types.size() == 5);
  REQUIRE(text.attended == Mask{1, 1, 1, 1, 1});
  REQUIRE(text.scored == Mask{1, 1, 1, 0, 1});
  REQUIRE(preprocess("wasp", Role::document).scored == Mask{1, 1, 1, 1});  // unknown is not skipped
  REQUIRE(preprocess.format(Role::document).marker == "[D] ");
  REQUIRE(preprocess.tokenizer().vocabulary_size() == 15);
}

TEST_CASE("expansion fills up with the mask token") {
  const Preprocessor quiet(small_tokenizer(), {.max_length = 5, .expand = true}, {});
  REQUIRE(quiet("a", Role::query).ids == Ids{2, 10, 3, 4, 4});
  REQUIRE(quiet("a", Role::query).attended == Mask{1, 1, 1, 0, 0});
  REQUIRE(quiet("a", Role::query).scored == Mask{1, 1, 1, 1, 1});
  REQUIRE(quiet("a a a a a a", Role::query).attended == Mask{1, 1, 1, 1, 1});
  const Preprocessor loud(small_tokenizer(), {.max_length = 5, .expand = true, .attend_to_expansion = true}, {});
  REQUIRE(loud("a", Role::query).attended == Mask{1, 1, 1, 1, 1});
}

TEST_CASE("formats that cannot work are refused") {
  const AutoTokenizer tokenizer = small_tokenizer();
  REQUIRE_THROWS_WITH(Preprocessor(tokenizer, {.marker = "[Q] "}, {}),
                      ContainsSubstring("[R239] query: marker \"[Q] \" is no token"));
  REQUIRE_THROWS_WITH(Preprocessor(tokenizer, {}, {.max_length = 1}),
                      ContainsSubstring("[R241] document: max_length is 1, at least 2"));
  REQUIRE_THROWS_WITH(Preprocessor(tokenizer, {.marker = "moss", .max_length = 2}, {}),
                      ContainsSubstring("[R241] query: max_length is 2, at least 3"));
  nlohmann::json bare = small_tokenizer_json();
  bare["added_tokens"] = nlohmann::json::array();
  REQUIRE_THROWS_AS(Preprocessor(tokenizer_of(bare), {.expand = true}, {}), ConfigError);
  REQUIRE_THROWS_WITH(Preprocessor(tokenizer_of(bare), {.expand = true}, {}), ContainsSubstring("[R240]"));
}
