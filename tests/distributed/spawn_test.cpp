// SPDX-License-Identifier: Apache-2.0
// `spawn` starts its program again, so each program here is a hidden case of this one, run as a process of its own by a case
// that looks at what became of it.
#include "toller/distributed/spawn.hpp"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace toller;
using namespace std::chrono_literals;

void say(const std::string& line) {
  const std::string whole = line + "\n";
  if (::write(STDOUT_FILENO, whole.data(), whole.size()) < 0) ::_exit(99);
}

int my_rank() {
  return std::stoi(process_variable("RANK").value_or("-1"));
}

[[noreturn]] void sleep_for_good() {
  while (true) std::this_thread::sleep_for(1s);
}

/// In a hidden case: what spawn throws, as a line.
void spawn_and_say(int ranks, const std::function<void()>& f, SpawnOptions options = {}) {
  try {
    spawn(ranks, f, options);
    say("spawn came back");
  } catch (const Error& error) {
    say(std::string("caught: ") + error.what());
  }
}

volatile std::sig_atomic_t signals_here = 0;
void count_signal(int) {
  signals_here = signals_here + 1;
}

/// Waits for a signal, then a while for a second one, which must not come.
void say_signals() {
  say("ready");
  while (signals_here == 0) std::this_thread::sleep_for(5ms);
  std::this_thread::sleep_for(300ms);
  say(toller::detail::cat("rank ", my_rank(), " got ", signals_here));
}

std::string contents(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

/// One hidden case in a process of its own, whose orphans become this process's children.
class Program {
public:
  explicit Program(const std::string& hidden, std::vector<std::string> variables = {}, int terminal = -1) {
    REQUIRE(::prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    std::string name = (std::filesystem::temp_directory_path() / "toller-spawn-test-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    folder_ = name;
    std::filesystem::create_directory(folder_ / "tmp");
    const std::string own = toller::detail::own_program();
    variables.push_back("TMPDIR=" + (folder_ / "tmp").string());
    const std::string out = (folder_ / "out").string();
    pid_ = ::fork();
    if (pid_ == 0) {
      for (std::string& variable : variables) ::putenv(variable.data());
      if (terminal >= 0) ::setsid(), ::ioctl(terminal, TIOCSCTTY, 0);
      const int file = ::open(out.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
      ::dup2(file, STDOUT_FILENO), ::dup2(file, STDERR_FILENO);
      ::execl(own.c_str(), own.c_str(), hidden.c_str(), nullptr);
      ::_exit(99);
    }
    REQUIRE(pid_ > 0);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    if (!ended_) ::kill(pid_, SIGKILL), ::waitpid(pid_, nullptr, 0);
    std::filesystem::remove_all(folder_);
  }

  [[nodiscard]] std::string output() const { return contents(folder_ / "out"); }
  [[nodiscard]] pid_t pid() const { return pid_; }

  void wait_for(const std::string& part, std::size_t times) const {
    for (int i = 0; i < 6000 && count(output(), part) < times; ++i) std::this_thread::sleep_for(10ms);
    INFO(output());
    REQUIRE(count(output(), part) >= times);
  }

  /// Waits for its end. Nothing may be left of it: no process, no file in its temporary folder (after `kill -9`, one folder).
  void finish(std::size_t files_left = 0) {
    REQUIRE(::waitpid(pid_, &status, 0) == pid_);
    ended_ = true;
    for (int i = 0; i < 1000 && ::waitpid(-1, nullptr, WNOHANG) >= 0; ++i) std::this_thread::sleep_for(10ms);
    INFO(output());
    CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);
    const auto files = std::filesystem::directory_iterator(folder_ / "tmp");
    CHECK(static_cast<std::size_t>(std::distance(begin(files), end(files))) == files_left);
  }
  int status = 0;

private:
  std::filesystem::path folder_{};
  pid_t pid_ = -1;
  bool ended_ = false;
};

/// The line that the program's spawn ended with.
std::string caught(const std::string& hidden, std::vector<std::string> variables = {}) {
  Program program(hidden, std::move(variables));
  program.finish();
  const std::string text = program.output(), start = "caught: ";
  const std::size_t at = text.find(start);
  if (at == std::string::npos) return text;
  return text.substr(at + start.size(), text.find('\n', at) - at - start.size());
}

}  // namespace

TEST_CASE("hidden: ranks say who they are", "[.]") {
  spawn_and_say(3, [] {
    const Launch launch = read_launch(process_variable);
    say(toller::detail::cat("rank ", launch.rank, " of ", launch.world_size, ", ", *launch.local_rank, " of ",
                            *launch.local_world_size, " here, by ", launch.launcher, ", in ", launch.run.substr(0, 13), ", ",
                            in_spawned_process(),
                            std::filesystem::is_directory(std::filesystem::path(launch.file).parent_path()), ", threads ",
                            process_variable("OMP_NUM_THREADS").value_or("none")));
  });
}

TEST_CASE("each rank is told who it is") {
  const std::string threads = std::to_string(std::max(1, usable_cores() / 3));
  for (const std::string set : {"", "7"}) {
    Program program("hidden: ranks say who they are", {"OMP_NUM_THREADS=" + set});
    program.finish();
    INFO(program.output());
    for (const std::string rank : {"0", "1", "2"})
      CHECK(count(program.output(), "rank " + rank + " of 3, " + rank + " of 3 here, by spawn, in toller-spawn-, 11, threads " +
                                        (set.empty() ? threads : set) + "\n") == 1);
    CHECK(count(program.output(), "spawn came back") == 1);
    CHECK(program.status == 0);
  }
}

TEST_CASE("hidden: several calls", "[.]") {
  const std::string where = in_spawned_process() ? "child" : "parent";
  spawn_and_say(1, [&] { say("one in " + where); });
  spawn_and_say(2, [&] { say("two in " + where); });
  spawn_and_say(2, [&] { say("three in " + where); });
}

TEST_CASE("a rank runs its own call of spawn alone") {
  Program program("hidden: several calls");
  program.finish();
  INFO(program.output());
  CHECK(count(program.output(), "one in parent") == 1);
  CHECK(count(program.output(), "one in child") == 0);
  CHECK(count(program.output(), "two in child") == 2);
  CHECK(count(program.output(), "three in child") == 2);
  CHECK(program.status == 0);
}

TEST_CASE("hidden: a rank exits", "[.]") {
  spawn_and_say(3, [] {
    if (my_rank() == 1) std::exit(3);
  });
}
TEST_CASE("hidden: a rank throws", "[.]") {
  spawn_and_say(3, [] {
    if (my_rank() == 2) throw DataError("R299", "boom");
  });
}
TEST_CASE("hidden: a rank throws something else", "[.]") {
  spawn_and_say(2, [] {
    if (my_rank() == 1) throw 7;
  });
}
TEST_CASE("hidden: a rank is killed", "[.]") {
  spawn_and_say(3, [] {
    if (my_rank() == 1) ::raise(SIGKILL);
  });
}
TEST_CASE("hidden: a rank is killed and the other fails of it", "[.]") {
  spawn_and_say(2, [] {
    const std::filesystem::path file = std::filesystem::path(read_launch(process_variable).file).parent_path() / "pid";
    if (my_rank() == 1) {
      std::ofstream(file) << ::getpid() << '\n';
      sleep_for_good();
    }
    std::string pid;
    while (pid.empty() || pid.back() != '\n') pid = contents(file);
    ::kill(std::stoi(pid), SIGKILL);
    while (contents("/proc/" + std::to_string(std::stoi(pid)) + "/stat").find(") Z ") == std::string::npos &&
           ::kill(std::stoi(pid), 0) == 0) {
    }
    std::exit(1);
  });
}
TEST_CASE("hidden: a rank's main takes another way", "[.]") {
  if (my_rank() != 1) spawn_and_say(2, [] {});
}
TEST_CASE("hidden: spawn within spawn", "[.]") {
  spawn_and_say(2, [] {
    if (my_rank() == 0) spawn(2, [] {});
  });
}
TEST_CASE("hidden: ends of children are ignored", "[.]") {
  ::signal(SIGCHLD, SIG_IGN);
  spawn_and_say(2, [] {
    if (my_rank() == 1) std::exit(4);
  });
}
TEST_CASE("hidden: no rank", "[.]") {
  spawn_and_say(0, [] {});
}

TEST_CASE("spawn says which rank failed first, and how") {
  CHECK(caught("hidden: a rank exits") == "[R608] rank 1 of 3 ended first, with exit status 3");
  CHECK(caught("hidden: a rank is killed") == "[R608] rank 1 of 3 ended first, with signal 9 (Killed)");
  CHECK(caught("hidden: a rank is killed and the other fails of it") ==
        "[R608] rank 1 of 2 ended first, with signal 9 (Killed)");
  CHECK(caught("hidden: ends of children are ignored") == "[R608] rank 1 of 2 ended first, with exit status 4");
  CHECK(
      caught("hidden: a rank's main takes another way") ==
      "[R608] rank 1 of 2 ended first, with exit status 0, before it got where it was started for: main must take the same way "
      "again");
  CHECK(caught("hidden: no rank") == "[R606] spawn of 0 ranks: expected at least 1");
  CHECK(caught("hidden: a rank exits", {"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=localhost"}) ==
        "[R606] spawn of 3 ranks in rank 1 of 2 (environment): expected a process that no launcher started");
}

TEST_CASE("a rank's own error is a line with its number") {
  Program thrown("hidden: a rank throws");
  thrown.finish();
  CHECK(count(thrown.output(), "rank 2: toller: [R299] boom\n") == 1);
  CHECK(count(thrown.output(), "caught: [R608] rank 2 of 3 ended first, with exit status 1\n") == 1);
  Program other("hidden: a rank throws something else");
  other.finish();
  CHECK(count(other.output(), "rank 1: toller: an exception that is no std::exception\n") == 1);
  Program nested("hidden: spawn within spawn");
  nested.finish();
  CHECK(count(nested.output(),
              "rank 0: toller: [R606] spawn of 2 ranks within rank 0 of another spawn: expected it outside\n") == 1);
}

TEST_CASE("hidden: some ranks hang after another failed", "[.]") {
  spawn_and_say(4,
                [] {
                  if (my_rank() == 0) ::signal(SIGTERM, count_signal);
                  if (my_rank() == 3) ::signal(SIGTERM, SIG_IGN);
                  say("ready");
                  if (my_rank() == 0) return say_signals();
                  if (my_rank() == 2) ::raise(SIGSTOP);
                  if (my_rank() != 1) sleep_for_good();
                  while (count(contents("/proc/self/fd/1"), "ready") < 5) std::this_thread::sleep_for(5ms);
                  std::exit(5);
                },
                {300ms});
}

TEST_CASE("ranks that hang, ignore SIGTERM or are stopped are ended after another failed") {
  Program program("hidden: some ranks hang after another failed");
  program.finish();
  INFO(program.output());
  CHECK(count(program.output(), "rank 0 got 1\n") == 1);
  CHECK(count(program.output(),
              "caught: [R608] rank 1 of 4 ended first, with exit status 5; still running 0.3 s later and ended: "
              "0, 2, 3\n") == 1);
}

TEST_CASE("hidden: ranks that wait", "[.]") {
  spawn_and_say(3, [] {
    say("ready");
    sleep_for_good();
  });
}

TEST_CASE("no rank outlives a parent that is killed") {
  Program program("hidden: ranks that wait");
  program.wait_for("ready", 3);
  ::kill(program.pid(), SIGKILL);
  program.finish(1);
  CHECK((WIFSIGNALED(program.status) && WTERMSIG(program.status) == SIGKILL));
}

TEST_CASE("hidden: ranks that count signals", "[.]") {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP})
    if (in_spawned_process()) ::signal(signal, count_signal);
  spawn_and_say(2, say_signals);
}

TEST_CASE("a signal to the parent reaches each rank once") {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    Program program("hidden: ranks that count signals");
    program.wait_for("ready", 2);
    ::kill(program.pid(), signal);
    program.finish();
    INFO(program.output());
    CHECK(count(program.output(), "rank 0 got 1\n") == 1);
    CHECK(count(program.output(), "rank 1 got 1\n") == 1);
    CHECK(count(program.output(), "spawn came back") == 1);
  }
}

TEST_CASE("Ctrl-C at a terminal reaches each rank once") {
  const int keyboard = ::posix_openpt(O_RDWR | O_NOCTTY);
  REQUIRE(keyboard >= 0);
  REQUIRE((::grantpt(keyboard) == 0 && ::unlockpt(keyboard) == 0));
  const int terminal = ::open(::ptsname(keyboard), O_RDWR | O_NOCTTY);
  REQUIRE(terminal >= 0);
  {
    Program program("hidden: ranks that count signals", {}, terminal);
    program.wait_for("ready", 2);
    REQUIRE(::write(keyboard, "\x03", 1) == 1);
    program.finish();
    INFO(program.output());
    CHECK(count(program.output(), "rank 0 got 1\n") == 1);
    CHECK(count(program.output(), "rank 1 got 1\n") == 1);
    CHECK(count(program.output(), "spawn came back") == 1);
  }
  ::close(terminal), ::close(keyboard);
}

TEST_CASE("hidden: ranks that die of SIGINT", "[.]") {
  spawn_and_say(2, [] {
    ::signal(SIGINT, SIG_DFL);
    say("ready");
    sleep_for_good();
  });
}
TEST_CASE("hidden: ranks that ignore signals", "[.]") {
  spawn_and_say(2, [] {
    ::signal(SIGTERM, SIG_IGN);
    say("ready");
    sleep_for_good();
  });
}

TEST_CASE("after a signal spawn says so; a second one kills") {
  Program first("hidden: ranks that die of SIGINT");
  first.wait_for("ready", 2);
  ::kill(first.pid(), SIGINT);
  first.finish();
  INFO(first.output());
  CHECK(count(first.output(), "caught: [R609] stopped by signal 2 (Interrupt): rank ") == 1);
  CHECK(count(first.output(), " of 2 ended first, with signal 2 (Interrupt)\n") == 1);

  Program second("hidden: ranks that ignore signals");  // who have a minute
  second.wait_for("ready", 2);
  ::kill(second.pid(), SIGTERM);
  std::this_thread::sleep_for(700ms);
  ::kill(second.pid(), SIGTERM);
  second.finish();
  INFO(second.output());
  CHECK(count(second.output(), "caught: [R609] stopped by signal 15 (Terminated): rank ") == 1);
  CHECK(count(second.output(), " of 2 ended first, with signal 9 (Killed)\n") == 1);
}
