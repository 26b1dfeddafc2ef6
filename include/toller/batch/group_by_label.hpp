// SPDX-License-Identifier: Apache-2.0
// T2. Batches with several labels and at least two rows of each.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "toller/batch/sampler.hpp"

namespace toller {

/// Batches for losses that find their triplets by label: the labels take turns, two rows each, in a new order each round.
///
/// A label's odd row and a label with one row are left out; the epoch ends when one label is left, so the tail of the
/// most frequent label is left out too, and a rest of fewer than 4 rows. Where a round ends in the middle of a batch, the
/// next one may begin with the same label: a batch of exactly 4 rows can then hold that label alone, a larger one can't.
///
/// Errors   ConfigError R224: batch size odd or below 4; DataError R225: fewer than two labels have two rows.
/// Source   GroupByLabelBatchSampler of Sentence Transformers 5.3: the same batches for the same seed.
class GroupByLabel {
public:
  GroupByLabel(const std::vector<std::int64_t>& labels, std::int64_t batch_size, std::uint64_t seed = 0, bool drop_last = false)
      : size_(std::ssize(labels)), batch_size_(batch_size), seed_(seed), drop_last_(drop_last) {
    if (batch_size < 4 || batch_size % 2 != 0)
      throw ConfigError("R224", detail::cat("sampler: expected an even batch size of at least 4, got ", batch_size));
    std::unordered_map<std::int64_t, std::size_t> place;  // labels in the order of their first rows
    detail::Batches groups;
    for (std::int64_t row = 0; row < size_; ++row) {
      const auto [at, fresh] = place.emplace(labels[static_cast<std::size_t>(row)], groups.size());
      if (fresh) groups.emplace_back();
      groups[at->second].push_back(row);
    }
    for (auto& group : groups) {
      group.resize(group.size() / 2 * 2);
      if (!group.empty()) groups_.push_back(std::move(group));
    }
    if (groups_.size() < 2)
      throw DataError(
          "R225", detail::cat("sampler: expected two labels with two rows each, got ", groups_.size(), " in ", size_, " rows"));
  }

  [[nodiscard]] std::int64_t size() const noexcept { return size_; }
  [[nodiscard]] std::int64_t batches(std::int64_t epoch) const { return std::ssize(*plan(epoch)); }
  [[nodiscard]] std::vector<std::int64_t> rows(std::int64_t epoch, std::int64_t k) const {
    return detail::batch_of(*plan(epoch), epoch, k);
  }

private:
  [[nodiscard]] std::shared_ptr<const detail::Batches> plan(std::int64_t epoch) const {
    return plan_.get(epoch, [&] { return build(epoch_generator(seed_, epoch)); });
  }

  [[nodiscard]] detail::Batches build(const at::Generator& generator) const {
    detail::Batches shuffled, batches;
    for (const auto& group : groups_) {
      shuffled.emplace_back();
      for (const std::int64_t i : permutation(std::ssize(group), generator))
        shuffled.back().push_back(group[static_cast<std::size_t>(i)]);
    }
    std::vector<std::size_t> left(groups_.size());
    std::iota(left.begin(), left.end(), std::size_t{0});
    std::vector<std::int64_t> batch;
    for (std::size_t round = 0; left.size() >= 2; ++round) {
      std::vector<std::size_t> turn;
      for (const std::int64_t i : permutation(std::ssize(left), generator)) turn.push_back(left[static_cast<std::size_t>(i)]);
      left.clear();
      for (const std::size_t label : turn) {
        batch.push_back(shuffled[label][2 * round]);
        batch.push_back(shuffled[label][2 * round + 1]);
        if (std::ssize(batch) == batch_size_) batches.push_back(std::exchange(batch, {}));
        if (2 * round + 2 < shuffled[label].size()) left.push_back(label);
      }
    }
    if (!drop_last_ && batch.size() >= 4) batches.push_back(std::move(batch));
    return batches;
  }

  std::int64_t size_, batch_size_;
  std::uint64_t seed_;
  bool drop_last_;
  detail::Batches groups_{};
  detail::EpochPlan<detail::Batches> plan_{};
};

}  // namespace toller
