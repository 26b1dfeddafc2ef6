// SPDX-License-Identifier: Apache-2.0
// T2. Signs of life: every rank shows its own, sees when another one fails, and says why it leaves.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "toller/distributed/store.hpp"

namespace toller::detail {

/// A thread that once a second writes `beat/<rank>` and reads `fault`: the first cause for which the run must end, written by
/// the rank that fails before it leaves, or by whoever finds another rank silent.
///
/// Rank 0 looks at everybody's beats, the others at rank 0's, so the store answers O(W) questions a second. The main thread
/// never touches the store here: a store that hangs (its holder stopped) can't hang the run.
class Watch {
public:
  Watch(Store store, int rank, int size, std::vector<std::string> who, Milliseconds timeout)
      : store_(std::move(store)),
        rank_(rank),
        size_(size),
        who_(std::move(who)),
        timeout_(timeout),
        seen_(static_cast<std::size_t>(size)) {
    thread_ = std::thread([this] { run(); });
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  /// Ends the thread. False: the store does not answer it, so it lives on, and this object must.
  [[nodiscard]] bool stop() {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
    const bool ended = changed_.wait_for(lock, std::chrono::seconds(3), [&] { return ended_; });
    lock.unlock();
    ended ? thread_.join() : thread_.detach();
    return ended;
  }

  /// What this rank is doing, for the others' messages; `busy`: it may take as long as it likes.
  void phase(std::string what, bool busy = false) {
    const std::lock_guard lock(mutex_);
    phase_ = std::move(what);
    busy_ = busy;
  }

  /// Why the run must end; nothing while all is well.
  [[nodiscard]] std::optional<std::string> fault() {
    const std::lock_guard lock(mutex_);
    if (Clock::now() - answered_ > timeout_ + std::chrono::seconds(2)) found(store_silent());
    return fault_;
  }

  /// Whether the main thread is in a call that only ends when other ranks do their part.
  void in_collective(int change) { in_collective_ += change; }
  /// Whether it waits for other ranks right now.
  void waiting(bool yes) { waiting_ = yes; }
  /// What ends such a call from outside.
  void on_fault(std::function<void()> release) {
    const std::lock_guard lock(mutex_);
    release_ = std::move(release);
  }

  /// Says why this rank leaves; an earlier cause stays. Rank 0, on whose store the others read it, waits for them a little.
  void fail(const std::string& why) {
    std::unique_lock lock(mutex_);
    post(lock, cat(name(rank_), " stopped: ", why));
    if (rank_ == 0) changed_.wait_for(lock, std::chrono::seconds(2), [&] { return all_told_; });
  }

  /// What was behind a collective that failed with `symptom`: the cause that a rank wrote, else a rank without signs of life,
  /// else the symptom itself. Takes up to eight seconds.
  [[nodiscard]] std::string diagnose(const std::string& symptom) {
    std::unique_lock lock(mutex_);
    if (!fault_) {
      suspicion_ = symptom;
      suspected_ = Clock::now();
      changed_.notify_all();
      changed_.wait_for(lock, std::chrono::seconds(8), [&] { return fault_.has_value(); });
    }
    return fault_ ? *fault_ : store_silent();
  }

  /// Ranks that are not in `phase` and what they do instead; nothing when the store does not answer.
  struct Absent {
    std::vector<std::string> who{};
    bool any_busy = false;
  };
  [[nodiscard]] std::optional<Absent> absent(const std::string& phase) {
    std::unique_lock lock(mutex_);
    asked_ = phase;
    absent_.reset();
    changed_.notify_all();
    changed_.wait_for(lock, std::chrono::seconds(8), [&] { return absent_.has_value() || fault_.has_value(); });
    return absent_;
  }
  /// Ends the run for a cause that the main thread found.
  [[nodiscard]] std::string accuse(const std::string& why) {
    std::unique_lock lock(mutex_);
    post(lock, why);
    return fault_.value_or(why);
  }

  [[nodiscard]] std::string name(int rank) const { return cat("rank ", rank, " (", who_[static_cast<std::size_t>(rank)], ")"); }
  [[nodiscard]] Milliseconds timeout() const { return timeout_; }

private:
  struct Beat {
    std::string value{};
    Clock::time_point changed = Clock::now();
    [[nodiscard]] bool known() const { return value.find('\n') != std::string::npos; }
    [[nodiscard]] char kind() const { return known() ? value[value.find('\n') + 1] : '-'; }
    [[nodiscard]] std::string phase() const { return known() ? value.substr(value.find('\n') + 2) : ""; }
  };

  [[nodiscard]] bool faulted() {
    const std::lock_guard lock(mutex_);
    return fault_.has_value();
  }
  /// Has the thread write a cause, unless there is one, and waits a little until it stands.
  void post(std::unique_lock<std::mutex>& lock, const std::string& why) {
    if (fault_) return;
    leaving_ = why;
    changed_.notify_all();
    changed_.wait_for(lock, std::chrono::seconds(3), [&] { return fault_.has_value(); });
  }
  void run();
  void round();
  void read_beats(const std::vector<int>& ranks);
  void react();
  [[nodiscard]] std::string beat_value();
  [[nodiscard]] std::string store_silent() const {
    return cat("the store at ", store_.address(), " shows no sign of life: ", name(0),
               " or the agent that holds it is stopped");
  }
  void found(const std::string& fault) {  // with the lock held
    if (fault_) return;
    fault_ = fault;
    faulted_ = Clock::now();
    changed_.notify_all();
  }

  Store store_;
  int rank_, size_;
  std::vector<std::string> who_;
  Milliseconds timeout_;
  std::thread thread_{};
  std::atomic<int> in_collective_{0};  // how deep
  std::atomic<bool> waiting_{false};

  std::mutex mutex_{};  // guards all below but `seen_`, which is the thread's own
  std::condition_variable changed_{};
  bool stopping_ = false, ended_ = false, busy_ = false, released_ = false, all_told_ = false;
  std::string phase_ = "starting", leaving_{}, suspicion_{}, asked_{};
  std::optional<std::string> fault_{};
  std::optional<Absent> absent_{};
  std::function<void()> release_{};
  Clock::time_point suspected_{}, faulted_{}, answered_ = Clock::now();  // the last by the store
  std::uint64_t count_ = 0;
  std::vector<Beat> seen_;
};

inline std::string Watch::beat_value() {
  const std::lock_guard lock(mutex_);
  return cat(++count_, '\n', busy_ ? 'b' : waiting_ ? 'w' : '-', phase_);
}

inline void Watch::run() {
  for (auto last = Clock::time_point{};;) {
    bool urgent = false;
    {
      std::unique_lock lock(mutex_);
      const auto wanted = [&] { return stopping_ || (!fault_ && (!leaving_.empty() || !asked_.empty())); };
      urgent = !suspicion_.empty() || fault_;
      changed_.wait_until(lock, last + Milliseconds(!urgent ? 1000 : fault_ ? 50 : 250), wanted);
      if (stopping_) break;
    }
    last = Clock::now();
    try {
      round();
      const std::lock_guard lock(mutex_);
      answered_ = Clock::now();
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex_);
      if (stopping_) break;
      found(cat("the store at ", store_.address(), " is gone: ", name(0), " or the agent that holds it ended (",
                first_line(error), ")"));
    }
    react();
  }
  const std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

inline void Watch::round() {
  store_.set(cat("beat/", rank_), beat_value());
  if (faulted()) {
    const bool all = rank_ == 0 && store_.add("told", 0) >= size_;
    const std::lock_guard lock(mutex_);
    all_told_ = all;
    return changed_.notify_all();
  }
  std::string leaving, suspicion, asked;
  Clock::time_point suspected;
  {
    const std::lock_guard lock(mutex_);
    leaving = leaving_, suspicion = suspicion_, asked = asked_, suspected = suspected_;
  }
  std::string fault = leaving.empty() ? store_.get("fault") : store_.set_once("fault", leaving);
  const bool look_at_all = rank_ == 0 || !suspicion.empty() || !asked.empty();
  if (fault.empty()) {
    std::vector<int> others;
    for (int r = 0; r < size_; ++r)
      if (r != rank_ && (look_at_all || r == 0)) others.push_back(r);
    read_beats(others);
    // A rank that shows nothing for three beats while a collective failed, or for the whole timeout.
    const auto now = Clock::now();
    const bool ripe = !suspicion.empty() && now - suspected > Milliseconds(4000);
    const auto silence = [&](int r) { return now - seen_[static_cast<std::size_t>(r)].changed; };
    const auto longest = std::max_element(others.begin(), others.end(), [&](int a, int b) { return silence(a) < silence(b); });
    const auto limit = ripe ? Milliseconds(3000) : std::max(timeout_, Milliseconds(5000));
    if (longest != others.end() && silence(*longest) > limit)
      fault = store_.set_once("fault", cat(name(*longest), " shows no sign of life for ",
                                           std::chrono::duration_cast<std::chrono::seconds>(silence(*longest)).count(),
                                           " s: killed, stopped or cut off"));
    std::string idle;  // everybody lives: those who do not wait are waited for
    for (const int r : others)
      if (seen_[static_cast<std::size_t>(r)].kind() != 'w')
        idle += cat(idle.empty() ? "" : ", ", name(r), " (", seen_[static_cast<std::size_t>(r)].phase(), ")");
    if (ripe && fault.empty())
      fault = store_.set_once("fault", waiting_ && !idle.empty()
                                           ? cat("no sign of progress from ", idle, "; ", name(rank_), ": ", suspicion)
                                           : cat(name(rank_), ": ", suspicion));
  }
  const std::lock_guard lock(mutex_);
  if (!asked.empty()) {
    Absent absent;
    for (int r = 0; r < size_; ++r) {
      const Beat& beat = seen_[static_cast<std::size_t>(r)];
      if (r == rank_ || !beat.known() || beat.phase() == asked) continue;
      absent.who.push_back(cat(name(r), " (", beat.phase(), ")"));
      absent.any_busy = absent.any_busy || beat.kind() == 'b';
    }
    absent_ = std::move(absent);
    asked_.clear();
    changed_.notify_all();
  }
  if (fault.empty()) return;
  store_.add("told", 1);
  found(fault);
}

inline void Watch::read_beats(const std::vector<int>& ranks) {
  std::vector<std::string> keys;
  for (const int r : ranks) keys.push_back(cat("beat/", r));
  const auto now = Clock::now();
  const auto values = keys.empty() ? std::vector<std::string>() : store_.get_all(keys);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    Beat& beat = seen_[static_cast<std::size_t>(ranks[i])];
    if (beat.value != values[i]) beat = {values[i], now};
  }
}

/// After a fault: frees a main thread that waits inside a collective; one that stays there is beyond help, and so is its
/// process.
inline void Watch::react() {
  std::function<void()> release;
  {
    const std::lock_guard lock(mutex_);
    if (!fault_ || in_collective_ == 0) return;
    const auto since = Clock::now() - faulted_;
    if (since > std::chrono::seconds(release_ ? 15 : 3)) {
      std::fprintf(stderr, "toller: %s\n", DistributedError("R620", *fault_).what());
      std::_Exit(1);
    }
    if (released_ || since < std::chrono::seconds(1)) return;
    released_ = true;
    release = release_;
  }
  if (release) release();
}

}  // namespace toller::detail
