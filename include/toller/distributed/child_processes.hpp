// SPDX-License-Identifier: Apache-2.0
// T0. Copies of this program as child processes: started, watched and ended, none left behind.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "toller/core/error.hpp"

namespace toller {

/// How the first child that failed ended.
struct ChildFailure {
  int child = 0;
  std::string how{};         ///< `exit status 3` or `signal 9 (Killed)`
  int exit_status = -1;      ///< -1: it did not exit by itself
  std::vector<int> ended{};  ///< those that had to be ended because they went on
  std::string because_of{};  ///< the signal that this process was sent before, as `signal 2 (Interrupt)`; empty: none
};

namespace detail {

[[nodiscard]] inline std::string signal_text(int signal) {
  return cat("signal ", signal, " (", ::strsignal(signal), ")");
}

/// The words of this program's command line.
[[nodiscard]] inline std::vector<std::string> own_arguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  if (words.empty()) throw DistributedError("R607", "/proc/self/cmdline: expected this program's arguments, cannot read them");
  return words;
}

/// This program's file; if it was replaced since it was started, what the system still holds of it.
[[nodiscard]] inline std::string own_program() {
  std::error_code none;
  const std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", none);
  return !none && std::filesystem::exists(path, none) ? path.string() : "/proc/self/exe";
}

[[nodiscard]] inline std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> all;
  for (std::string& word : words) all.push_back(word.data());
  all.push_back(nullptr);
  return all;
}

/// Notes SIGINT, SIGTERM and SIGHUP while it lives, unless they were ignored before.
class NotedSignals {
public:
  NotedSignals() {
    count_ = 0;
    struct sigaction action = {};
    sigemptyset(&action.sa_mask);
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    action.sa_sigaction = [](int signal, siginfo_t* info, void*) {
      signal_ = signal;
      by_terminal_ = info->si_code == SI_KERNEL;
      ++count_;
    };
    for (std::size_t i = 0; i < noted.size(); ++i) {
      ::sigaction(noted[i], nullptr, &old_[i]);
      if (old_[i].sa_handler != SIG_IGN) ::sigaction(noted[i], &action, nullptr);
    }
    struct sigaction standard = {};  // a program that ignores its children's ends never learns how they ended
    standard.sa_handler = SIG_DFL;
    ::sigaction(SIGCHLD, &standard, &old_child_);
  }
  NotedSignals(const NotedSignals&) = delete;
  NotedSignals& operator=(const NotedSignals&) = delete;
  ~NotedSignals() {
    for (std::size_t i = 0; i < noted.size(); ++i) ::sigaction(noted[i], &old_[i], nullptr);
    ::sigaction(SIGCHLD, &old_child_, nullptr);
  }
  [[nodiscard]] static int count() { return count_; }
  [[nodiscard]] static int signal() { return signal_; }
  /// The terminal sends Ctrl-C to all of the foreground, children included.
  [[nodiscard]] static bool by_terminal() { return by_terminal_; }

  static constexpr std::array<int, 3> noted{SIGINT, SIGTERM, SIGHUP};

private:
  static inline std::atomic<int> count_ = 0, signal_ = 0;
  static inline std::atomic<bool> by_terminal_ = false;
  std::array<struct sigaction, noted.size()> old_{};
  struct sigaction old_child_ = {};
};

}  // namespace detail

/// Copies of this program, as children of this process; the destructor ends those that still run.
///
/// A child dies with this process, however that ends. SIGINT, SIGTERM and SIGHUP are passed on to all while `wait` runs.
class ChildProcesses {
public:
  using Variables = std::map<std::string, std::string>;

  ChildProcesses() = default;
  ChildProcesses(const ChildProcesses&) = delete;
  ChildProcesses& operator=(const ChildProcesses&) = delete;
  ~ChildProcesses() {
    send(SIGKILL);
    for (const Child& child : children_)
      if (child.running)
        while (::waitpid(child.pid, nullptr, 0) < 0 && errno == EINTR) {
        }
  }

  /// Starts this program again with its own arguments, and with these environment variables beside or instead of its own.
  ///
  /// Errors   DistributedError R607: the system has no process, or no /proc, to give.
  void start(const Variables& variables) {
    std::string program = detail::own_program();
    std::vector<std::string> arguments = detail::own_arguments();
    std::vector<std::string> settings;
    for (const auto& [name, value] : variables) settings.push_back(name + "=" + value);
    for (char** setting = ::environ; *setting != nullptr; ++setting)
      if (const std::string_view text = *setting; !variables.contains(std::string(text.substr(0, text.find('=')))))
        settings.emplace_back(text);
    const std::vector<char*> argv = detail::pointers(arguments), envp = detail::pointers(settings);

    sigset_t all, before;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);  // so that none is lost in the copy's handlers
    const pid_t parent = ::getpid(), pid = ::fork();
    if (pid == 0) become(program.c_str(), argv.data(), envp.data(), parent, before);
    const int error = errno;
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (pid < 0) throw DistributedError("R607", detail::cat("child process ", children_.size(), ": ", std::strerror(error)));
    children_.push_back({pid});
  }

  /// Waits until all have ended; says how the first that failed did.
  ///
  /// Once one fails the others have `grace` to end by themselves, and `stopping` once this process is sent a signal; then they
  /// are sent SIGTERM, and five seconds later SIGKILL. A second signal half a second or more after the first is SIGKILL for
  /// all. `reached(child)` says of a child that exited with 0 whether it did what it was started for.
  [[nodiscard]] std::optional<ChildFailure> wait(std::chrono::milliseconds grace, std::chrono::milliseconds stopping,
                                                 const std::function<bool(int)>& reached) {
    using Clock = std::chrono::steady_clock;
    std::optional<ChildFailure> failure;
    std::vector<int> ended;
    int signals = 0;
    std::string because_of;
    Clock::time_point next_step, signalled;
    enum { all_well, ending, asked, killed } stage = all_well;
    while (!running().empty()) {
      const Clock::time_point now = Clock::now();
      if (const int count = detail::NotedSignals::count(); count != signals) {  // first, as children may end of the same signal
        const int signal = detail::NotedSignals::signal();
        if (signals == 0) {
          signalled = now;
          if (!failure) because_of = detail::signal_text(signal);
          if (!detail::NotedSignals::by_terminal()) send(signal);
        } else if (now - signalled >= std::chrono::milliseconds(500)) {
          send(SIGKILL);
        }
        signals = count;
      }
      collect(reached, failure);
      if (stage == all_well && (failure || signals > 0)) {
        stage = ending, next_step = now + (failure ? grace : stopping);
      } else if (stage == ending && now >= next_step) {
        stage = asked, next_step = now + std::chrono::seconds(5);
        ended = running();
        send(SIGTERM);
      } else if (stage == asked && now >= next_step) {
        stage = killed;
        send(SIGKILL);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    if (failure) failure->ended = ended, failure->because_of = because_of;
    return failure;
  }

private:
  struct Child {
    pid_t pid = 0;
    bool running = true;
  };

  /// The copy's part, between fork and exec: system calls only.
  [[noreturn]] static void become(const char* program, char* const* argv, char* const* envp, pid_t parent,
                                  const sigset_t& mask) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);  // it died before the line above
    for (const int signal : detail::NotedSignals::noted) {
      struct sigaction now = {};
      ::sigaction(signal, nullptr, &now);
      if (now.sa_handler != SIG_IGN) ::signal(signal, SIG_DFL);
    }
    ::sigprocmask(SIG_SETMASK, &mask, nullptr);
    ::execve(program, argv, envp);
    constexpr std::string_view message = "toller: cannot start this program again\n";
    if (::write(STDERR_FILENO, message.data(), message.size()) < 0) ::_exit(126);
    ::_exit(127);
  }

  void send(int signal) const {
    for (const Child& child : children_)
      if (child.running) ::kill(child.pid, signal);
  }

  [[nodiscard]] std::vector<int> running() const {
    std::vector<int> all;
    for (std::size_t i = 0; i < children_.size(); ++i)
      if (children_[i].running) all.push_back(static_cast<int>(i));
    return all;
  }

  /// Takes note of those that ended. Of several failures found at once, one by a signal is the cause, the others follow from
  /// it; except SIGABRT, which is how a lost connection may end a process.
  void collect(const std::function<bool(int)>& reached, std::optional<ChildFailure>& failure) {
    std::optional<ChildFailure> found, found_signal;
    for (const int i : running()) {
      int status = 0;
      Child& child = children_[static_cast<std::size_t>(i)];
      const pid_t pid = ::waitpid(child.pid, &status, WNOHANG);
      if (pid == 0 || (pid < 0 && errno == EINTR)) continue;
      child.running = false;
      const bool by_signal = pid > 0 && WIFSIGNALED(status), well = pid > 0 && !by_signal && WEXITSTATUS(status) == 0;
      if (well && reached(i)) continue;
      const std::string how = by_signal ? detail::signal_text(WTERMSIG(status))
                              : pid < 0 ? "an end that nobody saw"
                              : well
                                  ? "exit status 0, before it got where it was started for: main must take the same way again"
                                  : detail::cat("exit status ", WEXITSTATUS(status));
      auto& place = by_signal && WTERMSIG(status) != SIGABRT ? found_signal : found;
      if (!place) place = ChildFailure{i, how, pid > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1, {}, {}};
    }
    if (!failure) failure = found_signal ? found_signal : found;
  }

  detail::NotedSignals signals_{};
  std::vector<Child> children_{};
};

}  // namespace toller
