// SPDX-License-Identifier: Apache-2.0
#include "toller/loss/contrastive.hpp"

#include <ATen/autocast_mode.h>

#include <cmath>

#include "support/golden.hpp"
#include "support/gradients.hpp"
#include "support/ragged.hpp"
#include "toller/core/normalize.hpp"
#include "toller/similarity/cosine.hpp"
#include "toller/similarity/dot.hpp"
#include "toller/similarity/max_sim.hpp"

using namespace toller;

namespace {

/// Relevance of `rows` queries with one positive and `negatives` documents each, all texts different.
Relevance distinct(std::int64_t rows, std::int64_t negatives) {
  const at::Tensor row = at::arange(rows, at::kLong), owner = row.repeat({1 + negatives});
  return {row, owner, row.clone(), 1000 + at::arange(owner.size(0), at::kLong)};
}

/// What a reference case's columns are called, queries first.
std::vector<std::string> columns(const nlohmann::json& entry) {
  return entry.at("grads").get<std::vector<std::string>>();
}

/// Value and gradients of one case, in one type, against the file, whose gradients may be `gradient_scale` times the value's.
template <class Compute>
void expect_case(const nlohmann::json& entry, const std::map<std::string, at::Tensor>& tensors, at::ScalarType type,
                 const Compute& compute, double gradient_scale = 1) {
  const std::string name = entry.at("name"), suffix = type == at::kDouble ? "64" : "";
  std::vector<at::Tensor> inputs;
  for (const auto& column : columns(entry)) inputs.push_back(leaf(tensors.at(name + "/in." + column), type));
  const at::Tensor loss = compute(inputs);
  loss.backward(at::full_like(loss, gradient_scale));
  const bool exact = type == at::kDouble;
  CAPTURE(name, exact, loss.item<double>());
  REQUIRE(near(loss.reshape({1}), tensors.at(name + "/loss" + suffix), exact ? 1e-12 : 2e-6, exact ? 1e-9 : 5e-6));
  const double grad_max = entry.at("grad_max");
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor reference = tensors.at(name + "/grad" + suffix + "." + columns(entry)[i]);
    CAPTURE(columns(entry)[i], largest_difference(grad_of(inputs[i]), reference));
    REQUIRE(near(grad_of(inputs[i]), reference, exact ? 1e-9 * grad_max + 1e-15 : 2e-5 * std::max(1.0, grad_max)));
  }
}

template <class S>
Contrastive<S> from_reference(const nlohmann::json& args) {
  Contrastive<S> loss{.temperature = 1 / args.at("scale").get<double>(), .mask_duplicates = false};
  for (const std::string& direction : args.value("directions", std::vector<std::string>{})) {
    loss.document_to_query |= direction == "doc_to_query";
    loss.query_to_query |= direction == "query_to_query";
    loss.document_to_document |= direction == "doc_to_doc";
  }
  if (args.value("partition_mode", "joint") == "per_direction") loss.partition = Partition::per_direction;
  return loss;
}

template <class L>
at::Tensor mean(const L& loss, const std::vector<at::Tensor>& inputs) {
  const std::int64_t rows = inputs[0].size(0), negatives = static_cast<std::int64_t>(inputs.size()) - 2;
  const at::Tensor documents = at::cat(std::vector<at::Tensor>(inputs.begin() + 1, inputs.end()));
  const LossValue value = loss(Embeddings{inputs[0]}, Embeddings{documents}, distinct(rows, negatives));
  REQUIRE(value.rows == rows);
  return value.sum / static_cast<double>(rows);
}

}  // namespace

TEST_CASE("Contrastive has the numbers of Sentence Transformers' ranking losses", "[golden]") {
  const auto tensors = golden_tensors("losses/dense.safetensors");
  int checked = 0;
  const auto file = golden_json("losses/dense.json");
  for (const auto& entry : file.at("cases")) {
    const std::string kind = entry.at("class");
    nlohmann::json args = entry.at("args");
    if (kind == "MultipleNegativesSymmetricRankingLoss") {
      args["directions"] = {"query_to_doc", "doc_to_query"};
      args["partition_mode"] = "per_direction";
    } else if (kind != "MultipleNegativesRankingLoss" || args.contains("hardness_mode")) {
      continue;  // other losses, and weighting by hardness
    }
    for (const at::ScalarType type : {at::kFloat, at::kDouble})
      expect_case(entry, tensors, type, [&](const std::vector<at::Tensor>& inputs) {
        if (args.value("similarity_fct", "cos_sim") == "dot_score") return mean(from_reference<Dot>(args), inputs);
        return mean(from_reference<Cosine>(args), inputs);
      });
    ++checked;
  }
  REQUIRE(checked == 37);
}

TEST_CASE("Contrastive over MaxSim has the numbers of PyLate's Contrastive, cached or not", "[golden]") {
  const auto tensors = golden_tensors("losses/late.safetensors");
  int checked = 0;
  const auto file = golden_json("losses/late.json");
  for (const auto& entry : file.at("cases")) {
    const bool cached = entry.at("class") == "CachedContrastive";
    if (!cached && entry.at("class") != "Contrastive") continue;  // distilled
    const std::string name = entry.at("name");
    const auto& args = entry.at("args");
    const bool averaged = args.value("size_average", true);
    // Cached, its value is the mean over the rows, and its gradient that of their sum.
    const double gradient_scale = cached && averaged ? static_cast<double>(tensors.at(name + "/in.query").size(0)) : 1;
    for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
      const auto compute = [&](const std::vector<at::Tensor>& inputs) {
        std::vector<at::Tensor> documents, kept;
        for (std::size_t i = 1; i < inputs.size(); ++i) {
          const std::string column = name + "/in." + columns(entry)[i];
          const at::Tensor ids = tensors.at(column + "_ids");
          documents.push_back(normalize_rows(inputs[i]));
          kept.push_back(tensors.at(column + "_mask").to(at::kBool).logical_and(ids.ne(7)).logical_and(ids.ne(8)));
        }
        const at::Tensor query_mask = args.at("do_query_expansion") ? at::Tensor() : tensors.at(name + "/in.query_mask");
        const std::int64_t rows = inputs[0].size(0), negatives = static_cast<std::int64_t>(inputs.size()) - 2;
        const Contrastive<MaxSim> loss{.temperature = args.value("temperature", 1.0),
                                       .similarity = {.padded_length = inputs[1].size(1)},
                                       .mask_duplicates = false};
        const LossValue value = loss(ragged(normalize_rows(inputs[0]), query_mask), ragged(at::cat(documents), at::cat(kept)),
                                     distinct(rows, negatives));
        return averaged ? value.sum / static_cast<double>(value.rows) : value.sum;
      };
      expect_case(entry, tensors, type, compute, gradient_scale);
    }
    ++checked;
  }
  REQUIRE(checked == 24);
}

TEST_CASE("rows with the same texts are no negatives of each other", "[laws]") {
  at::manual_seed(1);
  const at::Tensor q = at::randn({1, 6}).repeat({2, 1}), d = at::randn({1, 6}).repeat({2, 1});
  Relevance same = distinct(2, 0);
  same.query_hash.fill_(1);
  same.document_hash.fill_(2);
  REQUIRE(Contrastive<Cosine>{}({q}, {d}, same).sum.item<double>() == 0);
  REQUIRE(std::abs(Contrastive<Cosine>{.mask_duplicates = false}({q}, {d}, same).sum.item<double>() - 2 * std::log(2.0)) <
          1e-6);
  Contrastive<Cosine> all{.document_to_query = true, .query_to_query = true, .document_to_document = true};
  REQUIRE(std::abs(all({q}, {d}, same).sum.item<double>() - 2 * std::log(2.0)) < 1e-6);  // the positive, in both directions
  const Contrastive<Cosine> symmetric{.document_to_query = true, .partition = Partition::per_direction};
  REQUIRE(symmetric({q}, {d}, same).sum.item<double>() == 0);
}

TEST_CASE("what is masked as a duplicate changes the loss no more, and nothing else is masked", "[laws]") {
  at::manual_seed(2);
  const at::Tensor q = at::randn({3, 5}), d = at::randn({6, 5});  // columns 3, 4, 5 are explicit negatives
  const auto loss_without = [&](std::int64_t row, const std::vector<std::int64_t>& left_out) {
    at::Tensor scores = Dot{}.scores({q}, {d}).select(0, row).clone();
    const at::Tensor positive = scores[row].clone();
    for (const auto column : left_out) scores[column].fill_(-INFINITY);
    return (scores.logsumexp(0) - positive).item<double>();
  };
  const auto expect = [&](const Relevance& target, const std::vector<std::vector<std::int64_t>>& left_out) {
    double sum = 0;
    for (std::size_t row = 0; row < 3; ++row) sum += loss_without(static_cast<std::int64_t>(row), left_out[row]);
    REQUIRE(std::abs(Contrastive<Dot>{}({q}, {d}, target).sum.item<double>() - sum) < 1e-5);
  };
  Relevance target = distinct(3, 1);
  expect(target, {{}, {}, {}});
  target.document_hash[4] = target.document_hash[0];  // row 1's negative is row 0's positive
  expect(target, {{4}, {}, {}});
  target = distinct(3, 1);
  target.document_hash[3] = target.document_hash[0];  // a row's negative equals its own positive
  expect(target, {{3}, {}, {}});
  target = distinct(3, 1);
  target.query_hash[2] = target.query_hash[0];  // the same question twice: each answer is right for both
  expect(target, {{2}, {}, {0}});
}

TEST_CASE("duplicates are left out of the other directions, too", "[laws]") {
  at::manual_seed(3);
  const at::Tensor q = at::randn({3, 5}), d = at::randn({3, 5});
  Relevance target = distinct(3, 0);
  target.document_hash[2] = target.document_hash[0];  // rows 0 and 2 share their document
  const at::Tensor qd = Dot{}.scores({q}, {d}), qq = Dot{}.scores({q}, {q}), dd = Dot{}.scores({d}, {d});
  const std::vector<std::vector<std::int64_t>> others{{1}, {0, 2}, {1}};  // what row i may be compared with, besides itself
  double sum = 0;
  for (std::int64_t i = 0; i < 3; ++i) {
    std::vector<at::Tensor> terms{qd[i][i], qd[i][i]};  // the positive, in both directions
    for (const auto j : others[static_cast<std::size_t>(i)])
      for (const at::Tensor& term : {qd[i][j], qd[j][i], qq[i][j], dd[j][i]}) terms.push_back(term);
    sum += (at::stack(terms).logsumexp(0) - qd[i][i]).item<double>();
  }
  const Contrastive<Dot> loss{.document_to_query = true, .query_to_query = true, .document_to_document = true};
  REQUIRE(std::abs(loss({q}, {d}, target).sum.item<double>() - sum) < 1e-5);
}

TEST_CASE("accuracy and similarity are those of the positives") {
  const Embeddings q{at::eye(2)}, d{at::tensor(std::vector<float>{1, 0, 0.5, 0.25}).view({2, 2})};
  const LossValue value = Contrastive<Dot>{}(q, d, distinct(2, 0));
  REQUIRE(value.correct.item<double>() == 2);
  REQUIRE(value.similarity.item<double>() == 1.25);
  REQUIRE_FALSE(value.correct.requires_grad());
  const LossValue tied = Contrastive<Dot>{}(q, {at::ones({2, 2})}, distinct(2, 0));
  REQUIRE(tied.correct.item<double>() == 1);  // the lowest column wins: right for row 0 only
}

TEST_CASE("positives are found where the target says, for vectors and for tokens") {
  at::manual_seed(4);
  const at::Tensor q = at::randn({2, 3}), d = at::randn({4, 3});
  const auto index = [](std::vector<std::int64_t> v) { return at::tensor(v, at::kLong); };
  const Relevance usual{index({0, 1}), index({0, 1, 0, 1}), index({1, 2}), index({3, 4, 5, 6})};
  const Relevance swapped{index({3, 0}), index({1, 0, 1, 0}), index({1, 2}), index({4, 5, 6, 3})};
  const at::Tensor order = index({1, 2, 3, 0});
  const at::Tensor moved = d.index_select(0, order);
  const Contrastive<Dot> one{.document_to_query = true, .query_to_query = true, .document_to_document = true};
  REQUIRE(near(one({q}, {d}, usual).sum, one({q}, {moved}, swapped).sum, 1e-5));
  const Contrastive<MaxSim> many{.document_to_query = true, .query_to_query = true, .document_to_document = true};
  const MultiVector tq{q, {0, 1, 2}}, td{d, {0, 1, 2, 3, 4}};
  REQUIRE(near(many(tq, td, usual).sum, one({q}, {d}, usual).sum, 1e-5));
  REQUIRE(near(many(tq, {moved, td.offsets}, swapped).sum, one({q}, {d}, usual).sum, 1e-5));
}

TEST_CASE("the loss is finite on degenerate input") {
  const at::Tensor zero = leaf(at::zeros({2, 3}), at::kFloat);
  const LossValue value = Contrastive<Cosine>{}({zero}, {zero}, distinct(2, 0));
  value.sum.backward();
  REQUIRE(std::abs(value.sum.item<double>() - 2 * std::log(2.0)) < 1e-6);
  REQUIRE(zero.grad().equal(at::zeros({2, 3})));
  const MultiVector empty{leaf(at::zeros({0, 3}), at::kFloat), {0, 0, 0}};
  REQUIRE(Contrastive<MaxSim>{}(empty, empty, distinct(2, 0)).sum.isfinite().item<bool>());
  const Embeddings none{leaf(at::zeros({0, 3}), at::kFloat)};
  const LossValue nothing = Contrastive<Cosine>{.document_to_query = true}(none, none, distinct(0, 0));
  nothing.sum.backward();
  REQUIRE(nothing.sum.item<double>() == 0);
  REQUIRE(nothing.rows == 0);
}

TEST_CASE("the loss is float64 under autocast, with the same numbers") {
  at::manual_seed(5);
  const Embeddings q{at::randn({3, 8})}, d{at::randn({3, 8})};
  const at::Tensor reference = Contrastive<Cosine>{}(q, d, distinct(3, 0)).sum;
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const at::Tensor sum = Contrastive<Cosine>{}(q, d, distinct(3, 0)).sum;
  const at::Tensor halves =
      Contrastive<Cosine>{}({q.values.to(at::kBFloat16)}, {d.values.to(at::kBFloat16)}, distinct(3, 0)).sum;
  at::autocast::set_autocast_enabled(at::kCPU, false);
  REQUIRE(sum.equal(reference));
  REQUIRE(halves.scalar_type() == at::kDouble);
}

TEST_CASE("settings and targets that cannot work are refused") {
  const Embeddings side{at::eye(2)};
  for (const double temperature : {0.0, -1.0, std::nan(""), double(INFINITY)})
    REQUIRE_THROWS_AS((Contrastive<Dot>{.temperature = temperature}.check()), ConfigError);
  REQUIRE_THROWS_WITH((Contrastive<Dot>{.temperature = 0}.check()), "[R330] Contrastive: temperature must be above 0, got 0");
  REQUIRE_THROWS_AS((Contrastive<Dot>{.query_to_query = true, .partition = Partition::per_direction}.check()), ConfigError);
  REQUIRE_THROWS_AS((Contrastive<Dot>{.document_to_document = true, .partition = Partition::per_direction}.check()),
                    ConfigError);
  REQUIRE_THROWS_WITH(Contrastive<Dot>{}(side, side, distinct(3, 0)), "[R301] relevance.positive: expected [2], got [3]");
  REQUIRE_THROWS_WITH(Contrastive<Dot>{}(side, {at::ones({1, 2})},
                                         {at::zeros({2}, at::kLong), at::zeros({1}, at::kLong), at::zeros({2}, at::kLong),
                                          at::zeros({1}, at::kLong)}),
                      "[R332] Contrastive: 2 queries came with only 1 documents");
}

TEST_CASE("what a loss must have is checked by the compiler, and its records are pairs") {
  STATIC_REQUIRE(LossPolicy<Contrastive<Cosine>>);
  STATIC_REQUIRE(LossPolicy<Contrastive<MaxSim, CrossDeviceNegatives>>);
  STATIC_REQUIRE(Contrastive<MaxSim, CrossDeviceNegatives>::cross_device);
  STATIC_REQUIRE_FALSE(Contrastive<MaxSim>::cross_device);
  STATIC_REQUIRE(Contrastive<MaxSim>::accepts<Triplet>);
  STATIC_REQUIRE_FALSE(Contrastive<MaxSim>::accepts<ScoredList>);
  REQUIRE(describe(Contrastive<MaxSim>{.mask_duplicates = false}) ==
          "Contrastive{temperature=1, similarity=MaxSim{padded_length=none}, document_to_query=false, query_to_query=false, "
          "document_to_document=false, partition=0, mask_duplicates=false}");
}
