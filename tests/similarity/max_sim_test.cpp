// SPDX-License-Identifier: Apache-2.0
#include "toller/similarity/max_sim.hpp"

#include <ATen/autocast_mode.h>

#include <random>

#include "support/golden.hpp"
#include "support/gradients.hpp"
#include "support/ragged.hpp"

using namespace toller;

namespace {

/// MaxSim by the book, one pair of texts at a time, with autograd's own graph.
at::Tensor naive(const MultiVector& q, const MultiVector& d) {
  std::vector<at::Tensor> rows;
  for (std::int64_t a = 0; a < q.size(); ++a) {
    std::vector<at::Tensor> row{at::zeros({0}, q.values.options())};
    for (std::int64_t m = 0; m < d.size(); ++m) {
      const at::Tensor x = q.slice(a, a + 1).values, y = d.slice(m, m + 1).values;
      row.push_back((y.size(0) == 0 ? at::full({}, -double(x.size(0)), x.options()) : std::get<0>(x.mm(y.t()).max(1)).sum())
                        .reshape({1}));
    }
    rows.push_back(at::cat(row));
  }
  return at::stack(rows);
}

MultiVector random_side(std::mt19937& random, std::int64_t texts, std::int64_t longest, std::int64_t width,
                        at::ScalarType type) {
  MultiVector side;
  for (std::int64_t i = 0; i < texts; ++i)
    side.offsets.push_back(side.offsets.back() + std::uniform_int_distribution<std::int64_t>(0, longest)(random));
  side.values = leaf(at::randn({side.offsets.back(), width}, type), type);
  return side;
}

MultiVector copy(const MultiVector& side) {
  return {leaf(side.values.detach(), side.values.scalar_type()), side.offsets};
}

}  // namespace

TEST_CASE("MaxSim has the numbers of PyLate's scores", "[golden]") {
  const auto tensors = golden_tensors("losses/late_scores.safetensors");
  int checked = 0;
  const auto file = golden_json("losses/late_scores.json");
  for (const auto& entry : file.at("cases")) {
    const std::string name = entry.at("name");
    if (name.starts_with("XTR")) continue;  // another score
    CAPTURE(name);
    const auto find = [&](const std::string& key) {
      const auto found = tensors.find(name + "/in." + key);
      return found == tensors.end() ? at::Tensor() : found->second;
    };
    for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
      const at::Tensor queries = leaf(find("queries"), type), documents = leaf(find("documents"), type);
      const at::Tensor flat = documents.dim() == 4 ? documents.flatten(0, 1) : documents;
      at::Tensor mask = find("documents_mask");
      if (mask.defined() && mask.dim() == 3) mask = mask.flatten(0, 1);
      at::Tensor scores =
          MaxSim{.padded_length = flat.size(1)}.scores(ragged(queries, find("queries_mask")), ragged(flat, mask));
      if (name.starts_with("colbert_kd"))  // each query against its own documents
        scores =
            at::stack(at::ArrayRef<at::Tensor>{scores[0].slice(0, 0, 4), scores[1].slice(0, 4, 8), scores[2].slice(0, 8, 12)});
      const at::Tensor loss = (scores * find("weight").to(type)).sum();
      loss.backward();
      at::Tensor grad_d = grad_of(documents);
      const std::string suffix = type == at::kDouble ? "64" : "";
      at::Tensor reference_d = tensors.at(name + "/grad" + suffix + ".documents");
      if (name == "colbert_scores_tie") {  // tokens 0 and 1 are equal: which of them the gradient reaches is a choice
        for (at::Tensor* g : {&grad_d, &reference_d}) *g = at::cat({g->slice(1, 0, 2).sum(1, true), g->slice(1, 2)}, 1);
      }
      const double grad_max = entry.at("grad_max");
      const double gradient_tolerance = type == at::kDouble ? 1e-9 : 2e-5 * std::max(1.0, grad_max);
      REQUIRE(near(loss.reshape({1}), tensors.at(name + "/loss" + suffix), type == at::kDouble ? 1e-11 : 2e-6,
                   type == at::kDouble ? 1e-9 : 5e-6));
      REQUIRE(near(grad_of(queries), tensors.at(name + "/grad" + suffix + ".queries"), gradient_tolerance));
      REQUIRE(near(grad_d, reference_d, gradient_tolerance));
      if (type == at::kFloat) REQUIRE(near(scores, tensors.at(name + "/scores"), 2e-6, 5e-6));
    }
    ++checked;
  }
  REQUIRE(checked == 9);
}

TEST_CASE("the blocked MaxSim and the one for other devices equal the definition on ragged sides", "[laws]") {
  std::mt19937 random(7);
  at::manual_seed(7);
  for (int round = 0; round < 12; ++round) {
    const MultiVector q = random_side(random, 1 + round % 5, 9, 5, at::kDouble);
    const MultiVector d = random_side(random, 1 + round, 11, 5, at::kDouble);
    const at::Tensor weight = at::randn({q.size(), d.size()}, at::kDouble);
    const MultiVector q0 = copy(q), d0 = copy(d), q1 = copy(q), d1 = copy(d);
    const at::Tensor reference = naive(q, d);
    (reference * weight).sum().backward();
    const at::Tensor fused = MaxSim{}.scores(q0, d0);
    (fused * weight).sum().backward();
    const at::Tensor portable = toller::detail::max_sim(q1.values, d1.values, q1.offsets, d1.offsets, 0, /*portable=*/true);
    (portable * weight).sum().backward();
    REQUIRE(largest_difference(fused, reference) < 1e-12);
    REQUIRE(largest_difference(portable, reference) < 1e-12);
    for (const auto& [mine, theirs] : {std::pair{q0, q}, {q1, q}, {d0, d}, {d1, d}})
      REQUIRE(largest_difference(grad_of(mine.values), grad_of(theirs.values)) < 1e-12);
    REQUIRE(MaxSim{}.scores({q.values.detach(), q.offsets}, {d.values.detach(), d.offsets}).equal(fused.detach()));
  }
}

TEST_CASE("sides that need several blocks give the same numbers as the definition", "[laws]") {
  at::manual_seed(1);
  MultiVector q{leaf(at::randn({2100, 3}), at::kDouble), {0, 700, 1500, 2100}};
  MultiVector d{leaf(at::randn({11000, 3}), at::kDouble), {0, 3, 9300, 9300, 9400, 11000}};
  const MultiVector q0 = copy(q), d0 = copy(d), q1 = copy(q), d1 = copy(d);
  naive(q, d).sum().backward();
  const at::Tensor fused = MaxSim{}.scores(q0, d0);
  fused.sum().backward();
  const at::Tensor portable = toller::detail::max_sim(q1.values, d1.values, q1.offsets, d1.offsets, 0, /*portable=*/true);
  portable.sum().backward();
  REQUIRE(near(fused, naive(q, d), 1e-9));
  REQUIRE(near(portable, fused, 1e-9));
  for (const auto& [mine, theirs] : {std::pair{q0, q}, {q1, q}, {d0, d}, {d1, d}})
    REQUIRE(near(grad_of(mine.values), grad_of(theirs.values), 1e-9));
}

TEST_CASE("permuting a document's tokens leaves MaxSim alone", "[laws]") {
  at::manual_seed(2);
  const MultiVector q{at::randn({6, 4}), {0, 4, 6}}, d{at::randn({9, 4}), {0, 6, 9}};
  const at::Tensor order = at::tensor(std::vector<std::int64_t>{5, 2, 0, 1, 4, 3, 8, 7, 6});
  REQUIRE(near(MaxSim{}.scores(q, {d.values.index_select(0, order), d.offsets}), MaxSim{}.scores(q, d), 1e-6));
}

TEST_CASE("a score does not depend on the other documents", "[laws]") {
  at::manual_seed(3);
  const MultiVector q{at::randn({6, 4}), {0, 4, 6}}, d{at::randn({9, 4}), {0, 6, 9}};
  REQUIRE(near(MaxSim{}.scores(q, d).slice(1, 1), MaxSim{}.scores(q, d.slice(1, 2)), 1e-5));
}

TEST_CASE("the lowest index wins a tie, and an empty document scores minus the query's tokens") {
  for (const bool portable : {false, true}) {
    const at::Tensor q = leaf(at::ones({2, 1}), at::kFloat);
    const at::Tensor d = leaf(at::tensor(std::vector<double>{1, 2, 2}).unsqueeze(1), at::kFloat);
    const at::Tensor scores = toller::detail::max_sim(q, d, {0, 2, 2}, {0, 3, 3}, 0, portable);
    scores.sum().backward();
    REQUIRE(scores.equal(at::tensor(std::vector<float>{4, -2, 0, 0}).view({2, 2})));
    REQUIRE(d.grad().squeeze(1).equal(at::tensor(std::vector<float>{0, 2, 0})));
    REQUIRE(q.grad().squeeze(1).equal(at::tensor(std::vector<float>{2, 2})));
  }
}

TEST_CASE("without a document, a query or a token nothing breaks") {
  const MultiVector none{leaf(at::zeros({0, 3}), at::kFloat), {0}}, empty{leaf(at::zeros({0, 3}), at::kFloat), {0, 0, 0}};
  const MultiVector some{leaf(at::ones({2, 3}), at::kFloat), {0, 2}};
  REQUIRE(MaxSim{}.scores(some, none).sizes() == at::IntArrayRef{1, 0});
  REQUIRE(MaxSim{}.scores(none, some).sizes() == at::IntArrayRef{0, 1});
  REQUIRE(MaxSim{}.scores(empty, empty).equal(at::zeros({2, 2})));
  const at::Tensor scores = MaxSim{}.scores(some, empty);
  REQUIRE(scores.equal(at::full({1, 2}, -2.0f)));
  scores.sum().backward();
  REQUIRE(some.values.grad().equal(at::zeros({2, 3})));
}

TEST_CASE("NaN is not hidden by the maximum") {
  at::Tensor d = at::ones({3, 1});
  d[1].fill_(std::numeric_limits<double>::quiet_NaN());
  for (const bool portable : {false, true})
    REQUIRE(toller::detail::max_sim(at::ones({1, 1}), d, {0, 1}, {0, 3}, 0, portable).isnan().all().item<bool>());
}

TEST_CASE("scores are float32 for half inputs and under autocast") {
  at::manual_seed(4);
  const MultiVector q{at::randn({3, 8}), {0, 3}}, d{at::randn({5, 8}), {0, 5}};
  const at::Tensor reference = MaxSim{}.scores(q, d);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const at::Tensor scores = MaxSim{}.scores(q, d);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  REQUIRE(scores.equal(reference));
  REQUIRE(MaxSim{}.scores({q.values.to(at::kBFloat16), q.offsets}, d).scalar_type() == at::kFloat);
}

TEST_CASE("sides that do not go together are refused") {
  const MultiVector q{at::ones({2, 3}), {0, 2}};
  REQUIRE_THROWS_WITH(MaxSim{}.scores(q, {at::ones({2, 4}), {0, 2}}), "[R310] MaxSim: queries have size 3, documents 4");
  REQUIRE_THROWS_WITH(MaxSim{}.scores(q, {at::ones({2, 3}), {0, 1}}),
                      "[R311] MaxSim: the offsets of the documents must run from 0 to 2, the number of their vectors");
  REQUIRE_THROWS_AS(MaxSim{}.scores(q, {}), ShapeError);
}
