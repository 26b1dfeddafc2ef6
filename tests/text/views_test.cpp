// SPDX-License-Identifier: Apache-2.0
#include "toller/text/views.hpp"

#include <range/v3/view/concat.hpp>
#include <range/v3/view/take_exactly.hpp>
#include <range/v3/view/transform.hpp>

#include "text/print_records.hpp"
#include "text/scratch.hpp"
#include "toller/core/seed.hpp"
#include "toller/text/read_jsonl.hpp"
#include "toller/text/read_tsv.hpp"

using namespace toller;

namespace {

template <Dataset D>
std::vector<record_t<D>> all(const D& dataset) {
  std::vector<record_t<D>> records;
  for (std::int64_t i = 0; i < rows_of(dataset); ++i) records.push_back(row_of(dataset, i));
  return records;
}

JsonlDataset<Pair> some_pairs() {
  return read_jsonl<Pair>(
      Scratch::write("t.jsonl", "{\"query\": \"a\", \"positive\": \"1\"}\n{\"query\": \"b\", \"positive\": \"2\"}\n"));
}

std::vector<Pair> random_pairs(std::uint64_t seed, std::size_t n, std::uint64_t kinds) {
  std::vector<Pair> pairs;
  for (std::size_t i = 0; i < n; ++i)
    pairs.push_back({std::to_string(mix_seed(seed, i, 0) % kinds), std::to_string(mix_seed(seed, i, 1) % kinds)});
  return pairs;
}

}  // namespace

TEST_CASE("what is a dataset") {
  STATIC_REQUIRE(Dataset<std::vector<Pair>>);
  STATIC_REQUIRE(Dataset<const std::vector<Triplet>&>);
  STATIC_REQUIRE(Dataset<JsonlDataset<Pair>>);
  STATIC_REQUIRE(Dataset<TsvDataset<LabelledText>>);
  STATIC_REQUIRE(Dataset<Selection<JsonlDataset<Pair>>>);
  STATIC_REQUIRE(std::is_same_v<record_t<JsonlDataset<Group>>, Group>);
  STATIC_REQUIRE(std::is_same_v<record_t<const std::vector<Pair>&>, Pair>);
  STATIC_REQUIRE(ranges::view_<Selection<JsonlDataset<Pair>>>);
  STATIC_REQUIRE_FALSE(Dataset<std::vector<int>>);
  STATIC_REQUIRE_FALSE(Dataset<Pair>);
  STATIC_REQUIRE(ranges::view_<JsonlDataset<Pair>>);
  STATIC_REQUIRE(ranges::random_access_range<JsonlDataset<Pair>>);
}

TEST_CASE("transform and concat compose with opened files, vectors and selections") {
  const Scratch scratch;
  const auto pairs = some_pairs();
  const auto upper = pairs | ranges::views::transform([](Pair pair) {
                       return Pair{"Q " + pair.query, std::move(pair.positive)};
                     });
  STATIC_REQUIRE(Dataset<decltype(upper)>);
  CHECK(all(upper) == std::vector<Pair>{{"Q a", "1"}, {"Q b", "2"}});

  const std::vector<Pair> more{{"c", "3"}};
  const auto joined = ranges::views::concat(pairs, more, upper);
  STATIC_REQUIRE(Dataset<decltype(joined)>);
  CHECK(all(joined) == std::vector<Pair>{{"a", "1"}, {"b", "2"}, {"c", "3"}, {"Q a", "1"}, {"Q b", "2"}});

  const auto kept = keep_if(joined, [](const Pair& pair) { return pair.positive != "1"; });
  STATIC_REQUIRE(Dataset<decltype(kept)>);
  CHECK(all(kept) == std::vector<Pair>{{"b", "2"}, {"c", "3"}, {"Q b", "2"}});
  const auto first = kept | ranges::views::take_exactly(2) | ranges::views::transform([](const Pair& p) {
                       return Text{p.query, {}};
                     });
  CHECK(all(first) == std::vector<Text>{{"b", ""}, {"c", ""}});
  CHECK(all(distinct(ranges::views::concat(pairs, pairs))) == all(pairs));
}

TEST_CASE("a view of a temporary dataset keeps the file open") {
  const Scratch scratch;
  const auto texts = some_pairs() | ranges::views::transform([](const Pair& pair) { return Text{pair.positive, {}}; });
  CHECK(all(texts) == std::vector<Text>{{"1", ""}, {"2", ""}});
  const auto no_b = distinct(keep_if(some_pairs(), [](const Pair& pair) { return pair.query != "b"; }));
  CHECK(all(no_b | ranges::views::transform([](const Pair& pair) {
              return Text{pair.query, {}};
            })) == std::vector<Text>{{"a", ""}});
  CHECK(all(keep_if(some_pairs(), [](const Pair& pair) { return pair.query == "b"; })) == std::vector<Pair>{{"b", "2"}});
}

TEST_CASE("a selection knows its rows, evaluates once and can be empty") {
  const std::vector<Pair> pairs{{"a", "1"}, {"b", "2"}, {"c", "3"}, {"d", "4"}};
  int calls = 0;
  const auto odd = keep_if(pairs, [&](const Pair& pair) { return ++calls, pair.query == "b" || pair.query == "d"; });
  CHECK(calls == 4);
  REQUIRE(odd.size() == 2);
  CHECK(odd.row(0) == 1);
  CHECK(odd.row(1) == 3);
  CHECK(odd[1] == pairs[3]);
  CHECK(all(odd).size() == 2);
  CHECK(calls == 4);
  CHECK_THROWS_WITH(odd.row(2), "[R210] selection: no row 2 of 2 rows");
  CHECK(keep_if(pairs, [](const Pair&) { return false; }).size() == 0);
  const auto nested = keep_if(odd, [](const Pair& pair) { return pair.query == "d"; });
  CHECK(nested.row(0) == 1);
  CHECK(nested[0] == pairs[3]);
}

TEST_CASE("equal texts make a row a duplicate; ids, labels and scores do not") {
  const std::vector<Text> texts{{"a", "1"}, {"a", "2"}, {"b", "1"}};
  CHECK(all(distinct(texts)) == std::vector<Text>{{"a", "1"}, {"b", "1"}});
  const std::vector<Triplet> triplets{{"a", "b", {"c"}}, {"a", "b", {}}, {"a", "b", {"c"}}, {"b", "a", {"c"}}};
  CHECK(all(distinct(triplets)) == std::vector<Triplet>{triplets[0], triplets[1], triplets[3]});
  const std::vector<Group> groups{{"a", {"b", "c"}, {1, 0}}, {"a", {"b", "c"}, {0, 1}}, {"a", {"c", "b"}, {1, 0}}};
  CHECK(all(distinct(groups)) == std::vector<Group>{groups[0], groups[2]});
  const std::vector<Pair> none;
  CHECK(distinct(none).size() == 0);
}

TEST_CASE("text_hashes has one hash a text") {
  const std::vector<std::uint64_t> expected{hash_text("a"), hash_text("b"), hash_text("c")};
  CHECK(text_hashes(Triplet{"a", "b", {"c"}}) == expected);
  CHECK(text_hashes(ScoredList{"a", {"b", "c"}, {1, 2}}) == expected);
  CHECK(text_hashes(Text{"a", "id"}).size() == 1);
}

TEST_CASE("keep_if and distinct agree with doing it by hand", "[laws]") {
  for (const std::size_t n : {0U, 1U, 5U, 60U, 300U})
    for (const std::uint64_t kinds : {1U, 3U, 12U, 1000U}) {
      const std::vector<Pair> pairs = random_pairs(n + kinds, n, kinds);
      std::vector<Pair> kept, unique;
      std::vector<std::int64_t> unique_rows;
      for (std::size_t i = 0; i < n; ++i) {
        if (pairs[i].query < pairs[i].positive) kept.push_back(pairs[i]);
        if (std::find(unique.begin(), unique.end(), pairs[i]) != unique.end()) continue;
        unique.push_back(pairs[i]);
        unique_rows.push_back(static_cast<std::int64_t>(i));
      }
      CHECK(all(keep_if(pairs, [](const Pair& p) { return p.query < p.positive; })) == kept);
      const auto found = distinct(pairs);
      CHECK(all(found) == unique);
      for (std::size_t i = 0; i < found.size(); ++i) CHECK(found.row(i) == unique_rows[i]);
    }
}

TEST_CASE("rows read in any order are the rows read in order", "[laws]") {
  const Scratch scratch;
  std::string file;
  const std::vector<Pair> pairs = random_pairs(1, 500, 1000000);
  for (std::size_t i = 0; i < pairs.size(); ++i)
    file += nlohmann::json{{"query", pairs[i].query}, {"positive", pairs[i].positive}}.dump() + (i % 3 == 0 ? "\r\n\n" : "\n");
  const auto dataset = read_jsonl<Pair>(Scratch::write("t.jsonl", file));
  REQUIRE(all(dataset) == pairs);
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const std::size_t row = mix_seed(2, i) % pairs.size();
    CHECK(dataset[row] == pairs[row]);
    CHECK(dataset.begin()[static_cast<std::ptrdiff_t>(row)] == pairs[row]);
  }
}
