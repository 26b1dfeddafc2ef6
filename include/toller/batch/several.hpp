// SPDX-License-Identifier: Apache-2.0
// T2. Batches from several datasets, never two datasets in one batch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "toller/batch/sampler.hpp"

namespace toller {

namespace detail {

/// One sampler a dataset; rows count through the datasets laid end to end.
template <Sampler Inner>
class SeveralDatasets {
public:
  explicit SeveralDatasets(std::vector<Inner> samplers) : samplers_(std::move(samplers)) {
    if (samplers_.empty()) throw ConfigError("R221", "sampler: expected one dataset or more, got none");
    for (const Inner& sampler : samplers_) offsets_.push_back(offsets_.back() + sampler.size());
  }
  [[nodiscard]] std::int64_t size() const noexcept { return offsets_.back(); }
  [[nodiscard]] std::int64_t datasets() const noexcept { return std::ssize(samplers_); }
  [[nodiscard]] std::int64_t batches(std::int64_t dataset, std::int64_t epoch) const {
    return samplers_[static_cast<std::size_t>(dataset)].batches(epoch);
  }
  [[nodiscard]] std::vector<std::int64_t> rows(std::int64_t dataset, std::int64_t epoch, std::int64_t k) const {
    std::vector<std::int64_t> rows = samplers_[static_cast<std::size_t>(dataset)].rows(epoch, k);
    for (std::int64_t& row : rows) row += offsets_[static_cast<std::size_t>(dataset)];
    return rows;
  }

private:
  std::vector<Inner> samplers_;
  std::vector<std::int64_t> offsets_{0};
};

}  // namespace detail

/// The datasets in turn, a batch each, until the one whose turn it is has none left.
///
/// Errors   ConfigError R221: no dataset; R226: no such batch.
/// Source   RoundRobinBatchSampler of Sentence Transformers 5.3.
template <Sampler Inner = BatchSampler>
class RoundRobin {
public:
  explicit RoundRobin(std::vector<Inner> samplers) : all_(std::move(samplers)) {}

  [[nodiscard]] std::int64_t size() const noexcept { return all_.size(); }
  [[nodiscard]] std::int64_t batches(std::int64_t epoch) const {
    std::int64_t count = all_.batches(0, epoch) * all_.datasets();
    for (std::int64_t d = 1; d < all_.datasets(); ++d) count = std::min(count, all_.batches(d, epoch) * all_.datasets() + d);
    return count;
  }
  [[nodiscard]] std::vector<std::int64_t> rows(std::int64_t epoch, std::int64_t k) const {
    detail::expect_batch(epoch, k, batches(epoch));
    return all_.rows(k % all_.datasets(), epoch, k / all_.datasets());
  }

private:
  detail::SeveralDatasets<Inner> all_;
};

/// Every batch of every dataset once an epoch, the datasets in random order: larger ones come more often.
///
/// Errors   ConfigError R221: no dataset; R226: no such batch.
/// Source   ProportionalBatchSampler of Sentence Transformers 5.3: the same batches for the same seed.
template <Sampler Inner = BatchSampler>
class Proportional {
public:
  explicit Proportional(std::vector<Inner> samplers, std::uint64_t seed = 0) : all_(std::move(samplers)), seed_(seed) {}

  [[nodiscard]] std::int64_t size() const noexcept { return all_.size(); }
  [[nodiscard]] std::int64_t batches(std::int64_t epoch) const {
    std::int64_t count = 0;
    for (std::int64_t d = 0; d < all_.datasets(); ++d) count += all_.batches(d, epoch);
    return count;
  }
  [[nodiscard]] std::vector<std::int64_t> rows(std::int64_t epoch, std::int64_t k) const {
    detail::expect_batch(epoch, k, batches(epoch));
    const auto turns = plan_.get(epoch, [&] { return build(epoch); });
    const auto [dataset, batch] = (*turns)[static_cast<std::size_t>(k)];
    return all_.rows(dataset, epoch, batch);
  }

private:
  struct Turn {
    std::int64_t dataset = 0;
    std::int64_t batch = 0;
  };

  [[nodiscard]] std::vector<Turn> build(std::int64_t epoch) const {
    std::vector<std::int64_t> dataset;
    for (std::int64_t d = 0; d < all_.datasets(); ++d)
      dataset.insert(dataset.end(), static_cast<std::size_t>(all_.batches(d, epoch)), d);
    std::vector<std::int64_t> given(static_cast<std::size_t>(all_.datasets()));
    std::vector<Turn> turns;
    for (const std::int64_t i : permutation(std::ssize(dataset), epoch_generator(seed_, epoch))) {
      const std::int64_t d = dataset[static_cast<std::size_t>(i)];
      turns.push_back({d, given[static_cast<std::size_t>(d)]++});
    }
    return turns;
  }

  detail::SeveralDatasets<Inner> all_;
  std::uint64_t seed_;
  detail::EpochPlan<std::vector<Turn>> plan_{};
};

}  // namespace toller
