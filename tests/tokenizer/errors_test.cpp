// SPDX-License-Identifier: Apache-2.0
// What is wrong with a file is said in one line that names file and field.
#include "tokenizer/small_tokenizer.hpp"

using namespace toller;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;

namespace {

std::string error_of(const nlohmann::json& json) {
  try {
    (void)tokenizer_of(json);
  } catch (const FileError& error) {
    REQUIRE(std::string(error.what()).find('\n') == std::string::npos);
    REQUIRE_THAT(error.what(), ContainsSubstring("tokenizer.json: "));
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("a tokenizer of another kind is named") {
  nlohmann::json json = small_tokenizer_json();
  json["model"] = {{"type", "BPE"}, {"vocab", {{"a", 0}}}, {"merges", nlohmann::json::array()}};
  REQUIRE_THAT(error_of(json), EndsWith("model of kind \"BPE\" is not supported; supported: WordPiece"));
  json["model"].erase("type");
  REQUIRE_THAT(error_of(json), ContainsSubstring("\"BPE\""));
  json["model"] = {{"type", "Unigram"}};
  REQUIRE_THAT(error_of(json), ContainsSubstring("[R231]") && ContainsSubstring("\"Unigram\""));
}

TEST_CASE("a part of another kind is named") {
  const std::string part = GENERATE("normalizer", "pre_tokenizer", "post_processor");
  nlohmann::json json = small_tokenizer_json();
  json[part] = {{"type", "Strange"}};
  REQUIRE_THAT(error_of(json),
               ContainsSubstring("[R231]") && ContainsSubstring(part + " of kind \"Strange\" is not supported"));
}

TEST_CASE("a missing or malformed field is named") {
  using nlohmann::json;
  const auto changed = [](const char* pointer, const json& value) {
    json result = small_tokenizer_json();
    result[json::json_pointer(pointer)] = value;
    return error_of(result);
  };
  json without = small_tokenizer_json();
  without["model"].erase("unk_token");
  REQUIRE_THAT(error_of(without), EndsWith("field \"model.unk_token\" is missing"));
  without = small_tokenizer_json();
  without.erase("model");
  REQUIRE_THAT(error_of(without), EndsWith("field \"model\" is missing"));
  REQUIRE_THAT(changed("/model/unk_token", 3), EndsWith("\"model.unk_token\": expected a string, got 3"));
  REQUIRE_THAT(changed("/model/unk_token", "wasp"),
               EndsWith("\"model.unk_token\": expected a token of the vocabulary, got \"wasp\""));
  REQUIRE_THAT(changed("/model/vocab", json::array()), ContainsSubstring("\"model.vocab\""));
  REQUIRE_THAT(changed("/model/vocab/bee", -1), ContainsSubstring("\"model.vocab.bee\""));
  REQUIRE_THAT(changed("/model/vocab/bee", 4000000000), ContainsSubstring("\"model.vocab.bee\""));
  REQUIRE_THAT(changed("/model/vocab/bee", "5"), ContainsSubstring("\"model.vocab.bee\""));
  REQUIRE_THAT(changed("/model/max_input_chars_per_word", 1.5), ContainsSubstring("\"model.max_input_chars_per_word\""));
  REQUIRE_THAT(changed("/normalizer/lowercase", "yes"),
               EndsWith("\"normalizer.lowercase\": expected true or false, got \"yes\""));
  REQUIRE_THAT(changed("/normalizer", json::array()), ContainsSubstring("\"normalizer\": expected an object"));
  REQUIRE_THAT(changed("/added_tokens", json::object()), ContainsSubstring("\"added_tokens\": expected an array"));
  REQUIRE_THAT(changed("/added_tokens/1/id", 7), ContainsSubstring("\"added_tokens[1].id\": expected 1, the vocabulary's id"));
  REQUIRE_THAT(changed("/added_tokens/1/content", "new"),
               ContainsSubstring("\"added_tokens[1].id\": expected an id that no other token has"));
  REQUIRE_THAT(changed("/post_processor/sep", "x"), ContainsSubstring("\"post_processor.sep\": expected an array"));
  const json sequence = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  REQUIRE_THAT(changed("/post_processor", {{"type", "TemplateProcessing"},
                                           {"single", {sequence, sequence}},
                                           {"pair", json::array()},
                                           {"special_tokens", json::object()}}),
               ContainsSubstring("\"post_processor.single[1].Sequence.id\": expected \"A\" and \"B\", each once"));
}

TEST_CASE("a file that is missing, or not JSON, is named") {
  const TemporaryFolder folder;
  REQUIRE_THROWS_WITH(AutoTokenizer::from_file(folder.path() / "none.json"),
                      "[R401] " + (folder.path() / "none.json").string() + ": no such file");
  REQUIRE_THROWS_WITH(AutoTokenizer::from_file(folder.path()),
                      "[R401] " + folder.path().string() + ": expected a file, found a folder");
  REQUIRE_THROWS_WITH(AutoTokenizer::from_file(folder.write("half.json", "{\"model\": ")),
                      ContainsSubstring("half.json: not JSON from byte"));
  const auto huge = folder.write("huge.json", "{\"model\": 1e999}");
  REQUIRE_THROWS_WITH(AutoTokenizer::from_file(huge),
                      "[R230] " + huge.string() + ": key \"model\": number overflow parsing '1e999'");
  const std::string deep = "{\"model\": " + std::string(300'000, '[') + std::string(300'000, ']') + "}";
  const auto tokenizer = folder.write("m/tokenizer.json", deep);
  REQUIRE_THROWS_WITH(AutoTokenizer::from_file(tokenizer),
                      "[R230] " + tokenizer.string() + ": JSON nested deeper than 64 levels");
  const auto config = folder.write("m/tokenizer_config.json", deep);
  REQUIRE_THROWS_WITH(AutoTokenizer::from_pretrained(folder.path() / "m"),
                      "[R230] " + config.string() + ": JSON nested deeper than 64 levels");
  REQUIRE_THROWS_WITH(AutoTokenizer::from_file(folder.write("list.json", "[1]")), ContainsSubstring("[R232]"));
}

TEST_CASE("a folder without tokenizer.json says what is needed") {
  const TemporaryFolder folder;
  REQUIRE_THROWS_WITH(AutoTokenizer::from_pretrained(folder.path()), EndsWith("no tokenizer.json"));
  folder.write("vocab.txt", "[PAD]\n");
  REQUIRE_THROWS_WITH(AutoTokenizer::from_pretrained(folder.path()),
                      ContainsSubstring("[R233]") && ContainsSubstring("vocab.txt alone"));
  folder.write("tokenizer.json", small_tokenizer_json().dump());
  folder.write("tokenizer_config.json", "[]");
  REQUIRE_THROWS_WITH(AutoTokenizer::from_pretrained(folder.path()),
                      ContainsSubstring("tokenizer_config.json: expected an object"));
}
