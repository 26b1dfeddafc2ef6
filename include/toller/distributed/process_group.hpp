// SPDX-License-Identifier: Apache-2.0
// T2. The ranks of a run over c10d: Gloo on the processor, NCCL on CUDA.
#pragma once

#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "toller/core/error.hpp"
#include "toller/core/seed.hpp"
#include "toller/distributed/communicator.hpp"
#include "toller/distributed/watch.hpp"

namespace toller {

namespace detail {

/// What all handles of a group share.
struct ProcessGroupState {
  c10::intrusive_ptr<c10d::ProcessGroup> group{};
  std::optional<Store> store{};
  Watch* watch = nullptr;
  std::int64_t agreements = 0;
  std::shared_ptr<std::atomic<bool>> failed =
      std::make_shared<std::atomic<bool>>(false);  ///< a sum that went on beside the computation
  Clock::duration waited{};                        ///< of the main thread, for others
  std::mutex mutex{};
  CollectiveCounts counts{};
};

/// While one lives, the main thread is where only other ranks can help it on.
class InCollective {
public:
  explicit InCollective(Watch& watch) : watch_(&watch) { watch.in_collective(1); }
  ~InCollective() { watch_->in_collective(-1); }
  InCollective(const InCollective&) = delete;
  InCollective& operator=(const InCollective&) = delete;

private:
  Watch* watch_;
};

/// LibTorch 2.15 gave two of c10d's collectives other names.
template <class Group>
[[nodiscard]] auto gather_flat(Group& group, at::Tensor& all, at::Tensor& mine, const c10d::AllgatherOptions& options) {
  if constexpr (requires { group.all_gather_single(all, mine, options); })
    return group.all_gather_single(all, mine, options);
  else
    return group._allgather_base(all, mine, options);
}
template <class Group>
[[nodiscard]] auto exchange_rows(Group& group, at::Tensor& received, at::Tensor& sent, std::vector<std::int64_t>& receive,
                                 std::vector<std::int64_t>& send) {
  if constexpr (requires { group.all_to_all_single(received, sent, receive, send); })
    return group.all_to_all_single(received, sent, receive, send);
  else
    return group.alltoall_base(received, sent, receive, send);
}

}  // namespace detail

/// The c10d communicator. A handle: copies are the same group, and count together. Made from nothing it is one process alone.
///
/// A collective ends with a DistributedError on every rank when one of them fails, is killed or falls silent; the message names
/// the rank and the cause.
///
/// Errors   DistributedError R620; `agree` R618.
class ProcessGroup {
public:
  ProcessGroup() = default;
  explicit ProcessGroup(std::shared_ptr<detail::ProcessGroupState> state) : state_(std::move(state)) {}

  [[nodiscard]] int rank() const { return state_ ? state_->group->getRank() : 0; }
  [[nodiscard]] int size() const { return state_ ? state_->group->getSize() : 1; }

  [[nodiscard]] at::Tensor all_gather(const at::Tensor& t) const { return gather(t, {}); }

  /// `all_gather` that waits as long as a missing rank says that it is busy (saving, evaluating): for the beginning of a step.
  [[nodiscard]] at::Tensor meet(const at::Tensor& t, const std::string& where) const { return gather(t, where); }

  [[nodiscard]] at::Tensor all_to_all(const at::Tensor& t, std::vector<std::int64_t> send,
                                      std::vector<std::int64_t> receive) const {
    if (!state_) return t;
    at::Tensor input = t.contiguous();
    auto sizes = t.sizes().vec();
    sizes[0] = std::accumulate(receive.begin(), receive.end(), std::int64_t{0});
    at::Tensor result = at::empty(sizes, t.options().requires_grad(false));
    const std::int64_t row = t.size(0) == 0 ? 0 : static_cast<std::int64_t>(t.nbytes()) / t.size(0);
    count("all_to_all", row * (t.size(0) - send[static_cast<std::size_t>(rank())]));
    finish("all_to_all", detail::exchange_rows(*state_->group, result, input, receive, send), !t.is_cuda());
    return result;
  }
  void all_reduce(at::Tensor& t) const {
    if (state_) finish("all_reduce", start_all_reduce(t), !t.is_cuda());
  }
  void broadcast(at::Tensor& t) const {
    if (!state_) return;
    std::vector<at::Tensor> tensors{t};
    count("broadcast", rank() == 0 ? static_cast<std::int64_t>(t.nbytes()) * (size() - 1) : 0);
    finish("broadcast", state_->group->broadcast(tensors), !t.is_cuda());
  }
  void barrier() const { static_cast<void>(meet(at::zeros({1}, at::kLong), "barrier")); }
  [[nodiscard]] CollectiveCounts counts() const {
    if (!state_) return {};
    const std::lock_guard lock(state_->mutex);
    return state_->counts;
  }

  /// A sum over ranks that goes on beside the computation.
  [[nodiscard]] c10::intrusive_ptr<c10d::Work> start_all_reduce(const at::Tensor& t) const {
    std::vector<at::Tensor> tensors{t};
    count("all_reduce", 2 * static_cast<std::int64_t>(t.nbytes()) * (size() - 1) / size());
    try {
      auto work = state_->group->allreduce(tensors);
      // Not the state: dropped last on Gloo's thread, it would end the group there, which joins that thread.
      work->getFuture()->addCallback([failed = state_->failed](c10::ivalue::Future& future) {
        if (future.hasError()) *failed = true;
      });
      return work;
    } catch (const std::exception&) {
      *state_->failed = true;
      throw;
    }
  }

  /// What this rank does now, for the messages of the others. `busy`: they wait for it beyond the timeout.
  void phase(const std::string& what, bool busy = false) const {
    if (state_) state_->watch->phase(what, busy);
  }
  /// Says why this rank leaves; the others end with that.
  void fail(const std::string& why) const {
    if (state_) state_->watch->fail(why);
  }
  /// Checks that `value` is the same on all ranks; `what` names it.
  ///
  /// Errors   DistributedError R618 on every rank: which rank differs from rank 0, and how.
  void agree(const std::string& what, const std::string& value) const;
  /// `rank 1 (host a, pid 12)`.
  [[nodiscard]] std::string name(int rank) const { return state_ ? state_->watch->name(rank) : "rank 0"; }
  /// How long this rank has waited for others, in seconds.
  [[nodiscard]] double seconds_waited() const { return state_ ? std::chrono::duration<double>(state_->waited).count() : 0; }
  /// Runs what waits for other ranks outside of this class (the gradients' sums at the end of a backward pass).
  template <class F>
  auto guarded(F&& f) const {
    if (!state_) return f();
    const detail::InCollective inside(*state_->watch);
    try {
      return f();
    } catch (const std::exception& error) {
      if (!*state_->failed) throw;  // of this rank's own making
      throw DistributedError("R620", state_->watch->diagnose(detail::first_line(error)));
    }
  }
  [[nodiscard]] c10::intrusive_ptr<c10d::ProcessGroup> handle() const { return state_ ? state_->group : nullptr; }

private:
  void count(const std::string& name, std::int64_t bytes) const {
    const std::lock_guard lock(state_->mutex);
    auto& entry = state_->counts[name];
    ++entry.calls;
    entry.bytes += bytes;
  }

  [[nodiscard]] at::Tensor gather(const at::Tensor& t, const std::string& patient) const {
    if (!state_) return t.unsqueeze(0);
    at::Tensor input = t.contiguous();
    auto sizes = t.sizes().vec();
    sizes.insert(sizes.begin(), size());
    at::Tensor result = at::empty(sizes, t.options().requires_grad(false));
    at::Tensor flat = result.view({-1}), flat_input = input.view({-1});
    count("all_gather", static_cast<std::int64_t>(t.nbytes()) * (size() - 1));
    c10d::AllgatherOptions options;
    if (!patient.empty()) options.timeout = std::chrono::hours(24 * 365);
    if (!patient.empty()) state_->watch->phase(patient);
    finish(patient.empty() ? "all_gather" : patient, detail::gather_flat(*state_->group, flat, flat_input, options),
           !t.is_cuda(), !patient.empty());
    return result;
  }

  /// Why a work that has ended failed; empty if it did not.
  static std::string outcome(c10d::Work& work) {
    try {
      work.wait();
      return {};
    } catch (const std::exception& error) {
      const std::string why = detail::first_line(error);
      return why.empty() ? "it failed" : why;
    }
  }

  /// Waits for a collective while it looks out for faults.
  void finish(const std::string& what, const c10::intrusive_ptr<c10d::Work>& work, bool on_host, bool patient = false) const {
    const auto start = detail::Clock::now();
    state_->watch->waiting(true);
    wait(what, work, on_host, patient);
    state_->watch->waiting(false);
    state_->waited += detail::Clock::now() - start;
  }

  void wait(const std::string& what, const c10::intrusive_ptr<c10d::Work>& work, bool on_host, bool patient) const {
    detail::Watch& watch = *state_->watch;
    const detail::InCollective inside(watch);
    if (!on_host) {  // NCCL: the stream waits, not this thread; its own watchdog looks out
      work->wait();
      return;
    }
    const auto start = detail::Clock::now();
    auto look = start + watch.timeout() + std::chrono::seconds(3);  // a silent rank is found before
    auto tell = start + std::chrono::seconds(15);
    while (true) {
      try {
        work->wait(std::chrono::milliseconds(250));
        return;
      } catch (const std::exception&) {  // it gave up waiting, or the work failed
      }
      if (work->isCompleted()) {  // perhaps well, just after the wait gave up
        const std::string symptom = outcome(*work);
        if (symptom.empty()) return;
        throw DistributedError("R620", watch.diagnose(symptom));
      }
      if (const auto fault = watch.fault()) throw DistributedError("R620", *fault);
      if (!patient) continue;
      const auto now = detail::Clock::now();
      if (now < look && now < tell) continue;
      const auto absent = watch.absent(what);
      if (!absent || absent->who.empty()) continue;  // they come now, or the watch is about to say why not
      std::string names;
      for (const std::string& who : absent->who) names += (names.empty() ? "" : ", ") + who;
      if (now >= look && !absent->any_busy)
        throw DistributedError("R620", watch.accuse(detail::cat("no sign of progress for ", detail::print_time(watch.timeout()),
                                                                " from ", names, "; the others wait at ", what)));
      if (now >= tell && rank() == (absent->who.size() == 1 && absent->who[0].starts_with("rank 0 ") ? 1 : 0))
        std::fprintf(stderr, "toller: waiting for %s since %lld s\n", names.c_str(),
                     static_cast<long long>(std::chrono::duration_cast<std::chrono::seconds>(now - start).count()));
      tell = now + std::chrono::seconds(60);
      look = std::max(look, now + std::chrono::seconds(5));
    }
  }

  std::shared_ptr<detail::ProcessGroupState> state_;
};

static_assert(Team<ProcessGroup>);

inline void ProcessGroup::agree(const std::string& what, const std::string& value) const {
  if (!state_) return;
  const auto mine = static_cast<std::int64_t>(hash_text(value));
  const at::Tensor hashes = meet(at::scalar_tensor(mine, at::kLong), "agreement on the " + what);
  const auto* hash = hashes.const_data_ptr<std::int64_t>();
  detail::Store& store = *state_->store;
  const auto key = [turn = state_->agreements++](int r) { return detail::cat("agree/", turn, "/", r); };
  for (int r = 1; r < size(); ++r) {
    if (hash[r] == hash[0]) continue;
    if (rank() == 0 || rank() == r) store.set(key(rank()), value);
    store.handle()->wait({key(0), key(r)}, std::chrono::seconds(10));
    const std::string zero = store.get(key(0)), other = store.get(key(r));
    std::size_t at = 0;  // the beginning of the field that differs
    for (std::size_t i = 0; i < std::min(zero.size(), other.size()) && zero[i] == other[i]; ++i)
      if (zero[i] == ',' || zero[i] == '\n' || zero[i] == '{') at = zero[i + 1] == ' ' ? i + 2 : i + 1;
    const auto part = [at](const std::string& text) {
      const std::string rest = text.substr(std::min(at, text.size()));
      return rest.substr(0, std::min<std::size_t>(rest.find_first_of(",\n}"), 120));
    };
    throw DistributedError("R618", detail::cat("the ", what, " differs between ranks: ", name(0), " has ", part(zero), ", ",
                                               name(r), " has ", part(other)));
  }
}

}  // namespace toller
