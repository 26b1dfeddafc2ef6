// SPDX-License-Identifier: Apache-2.0
// T2. How the texts of a batch are laid into dense blocks for attention; made once a batch, shared by all layers.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "toller/core/values.hpp"

namespace toller {

/// Texts of near-equal length as one dense block of n x length slots.
///
/// Shapes   rows [n * length] int64: the token in each slot (padding repeats the text's first token); bias [n, 1, 1, length]
///          float32: 0 where the slot may be seen, -inf elsewhere; undefined if all may be seen.
struct AttentionBlock {
  std::vector<std::int64_t> texts{};
  std::int64_t length = 0;
  at::Tensor rows{};
  at::Tensor bias{};
};

/// The blocks of a batch, and the way back.
///
/// Shapes   slots [T] int64: where each token lies among the slots of all blocks in order; visible [T]: who may be seen, on the
///          host, an empty list if all may.
/// Masks    a text with no attended token is treated as attended throughout, so that every row stays finite.
struct AttentionPlan {
  std::vector<AttentionBlock> blocks{};
  at::Tensor slots{};
  std::shared_ptr<const std::vector<std::uint8_t>> visible = std::make_shared<const std::vector<std::uint8_t>>();
  std::shared_ptr<const std::vector<std::int64_t>> offsets{};

  /// The host's part, all that the CPU kernel needs.
  [[nodiscard]] static AttentionPlan build(const TokenBatch& batch);

  /// Lays out the blocks, chosen by a small cost model: padded work against the number of blocks.
  ///
  /// Cost     quadratic in the number of different lengths, on the host, once a batch.
  void build_blocks(at::Device device);
};

namespace detail {

/// Cuts texts, sorted by length, into runs whose blocks cost least: n L^2 each, plus `overhead` for a block.
inline std::vector<std::int64_t> cut_by_length(const std::vector<std::int64_t>& sorted_lengths, double overhead = 40000) {
  std::vector<std::int64_t> ends;  // candidate cuts: after the last text of each different length
  for (std::size_t i = 0; i < sorted_lengths.size(); ++i)
    if (i + 1 == sorted_lengths.size() || sorted_lengths[i + 1] != sorted_lengths[i])
      ends.push_back(static_cast<std::int64_t>(i) + 1);
  std::vector<double> best(ends.size() + 1, 0);
  std::vector<std::size_t> from(ends.size() + 1, 0);
  for (std::size_t j = 1; j <= ends.size(); ++j) {
    const auto length = static_cast<double>(sorted_lengths[static_cast<std::size_t>(ends[j - 1]) - 1]);
    best[j] = -1;
    for (std::size_t i = 0; i < j; ++i) {
      const auto texts = static_cast<double>(ends[j - 1] - (i == 0 ? 0 : ends[i - 1]));
      const double cost = best[i] + texts * length * length + overhead;
      if (best[j] < 0 || cost < best[j]) best[j] = cost, from[j] = i;
    }
  }
  std::vector<std::int64_t> cuts;
  for (std::size_t j = ends.size(); j > 0; j = from[j]) cuts.push_back(ends[j - 1]);
  std::reverse(cuts.begin(), cuts.end());
  return cuts;
}

}  // namespace detail

inline AttentionPlan AttentionPlan::build(const TokenBatch& batch) {
  AttentionPlan plan;
  plan.offsets = std::make_shared<const std::vector<std::int64_t>>(batch.offsets);
  if (!batch.all_attended) {
    const at::Tensor attended = batch.attended.to(at::kCPU).contiguous();
    const bool* flags = attended.const_data_ptr<bool>();
    auto visible = std::make_shared<std::vector<std::uint8_t>>(flags, flags + batch.tokens());
    for (std::int64_t i = 0; i < batch.texts(); ++i) {
      const auto begin = visible->begin() + batch.offsets[static_cast<std::size_t>(i)];
      const auto end = visible->begin() + batch.offsets[static_cast<std::size_t>(i) + 1];
      if (std::none_of(begin, end, [](std::uint8_t v) { return v != 0; })) std::fill(begin, end, std::uint8_t{1});
    }
    plan.visible = std::move(visible);
  }
  return plan;
}

inline void AttentionPlan::build_blocks(at::Device device) {
  const auto& at_token = *offsets;
  std::vector<std::int64_t> order(at_token.size() - 1);
  const auto length_of = [&](std::int64_t i) {
    return at_token[static_cast<std::size_t>(i) + 1] - at_token[static_cast<std::size_t>(i)];
  };
  std::iota(order.begin(), order.end(), 0);
  std::erase_if(order, [&](std::int64_t i) { return length_of(i) == 0; });
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) { return length_of(a) < length_of(b); });
  std::vector<std::int64_t> lengths;
  for (const std::int64_t i : order) lengths.push_back(length_of(i));

  at::Tensor slot_of = at::empty({at_token.back()}, at::kLong);
  auto* slot = slot_of.data_ptr<std::int64_t>();
  std::int64_t first = 0, slots_before = 0;
  for (const std::int64_t cut : detail::cut_by_length(lengths)) {
    AttentionBlock block;
    block.texts.assign(order.begin() + first, order.begin() + cut);
    block.length = lengths[static_cast<std::size_t>(cut) - 1];
    const auto n = static_cast<std::int64_t>(block.texts.size());
    at::Tensor rows = at::empty({n * block.length}, at::kLong);
    at::Tensor bias = at::full({n, 1, 1, block.length}, -std::numeric_limits<float>::infinity(), at::kFloat);
    bool hidden = false;
    for (std::int64_t k = 0; k < n; ++k) {
      const std::int64_t begin = at_token[static_cast<std::size_t>(block.texts[static_cast<std::size_t>(k)])];
      const std::int64_t length = length_of(block.texts[static_cast<std::size_t>(k)]);
      for (std::int64_t t = 0; t < block.length; ++t) {
        rows.data_ptr<std::int64_t>()[k * block.length + t] = t < length ? begin + t : begin;
        const bool seen = t < length && (visible->empty() || (*visible)[static_cast<std::size_t>(begin + t)] != 0);
        if (seen) bias.data_ptr<float>()[k * block.length + t] = 0;
        hidden = hidden || !seen;
        if (t < length) slot[begin + t] = slots_before + k * block.length + t;
      }
    }
    block.rows = rows.to(device);
    if (hidden) block.bias = bias.to(device);
    slots_before += n * block.length;
    first = cut;
    blocks.push_back(std::move(block));
  }
  slots = slot_of.to(device);
}

}  // namespace toller
