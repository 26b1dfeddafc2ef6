// SPDX-License-Identifier: Apache-2.0
// T2. Which rows make up which batch: shuffled or in file order.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>
#include <ATen/ops/randperm.h>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <memory>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

#include "toller/core/error.hpp"

namespace toller {

/// Row numbers of every batch of every epoch; calls from several threads are fine.
template <class S>
concept Sampler = requires(const S& sampler, std::int64_t epoch, std::int64_t k) {
  { sampler.size() } -> std::convertible_to<std::int64_t>;
  { sampler.batches(epoch) } -> std::convertible_to<std::int64_t>;
  { sampler.rows(epoch, k) } -> std::convertible_to<std::vector<std::int64_t>>;
};

/// The seeded generator of an epoch. Source   mt19937 of LibTorch's CPU generator, seeded with seed + epoch.
[[nodiscard]] inline at::Generator epoch_generator(std::uint64_t seed, std::int64_t epoch) {
  return at::detail::createCPUGenerator(seed + static_cast<std::uint64_t>(epoch));
}

/// The next random order of 0 .. n - 1 from a generator. Source   at::randperm.
[[nodiscard]] inline std::vector<std::int64_t> permutation(std::int64_t n, const at::Generator& generator) {
  const at::Tensor order = at::randperm(n, generator, at::TensorOptions().dtype(at::kLong));
  const auto* first = order.const_data_ptr<std::int64_t>();
  return {first, first + n};
}

namespace detail {

/// Remembers what was computed for the epoch last asked for; copies share it.
template <class Plan>
class EpochPlan {
public:
  template <class Build>
  [[nodiscard]] std::shared_ptr<const Plan> get(std::int64_t epoch, const Build& build) const {
    const std::lock_guard lock(state_->mutex);
    if (!state_->plan || state_->epoch != epoch) {
      state_->plan = std::make_shared<const Plan>(build());
      state_->epoch = epoch;
    }
    return state_->plan;
  }

private:
  struct State {
    std::mutex mutex{};
    std::int64_t epoch = 0;
    std::shared_ptr<const Plan> plan{};
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

using Batches = std::vector<std::vector<std::int64_t>>;

inline void expect_batch(std::int64_t epoch, std::int64_t k, std::int64_t batches) {
  if (k < 0 || k >= batches)
    throw ConfigError("R226", cat("sampler: no batch ", k, " in epoch ", epoch, " of ", batches, " batches"));
}

/// Batch k of an epoch's plan.
[[nodiscard]] inline std::vector<std::int64_t> batch_of(const Batches& plan, std::int64_t epoch, std::int64_t k) {
  expect_batch(epoch, k, std::ssize(plan));
  return plan[static_cast<std::size_t>(k)];
}

inline void expect_rows(std::int64_t rows, std::int64_t batch_size, bool drop_last) {
  if (batch_size < 1) throw ConfigError("R221", cat("sampler: expected a batch size of at least 1, got ", batch_size));
  if (rows < 1) throw DataError("R222", "sampler: the dataset has no rows");
  if (drop_last && rows < batch_size)
    throw DataError("R222", cat("sampler: the dataset has ", rows, " rows, fewer than one batch of ", batch_size));
}

}  // namespace detail

/// Batches of `batch_size` rows, every row once an epoch; the last one is shorter, or dropped.
///
/// Errors   ConfigError R221: batch size below 1; R226: no such batch. DataError R222: no rows, or with `drop_last`
///          fewer than one batch.
/// Cost     one random order of 8 bytes a row, kept for the epoch last asked for.
/// Source   the orders of torch.utils.data.RandomSampler with a generator seeded seed + epoch.
class BatchSampler {
public:
  BatchSampler(std::int64_t size, std::int64_t batch_size, std::uint64_t seed = 0, bool shuffle = true, bool drop_last = false)
      : size_(size), batch_size_(batch_size), seed_(seed), shuffle_(shuffle), drop_last_(drop_last) {
    detail::expect_rows(size, batch_size, drop_last);
  }

  [[nodiscard]] std::int64_t size() const noexcept { return size_; }
  [[nodiscard]] std::int64_t batches_per_epoch() const noexcept {
    return (drop_last_ ? size_ : size_ + batch_size_ - 1) / batch_size_;
  }
  [[nodiscard]] std::int64_t batches(std::int64_t /*epoch*/) const noexcept { return batches_per_epoch(); }

  [[nodiscard]] std::vector<std::int64_t> rows(std::int64_t epoch, std::int64_t k) const {
    detail::expect_batch(epoch, k, batches_per_epoch());
    const std::int64_t begin = k * batch_size_, end = std::min(begin + batch_size_, size_);
    std::vector<std::int64_t> rows(static_cast<std::size_t>(end - begin));
    std::iota(rows.begin(), rows.end(), begin);
    if (!shuffle_) return rows;
    const auto order = plan_.get(epoch, [&] { return permutation(size_, epoch_generator(seed_, epoch)); });
    for (std::int64_t& row : rows) row = (*order)[static_cast<std::size_t>(row)];
    return rows;
  }

private:
  std::int64_t size_, batch_size_;
  std::uint64_t seed_;
  bool shuffle_, drop_last_;
  detail::EpochPlan<std::vector<std::int64_t>> plan_{};
};

}  // namespace toller
