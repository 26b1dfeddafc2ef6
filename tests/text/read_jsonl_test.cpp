// SPDX-License-Identifier: Apache-2.0
#include "toller/text/read_jsonl.hpp"

#include "text/print_records.hpp"
#include "text/scratch.hpp"

using namespace toller;
using Texts = std::vector<std::string>;

namespace {

/// The one row of a file, as a record.
template <class Record>
Record one(const std::string& line, ReadOptions fields = {}) {
  return read_jsonl<Record>(Scratch::write("t.jsonl", line + "\n"), std::move(fields))[0];
}

}  // namespace

TEST_CASE("rows are read by number; blank lines, CRLF, a byte order mark and a missing last line end are fine") {
  const Scratch scratch;
  const auto pairs = read_jsonl<Pair>(Scratch::write(
      "t.jsonl",
      "\xEF\xBB\xBF{\"query\": \"a\", \"positive\": \"b\", \"id\": 4}\r\n\r\n  \n{\"positive\": \"d\", \"query\": \"c\"}\r\n"
      "{\"query\": \"\\u00e9\", \"positive\": \"\xC3\xA9\"}"));
  REQUIRE(pairs.size() == 3);
  CHECK(pairs[2] == Pair{"\xC3\xA9", "\xC3\xA9"});
  CHECK(pairs[0] == Pair{"a", "b"});
  CHECK(pairs[1] == Pair{"c", "d"});
  std::vector<Pair> all;
  for (const Pair& pair : pairs) all.push_back(pair);
  CHECK(all == std::vector<Pair>{{"a", "b"}, {"c", "d"}, {"\xC3\xA9", "\xC3\xA9"}});
  const auto copy = pairs;
  CHECK(copy[1] == pairs[1]);
  CHECK_THROWS_WITH(pairs[3], "[R210] t.jsonl: no row 3 of 3 rows");
}

TEST_CASE("a dataset outlives the file's name and its own first copy") {
  JsonlDataset<Text> kept;
  CHECK(kept.size() == 0);
  {
    const Scratch scratch;
    kept = read_jsonl<Text>(Scratch::write("t.jsonl", "{\"text\": \"a\"}\n"));
  }
  CHECK(kept[0].text == "a");
}

TEST_CASE("every record has its usual names") {
  const Scratch scratch;
  CHECK(one<Text>(R"({"text": "a"})") == Text{"a", ""});
  CHECK(one<Text>(R"({"text": "a", "_id": "x"})") == Text{"a", "x"});
  CHECK(one<Text>(R"({"text": "a", "id": 12, "_id": "x"})") == Text{"a", "12"});
  CHECK(one<Text>(R"({"text": "a", "id": null})") == Text{"a", ""});
  CHECK(one<LabelledText>(R"({"text": "a", "label": -3})") == LabelledText{"a", -3});
  CHECK(one<Pair>(R"({"anchor": "a", "positive": "b"})") == Pair{"a", "b"});
  CHECK(one<Pair>(R"({"question": "a", "answer": "b"})") == Pair{"a", "b"});
  CHECK(one<Pair>(R"({"query": "a", "document": "b", "answer": "c", "anchor": "d"})") == Pair{"a", "b"});
  CHECK(one<LabelledPair>(R"({"first": "a", "second": "b", "label": 1})") == LabelledPair{"a", "b", 1});
  CHECK(one<LabelledPair>(R"({"sentence1": "a", "sentence2": "b", "score": 0.25})") == LabelledPair{"a", "b", 0.25});
  CHECK(one<Group>(R"({"query": "a", "documents": ["b", "c"], "labels": [1, 0]})") == Group{"a", {"b", "c"}, {1, 0}});
  CHECK(one<ScoredList>(R"({"query": "a", "documents": ["b"], "scores": [1.5e1]})") == ScoredList{"a", {"b"}, {15}});
}

TEST_CASE("negatives are a list, a text, numbered columns, or none") {
  const Scratch scratch;
  const auto negatives = [](const std::string& rest, ReadOptions fields = {}) {
    return one<Triplet>(R"({"query": "a", "positive": "b")" + rest + "}", std::move(fields)).negatives;
  };
  CHECK(negatives("").empty());
  CHECK(negatives(R"(, "negatives": [])").empty());
  CHECK(negatives(R"(, "negatives": null)").empty());
  CHECK(negatives(R"(, "negatives": ["c", "d"])") == Texts{"c", "d"});
  CHECK(negatives(R"(, "negative": "c")") == Texts{"c"});
  CHECK(negatives(R"(, "negative": ["c", "d"])") == Texts{"c", "d"});
  CHECK(negatives(R"(, "negative_2": "d", "negative_1": "c", "negative_4": "f")") == Texts{"c", "d"});
  CHECK(negatives(R"(, "negative_1": null, "negative_2": "d")") == Texts{"d"});
  CHECK(negatives(R"(, "hard": ["c"], "negatives": ["d"])", {.negatives = "hard"}) == Texts{"c"});
  CHECK(negatives(R"(, "hard_1": "c", "hard_2": "e")", {.negatives = "hard"}) == Texts{"c", "e"});
  CHECK(one<Pair>(R"({"query": "a", "positive": "b", "negatives": ["c"]})") == Pair{"a", "b"});
}

TEST_CASE("fields can be renamed; the usual names then mean nothing") {
  const Scratch scratch;
  const ReadOptions fields{.query = "title", .positive = "body"};
  CHECK(one<Pair>(R"({"title": "a", "body": "b", "query": "c", "positive": "d"})", fields) == Pair{"a", "b"});
  CHECK_THROWS_WITH(one<Pair>(R"({"query": "c", "positive": "d"})", fields),
                    "[R204] t.jsonl:1: field \"title\" is missing; the row has \"positive\", \"query\"");
}

TEST_CASE("a file that can't be opened is named, with the reason") {
  const Scratch scratch;
  std::filesystem::create_directory("folder");
  CHECK_THROWS_AS(read_jsonl<Pair>("none.jsonl"), FileError);
  CHECK_THROWS_WITH(read_jsonl<Pair>("none.jsonl"), "[R401] none.jsonl: no such file");
  CHECK_THROWS_WITH(read_jsonl<Pair>("folder"), "[R401] folder: expected a file, found a folder");
  CHECK_THROWS_WITH(read_jsonl<Pair>("/dev/null"), "[R401] /dev/null: expected a file on disk, found a pipe or device");
  CHECK_THROWS_WITH(read_jsonl<Pair>(Scratch::write("empty.jsonl", "")), "[R202] empty.jsonl: the file has no rows");
  CHECK_THROWS_WITH(read_jsonl<Pair>(Scratch::write("blank.jsonl", "\n \r\n\n")), "[R202] blank.jsonl: the file has no rows");
}

TEST_CASE("the first row is checked when the file is opened, with its number in the file") {
  const Scratch scratch;
  const auto opening = [](std::string_view text) { return read_jsonl<Pair>(Scratch::write("t.jsonl", text)); };
  CHECK_THROWS_WITH(
      opening("\n\n{\"id\": 1, \"text\": \"a\"}\n"),
      "[R204] t.jsonl:3: field \"query\" is missing, also as \"anchor\", \"question\"; the row has \"id\", \"text\"");
  CHECK_THROWS_WITH(opening("{}"),
                    "[R204] t.jsonl:1: field \"query\" is missing, also as \"anchor\", \"question\"; the row has no fields");
}

TEST_CASE("a bad row is named with its line, its field and what was found") {
  const Scratch scratch;
  const auto second = [](std::string_view line) {
    return read_jsonl<Pair>(
        Scratch::write("t.jsonl", std::string("{\"query\": \"a\", \"positive\": \"b\"}\n\n") + std::string(line)))[1];
  };
  CHECK_THROWS_WITH(second(R"({"query": "a", "posi)"), "[R203] t.jsonl:3: malformed JSON at byte 21 of the line");
  CHECK_THROWS_WITH(second(R"({"query": "a"} x)"), "[R203] t.jsonl:3: malformed JSON at byte 16 of the line");
  CHECK_THROWS_WITH(second(R"({"query": 1e999})"), "[R203] t.jsonl:3: malformed JSON: a number too large to hold");
  CHECK_THROWS_WITH(second(R"({"query": "\ud83d"})"), "[R203] t.jsonl:3: malformed JSON at byte 18 of the line");
  CHECK_THROWS_WITH(second(R"(["a", "b"])"), "[R203] t.jsonl:3: expected a JSON object, found array");
  CHECK_THROWS_WITH(second(R"({"query": "a"})"),
                    "[R204] t.jsonl:3: field \"positive\" is missing, also as \"document\", \"answer\"; the row has \"query\"");
  const auto positive = [&](const std::string& value) { return second(R"({"query": "a", "positive": )" + value + "}"); };
  const std::string start = "[R205] t.jsonl:3: field \"positive\": expected a text, found ";
  CHECK_THROWS_WITH(positive("12"), start + "12");
  CHECK_THROWS_WITH(positive("true"), start + "true");
  CHECK_THROWS_WITH(positive("null"), start + "null");
  CHECK_THROWS_WITH(positive("[\"b\"]"), start + "a list");
  CHECK_THROWS_WITH(positive("{}"), start + "an object");
  CHECK_THROWS_WITH(second("{\"query\": \"\xC3\x28\"}"), "[R206] t.jsonl:3: invalid UTF-8 at byte 12 of the line");
  CHECK_THROWS_WITH(second("{\"query\": \"\xED\xA0\x80\"}"), "[R206] t.jsonl:3: invalid UTF-8 at byte 12 of the line");
  CHECK_THROWS_WITH(second("{\"query\": \"\xF0\x9F\x98"), "[R206] t.jsonl:3: invalid UTF-8 at byte 12 of the line");
}

TEST_CASE("numbers and lists of another kind are named") {
  const Scratch scratch;
  CHECK_THROWS_WITH(one<LabelledText>(R"({"text": "a", "label": 0.5})"),
                    "[R205] t.jsonl:1: field \"label\": expected a whole number, found 0.5");
  CHECK_THROWS_WITH(one<LabelledText>(R"({"text": "a", "label": 18446744073709551615})"),
                    "[R205] t.jsonl:1: field \"label\": expected a 64-bit number, found 18446744073709551615");
  CHECK_THROWS_WITH(one<LabelledPair>(R"({"first": "a", "second": "b", "label": "1"})"),
                    "[R205] t.jsonl:1: field \"label\": expected a number, found a text");
  CHECK_THROWS_WITH(one<Group>(R"({"query": "a", "documents": "b", "labels": [1]})"),
                    "[R205] t.jsonl:1: field \"documents\": expected a list of texts, found a text");
  CHECK_THROWS_WITH(one<Group>(R"({"query": "a", "documents": ["b"], "labels": [null]})"),
                    "[R205] t.jsonl:1: field \"labels\": expected a list of numbers, found null in it");
  CHECK_THROWS_WITH(one<Group>(R"({"query": "a", "documents": ["b", "c"], "labels": [1]})"),
                    "[R207] t.jsonl:1: 2 documents, but 1 labels");
  CHECK_THROWS_WITH(one<ScoredList>(R"({"query": "a", "documents": ["b"], "scores": [1, 2]})"),
                    "[R207] t.jsonl:1: 1 documents, but 2 scores");
  CHECK_THROWS_WITH(one<Triplet>(R"({"query": "a", "positive": "b", "negatives": ["c", 1]})"),
                    "[R205] t.jsonl:1: field \"negatives\": expected a list of texts, found 1 in it");
  CHECK_THROWS_WITH(one<Triplet>(R"({"query": "a", "positive": "b", "negative_1": 1})"),
                    "[R205] t.jsonl:1: field \"negative_1\": expected a text, found 1");
  CHECK_THROWS_WITH(one<Triplet>(R"({"query": "a", "positive": "b"})", {.negatives = "hard"}),
                    "[R204] t.jsonl:1: field \"hard\" is missing; the row has \"positive\", \"query\"");
  CHECK_THROWS_WITH(one<Text>(R"({"text": "a", "id": []})"), "[R205] t.jsonl:1: field \"id\": expected a text, found a list");
}

namespace shop {
struct Offer {
  std::string query{}, product{};
  double price = 0;
};
template <class Row>
void read_fields(Offer& offer, const Row& row, const ReadOptions& names) {
  offer.query = row.text(names.query, {"query"});
  offer.product = row.text({}, {"product"});
  offer.price = row.number({}, {"price"});
}
}  // namespace shop

TEST_CASE("a record of one's own is read by its own read_fields") {
  const Scratch scratch;
  const auto offer = one<shop::Offer>(R"({"query": "a", "product": "b", "price": 1.5})");
  CHECK(offer.product == "b");
  CHECK(offer.price == 1.5);
}
