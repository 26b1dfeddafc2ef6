// SPDX-License-Identifier: Apache-2.0
// T2. The rows of one rank, where every rank goes through its own share of the dataset.
#pragma once

#include <cstdint>
#include <vector>

#include "toller/batch/deal.hpp"
#include "toller/batch/sampler.hpp"

namespace toller {

/// Every `world_size`-th row of an epoch's order, from place `rank` on: by itself each rank knows its own rows.
///
/// Where the rows do not go up evenly, `drop_last` leaves the last ones out, `pad` repeats the first ones, and with neither
/// every row comes once and the first ranks have one more: exact for evaluation.
///
/// Ranks    seed and epoch must be the same on all of them.
/// Errors   ConfigError R228: no such rank; DataError R222: no rows.
/// Cost     `indices` makes one random order of 8 bytes a row of the dataset, and none without `shuffle`.
/// Source   torch.utils.data.DistributedSampler of PyTorch 2.11: the same rows for the same seed; `pad = false` is ours.
class DistributedSampler {
public:
  DistributedSampler(std::int64_t size, std::int64_t world_size, std::int64_t rank, std::uint64_t seed = 0, bool shuffle = true,
                     bool drop_last = false, bool pad = true)
      : rows_(size), world_size_(world_size), rank_(rank), seed_(seed), shuffle_(shuffle) {
    detail::expect_rank("sampler", rank, world_size);
    detail::expect_rows(size, 1, false);
    if (drop_last)
      size_ = size / world_size;
    else
      size_ = (size + (pad ? world_size : world_size - rank) - 1) / world_size;
  }

  /// The rows of this rank, the same number in every epoch.
  [[nodiscard]] std::int64_t size() const noexcept { return size_; }

  /// The epoch whose order `indices` gives; 0 at first.
  void set_epoch(std::int64_t epoch) noexcept { epoch_ = epoch; }

  [[nodiscard]] std::vector<std::int64_t> indices() const {
    std::vector<std::int64_t> order;
    if (shuffle_ && size_ > 0) order = permutation(rows_, epoch_generator(seed_, epoch_));
    std::vector<std::int64_t> mine(static_cast<std::size_t>(size_));
    std::int64_t place = rank_;
    for (std::int64_t& row : mine) {
      row = place % rows_;
      if (shuffle_) row = order[static_cast<std::size_t>(row)];
      place += world_size_;
    }
    return mine;
  }

private:
  std::int64_t rows_, world_size_, rank_;
  std::uint64_t seed_;
  bool shuffle_;
  std::int64_t size_ = 0;
  std::int64_t epoch_ = 0;
};

}  // namespace toller
