// SPDX-License-Identifier: Apache-2.0
// T2. How the ranks of a run meet, agree and part.
#pragma once

#include <c10/util/Logging.h>
#include <torch/version.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <functional>
#include <future>
#include <iostream>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "toller/core/version.hpp"
#include "toller/distributed/backends.hpp"
#include "toller/distributed/process_group.hpp"
#include "toller/distributed/rank.hpp"

namespace toller {

/// How ranks wait for each other.
///
/// Units    `timeout`: how long a rank may be missing at the start, show no sign of life, or stay behind without saying that it
///          saves or evaluates.
struct WorldOptions {
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  at::Device device = at::Device(at::kCPU);
};

/// The ranks of this run, once a process: the first call meets the others, later ones give the same.
///
/// Errors   DistributedError R610, R611 (store), R612 (no NCCL), R613 (ranks missing), R614 (a rank twice), R615 (another
///          number of ranks), R616 (the run has begun without this process), R618 (other versions), R620.
class World {
public:
  [[nodiscard]] static World& join(const Launch& launch, const WorldOptions& options);
  /// The ranks, if they have met.
  [[nodiscard]] static World* joined() { return holder().get(); }

  [[nodiscard]] const ProcessGroup& group() const { return *group_; }
  [[nodiscard]] const Launch& launch() const { return launch_; }

  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

private:
  World(Launch launch, const WorldOptions& options);
  static std::unique_ptr<World>& holder() {
    static std::unique_ptr<World> world;
    return world;
  }
  [[nodiscard]] static std::vector<std::string> meet(const Launch& launch, detail::Store& store,
                                                     std::chrono::milliseconds timeout);
  void find_local_rank();
  [[nodiscard]] bool holds_store() const { return launch_.rank == 0 && !launch_.store_elsewhere; }

  Launch launch_;
  std::optional<detail::Store> store_{};
  std::vector<std::string> who_{};
  detail::Watch* watch_ = nullptr;  // lives on when its thread can't be ended
  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo_{};
  std::optional<ProcessGroup> group_{};
};

/// Waits for all ranks, as long as those that are missing say that they are busy. Nothing in one process.
inline void barrier() {
  if (World* world = World::joined()) world->group().barrier();
}

/// Runs `f` on rank 0 while the others wait, for as long as it takes; what it throws ends all ranks.
template <class F>
void on_main(F&& f) {
  World* world = World::joined();
  if (world == nullptr) {
    if (is_main()) std::forward<F>(f)();
    return;
  }
  const ProcessGroup& group = world->group();
  if (group.rank() == 0) {
    group.phase("on_main", /*busy=*/true);
    try {
      std::forward<F>(f)();
    } catch (const std::exception& error) {
      group.fail(error.what());
      throw;
    }
  }
  group.barrier();
}

inline World& World::join(const Launch& launch, const WorldOptions& options) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (!holder()) {
    holder() = std::unique_ptr<World>(new World(launch, options));
    detail::joined_ranks() = {true, holder()->launch()};
  }
  return *holder();
}

inline World::World(Launch launch, const WorldOptions& options) : launch_(std::move(launch)) {
  // The store's and Gloo's own warnings come with lists of calls, and say less than the errors here.
  if (!process_variable("TORCH_CPP_LOG_LEVEL")) FLAGS_caffe2_log_level = 2;
  // A connection whose other end has gone is an error with a message, not the end of the process without one.
  if (const auto before = std::signal(SIGPIPE, SIG_IGN); before != SIG_DFL) std::signal(SIGPIPE, before);
  store_ = detail::connect_store(launch_, options.timeout);
  const auto give_up = [&] {
    // Who holds the store stays until the others have read there why.
    if (holds_store()) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    if (holds_store() && !launch_.file.empty()) detail::remove_address(launch_.file, store_->address());
  };
  try {
    // On a thread of its own: a store whose holder is stopped does not answer.
    std::packaged_task<std::vector<std::string>()> task(
        [launch = launch_, store = *store_, timeout = options.timeout]() mutable { return meet(launch, store, timeout); });
    auto met = task.get_future();
    std::thread(std::move(task)).detach();
    if (met.wait_for(options.timeout + std::chrono::seconds(8)) != std::future_status::ready)
      throw DistributedError("R620", detail::cat("the store at ", store_->address(),
                                                 " shows no sign of life: rank 0 or the agent that holds it is stopped"));
    who_ = met.get();
  } catch (const Error&) {
    give_up();
    throw;
  } catch (const std::exception& error) {
    throw DistributedError(
        "R620", detail::cat("the store at ", store_->address(), " is gone: rank 0 or the agent that holds it ended (",
                            detail::first_line(error), ")"));
  }
  find_local_rank();
  watch_ = new detail::Watch(store_->clone(), launch_.rank, launch_.world_size, who_, options.timeout);
  try {
    const detail::InCollective inside(*watch_);
    auto [group, gloo] = detail::make_process_group(*store_, launch_.rank, launch_.world_size, options.device, options.timeout);
    gloo_ = gloo;
    auto state = std::make_shared<detail::ProcessGroupState>();
    state->group = std::move(group);
    state->watch = watch_;
    state->store = store_;
    watch_->on_fault([gloo = gloo_] { detail::GlooConnections::close(*gloo); });
    group_.emplace(std::move(state));
    group_->agree("version", "toller " TOLLER_VERSION "\ntorch " TORCH_VERSION);
  } catch (const Error& error) {
    watch_->fail(error.what());
    give_up();
    throw;
  } catch (const std::exception& error) {
    const DistributedError why("R620", watch_->diagnose(detail::first_line(error)));
    watch_->fail(why.what());
    give_up();
    throw why;
  }
}

/// Every rank tells that it is here and what it is; rank 0 looks that all are, and says so. Gives what they are.
inline std::vector<std::string> World::meet(const Launch& launch, detail::Store& store, std::chrono::milliseconds timeout) {
  using namespace detail;
  const int size = launch.world_size, rank = launch.rank;
  const auto deadline = Clock::now() + timeout;
  const std::string me = this_process();
  const auto leave = [&](const char* code, const std::string& why) {
    const DistributedError error(code, why);
    static_cast<void>(store.set_once("fault", error.what()));
    throw error;
  };
  if (store.has("begun"))
    throw DistributedError("R616",
                           cat("rank ", rank, " (", me, ") came to a run at ", store.address(), " that has begun without it"));
  const std::string ranks = store.set_once("ranks", cat(size, " ranks, as rank ", rank, " (", me, ") says"));
  if (ranks.substr(0, ranks.find(' ')) != std::to_string(size))
    leave("R615", cat("rank ", rank, " (", me, ") was told of ", size, " ranks, the run has ", ranks));
  const std::string first = store.set_once(cat("who/", rank), me);
  if (first != me) leave("R614", cat("two processes are rank ", rank, " of ", size, ": ", first, "; and ", me));
  store.set(cat("beat/", rank), "0\n-starting");
  store.add("here", 1);

  bool told = false;
  for (Milliseconds pause(5);; pause = std::min(pause * 2, Milliseconds(200))) {
    if (const std::string fault = store.get("fault"); !fault.empty()) throw DistributedError("R620", fault);
    if (rank == 0 && store.add("here", 0) >= size) store.set("begun", "yes");
    if (store.has("begun")) break;
    const bool late = Clock::now() >= deadline;
    if (rank == 0 && (late || (!told && deadline - Clock::now() < timeout - std::chrono::seconds(10)))) {
      std::string here, missing;
      int absent = 0;
      for (int r = 0; r < size && absent <= 20; ++r) {
        const std::string who = store.get(cat("who/", r));
        if (who.empty()) ++absent;
        std::string& list = who.empty() ? missing : here;
        list += cat(list.empty() ? "" : ", ", absent > 20 ? "..." : std::to_string(r), who.empty() ? "" : " (" + who + ")");
      }
      if (late)
        leave("R613", cat("not all of ", size, " ranks came to ", store.address(), " within ", print_time(timeout),
                          "; here: ", here, "; missing: ", missing));
      std::cerr << cat("toller: ", store.address(), ": waiting for ", missing, " of the ", size, " ranks\n");
      told = true;
    }
    if (Clock::now() >= deadline + std::chrono::seconds(5))
      throw DistributedError("R613", cat("rank ", rank, " (", me, ") waited ", print_time(timeout), " at ", store.address(),
                                         " for the other ranks, and rank 0 does not say which are missing"));
    std::this_thread::sleep_for(pause);
  }
  std::vector<std::string> keys;
  for (int r = 0; r < size; ++r) keys.push_back(cat("who/", r));
  return store.get_all(keys);
}

/// Counts the lower ranks on this host, where the launcher did not.
inline void World::find_local_rank() {
  const auto host = [](const std::string& who) { return who.substr(0, who.find(", pid ")); };
  int lower = 0, all = 0;
  for (int r = 0; r < launch_.world_size; ++r)
    if (host(who_[static_cast<std::size_t>(r)]) == detail::host_name()) ++all, lower += r < launch_.rank ? 1 : 0;
  if (!launch_.local_rank) launch_.local_rank = lower;
  if (!launch_.local_world_size) launch_.local_world_size = all;
}

/// The ranks part: the store's holder leaves last. After a fault nothing is waited for.
inline World::~World() {
  if (watch_ == nullptr) return;
  const bool fault = watch_->fault().has_value();
  if (!fault) try {
      store_->add("done", 1);
      std::vector<std::string> keys, before, now;
      for (int r = 1; r < launch_.world_size; ++r) keys.push_back(detail::cat("beat/", r));
      auto last_change = detail::Clock::now();
      while (holds_store() && !watch_->fault() && store_->add("done", 0) < launch_.world_size) {
        now = store_->get_all(keys);
        if (now != before) before = now, last_change = detail::Clock::now();
        if (detail::Clock::now() - last_change > std::chrono::seconds(10)) break;  // who is left, left without a word
        std::this_thread::sleep_for(detail::Milliseconds(20));
      }
    } catch (const std::exception&) {  // the store has gone first: there is nothing left to part from
    }
  if (holds_store() && !launch_.file.empty()) detail::remove_address(launch_.file, store_->address());
  try {
    group_->handle()->abort();       // NCCL's communicators and threads, while the store they look at is there
  } catch (const std::exception&) {  // they end with this process
  }
  const bool ended = watch_->stop();
  if (fault ||
      !ended) {  // collectives under way may never end, and what they use lives as long as they: until the process ends
    static_cast<void>(gloo_.release());
    static_cast<void>(new ProcessGroup(*group_));
    return;
  }
  delete watch_;
}

}  // namespace toller
