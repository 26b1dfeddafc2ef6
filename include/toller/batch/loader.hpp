// SPDX-License-Identifier: Apache-2.0
// T0. Batches made ahead of time on background threads and given in order.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "toller/core/error.hpp"

namespace toller {

/// How batches are made ahead. Units: `workers` threads (-1: half the cores, at least one; 0: none, `next` makes them);
/// `prefetch` batches made or in the making beyond the one that `next` gives.
struct LoaderOptions {
  int workers = -1;
  std::int64_t prefetch = 4;
};

/// A place in the data: the batch that comes next.
struct LoaderPosition {
  std::int64_t epoch = 0;
  std::int64_t batch = 0;
  friend bool operator==(const LoaderPosition&, const LoaderPosition&) = default;
};

/// Gives `make(epoch, k)` for k = 0, 1, ... strictly in order; the threads that make them live as long as the loader.
///
/// `make` is called on several threads at a time, so it must be thread-safe; it may depend on nothing but (epoch, k)
/// (randomness from `mix_seed(seed, epoch, k)`), so the batches do not depend on the number of workers.
///
/// Errors   ConfigError R220: options out of range, or a place outside the epoch. What `make` throws is rethrown by
///          `next` at its place in the order; the `next` after it goes on behind it.
/// Cost     at most max(workers, prefetch) + 1 batches in memory.
template <class Batch>
class Loader {
public:
  using Make = std::function<Batch(std::int64_t epoch, std::int64_t k)>;
  using Count = std::function<std::int64_t(std::int64_t epoch)>;

  /// Starts at batch 0 of epoch 0, making nothing yet: the first `next`, `seek` or `start_epoch` starts the work.
  Loader(Count batches_of_epoch, Make make, LoaderOptions options = {})
      : count_(std::move(batches_of_epoch)), make_(std::move(make)), threads_wanted_(wanted(options)) {
    window_ = std::max<std::int64_t>(options.prefetch, threads_wanted_);
  }
  Loader(std::int64_t batches_per_epoch, Make make, LoaderOptions options = {})
      : Loader([batches_per_epoch](std::int64_t) { return batches_per_epoch; }, std::move(make), options) {}

  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;
  ~Loader() {
    for (std::jthread& thread : threads_) thread.request_stop();  // all first, so that they end at the same time
  }

  /// Batches in the current epoch.
  [[nodiscard]] std::int64_t batches() {
    ensure_started();
    return end_;
  }
  [[nodiscard]] int workers() const noexcept { return threads_wanted_; }
  [[nodiscard]] LoaderPosition position() const noexcept { return {epoch_, give_}; }

  /// Goes to the first batch of an epoch.
  void start_epoch(std::int64_t epoch) { seek(epoch, 0); }

  /// Goes to batch `k` of an epoch; work for the place before is dropped.
  void seek(std::int64_t epoch, std::int64_t k);

  /// The next batch of the epoch, nothing at its end.
  [[nodiscard]] std::optional<Batch> next();

private:
  struct Made {
    std::optional<Batch> batch{};
    std::exception_ptr error{};
  };

  static int wanted(const LoaderOptions& options);
  void ensure_started() {
    if (!started_) seek(epoch_, give_);
  }
  Made try_make(std::int64_t epoch, std::int64_t k) const noexcept;
  void work(const std::stop_token& stop);

  Count count_;
  Make make_;
  int threads_wanted_;
  std::int64_t window_ = 1;
  bool started_ = false;

  std::mutex mutex_{};                  // guards all below; `epoch_`, `give_`, `end_` change on the caller's thread only
  std::condition_variable_any work_{};  // a place became free for a worker
  std::condition_variable made_{};      // a batch became ready
  std::int64_t epoch_ = 0;
  std::int64_t give_ = 0;         // the batch that next() gives
  std::int64_t claim_ = 0;        // the batch that a worker takes up
  std::int64_t end_ = 0;          // batches in the epoch
  std::uint64_t generation_ = 0;  // of seeks: what was begun before the last one is dropped
  std::map<std::int64_t, Made> ready_{};
  std::vector<std::jthread> threads_{};  // last: they end before the rest does
};

template <class Batch>
int Loader<Batch>::wanted(const LoaderOptions& options) {
  if (options.workers < -1 || options.prefetch < 1)
    throw ConfigError("R220", detail::cat("loader: expected workers >= -1 and prefetch >= 1, got workers ", options.workers,
                                          " and prefetch ", options.prefetch));
  if (options.workers >= 0) return options.workers;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency() / 2));
}

template <class Batch>
void Loader<Batch>::seek(std::int64_t epoch, std::int64_t k) {
  const std::int64_t end = epoch < 0 ? 0 : count_(epoch);
  if (epoch < 0 || k < 0 || k > end)
    throw ConfigError("R220", detail::cat("loader: no batch ", k, " in epoch ", epoch, " of ", end, " batches"));
  {
    const std::lock_guard lock(mutex_);
    epoch_ = epoch, give_ = claim_ = k, end_ = end;
    ++generation_;
    ready_.clear();
    started_ = true;
  }
  work_.notify_all();
  while (static_cast<int>(threads_.size()) < threads_wanted_)
    threads_.emplace_back([this](const std::stop_token& stop) { work(stop); });
}

template <class Batch>
std::optional<Batch> Loader<Batch>::next() {
  ensure_started();
  if (give_ >= end_) return std::nullopt;
  Made made;
  if (threads_wanted_ == 0) {
    made = try_make(epoch_, give_++);
  } else {
    std::unique_lock lock(mutex_);
    made_.wait(lock, [&] { return ready_.contains(give_); });
    made = std::move(ready_.extract(give_++).mapped());
    lock.unlock();
    work_.notify_one();
  }
  if (made.error) std::rethrow_exception(made.error);
  return std::move(made.batch);
}

template <class Batch>
auto Loader<Batch>::try_make(std::int64_t epoch, std::int64_t k) const noexcept -> Made {
  try {
    return {make_(epoch, k), nullptr};
  } catch (...) {
    return {std::nullopt, std::current_exception()};
  }
}

template <class Batch>
void Loader<Batch>::work(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  // claim_ <= give_ + window_: the batch being given, and `window_` beyond it.
  while (work_.wait(lock, stop, [&] { return claim_ < end_ && claim_ <= give_ + window_; }) && !stop.stop_requested()) {
    const std::int64_t k = claim_++, epoch = epoch_;
    const std::uint64_t generation = generation_;
    lock.unlock();
    Made made = try_make(epoch, k);
    lock.lock();
    if (generation != generation_) continue;  // a seek came between
    ready_.emplace(k, std::move(made));
    made_.notify_one();
  }
}

}  // namespace toller
