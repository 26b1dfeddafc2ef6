// SPDX-License-Identifier: Apache-2.0
// T2. The contrastive loss with in-batch negatives (InfoNCE), in four directions.
#pragma once

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/zeros_like.h>

#include <limits>
#include <type_traits>
#include <vector>

#include "toller/core/check.hpp"
#include "toller/core/full_precision.hpp"
#include "toller/loss/detail/select_texts.hpp"
#include "toller/loss/detail/to_compare.hpp"
#include "toller/loss/loss.hpp"
#include "toller/loss/negatives.hpp"
#include "toller/similarity/similarity.hpp"
#include "toller/text/records.hpp"

namespace toller {

/// One softmax over all directions, or the mean of one softmax for each.
enum class Partition { joint, per_direction };

/// Each query against the documents of the whole batch: its positive shall score highest.
///
///   loss_i = log Z_i - s(q_i, d_i) / temperature,   log Z_i = logsumexp over the chosen directions of s / temperature
///
///   query to document     s(q_i, every document)                              always
///   document to query     s(every query, d_i)                                 `document_to_query`
///   query to query        s(q_i, every other query)                           `query_to_query`
///   document to document  s(every document of other queries, d_i)             `document_to_document`
///
/// Shapes   B own rows, M documents, A queries of all ranks (one process: A is B); Relevance says which document is whose.
///          `queries` are the B own ones or all A, of which the own are `first .. first + B`; `needs_all_queries` asks for all.
/// Types    softmax and sum in float64, and the scores of single vectors too: a low temperature multiplies what they are
///          rounded by, and that would differ with the number of ranks. MaxSim's scores are float32.
/// Masks    `mask_duplicates`: what is equal to the row's positive, or is the positive of an equal query, is no negative;
///          nor is an equal query. False compares with libraries that do not look.
/// Ranks    `CrossDeviceNegatives`: the documents of all ranks are compared, which the step gathers (`gather_sides`). The sums
///          over the ranks' own rows add up to what one process has for the whole batch, in every direction.
///          `LocalNegatives`: each rank or micro-batch by itself.
/// Errors   ConfigError R330 (temperature), R331 (directions); ShapeError R301, R310, R332, R333.
/// Source   van den Oord et al. 2018; symmetric: Radford et al. 2021; all four directions: Li et al. 2023 (GTE).
template <Similarity S, class Negatives = InBatchNegatives>
struct Contrastive {
  static constexpr bool in_batch_negatives = true;
  static constexpr bool cross_device = std::is_same_v<Negatives, CrossDeviceNegatives>;
  static constexpr bool local_negatives = std::is_same_v<Negatives, LocalNegatives>;
  static_assert(std::is_same_v<Negatives, InBatchNegatives> || cross_device || local_negatives,
                "[toller C110] negatives are InBatchNegatives, CrossDeviceNegatives or LocalNegatives. loss/README.md");
  static constexpr std::string_view name = cross_device      ? "Contrastive across devices"
                                           : local_negatives ? "Contrastive over local negatives"
                                                             : "Contrastive";
  using input_type = typename S::input_type;
  using target_type = Relevance;
  template <class Record>
  static constexpr bool accepts = PairRecord<Record>;

  double temperature = S::default_temperature;
  S similarity{};
  bool document_to_query = false;
  bool query_to_query = false;
  bool document_to_document = false;
  Partition partition = Partition::joint;
  bool mask_duplicates = true;

  static void fields(auto& self, auto&& visit) {
    visit("temperature", self.temperature);
    visit("similarity", self.similarity);
    visit("document_to_query", self.document_to_query);
    visit("query_to_query", self.query_to_query);
    visit("document_to_document", self.document_to_document);
    visit("partition", self.partition);
    visit("mask_duplicates", self.mask_duplicates);
  }

  /// Throws unless the fields make sense together.
  void check() const {
    if (!(temperature > 0) || temperature == std::numeric_limits<double>::infinity())
      throw ConfigError("R330", detail::cat(name, ": temperature must be above 0, got ", temperature));
    if (partition == Partition::per_direction && (query_to_query || document_to_document))
      throw ConfigError("R331",
                        detail::cat(name, ": Partition::per_direction needs the positive in every direction, so it goes ",
                                    "with document_to_query only; use Partition::joint"));
  }

  /// Whether rows are compared with other ranks' queries, too.
  [[nodiscard]] bool needs_all_queries() const { return document_to_query || query_to_query; }

  [[nodiscard]] LossValue operator()(const input_type& given_queries, const input_type& given_documents,
                                     const Relevance& target) const {
    check();
    const FullPrecision guard;
    expect_target(given_queries.size(), given_documents.size(), target);
    const input_type queries = detail::to_compare(given_queries), documents = detail::to_compare(given_documents);
    const std::int64_t rows = target.positive.size(0);
    const input_type own = queries.size() == rows ? queries : queries.slice(target.first, target.first + rows);
    const at::Tensor positive = target.positive.unsqueeze(1);
    const at::Tensor scores = similarity.scores(own, documents);
    const at::Tensor similarity_sum = scores.detach().gather(1, positive).sum();
    const Masks masks = make_masks(queries.size(), target);

    const at::Tensor to_documents = logits(scores, masks.document);
    std::vector<at::Tensor> directions{to_documents};
    if (query_to_query) directions.push_back(logits(similarity.scores(own, queries), masks.other_query));
    if (document_to_query || document_to_document) {
      const input_type positives = detail::select_texts(documents, target.positive);
      if (document_to_query) directions.push_back(logits(similarity.scores(queries, positives).t(), masks.query));
      if (document_to_document) directions.push_back(logits(similarity.scores(documents, positives).t(), masks.other_document));
    }
    const at::Tensor correct = rows == 0
                                   ? similarity_sum.new_zeros({})
                                   : to_documents.detach().argmax(1).eq(target.positive).sum().to(similarity_sum.scalar_type());
    const at::Tensor loss = log_normaliser(directions).sub(to_documents.gather(1, positive).squeeze(1));
    return {loss.sum(), rows, correct, similarity_sum};
  }

private:
  /// True where a score is left out; undefined where none is.
  struct Masks {
    at::Tensor document{}, other_query{}, query{}, other_document{};
  };

  [[nodiscard]] at::Tensor logits(const at::Tensor& scores, const at::Tensor& left_out) const {
    const at::Tensor scaled = scores.to(at::kDouble).div(temperature);
    return left_out.defined() ? scaled.masked_fill(left_out, -std::numeric_limits<double>::infinity()) : scaled;
  }

  [[nodiscard]] at::Tensor log_normaliser(const std::vector<at::Tensor>& directions) const {
    if (partition == Partition::joint) return at::logsumexp(at::cat(directions, 1), 1);
    at::Tensor sum = at::logsumexp(directions.front(), 1);
    for (std::size_t i = 1; i < directions.size(); ++i) sum = sum.add(at::logsumexp(directions[i], 1));
    return sum.div(static_cast<double>(directions.size()));
  }

  [[nodiscard]] Masks make_masks(std::int64_t queries, const Relevance& target) const {
    const std::int64_t end = target.first + target.positive.size(0);
    const auto index = target.owner.options();
    const at::Tensor row = at::arange(target.first, end, index).unsqueeze(1);
    Masks masks;
    masks.other_query = row.eq(at::arange(queries, index));
    masks.other_document = row.eq(target.owner);
    if (!mask_duplicates) return masks;
    const at::Tensor all_positive = target.all_positive.defined() ? target.all_positive : target.positive;
    const at::Tensor own = target.positive.unsqueeze(1).eq(at::arange(target.owner.size(0), index));
    const at::Tensor is_positive = at::zeros_like(target.owner, at::kBool).index_fill_(0, all_positive, true);
    const at::Tensor hash = target.query_hash.slice(0, target.first, end).unsqueeze(1);
    const at::Tensor positive_hash = target.document_hash.index_select(0, all_positive);
    const at::Tensor own_hash = positive_hash.slice(0, target.first, end).unsqueeze(1);
    const at::Tensor same_document = own_hash.eq(target.document_hash);
    const at::Tensor of_same_query = hash.eq(target.query_hash.index_select(0, target.owner));
    masks.document = same_document.logical_or(of_same_query.logical_and(is_positive)).logical_and_(own.logical_not());
    masks.other_document = masks.other_document.logical_or(same_document).logical_or_(of_same_query);
    if (!needs_all_queries()) return masks;
    const at::Tensor same_row = hash.eq(target.query_hash).logical_or_(own_hash.eq(positive_hash));
    masks.query = same_row.logical_and(masks.other_query.logical_not());
    masks.other_query = masks.other_query.logical_or(same_row);
    return masks;
  }

  void expect_target(std::int64_t queries, std::int64_t documents, const Relevance& target) const {
    expect_shape("relevance.positive", target.positive, {any_size});
    const std::int64_t rows = target.positive.size(0);
    const std::int64_t all = target.all_positive.defined() ? target.all_positive.size(0) : rows;
    if (queries != rows && queries != all) expect_shape("relevance.positive", target.positive, {queries});
    if (queries != all && needs_all_queries())
      throw ShapeError("R333", detail::cat(name, ": these directions need all ", all, " queries of all ranks, got ", queries));
    expect_shape("relevance.owner", target.owner, {documents});
    if (mask_duplicates) {
      expect_shape("relevance.query_hash", target.query_hash, {all});
      expect_shape("relevance.document_hash", target.document_hash, {documents});
    }
    if (target.first < 0 || target.first + rows > all)
      throw ShapeError("R333",
                       detail::cat(name, ": rows ", target.first, " to ", target.first + rows, " of ", all, " queries"));
    if (rows > 0 && documents < rows)
      throw ShapeError("R332", detail::cat(name, ": ", rows, " queries came with only ", documents, " documents"));
  }
};

}  // namespace toller
