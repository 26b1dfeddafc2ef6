// SPDX-License-Identifier: Apache-2.0
#include "toller/batch/sampler.hpp"

#include <ATen/ops/bernoulli.h>
#include <ATen/ops/multinomial.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>

#include <numeric>
#include <set>

#include "toller/batch/group_by_label.hpp"
#include "toller/batch/no_duplicates.hpp"
#include "toller/batch/several.hpp"
#include "toller/core/seed.hpp"

using namespace toller;
using Json = nlohmann::json;
using Rows = std::vector<std::int64_t>;

namespace {

Json golden(const std::string& name) {
  std::ifstream file(std::string(TOLLER_GOLDEN "/samplers/") + name);
  REQUIRE(file);
  return Json::parse(file)["cases"];
}

Json cases_of(const std::string& sampler) {
  Json found = Json::array();
  for (const Json& c : golden("batches.json"))
    if (c["sampler"] == sampler) found.push_back(c);
  REQUIRE(!found.empty());
  return found;
}

template <Sampler S>
std::vector<Rows> epoch_of(const S& sampler, std::int64_t epoch) {
  std::vector<Rows> batches;
  for (std::int64_t k = 0; k < sampler.batches(epoch); ++k) batches.push_back(sampler.rows(epoch, k));
  return batches;
}

template <Sampler S>
void expect_epochs(const S& sampler, const Json& expected) {
  for (std::size_t e = 0; e < expected.size(); ++e)
    CHECK(epoch_of(sampler, static_cast<std::int64_t>(e)) == expected[e].get<std::vector<Rows>>());
}

Rows flat(const std::vector<Rows>& batches) {
  Rows all;
  for (const Rows& b : batches) all.insert(all.end(), b.begin(), b.end());
  return all;
}

Rows iota(std::int64_t n) {
  Rows rows(static_cast<std::size_t>(n));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

template <class T>
std::vector<T> values(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous();
  return {flat.const_data_ptr<T>(), flat.const_data_ptr<T>() + flat.numel()};
}

std::vector<BatchSampler> in_order(const Json& c) {
  std::vector<BatchSampler> samplers;
  for (const std::int64_t n : c["dataset_sizes"]) samplers.emplace_back(n, c["batch_size"], 0, /*shuffle=*/false);
  return samplers;
}

}  // namespace

TEST_CASE("the seeded generator gives the reference's numbers", "[golden]") {
  const auto f32 = at::TensorOptions().dtype(at::kFloat);
  const auto f64 = at::TensorOptions().dtype(at::kDouble);
  const auto i64 = at::TensorOptions().dtype(at::kLong);
  for (const Json& c : golden("generator.json")) {
    const auto fresh = [&] { return epoch_generator(c["seed"], 0); };
    CHECK(values<float>(at::rand({5}, fresh(), f32)) == c["rand_float32"].get<std::vector<float>>());
    CHECK(values<double>(at::rand({3}, fresh(), f64)) == c["rand_float64"].get<std::vector<double>>());
    CHECK(values<float>(at::randn({5}, fresh(), f32)) == c["randn_float32_5"].get<std::vector<float>>());
    CHECK(values<float>(at::randn({20}, fresh(), f32)) == c["randn_float32_20"].get<std::vector<float>>());
    CHECK(values<std::int64_t>(at::randint(0, 1000, {8}, fresh(), i64)) == c["randint_0_1000"].get<Rows>());
    CHECK(values<std::int64_t>(at::zeros({3}, i64).random_(fresh())) == c["random_int64"].get<Rows>());
    CHECK(values<float>(at::bernoulli(at::full({12}, 0.3, f32), fresh())) == c["bernoulli_0.3"].get<std::vector<float>>());
    CHECK(values<std::int64_t>(at::multinomial(at::tensor({0.1F, 0.2F, 0.3F, 0.4F}), 3, false, fresh())) ==
          c["multinomial_no_replacement"].get<Rows>());
    for (const int n : {1, 2, 5, 10, 33, 100}) CHECK(permutation(n, fresh()) == c["randperm_" + std::to_string(n)].get<Rows>());
    const at::Generator one = fresh();
    for (const Json& order : c["randperm_10_then_7_then_10"]) CHECK(permutation(std::ssize(order), one) == order.get<Rows>());
  }
}

TEST_CASE("a shuffled epoch has the reference's order", "[golden]") {
  for (const Json& c : cases_of("RandomSampler")) {
    const BatchSampler sampler(c["size"], 4, c["generator_seed"]);
    CHECK(flat(epoch_of(sampler, 0)) == c["epochs"][0].get<Rows>());
    // There one generator runs through all epochs; each ends with an order that is not used.
    const at::Generator one = epoch_generator(c["generator_seed"], 0);
    for (const Json& epoch : c["epochs"]) {
      CHECK(permutation(c["size"], one) == epoch.get<Rows>());
      (void)permutation(c["size"], one);
    }
  }
}

TEST_CASE("batches without duplicates are the reference's", "[golden]") {
  for (const Json& c : cases_of("NoDuplicatesBatchSampler")) {
    std::vector<std::vector<std::uint64_t>> hashes;
    for (std::size_t i = 0; i < c["columns"]["anchor"].size(); ++i)
      hashes.push_back(
          {hash_text(c["columns"]["anchor"][i].get<std::string>()), hash_text(c["columns"]["positive"][i].get<std::string>())});
    const NoDuplicates sampler(
        std::ssize(hashes), [&](std::int64_t row) { return std::span(hashes[static_cast<std::size_t>(row)]); }, c["batch_size"],
        c["seed"], c["drop_last"]);
    expect_epochs(sampler, c["epochs"]);
  }
}

TEST_CASE("batches grouped by label are the reference's", "[golden]") {
  for (const Json& c : cases_of("GroupByLabelBatchSampler"))
    expect_epochs(GroupByLabel(c["labels"].get<Rows>(), c["batch_size"], c["seed"], c["drop_last"]), c["epochs"]);
}

TEST_CASE("batches of several datasets are the reference's", "[golden]") {
  for (const Json& c : cases_of("RoundRobinBatchSampler")) expect_epochs(RoundRobin(in_order(c)), c["epochs"]);
  for (const Json& c : cases_of("ProportionalBatchSampler")) expect_epochs(Proportional(in_order(c), c["seed"]), c["epochs"]);
}

TEST_CASE("every row comes exactly once an epoch", "[laws]") {
  for (const std::int64_t n : {1, 2, 7, 32, 101})
    for (const std::int64_t b : {1, 3, 32})
      for (const std::int64_t epoch : {0, 1, 5}) {
        const BatchSampler sampler(n, b, 3);
        Rows all = flat(epoch_of(sampler, epoch));
        if (n > 30) CHECK(all != flat(epoch_of(sampler, epoch + 1)));
        std::sort(all.begin(), all.end());
        CHECK(all == iota(n));
        CHECK(flat(epoch_of(BatchSampler(n, b, 3, false), epoch)) == iota(n));
        if (n >= b) {
          const BatchSampler whole(n, b, 3, true, true);
          CHECK(whole.batches_per_epoch() == n / b);
          for (const Rows& rows : epoch_of(whole, epoch)) CHECK(std::ssize(rows) == b);
        }
      }
}

TEST_CASE("without duplicates: every row once, no text twice in a batch", "[laws]") {
  for (const std::uint64_t kinds : {1U, 3U, 50U}) {
    std::vector<std::uint64_t> texts(200);
    for (std::size_t i = 0; i < texts.size(); ++i) texts[i] = mix_seed(kinds, i) % kinds;
    const NoDuplicates sampler(
        std::ssize(texts), [&](std::int64_t row) { return std::span(&texts[static_cast<std::size_t>(row)], 1); }, 8, 1);
    const auto batches = epoch_of(sampler, 2);
    for (const Rows& rows : batches) {
      std::set<std::uint64_t> seen;
      for (const std::int64_t row : rows) CHECK(seen.insert(texts[static_cast<std::size_t>(row)]).second);
    }
    Rows all = flat(batches);
    std::sort(all.begin(), all.end());
    CHECK(all == iota(std::ssize(texts)));
  }
}

TEST_CASE("grouped by label: a batch of 6 or more has two labels or more, with two rows or more of each", "[laws]") {
  Rows labels(300);
  for (std::size_t i = 0; i < labels.size(); ++i)
    labels[i] = static_cast<std::int64_t>(mix_seed(9, i) % 7 * (mix_seed(8, i) % 2));
  for (const std::int64_t size : {6, 16}) {
    const GroupByLabel sampler(labels, size, 4);
    std::set<std::int64_t> used;
    for (const Rows& rows : epoch_of(sampler, 1)) {
      std::map<std::int64_t, int> count;
      for (const std::int64_t row : rows) {
        ++count[labels[static_cast<std::size_t>(row)]];
        CHECK(used.insert(row).second);
      }
      CHECK(count.size() >= 2);
      for (const auto& [label, n] : count) CHECK(n >= 2);
    }
  }
}

TEST_CASE("proportional takes every batch of every dataset once", "[laws]") {
  const Proportional sampler(std::vector{BatchSampler(9, 4, 1), BatchSampler(14, 4, 2), BatchSampler(4, 4, 3)}, 7);
  Rows all = flat(epoch_of(sampler, 3));
  std::sort(all.begin(), all.end());
  REQUIRE(all == iota(27));
}

TEST_CASE("what a sampler can not do is said in one line") {
  const auto none = [](std::int64_t) { return std::span<const std::uint64_t>{}; };
  static constexpr std::uint64_t same[] = {5};
  const auto clash = [](std::int64_t) { return std::span<const std::uint64_t>(same); };
  CHECK_THROWS_WITH(BatchSampler(5, 0), "[R221] sampler: expected a batch size of at least 1, got 0");
  CHECK_THROWS_WITH(BatchSampler(0, 4), "[R222] sampler: the dataset has no rows");
  CHECK_THROWS_WITH(BatchSampler(5, 8, 0, true, true), "[R222] sampler: the dataset has 5 rows, fewer than one batch of 8");
  CHECK_THROWS_WITH(NoDuplicates(0, none, 4), "[R222] sampler: the dataset has no rows");
  CHECK_THROWS_WITH(NoDuplicates(6, clash, 2, 0, true).batches(0),
                    "[R223] sampler: no 2 of the 6 rows go without a text in common");
  CHECK_THROWS_WITH(GroupByLabel({1, 1, 2, 2}, 5), "[R224] sampler: expected an even batch size of at least 4, got 5");
  CHECK_THROWS_WITH(GroupByLabel({1, 1, 2, 3}, 4), "[R225] sampler: expected two labels with two rows each, got 1 in 4 rows");
  CHECK_THROWS_WITH(BatchSampler(5, 2).rows(1, 3), "[R226] sampler: no batch 3 in epoch 1 of 3 batches");
  CHECK_THROWS_WITH(RoundRobin<>({}), "[R221] sampler: expected one dataset or more, got none");
}
