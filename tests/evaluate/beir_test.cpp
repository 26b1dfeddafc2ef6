// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include "toller/evaluate/beir.hpp"

using namespace toller;

namespace {

struct Folder {
  std::filesystem::path path = std::filesystem::temp_directory_path() / ("toller_beir_" + std::to_string(::getpid()));
  Folder() {
    std::filesystem::remove_all(path);
    std::filesystem::create_directories(path / "qrels");
    write("corpus.jsonl",
          "{\"_id\": \"a\", \"title\": \"Dogs\", \"text\": \"lure ducks.\"}\n{\"_id\": 7, \"text\": \" no title \"}\n"
          "\n{\"_id\": \"c\", \"title\": \"only title\", \"text\": \"\", \"metadata\": {}}\n");
    write("queries.jsonl",
          "{\"_id\": \"q1\", \"text\": \"first\"}\n{\"_id\": \"q2\", \"text\": \"unjudged\"}\n{\"_id\": \"q3\", \"text\": "
          "\"third\"}\n");
    write("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq3\ta\t2\r\nq1\t7\t1\nq1\tc\t0\n");
  }
  ~Folder() { std::filesystem::remove_all(path); }
  void write(const char* name, const std::string& text) const { std::ofstream(path / name, std::ios::binary) << text; }
  std::string complaint() const {
    try {
      (void)read_beir(path);
    } catch (const Error& e) {
      std::string text = e.what();
      const auto at = text.find(path.string() + "/");
      return at == std::string::npos ? text : text.erase(at, path.string().size() + 1);
    }
    return "";
  }
};

}  // namespace

TEST_CASE("a BEIR folder is read with titles before texts and without unjudged queries") {
  const Folder folder;
  const RetrievalData data = read_beir(folder.path);
  REQUIRE(data.document_ids == std::vector<std::string>{"a", "7", "c"});
  REQUIRE(data.documents == std::vector<std::string>{"Dogs lure ducks.", "no title", "only title"});
  REQUIRE(data.query_ids == std::vector<std::string>{"q1", "q3"});
  REQUIRE(data.queries == std::vector<std::string>{"first", "third"});
  REQUIRE(data.qrels == Qrels{{"q1", {{"7", 1}, {"c", 0}}}, {"q3", {{"a", 2}}}});
  folder.write("qrels/dev.tsv", "q2\ta\t1\n");  // without a header, nothing is lost
  REQUIRE(read_beir(folder.path, "dev").queries == std::vector<std::string>{"unjudged"});
}

TEST_CASE("what is wrong with a BEIR folder is one line with file and line") {
  const Folder folder;
  folder.write("corpus.jsonl", "{\"_id\": \"a\", \"text\": \"x\"}\n\n{\"_id\": \"b\", \"text\": \n");
  REQUIRE(folder.complaint() == "[R265] corpus.jsonl:3: expected a JSON object in UTF-8");
  folder.write("corpus.jsonl", "{\"_id\": \"a\", \"text\": \"\xff\"}\n");
  REQUIRE(folder.complaint() == "[R265] corpus.jsonl:1: expected a JSON object in UTF-8");
  folder.write("corpus.jsonl", "[1]\n");
  REQUIRE(folder.complaint().starts_with("[R265] corpus.jsonl:1"));
  folder.write("corpus.jsonl", "{\"_id\": " + std::string(300'000, '[') + std::string(300'000, ']') + "}\n");
  REQUIRE(folder.complaint() == "[R265] corpus.jsonl:1: JSON nested deeper than 64 levels");
  folder.write("corpus.jsonl", "{\"_id\": \"a\", \"body\": \"x\"}\n");
  REQUIRE(folder.complaint() == "[R266] corpus.jsonl:1: field \"text\" is missing");
  folder.write("corpus.jsonl", "{\"_id\": \"a\", \"text\": []}\n");
  REQUIRE(folder.complaint() == "[R266] corpus.jsonl:1: field \"text\": expected a text, found array");
  folder.write("corpus.jsonl", "{\"_id\": \"a\", \"text\": \"\"}\n{\"_id\": \"a\", \"text\": \"\"}\n");
  REQUIRE(folder.complaint() == "[R267] corpus.jsonl:2: id \"a\" is there twice");
  folder.write("corpus.jsonl", "\n");
  REQUIRE(folder.complaint() == "[R202] corpus.jsonl: the file has no rows");
  std::filesystem::remove(folder.path / "corpus.jsonl");
  REQUIRE(folder.complaint() == "[R401] corpus.jsonl: no such file");
}

TEST_CASE("what is wrong with judgements is one line with file and line") {
  const Folder folder;
  folder.write("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq1\ta\tone\n");
  REQUIRE(folder.complaint() == "[R268] qrels/test.tsv:2: expected query id, document id and whole grade, separated by tabs");
  const std::string expected = "expected query id, document id and whole grade, separated by tabs";
  for (const char* first : {"q1\ta\tone\n", "q1\ta\t1.0\n", "q1\ta\t\n", "query\tdoc\trelevance\n"}) {
    folder.write("qrels/test.tsv", first + std::string("q1\ta\t1\n"));
    REQUIRE(folder.complaint() == "[R268] qrels/test.tsv:1: " + expected);
  }
  for (const char* header : {"Query-ID\tCorpus-ID\tSCORE\r\n", "query-id\tcorpus-id\tgrade\n", "q\td\tscore\n"}) {
    folder.write("qrels/test.tsv", header + std::string("q1\ta\t1\n"));
    REQUIRE(folder.complaint() == "");
  }
  for (const char* line : {"q1\t0\ta\t1\n", "q1 0 a 1\n"}) {
    folder.write("qrels/test.tsv", line);
    REQUIRE(folder.complaint() ==
            "[R268] qrels/test.tsv:1: " + expected + "; got four columns, as a TREC file has (query, 0, document, grade)");
  }
  folder.write("qrels/test.tsv", "q1 a 1\n");
  REQUIRE(folder.complaint().starts_with("[R268] qrels/test.tsv:1"));
  folder.write("qrels/test.tsv", "q1\ta\t1\nq9\ta\t1\n");
  REQUIRE(folder.complaint() == "[R268] qrels/test.tsv:2: there is no query \"q9\"");
  folder.write("qrels/test.tsv", "q1\ta\t1\nq1\ta\t2\n");
  REQUIRE(folder.complaint() == "[R267] qrels/test.tsv:2: this document is judged twice for this query");
  folder.write("qrels/test.tsv", "query-id\tcorpus-id\tscore\n");
  REQUIRE(folder.complaint() == "[R202] qrels/test.tsv: the file has no rows");
}
