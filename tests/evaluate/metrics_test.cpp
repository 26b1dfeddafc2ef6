// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>
#include <random>

#include "toller/evaluate/metrics.hpp"
#include "toller/evaluate/reranking.hpp"

using namespace toller;
using nlohmann::ordered_json;

namespace {

ordered_json golden(const char* file) {
  return ordered_json::parse(std::ifstream(std::string(TOLLER_GOLDEN "/metrics/") + file));
}

double number(const ordered_json& value) {
  if (!value.is_string()) return value.get<double>();
  constexpr double inf = std::numeric_limits<double>::infinity();
  return value == "inf" ? inf : value == "-inf" ? -inf : std::nan("");
}

struct Case {
  Qrels qrels{};
  Run run{};
  explicit Case(const ordered_json& json) {
    for (const auto& [query, grades] : json["qrels"].items()) qrels[query] = grades.get<std::map<std::string, int>>();
    for (const auto& [query, found] : json["run"].items()) {
      run[query];
      for (const auto& [document, score] : found.items()) run[query].push_back({document, number(score)});
    }
  }
};

void compare(const MetricValues& values, const std::string& ours, const ordered_json& expected, int& compared) {
  INFO(ours);
  REQUIRE(values.contains(ours));
  REQUIRE(std::abs(values.at(ours) - expected.get<double>()) <= 1e-9);
  ++compared;
}

/// `ndcg_cut_10` of trec_eval is our `ndcg@10`.
std::string our_name(const std::string& trec) {
  for (const auto& [theirs, ours] : std::map<std::string, std::string>{{"P_", "precision@"},
                                                                       {"recall_", "recall@"},
                                                                       {"success_", "accuracy@"},
                                                                       {"ndcg_cut_", "ndcg@"},
                                                                       {"map_cut_", "map@"}})
    if (trec.starts_with(theirs)) return ours + trec.substr(theirs.size());
  return trec == "map" ? "map@1000" : trec == "recip_rank" ? "mrr@1000" : trec == "ndcg" ? "ndcg@1000" : "";
}

Case random_case(std::mt19937& rng) {
  Case made(ordered_json::parse(R"({"qrels": {}, "run": {}})"));
  const auto pick = [&](int n) { return static_cast<int>(rng() % static_cast<unsigned>(n)); };
  for (int q = 0; q < 6; ++q) {
    const std::string query = "q" + std::to_string(q);
    for (int i = 0; i < 8; ++i) made.qrels[query]["d" + std::to_string(pick(30))] = pick(4);
    std::map<std::string, double> found;
    for (int i = 0; i < 20; ++i) found["d" + std::to_string(pick(30))] = pick(5);  // many ties
    for (const auto& [document, score] : found) made.run[query].push_back({document, score});
  }
  return made;
}

}  // namespace

TEST_CASE("metrics equal those of Sentence Transformers", "[golden]") {
  int compared = 0;
  const ordered_json cases = golden("retrieval.json")["cases"];
  for (const auto& json : cases) {
    INFO(json["name"]);
    const Case c(json);
    const auto report = evaluate_run(c.qrels, c.run, {.rules = MetricRules::sentence_transformers});
    const auto& expected = json["sentence_transformers"];
    for (const auto& [name, value] : expected["mean"].items()) compare(report.mean, name, value, compared);
    REQUIRE(report.per_query.size() == expected["per_query"].size());
    for (const auto& [query, values] : expected["per_query"].items())
      for (const auto& [name, value] : values.items()) compare(report.per_query.at(query), name, value, compared);
  }
  REQUIRE(compared > 1000);
}

TEST_CASE("metrics equal those of trec_eval", "[golden]") {
  int compared = 0;
  const ordered_json cases = golden("retrieval.json")["cases"];
  for (const auto& json : cases) {
    INFO(json["name"]);
    const Case c(json);
    const auto& expected = json["trec_eval"];
    const std::vector<std::int64_t> at{1, 3, 5, 10, 100, 1000};
    const auto retrieved = evaluate_run(c.qrels, c.run, {.at = at, .mean_over = MeanOver::retrieved});
    const auto judged = evaluate_run(c.qrels, c.run, {.at = at, .mean_over = MeanOver::judged});
    for (const auto& [name, value] : expected["mean_over_evaluated"].items())
      if (!our_name(name).empty()) compare(retrieved.mean, our_name(name), value, compared);
    for (const auto& [name, value] : expected["mean_over_judged_missing_is_0"].items())
      if (!our_name(name).empty()) compare(judged.mean, our_name(name), value, compared);
    REQUIRE(retrieved.per_query.size() == expected["per_query"].size());
    for (const auto& [query, values] : expected["per_query"].items())
      for (const auto& [name, value] : values.items())
        if (!our_name(name).empty()) compare(retrieved.per_query.at(query), our_name(name), value, compared);
  }
  REQUIRE(compared > 1000);
}

TEST_CASE("metrics equal those of ranx where scores differ", "[golden]") {
  int compared = 0;
  const ordered_json cases = golden("retrieval.json")["cases"];
  for (const auto& json : cases) {
    if (!json.contains("ranx")) continue;
    const Case c(json);
    const auto report = evaluate_run(c.qrels, c.run, {.at = {1, 5, 10, 100, 1000}});
    for (const auto& [name, value] : json["ranx"].items()) {
      INFO(json["name"] << " " << name);
      const auto at = name.find('@');
      const std::string cut = at == std::string::npos ? "@1000" : name.substr(at), metric = name.substr(0, at);
      if (metric == "hits") {  // a count: precision times k
        REQUIRE(std::abs(report.mean.at("precision" + cut) * std::stod(cut.substr(1)) - value.get<double>()) <= 1e-9);
        ++compared;
      } else {
        compare(report.mean, (metric == "hit_rate" ? "accuracy" : metric) + cut, value, compared);
      }
    }
  }
  REQUIRE(compared >= 36);
}

TEST_CASE("metrics of reranked lists and correlations equal the references", "[golden]") {
  const auto json = golden("reranking.json");
  for (const auto& list : json["lists"]) {
    const auto m = reranking_metrics(list["is_relevant"], list["scores"], list["at_k"]);
    if (list.contains("error")) {  // the reference refuses a list of one document; it is in perfect order
      REQUIRE((m.mrr == 1 && m.ndcg == 1 && m.average_precision == 1));
      continue;
    }
    REQUIRE(std::abs(m.mrr - list["mrr"].get<double>()) <= 1e-12);
    REQUIRE(std::abs(m.ndcg - list["ndcg"].get<double>()) <= 1e-12);
    REQUIRE(std::abs(m.average_precision - list["average_precision"].get<double>()) <= 1e-12);
  }
  for (const auto& c : json["correlations"]) {
    REQUIRE(std::abs(pearson(c["x"], c["y"]) - c["pearson"].get<double>()) <= 1e-12);
    REQUIRE(std::abs(spearman(c["x"], c["y"]) - c["spearman"].get<double>()) <= 1e-12);
  }
}

TEST_CASE("the order of a run's lines does not matter, and a perfect order has 1", "[laws]") {
  std::mt19937 rng(GENERATE(1U, 2U, 3U, 4U, 5U));
  Case c = random_case(rng);
  const auto before = evaluate_run(c.qrels, c.run);
  for (auto& [query, found] : c.run) std::shuffle(found.begin(), found.end(), rng);
  const auto after = evaluate_run(c.qrels, c.run);
  REQUIRE(before.mean == after.mean);
  REQUIRE(before.per_query == after.per_query);

  for (auto& [query, grades] : c.qrels) {
    c.run[query].clear();
    for (const auto& [document, grade] : grades) c.run[query].push_back({document, grade - 0.5});
    c.run[query].push_back({"unjudged", 0.0});
  }
  for (const auto rules : {MetricRules::trec_eval, MetricRules::sentence_transformers}) {
    const auto perfect = evaluate_run(c.qrels, c.run, {.rules = rules});
    REQUIRE(!perfect.per_query.empty());
    for (const char* metric : {"ndcg@1", "ndcg@3", "ndcg@100", "mrr@10", "map@100", "recall@100", "accuracy@1", "precision@1"})
      REQUIRE(perfect.mean.at(metric) == Catch::Approx(1).margin(1e-12));
  }
}

TEST_CASE("every metric lies between 0 and 1, and grows with k where it must", "[laws]") {
  std::mt19937 rng(GENERATE(11U, 12U, 13U));
  const Case c = random_case(rng);
  for (const auto& [query, values] : evaluate_run(c.qrels, c.run, {.at = {1, 2, 3, 50}}).per_query) {
    for (const auto& [name, value] : values) REQUIRE((value >= 0 && value <= 1 + 1e-12));
    for (const std::string metric : {"accuracy@", "recall@", "mrr@", "map@"})
      REQUIRE((values.at(metric + "1") <= values.at(metric + "2") && values.at(metric + "3") <= values.at(metric + "50")));
  }
}

TEST_CASE("runs that make no sense are one line") {
  const Qrels qrels{{"q", {{"a", 1}}}};
  REQUIRE_THROWS_WITH(evaluate_run(qrels, {{"q", {{"a", std::nan("")}}}}),
                      "[R260] run: query q: the score of document a is not a number");
  REQUIRE_THROWS_WITH(evaluate_run(qrels, {{"q", {{"a", 1}, {"a", 2}}}}), "[R261] run: query q: document a is there twice");
  REQUIRE_THROWS_WITH(evaluate_run(qrels, {}, {.at = {0}}), "[R262] metrics: expected cuts of at least 1, got 0");
  REQUIRE(evaluate_run({}, {}).mean.empty());
  REQUIRE(evaluate_run(qrels, {}).mean.at("ndcg@10") == 0);
  REQUIRE_THROWS_WITH(reranking_metrics({1}, {}, 10), "[R263] reranking: 1 labels, but 0 scores");
  REQUIRE_THROWS_AS(reranking_metrics({1}, {std::nan("")}, 10), DataError);
  REQUIRE_THROWS_WITH(pearson({1, 2}, {1}), "[R264] correlation of 2 values with 1");
  REQUIRE_THROWS_AS(spearman({1, std::nan("")}, {1, 2}), DataError);
  REQUIRE(std::isnan(pearson({1, 1}, {1, 2})));
}
