// SPDX-License-Identifier: Apache-2.0
// T2. The key-value store through which ranks find each other.
#pragma once

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <fstream>
#include <future>
#include <iostream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "toller/core/error.hpp"
#include "toller/distributed/host.hpp"
#include "toller/distributed/launch.hpp"

namespace toller::detail {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

/// `90 s`, `30 min`.
[[nodiscard]] inline std::string print_time(Milliseconds time) {
  const double seconds = static_cast<double>(time.count()) / 1000;
  return seconds >= 600 ? cat(seconds / 60, " min") : cat(seconds, " s");
}

/// The first line of a message, without torch's list of calls.
[[nodiscard]] inline std::string first_line(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  const std::string text = torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
  return text.substr(0, text.find('\n'));
}

/// Strings by key, seen by all ranks. Keys begin with the run's name, so that a restart does not see what the run before left.
class Store {
public:
  Store(c10::intrusive_ptr<c10d::Store> store, std::string address) : store_(std::move(store)), address_(std::move(address)) {}

  void set(const std::string& key, const std::string& value) { store_->set(key, bytes(value)); }
  [[nodiscard]] bool has(const std::string& key) { return store_->check({key}); }
  /// Empty when there is none.
  [[nodiscard]] std::string get(const std::string& key) { return has(key) ? text(store_->get(key)) : std::string(); }
  /// All of them are there.
  [[nodiscard]] std::vector<std::string> get_all(const std::vector<std::string>& keys) {
    std::vector<std::string> result;
    for (const auto& value : store_->multiGet(keys)) result.push_back(text(value));
    return result;
  }
  /// Writes unless there is something; gives what is there then.
  std::string set_once(const std::string& key, const std::string& value) {
    return text(store_->compareSet(key, bytes(""), bytes(value)));
  }
  std::int64_t add(const std::string& key, std::int64_t amount) { return store_->add(key, amount); }

  /// A connection of its own, for another thread.
  [[nodiscard]] Store clone() const { return {store_->clone(), address_}; }
  [[nodiscard]] const c10::intrusive_ptr<c10d::Store>& handle() const { return store_; }
  /// `host:port`.
  [[nodiscard]] const std::string& address() const { return address_; }

private:
  static std::vector<std::uint8_t> bytes(const std::string& s) { return {s.begin(), s.end()}; }
  static std::string text(const std::vector<std::uint8_t>& b) { return {b.begin(), b.end()}; }

  c10::intrusive_ptr<c10d::Store> store_;
  std::string address_;
};

/// Makes or reaches the store of a run.
///
/// Errors   DistributedError R610: rank 0 can't open it; R611: another rank does not reach it within `timeout`.
[[nodiscard]] inline Store connect_store(const Launch& launch, Milliseconds timeout) {
  const bool serves = launch.rank == 0 && !launch.store_elsewhere;
  const auto deadline = Clock::now() + timeout;
  std::string host = launch.address;
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);  // an IPv6 address as in a URL
  int port = launch.port;
  // On a thread of its own: what answers at the port may be no store, and then the client waits without end.
  const auto open = [&](bool server) {
    c10d::TCPStoreOptions options;
    options.port = static_cast<std::uint16_t>(port);
    options.isServer = server;
    options.waitWorkers = false;
    options.timeout = std::max<Milliseconds>(timeout, std::chrono::seconds(5));
    std::packaged_task<c10::intrusive_ptr<c10d::TCPStore>()> task(
        [host, options] { return c10::make_intrusive<c10d::TCPStore>(host, options); });
    auto store = task.get_future();
    std::thread(std::move(task)).detach();
    if (store.wait_until(deadline) != std::future_status::ready)
      throw std::runtime_error("nothing there answers as a store does");
    return store.get();
  };
  const auto named = [&](const c10::intrusive_ptr<c10d::Store>& store) {
    return Store(c10::make_intrusive<c10d::PrefixStore>("toller/" + launch.run, store), cat(host, ":", port));
  };
  if (serves) {
    const bool one_host = launch.local_world_size == launch.world_size;
    if (!launch.file.empty()) host = one_host ? "127.0.0.1" : own_address();
    if (const auto [addresses, why] = resolve(host, port, SOCK_STREAM); !addresses)
      throw DistributedError("R610", cat("rank 0 cannot open the store at ", host, ":", port, ": ", why));
    try {
      const auto store = open(true);
      port = store->getPort();
      if (!launch.file.empty()) {
        const std::string part = launch.file + ".part";
        std::ofstream out(part);
        out << host << ' ' << port << '\n' << std::flush;
        if (!out) throw std::runtime_error(cat(part, ", which tells the others where it is, cannot be written"));
        std::filesystem::rename(part, launch.file);
      }
      return named(store);
    } catch (const std::exception& error) {
      const std::string message = first_line(error);
      const bool taken = message.find("EADDRINUSE") != std::string::npos;
      throw DistributedError(
          "R610", cat("rank 0 cannot open the store at ", host, ":", port, ": ",
                      taken ? "the port is taken: choose another MASTER_PORT (or another process is rank 0 too)" : message));
    }
  }
  std::string reason = "rank 0 has not written " + launch.file;
  bool told = false;
  for (Milliseconds pause(50); Clock::now() < deadline; pause = std::min(pause * 2, Milliseconds(1000))) {
    if (!launch.file.empty()) {
      host.clear();
      std::ifstream(launch.file) >> host >> port;
    }
    if (!host.empty()) {
      reason = cannot_connect(host, port, 1000);
      if (reason.empty()) try {
          return named(open(false));
        } catch (const std::exception& error) {
          reason = first_line(error);
        }
    }
    if (!told && deadline - Clock::now() < timeout - std::chrono::seconds(10)) {
      std::cerr << cat("toller: rank ", launch.rank, " waits for rank 0's store at ", host, ":", port, " (", reason, ")\n");
      told = true;
    }
    std::this_thread::sleep_for(
        std::min<Clock::duration>(pause, std::max<Clock::duration>(deadline - Clock::now(), Milliseconds(1))));
  }
  throw DistributedError(
      "R611", cat("rank ", launch.rank, " did not reach rank 0's store at ", host, ":", port, " within ", print_time(timeout),
                  ": ", reason, launch.file.empty() ? "; is rank 0 running there, and with this MASTER_PORT?" : ""));
}

/// Takes away the file in which rank 0 told its address, unless another run has written its own since.
inline void remove_address(const std::string& file, const std::string& address) {
  std::string host, port;
  std::ifstream(file) >> host >> port;
  std::error_code none;
  if (cat(host, ":", port) == address) std::filesystem::remove(file, none);
}

}  // namespace toller::detail
