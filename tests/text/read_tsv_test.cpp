// SPDX-License-Identifier: Apache-2.0
#include "toller/text/read_tsv.hpp"

#include "text/print_records.hpp"
#include "text/scratch.hpp"

using namespace toller;

namespace {

template <class Record>
std::vector<Record> all(std::string_view text, TsvOptions options = {}) {
  std::vector<Record> records;
  for (const Record& record : read_tsv<Record>(Scratch::write("t.tsv", text), std::move(options))) records.push_back(record);
  return records;
}

}  // namespace

TEST_CASE("columns are known by the header's names") {
  const Scratch scratch;
  CHECK(all<Pair>("id\tpositive\tquery\r\n1\tb\ta \"x\"\r\n\r\n2\t\tc\n") == std::vector<Pair>{{"a \"x\"", "b"}, {"c", ""}});
  CHECK(all<Pair>("q\td\na\tb", {.fields = {.query = "q", .positive = "d"}}) == std::vector<Pair>{{"a", "b"}});
  CHECK(all<Text>("_id\ttext\n7\ta") == std::vector<Text>{{"a", "7"}});
  CHECK(all<Text>("text\na") == std::vector<Text>{{"a", ""}});
  CHECK(all<LabelledText>("text\tlabel\na\t-2") == std::vector<LabelledText>{{"a", -2}});
  CHECK(all<LabelledPair>("sentence1\tsentence2\tscore\na\tb\t0.5") == std::vector<LabelledPair>{{"a", "b", 0.5}});
}

TEST_CASE("or by position, with names given by the caller") {
  const Scratch scratch;
  CHECK(all<Pair>("1\ta\tb\n2\tc\td\n", {.header = false, .columns = {"", "query", "positive"}}) ==
        std::vector<Pair>{{"a", "b"}, {"c", "d"}});
}

TEST_CASE("negatives are numbered columns, and empty ones are none") {
  const Scratch scratch;
  CHECK(all<Triplet>("query\tpositive\tnegative_1\tnegative_2\na\tb\tc\td\ne\tf\t\tg\nh\ti\t\t\n") ==
        std::vector<Triplet>{{"a", "b", {"c", "d"}}, {"e", "f", {"g"}}, {"h", "i", {}}});
  CHECK(all<Triplet>("query\tpositive\tnegative\na\tb\tc") == std::vector<Triplet>{{"a", "b", {"c"}}});
  CHECK(all<Triplet>("query\tpositive\na\tb") == std::vector<Triplet>{{"a", "b", {}}});
  CHECK(all<Triplet>("query\tpositive\thard_1\na\tb\tc", {.fields = {.negatives = "hard"}}) ==
        std::vector<Triplet>{{"a", "b", {"c"}}});
  CHECK_THROWS_WITH(all<Triplet>("query\tpositive\na\tb", {.fields = {.negatives = "hard"}}),
                    "[R204] t.tsv:2: field \"hard\" is missing; the row has \"query\", \"positive\"");
}

TEST_CASE("what is wrong with a tab-separated file is said with the line") {
  const Scratch scratch;
  CHECK_THROWS_WITH(read_tsv<Pair>("none.tsv"), "[R401] none.tsv: no such file");
  CHECK_THROWS_WITH(all<Pair>(""), "[R202] t.tsv: the file has no rows");
  CHECK_THROWS_WITH(all<Pair>("query\tpositive\n"), "[R202] t.tsv: the file has no rows");
  CHECK_THROWS_WITH(
      all<Pair>("query\ttext\na\tb"),
      "[R204] t.tsv:2: field \"positive\" is missing, also as \"document\", \"answer\"; the row has \"query\", \"text\"");
  CHECK_THROWS_WITH(all<LabelledText>("text\tlabel\na\t1.5"),
                    "[R205] t.tsv:2: field \"label\": expected a whole number, found \"1.5\"");
  CHECK_THROWS_WITH(all<LabelledPair>("first\tsecond\tlabel\na\tb\t"),
                    "[R205] t.tsv:2: field \"label\": expected a number, found \"\"");
  CHECK_THROWS_WITH(all<LabelledPair>("first\tsecond\tlabel\na\tb\tnan"),
                    "[R205] t.tsv:2: field \"label\": expected a number, found \"nan\"");
  CHECK_THROWS_WITH(all<Pair>("query\tpositive\na\t\xFF"), "[R206] t.tsv:2: invalid UTF-8 at byte 3 of the line");
  CHECK_THROWS_WITH(all<Pair>("query\tposi\xFFtive\na\tb"), "[R206] t.tsv:1: invalid UTF-8 at byte 11 of the line");
  CHECK_THROWS_WITH(all<Pair>("query\tpositive\na\tb\n\nc\n"), "[R208] t.tsv:4: expected 2 columns, found 1");
  CHECK_THROWS_WITH(all<Pair>("a\tb\tc", {.header = false, .columns = {"query", "positive"}}),
                    "[R208] t.tsv:1: expected 2 columns, found 3");
  CHECK_THROWS_WITH(all<Pair>("a\tb", {.header = false}), "[R209] t.tsv: expected either a header or a list of columns");
  CHECK_THROWS_AS(all<Pair>("a\tb", {.columns = {"query"}}), ConfigError);
}
