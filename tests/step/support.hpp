// SPDX-License-Identifier: Apache-2.0
// A tiny BERT with dropout in float64, its rows dealt to ranks, and what a step left there.
#pragma once

#include <ATen/ATen.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "support/temporary_folder.hpp"
#include "support/thread_ranks.hpp"
#include "support/tiny.hpp"
#include "toller/parallelism/parallelism.hpp"
#include "toller/step/accumulate.hpp"
#include "toller/step/grad_cache.hpp"
#include "toller/step/plain_step.hpp"
#include "toller/toller.hpp"

using Dense = toller::Model<toller::Bert, toller::MeanPooling>;
using Colbert = toller::Model<toller::Bert, toller::LateInteraction>;

/// The tiny encoder, with dropout on hidden states and attention.
[[nodiscard]] inline const std::filesystem::path& dropout_folder() {
  static const TemporaryFolder folder;
  static const bool made = [] {
    std::filesystem::copy(tiny_folder(), folder.path(), std::filesystem::copy_options::recursive);
    nlohmann::json config = toller::read_json_file(folder.path() / "config.json");
    config["hidden_dropout_prob"] = config["attention_probs_dropout_prob"] = 0.1;
    folder.write("config.json", config.dump());
    return true;
  }();
  (void)made;
  return folder.path();
}

[[nodiscard]] inline toller::Parameters all_parameters(const auto& model) {
  toller::Parameters all = model.encoder().parameters();
  for (const toller::Parameter& p : model.pooling().parameters()) all.push_back(p);
  return all;
}

/// A copy of its own, as a rank has.
template <class M>
[[nodiscard]] M make_model(at::ScalarType type = at::kDouble, const typename M::pooling_type& pooling = {}) {
  const M model = M::from_pretrained(dropout_folder(), pooling, {.fresh_head = true, .seed = 3});
  const at::NoGradGuard no_grad;
  for (const toller::Parameter& p : all_parameters(model)) p.value.set_data(p.value.detach().to(type));
  return model;
}

/// Ten rows with 0, 1 or 2 negatives; two share a positive.
[[nodiscard]] inline std::vector<toller::Triplet> rows() {
  std::vector<toller::Triplet> result;
  const auto pairs = tiny_pairs();
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    toller::Triplet row{pairs[i].query, pairs[i].positive, {}};
    for (std::size_t k = 0; k < i % 3; ++k) row.negatives.push_back(pairs[(i + 3 + 2 * k) % pairs.size()].positive);
    result.push_back(std::move(row));
  }
  result[7].positive = result[2].positive;
  return result;
}

/// Which of the rows a rank has in each of its batches; `{}` is a batch of none.
using Places = std::vector<std::vector<std::int64_t>>;

[[nodiscard]] inline std::vector<std::int64_t> range(std::int64_t begin, std::int64_t end) {
  std::vector<std::int64_t> result(static_cast<std::size_t>(end - begin));
  std::iota(result.begin(), result.end(), begin);
  return result;
}

[[nodiscard]] inline std::vector<toller::RetrievalBatch> deal(const auto& model, const Places& places, bool dropout = true) {
  const auto all = rows();
  std::vector<toller::RetrievalBatch> batches;
  for (const auto& part : places) {
    std::vector<toller::Triplet> records;
    for (const std::int64_t row : part) records.push_back(all[static_cast<std::size_t>(row)]);
    batches.push_back(toller::collate_retrieval(records, model.preprocessor(), part, {part, std::ssize(all)}));
    if (dropout) batches.back().tokens.dropout_key = 5;
  }
  return batches;
}

/// A thread's handle with all that a replica's communicator has.
struct ThreadTeam : ThreadCommunicator {
  explicit ThreadTeam(const ThreadCommunicator& ranks) : ThreadCommunicator(ranks) {}
  [[nodiscard]] at::Tensor meet(const at::Tensor& t, const std::string&) const { return all_gather(t); }
  void phase(const std::string&, bool = false) const {}
  void fail(const std::string&) const {}
  void agree(const std::string&, const std::string&) const {}
  auto guarded(auto&& f) const { return f(); }
  [[nodiscard]] std::string name(int rank) const { return "rank " + std::to_string(rank); }
};

/// A replica that sums nothing and counts.
template <class C>
struct CountingReplica {
  const C* ranks;
  int* syncs;
  [[nodiscard]] const C& communicator() const { return *ranks; }
  void sync(const at::Tensor& root) const {
    if (root.requires_grad()) ++*syncs;
  }
  void begin_step() const {}
  [[nodiscard]] double end_step() const { return 0; }
};

/// What a step left on one rank, or on all, added.
struct Outcome {
  toller::StepReport report{};
  std::map<std::string, at::Tensor> gradients{};
  int syncs = 0;
  toller::CollectiveCounts counts{};
  bool all_defined = true;
};

template <class M, class Loss, class Step, class C, class Precision = toller::Fp32>
[[nodiscard]] Outcome run_step(const M& model, const Loss& loss, const Step& step, const C& ranks,
                               const std::vector<toller::RetrievalBatch>& batches, Precision precision = {}) {
  Outcome outcome;
  const CountingReplica<C> replica{&ranks, &outcome.syncs};
  outcome.report = step.run(batches, model, loss, precision, replica);
  outcome.counts = ranks.counts();
  for (const toller::Parameter& p : all_parameters(model)) {
    outcome.all_defined = outcome.all_defined && p.value.grad().defined();
    outcome.gradients[p.name] = p.value.grad().defined() ? p.value.grad().clone() : at::zeros_like(p.value);
  }
  return outcome;
}

/// One process with all rows.
template <class M, class Loss, class Step = toller::PlainStep, class Precision = toller::Fp32>
[[nodiscard]] Outcome alone(const Loss& loss, const Step& step = {}, at::ScalarType type = at::kDouble,
                            const Places& places = {range(0, 10)}, bool dropout = true, Precision precision = {}) {
  const M model = make_model<M>(type);
  return run_step(model, loss, step, toller::SingleProcess{}, deal(model, places, dropout), precision);
}

/// As many ranks as there are places.
template <class M, class Loss, class Step = toller::PlainStep>
[[nodiscard]] std::vector<Outcome> together(const Loss& loss, const std::vector<Places>& places, const Step& step = {},
                                            at::ScalarType type = at::kDouble) {
  (void)dropout_folder();
  return run_ranks(static_cast<int>(places.size()), [&](ThreadCommunicator& thread) {
    const ThreadTeam ranks(thread);
    const M model = make_model<M>(type);
    return run_step(model, loss, step, ranks, deal(model, places[static_cast<std::size_t>(ranks.rank())]));
  });
}

[[nodiscard]] inline Outcome added(const std::vector<Outcome>& ranks) {
  Outcome sum = ranks.front();
  for (std::size_t r = 1; r < ranks.size(); ++r) {
    const toller::StepReport& report = ranks[r].report;
    sum.report.loss += report.loss;
    sum.report.accuracy += report.accuracy;
    sum.report.similarity += report.similarity;
    sum.report.rows += report.rows;
    sum.report.tokens += report.tokens;
    for (auto& [name, gradient] : sum.gradients) gradient = gradient + ranks[r].gradients.at(name);
  }
  return sum;
}

/// |a - b| / |b| over all gradients as one vector.
[[nodiscard]] inline double gradient_difference(const Outcome& a, const Outcome& b) {
  double difference = 0, size = 0;
  const auto squares = [](const at::Tensor& t) { return t.pow(2).sum().item<double>(); };
  for (const auto& [name, gradient] : b.gradients) {
    const at::Tensor reference = gradient.to(at::kDouble);
    difference += squares(a.gradients.at(name).to(at::kDouble) - reference);
    size += squares(reference);
  }
  return std::sqrt(difference / size);
}

/// The same loss, gradients and counts.
inline void check_equal(const Outcome& a, const Outcome& b, double tolerance = 1e-9) {
  using Catch::Matchers::WithinRel;
  CHECK(a.report.rows == b.report.rows);
  CHECK(a.report.tokens == b.report.tokens);
  CHECK_THAT(a.report.loss, WithinRel(b.report.loss, tolerance));
  CHECK_THAT(a.report.similarity, WithinRel(b.report.similarity, tolerance));
  CHECK_THAT(a.report.accuracy, WithinRel(b.report.accuracy, 1e-9));
  CHECK(gradient_difference(a, b) <= tolerance);
}

/// Everything a contrastive loss can compare.
template <class S, class Negatives = toller::InBatchNegatives>
[[nodiscard]] toller::Contrastive<S, Negatives> four_directions() {
  return {.temperature = 0.2, .document_to_query = true, .query_to_query = true, .document_to_document = true};
}
