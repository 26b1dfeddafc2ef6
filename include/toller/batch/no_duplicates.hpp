// SPDX-License-Identifier: Apache-2.0
// T2. Shuffled batches in which no text comes twice.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <unordered_set>
#include <utility>
#include <vector>

#include "toller/batch/sampler.hpp"

namespace toller {

/// Batches without a text in common between two rows: a row that clashes waits for a later batch.
///
/// `hashes(row)` gives the 64-bit hashes of the row's texts (`hash_text`); a text that a row repeats itself is fine. It
/// is called by one thread at a time. Every row comes once an epoch, in batches that may be short where few rows go
/// together; `drop_last` drops all the short ones.
///
/// Errors   those of BatchSampler. DataError R223: with `drop_last`, no batch is full.
/// Cost     an epoch's plan reads each row's hashes once or more, up to rows x batches where most rows clash.
/// Source   NoDuplicatesBatchSampler of Sentence Transformers 5.3: the same batches for the same seed.
class NoDuplicates {
public:
  using Hashes = std::function<std::span<const std::uint64_t>(std::int64_t row)>;

  NoDuplicates(std::int64_t size, Hashes hashes, std::int64_t batch_size, std::uint64_t seed = 0, bool drop_last = false)
      : size_(size), batch_size_(batch_size), seed_(seed), drop_last_(drop_last), hashes_(std::move(hashes)) {
    detail::expect_rows(size, batch_size, drop_last);
  }

  [[nodiscard]] std::int64_t size() const noexcept { return size_; }
  [[nodiscard]] std::int64_t batches(std::int64_t epoch) const { return std::ssize(*plan(epoch)); }
  [[nodiscard]] std::vector<std::int64_t> rows(std::int64_t epoch, std::int64_t k) const {
    return detail::batch_of(*plan(epoch), epoch, k);
  }

private:
  [[nodiscard]] std::shared_ptr<const detail::Batches> plan(std::int64_t epoch) const {
    return plan_.get(epoch, [&] { return build(epoch); });
  }

  [[nodiscard]] detail::Batches build(std::int64_t epoch) const {
    detail::Batches batches;
    std::vector<std::int64_t> waiting = permutation(size_, epoch_generator(seed_, epoch));
    while (!waiting.empty()) {
      std::unordered_set<std::uint64_t> seen;
      std::vector<std::int64_t> batch;
      auto keep = waiting.begin();  // those that clash move to the front, in their order
      auto next = waiting.begin();
      for (; next != waiting.end() && std::ssize(batch) < batch_size_; ++next) {
        const auto hashes = hashes_(*next);
        if (std::any_of(hashes.begin(), hashes.end(), [&](std::uint64_t h) { return seen.contains(h); })) {
          *keep++ = *next;
        } else {
          batch.push_back(*next);
          seen.insert(hashes.begin(), hashes.end());
        }
      }
      waiting.erase(keep, next);
      if (std::ssize(batch) == batch_size_ || !drop_last_) batches.push_back(std::move(batch));
    }
    if (batches.empty())
      throw DataError("R223", detail::cat("sampler: no ", batch_size_, " of the ", size_, " rows go without a text in common"));
    return batches;
  }

  std::int64_t size_, batch_size_;
  std::uint64_t seed_;
  bool drop_last_;
  Hashes hashes_;
  detail::EpochPlan<detail::Batches> plan_{};
};

}  // namespace toller
