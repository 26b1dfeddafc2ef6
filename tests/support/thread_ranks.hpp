// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of one process: exact, cheap, and with backward passes that talk to each other.
#pragma once

#include <ATen/ATen.h>

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "toller/distributed/communicator.hpp"

/// Where the threads meet. A rank that fails or leaves early releases the ones that wait for it.
class ThreadRanks {
public:
  /// What a rank brings to a collective.
  struct Message {
    std::string name{};
    at::Tensor data{};
    std::vector<std::int64_t> send{};
    std::vector<std::int64_t> receive{};
  };
  /// Thrown in ranks that wait for one that will not come.
  struct Released : std::runtime_error {
    using std::runtime_error::runtime_error;
  };

  explicit ThreadRanks(int size) : messages_(static_cast<std::size_t>(size)) {}
  [[nodiscard]] int size() const { return static_cast<int>(messages_.size()); }

  /// All ranks' messages, once all are there.
  [[nodiscard]] std::vector<Message> exchange(int rank, Message message) {
    {
      const std::lock_guard lock(mutex_);
      messages_[static_cast<std::size_t>(rank)] = std::move(message);
    }
    meet();
    std::vector<Message> all = messages_;
    meet();
    for (const Message& m : all)
      if (m.name != all.front().name)
        throw std::logic_error("ranks are in different collectives: " + all.front().name + " and " + m.name);
    return all;
  }

  /// Rank `rank` comes to no further collective.
  void leave(int rank) {
    const std::lock_guard lock(mutex_);
    if (left_.empty()) left_ = "rank " + std::to_string(rank) + " has left";
    changed_.notify_all();
  }

private:
  void meet() {
    std::unique_lock lock(mutex_);
    const std::int64_t meeting = meeting_;
    if (left_.empty() && ++here_ == size()) {
      here_ = 0;
      ++meeting_;
      changed_.notify_all();
      return;
    }
    changed_.wait(lock, [&] { return meeting_ != meeting || !left_.empty(); });
    if (meeting_ == meeting) throw Released(left_);
  }

  std::mutex mutex_{};
  std::condition_variable changed_{};
  std::vector<Message> messages_;
  int here_ = 0;
  std::int64_t meeting_ = 0;
  std::string left_{};
};

/// A rank's handle. Throws std::logic_error where sizes, types or the order of collectives differ between ranks.
class ThreadCommunicator {
public:
  ThreadCommunicator(std::shared_ptr<ThreadRanks> ranks, int rank) : ranks_(std::move(ranks)), rank_(rank) {}

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return ranks_->size(); }
  [[nodiscard]] toller::CollectiveCounts counts() const { return *counts_; }

  [[nodiscard]] at::Tensor all_gather(const at::Tensor& t) const {
    count("all_gather", nbytes(t) * (size() - 1));
    return at::stack(same_sizes({.name = "all_gather", .data = copy(t)}));
  }

  [[nodiscard]] at::Tensor all_to_all(const at::Tensor& t, const std::vector<std::int64_t>& send,
                                      const std::vector<std::int64_t>& receive) const {
    const auto me = static_cast<std::size_t>(rank_);
    if (send.size() != receive.size() || send.size() != static_cast<std::size_t>(size()))
      throw std::logic_error("all_to_all: one number of rows for each rank");
    const std::int64_t rows = std::accumulate(send.begin(), send.end(), std::int64_t{0});
    if (rows != t.size(0)) throw std::logic_error("all_to_all: the rows sent are not the tensor's");
    count("all_to_all", rows == 0 ? 0 : nbytes(t) / rows * (rows - send[me]));
    const auto all = ranks_->exchange(rank_, {"all_to_all", copy(t), send, receive});
    std::vector<at::Tensor> parts;
    for (std::size_t r = 0; r < all.size(); ++r) {
      if (all[r].send[me] != receive[r]) throw std::logic_error("all_to_all: rows sent and received differ");
      if (all[r].data.scalar_type() != t.scalar_type() || all[r].data.sizes().slice(1) != t.sizes().slice(1))
        throw std::logic_error("all_to_all: types or row sizes differ");
      const auto begin = std::accumulate(all[r].send.begin(), all[r].send.begin() + rank_, std::int64_t{0});
      parts.push_back(all[r].data.slice(0, begin, begin + receive[r]));
    }
    return at::cat(parts);
  }

  void all_reduce(at::Tensor& t) const {
    count("all_reduce", 2 * nbytes(t) * (size() - 1) / size());
    const auto parts = same_sizes({.name = "all_reduce", .data = copy(t)});
    at::Tensor sum = parts.front().clone();
    for (std::size_t r = 1; r < parts.size(); ++r) sum.add_(parts[r]);
    t.detach().copy_(sum);
  }

  void broadcast(at::Tensor& t) const {
    count("broadcast", rank_ == 0 ? nbytes(t) * (size() - 1) : 0);
    t.detach().copy_(same_sizes({.name = "broadcast", .data = copy(t)}).front());
  }

  void barrier() const {
    count("barrier", 0);
    (void)ranks_->exchange(rank_, {.name = "barrier"});
  }

private:
  [[nodiscard]] static at::Tensor copy(const at::Tensor& t) { return t.detach().clone(at::MemoryFormat::Contiguous); }
  [[nodiscard]] static std::int64_t nbytes(const at::Tensor& t) {
    return t.numel() * static_cast<std::int64_t>(t.element_size());
  }

  [[nodiscard]] std::vector<at::Tensor> same_sizes(ThreadRanks::Message message) const {
    const std::string name = message.name;
    std::vector<at::Tensor> tensors;
    for (const auto& m : ranks_->exchange(rank_, std::move(message))) tensors.push_back(m.data);
    for (const at::Tensor& t : tensors)
      if (t.sizes() != tensors.front().sizes() || t.scalar_type() != tensors.front().scalar_type())
        throw std::logic_error(name + ": sizes or types differ between ranks");
    return tensors;
  }

  void count(const std::string& name, std::int64_t bytes) const {
    auto& entry = (*counts_)[name];
    ++entry.calls;
    entry.bytes += bytes;
  }

  std::shared_ptr<ThreadRanks> ranks_;
  std::shared_ptr<toller::CollectiveCounts> counts_ = std::make_shared<toller::CollectiveCounts>();
  int rank_;
};

static_assert(toller::Communicator<ThreadCommunicator>);

/// Calls `f(communicator)` on `size` threads and gives what they return, in rank order; nothing for void. A rank's exception is
/// rethrown here (the lowest rank's that was not merely released). No Catch2 macros within `f`: they are not safe in threads.
template <class F>
auto run_ranks(int size, F&& f) {
  using Result = std::invoke_result_t<F&, ThreadCommunicator&>;
  constexpr bool returns = !std::is_void_v<Result>;
  std::vector<std::conditional_t<returns, Result, char>> results(static_cast<std::size_t>(size));
  std::vector<std::exception_ptr> errors(results.size());
  const auto ranks = std::make_shared<ThreadRanks>(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      ThreadCommunicator comm(ranks, rank);
      const auto me = static_cast<std::size_t>(rank);
      try {
        if constexpr (returns)
          results[me] = f(comm);
        else
          f(comm);
      } catch (...) {
        errors[me] = std::current_exception();
      }
      ranks->leave(rank);
    });
  for (auto& thread : threads) thread.join();
  std::exception_ptr released{};
  for (const auto& error : errors) {
    if (!error) continue;
    try {
      std::rethrow_exception(error);
    } catch (const ThreadRanks::Released&) {
      if (!released) released = error;
    }
  }
  if (released) std::rethrow_exception(released);
  if constexpr (returns) return results;
}
