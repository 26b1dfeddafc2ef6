// SPDX-License-Identifier: Apache-2.0
// T1. The values every room speaks: ragged token batches, pooled outputs, loss values.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "toller/core/error.hpp"

namespace toller {

/// The processor.
[[nodiscard]] inline at::Device cpu() {
  return at::Device(at::kCPU);
}
/// The CUDA device of that number.
[[nodiscard]] inline at::Device cuda(int index = 0) {
  return at::Device(at::kCUDA, static_cast<at::DeviceIndex>(index));
}

/// A trainable tensor and its name on disk. The tensor is a handle: copies share storage. `embedding`: its rows are looked up,
/// so that a batch touches few of them and the gradient of the others is zero.
struct Parameter {
  std::string name{};
  at::Tensor value{};
  bool embedding = false;
};
using Parameters = std::vector<Parameter>;

/// Texts of one step as one run of tokens, without padding: text i is tokens `offsets[i] .. offsets[i + 1]`.
///
/// Shapes   ids, positions, types [T] int64; attended, scored [T] bool; offsets [N+1], text_index [N], on the host.
/// Masks    `attended` false: the token sees the others, none sees it (query expansion). `scored` false: late
///          interaction drops its vector (skiplist). Poolings to one vector use the attended tokens.
/// Types    `dropout_key` set: dropout is on, and its mask is a function of (key, text_index, layer, site, position)
///          alone; empty: no dropout.
struct TokenBatch {
  at::Tensor ids{};
  at::Tensor positions{};
  at::Tensor types{};
  at::Tensor attended{};
  at::Tensor scored{};
  std::vector<std::int64_t> offsets{0};
  std::vector<std::int64_t> text_index{};
  bool all_attended = true;
  std::optional<std::uint64_t> dropout_key{};

  [[nodiscard]] std::int64_t texts() const { return static_cast<std::int64_t>(offsets.size()) - 1; }
  [[nodiscard]] std::int64_t tokens() const { return offsets.back(); }
  [[nodiscard]] std::int64_t length(std::int64_t text) const {
    return offsets[static_cast<std::size_t>(text) + 1] - offsets[static_cast<std::size_t>(text)];
  }

  /// Texts `begin .. end` as a batch of their own; they keep their `text_index`, so their dropout does not change.
  [[nodiscard]] TokenBatch slice(std::int64_t begin, std::int64_t end) const;

  /// The same batch on a device; tensors already there are shared.
  [[nodiscard]] TokenBatch to(at::Device device) const;
};

/// What an encoder gives: one vector for each token of the batch.
///
/// Shapes   values [T, H], in the order of `batch`.
struct TokenEmbeddings {
  at::Tensor values{};
  TokenBatch batch{};
};

/// One vector a text. Shapes: values [N, D].
struct Embeddings {
  at::Tensor values{};

  [[nodiscard]] std::int64_t size() const { return values.size(0); }
  [[nodiscard]] Embeddings slice(std::int64_t begin, std::int64_t end) const { return {values.slice(0, begin, end)}; }
};

/// One vector a kept token: text i has rows `offsets[i] .. offsets[i + 1]`. Shapes: values [T', D], offsets [N+1].
struct MultiVector {
  at::Tensor values{};
  std::vector<std::int64_t> offsets{0};

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(offsets.size()) - 1; }
  [[nodiscard]] MultiVector slice(std::int64_t begin, std::int64_t end) const;
};

/// Label scores a text. Shapes: values [N, L].
struct Logits {
  at::Tensor values{};

  [[nodiscard]] std::int64_t size() const { return values.size(0); }
  [[nodiscard]] Logits slice(std::int64_t begin, std::int64_t end) const { return {values.slice(0, begin, end)}; }
};

/// Which document answers which query, for losses with in-batch negatives.
///
/// Shapes   positive [B] int64: the column of each query's positive; owner [M] int64: the query each document came
///          with; query_hash [A], document_hash [M] int64: `hash_text` of the texts, equal where the texts are.
/// Ranks    `first` is the number of this rank's first query among the A queries of all ranks; `owner` counts in A too;
///          all_positive [A] is `positive` of all of them. In one process A is B, `first` 0 and `all_positive` may be
///          undefined.
struct Relevance {
  at::Tensor positive{};
  at::Tensor owner{};
  at::Tensor query_hash{};
  at::Tensor document_hash{};
  std::int64_t first = 0;
  at::Tensor all_positive{};

  [[nodiscard]] Relevance to(at::Device device) const {
    return {positive.to(device),
            owner.to(device),
            query_hash.to(device),
            document_hash.to(device),
            first,
            all_positive.defined() ? all_positive.to(device) : at::Tensor()};
  }
};

/// A loss before its division: the step divides `sum` by the rows of the global batch.
///
/// Shapes   sum [] float32 or float64 with a graph; correct [] and similarity [], without one: the rows whose positive scored
///          highest, and the sum of the positives' similarities. Both may be undefined tensors.
struct LossValue {
  at::Tensor sum{};
  std::int64_t rows = 0;
  at::Tensor correct{};
  at::Tensor similarity{};
};

namespace detail {

/// `offsets[begin .. end]`, moved to start at 0.
[[nodiscard]] inline std::vector<std::int64_t> rebased(const std::vector<std::int64_t>& offsets, std::int64_t begin,
                                                       std::int64_t end) {
  const auto first = offsets.begin() + begin;
  std::vector<std::int64_t> result(first, offsets.begin() + end + 1);
  const std::int64_t base = result.front();
  for (auto& offset : result) offset -= base;
  return result;
}

}  // namespace detail

inline TokenBatch TokenBatch::slice(std::int64_t begin, std::int64_t end) const {
  const std::int64_t first = offsets[static_cast<std::size_t>(begin)];
  const std::int64_t last = offsets[static_cast<std::size_t>(end)];
  const auto cut = [&](const at::Tensor& t) { return t.slice(0, first, last); };
  return {cut(ids),
          cut(positions),
          cut(types),
          cut(attended),
          cut(scored),
          detail::rebased(offsets, begin, end),
          std::vector<std::int64_t>(text_index.begin() + begin, text_index.begin() + end),
          all_attended,
          dropout_key};
}

inline TokenBatch TokenBatch::to(at::Device device) const {
  TokenBatch result = *this;
  for (at::Tensor* t : {&result.ids, &result.positions, &result.types, &result.attended, &result.scored})
    if (t->defined()) *t = t->to(device, t->scalar_type(), /*non_blocking=*/true);
  return result;
}

inline MultiVector MultiVector::slice(std::int64_t begin, std::int64_t end) const {
  return {values.slice(0, offsets[static_cast<std::size_t>(begin)], offsets[static_cast<std::size_t>(end)]),
          detail::rebased(offsets, begin, end)};
}

}  // namespace toller
