// SPDX-License-Identifier: Apache-2.0
#include "toller/text/line_index.hpp"

#include <signal.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <chrono>
#include <map>
#include <optional>
#include <thread>

#include "text/scratch.hpp"
#include "toller/text/line_file.hpp"

using namespace toller;
namespace fs = std::filesystem;

namespace {

/// An environment variable while this lives.
class Variable {
public:
  Variable(const char* name, const std::optional<std::string>& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    set(value);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() { set(before_); }

private:
  void set(const std::optional<std::string>& value) { value ? ::setenv(name_, value->c_str(), 1) : ::unsetenv(name_); }
  const char* name_;
  std::optional<std::string> before_{};
};

/// 20 MB of lines of many lengths, some blank, after a byte order mark; `last` ends it without a line end.
std::string large_text(std::string_view last = "end") {
  std::string text = "\xEF\xBB\xBF";
  for (std::size_t i = 0; text.size() < 20'000'000; ++i)
    text += i % 7 == 0 ? " \r\n" : std::to_string(i) + std::string(mix_seed(i) % 400, 'x') + (i % 3 == 0 ? "\r\n" : "\n");
  return text.append(last);
}

/// Every line of a file, with its end, as one hash.
std::uint64_t hash_of_lines(const LineFile& file) {
  std::uint64_t hash = 0;
  for (std::int64_t i = 0; i < file.size(); ++i) hash = mix_seed(hash, hash_text(file.line(i)));
  return hash;
}

std::uint64_t hash_in_memory(const std::string& name) {
  const Variable nowhere("TOLLER_CACHE", "/dev/null/cache");
  return hash_of_lines(LineFile(name));
}

std::vector<fs::path> indexes(const fs::path& folder = "cache") {
  std::vector<fs::path> found;
  if (fs::exists(folder))
    for (const auto& entry : fs::directory_iterator(folder))
      if (entry.path().extension() != ".lock") found.push_back(entry.path());
  return found;
}

std::string contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Runs `work` in a process of its own; its exit status is what `work` gives.
template <class Work>
pid_t start(const Work& work) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(work());
  return child;
}

int status_of(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

}  // namespace

TEST_CASE("a large file's index is made once and then read; its lines are those of an index in memory") {
  const Scratch scratch;
  const Variable cache("TOLLER_CACHE", "cache/of/tests");
  const std::string name = Scratch::write("t.txt", large_text());
  const std::uint64_t expected = hash_in_memory(name);
  CHECK(hash_of_lines(LineFile(name)) == expected);
  const auto made = indexes("cache/of/tests");
  REQUIRE(made.size() == 1);

  SECTION("what the index says is what is used") {
    // An index that is whole and of this file, but without its first line.
    const std::string whole = contents(made[0]);
    std::vector<std::uint64_t> starts((whole.size() - sizeof(toller::detail::IndexHeader)) / 8);
    std::memcpy(starts.data(), whole.data() + sizeof(toller::detail::IndexHeader), starts.size() * 8);
    CHECK(std::ssize(starts) == LineFile(name).size());
    const std::string second(LineFile(name).line(1));
    starts.erase(starts.begin());
    REQUIRE(toller::detail::write_index(made[0], {toller::detail::stamp_of(name), starts}, starts));
    const LineFile opened(name);
    CHECK(opened.size() == std::ssize(starts));
    CHECK(opened.line(0) == second);
  }
  SECTION("another name of the file has the same index") {
    fs::create_symlink("t.txt", "link.txt");
    CHECK(hash_of_lines(LineFile("link.txt")) == expected);
    CHECK(indexes("cache/of/tests").size() == 1);
  }
  SECTION("it lives on when the cache is deleted, and when it is moved") {
    LineFile opened(name);
    fs::remove_all("cache");
    const LineFile moved(std::move(opened));
    CHECK(hash_of_lines(moved) == expected);
  }
}

TEST_CASE("a small file has no index file") {
  const Scratch scratch;
  const Variable cache("TOLLER_CACHE", "cache");
  CHECK(LineFile(Scratch::write("t.txt", "a\n\nb")).size() == 2);
  CHECK(!fs::exists("cache"));
}

TEST_CASE("a damaged, foreign or stale index is made again") {
  const Scratch scratch;
  const Variable cache("TOLLER_CACHE", "cache");
  const std::string name = Scratch::write("t.txt", large_text());
  const std::uint64_t expected = hash_in_memory(name);
  (void)LineFile(name);
  REQUIRE(indexes().size() == 1);
  const std::int64_t lines = LineFile(name).size();
  const fs::path index = indexes()[0];
  const std::string good = contents(index);

  auto flipped = [&](std::size_t at) {
    std::string bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    return bytes;
  };
  std::map<std::string, std::string> bad{{"empty", ""},
                                         {"half a header", good.substr(0, 20)},
                                         {"no lines", good.substr(0, sizeof(toller::detail::IndexHeader))},
                                         {"a line short", good.substr(0, good.size() - 8)},
                                         {"a byte short", good.substr(0, good.size() - 1)},
                                         {"a line more", good + good.substr(good.size() - 8)},
                                         {"first start", flipped(sizeof(toller::detail::IndexHeader))},
                                         {"a start in the middle", flipped(good.size() / 2)},
                                         {"last byte", flipped(good.size() - 1)},
                                         {"zeros", std::string(good.size(), '\0')},
                                         {"no index", std::string(100'000, 'x')}};
  for (std::size_t at = 0; at < sizeof(toller::detail::IndexHeader); at += 8)
    bad["header word " + std::to_string(at / 8)] = flipped(at);
  for (const auto& [what, bytes] : bad) {
    INFO(what);
    std::ofstream(index, std::ios::binary | std::ios::trunc) << bytes;
    CHECK(LineFile(name).size() == lines);
    CHECK((contents(index) == good));
  }
  CHECK(hash_of_lines(LineFile(name)) == expected);

  // The data change, their size does not: a new key. The old index under the new key's name is not believed either.
  std::string changed = large_text("\nnd");
  Scratch::write("t.txt", changed);
  fs::last_write_time(name, fs::last_write_time(name) + std::chrono::nanoseconds(1));
  const std::uint64_t expected_now = hash_in_memory(name);
  REQUIRE(expected_now != expected);
  CHECK(hash_of_lines(LineFile(name)) == expected_now);
  auto all = indexes();
  REQUIRE(all.size() == 2);
  const fs::path renewed = all[0] == index ? all[1] : all[0];
  fs::copy_file(index, renewed, fs::copy_options::overwrite_existing);
  CHECK(hash_of_lines(LineFile(name)) == expected_now);
  CHECK((contents(renewed) != good));
}

TEST_CASE("of processes that open a file at once, one makes the index") {
  const Scratch scratch;
  const Variable cache("TOLLER_CACHE", "cache");
  const std::string name = Scratch::write("t.txt", large_text());
  const std::uint64_t expected = hash_in_memory(name);
  (void)LineFile(name);  // to know the index's name
  const fs::path index = indexes().at(0);
  fs::remove(index);
  const int watch = ::inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  REQUIRE(::inotify_add_watch(watch, "cache", IN_CREATE | IN_MOVED_TO) >= 0);

  std::vector<pid_t> children;
  {
    const toller::detail::IndexLock held(index.string() + ".lock");  // so that all of them come to it
    REQUIRE(static_cast<bool>(held));
    for (int i = 0; i < 4; ++i) children.push_back(start([&] { return hash_of_lines(LineFile(name)) == expected ? 0 : 1; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    CHECK(!fs::exists(index));
  }
  for (const pid_t child : children) CHECK(status_of(child) == 0);
  alignas(inotify_event) std::array<char, 4096> events{};
  std::vector<std::uint32_t> seen;  // a part file that comes between keeps equal events from being merged
  const ssize_t size = ::read(watch, events.data(), events.size());
  for (ssize_t at = 0; at < size;) {
    const auto& event = *reinterpret_cast<const inotify_event*>(events.data() + at);
    seen.push_back(event.mask);
    at += static_cast<ssize_t>(sizeof event + event.len);
  }
  CHECK(seen == std::vector<std::uint32_t>{IN_CREATE, IN_MOVED_TO});
  ::close(watch);

  fs::remove(index);
  std::vector<std::thread> threads;
  std::array<std::uint64_t, 4> hashes{};
  for (std::uint64_t& hash : hashes) threads.emplace_back([&name, &hash] { hash = hash_of_lines(LineFile(name)); });
  for (std::thread& thread : threads) thread.join();
  for (const std::uint64_t hash : hashes) CHECK(hash == expected);
  CHECK(indexes().size() == 1);
}

TEST_CASE("a maker that was killed holds nobody up") {
  const Scratch scratch;
  const Variable cache("TOLLER_CACHE", "cache");
  const std::string name = Scratch::write("t.txt", large_text());
  (void)LineFile(name);
  const fs::path index = indexes().at(0);
  const std::string good = contents(index);
  fs::remove(index);
  const pid_t killed = start([&] {
    const toller::detail::IndexLock held(index.string() + ".lock");
    std::ofstream(index.string() + ".part") << "half";
    return ::raise(SIGKILL);
  });
  CHECK(WIFSIGNALED(status_of(killed)));
  REQUIRE(fs::exists(index.string() + ".part"));
  (void)LineFile(name);
  CHECK((contents(index) == good));
  CHECK(indexes().size() == 1);  // no part is left
}

TEST_CASE("where no index can be written it is kept in memory") {
  const Scratch scratch;
  const std::string name = Scratch::write("t.txt", large_text());
  const std::uint64_t expected = hash_in_memory(name);
  SECTION("no place for the folder") {
    const Variable cache("TOLLER_CACHE", name + "/below");
    CHECK(hash_of_lines(LineFile(name)) == expected);
  }
  SECTION("something else has the index's name") {
    const Variable cache("TOLLER_CACHE", "cache");
    (void)LineFile(name);
    const fs::path index = indexes().at(0);
    fs::remove(index);
    fs::create_directories(index / "full");
    CHECK(hash_of_lines(LineFile(name)) == expected);
    CHECK(indexes() == std::vector<fs::path>{index});
  }
  SECTION("no room for it") {
    const Variable cache("TOLLER_CACHE", "cache");
    CHECK(status_of(start([&] {
            const rlimit limit{64 << 10, 64 << 10};
            ::signal(SIGXFSZ, SIG_IGN);
            ::setrlimit(RLIMIT_FSIZE, &limit);
            return hash_of_lines(LineFile(name)) == expected ? 0 : 1;
          })) == 0);
    CHECK(indexes().empty());
    CHECK(fs::exists("cache"));
  }
}

TEST_CASE("the cache folder is the first one that the environment names") {
  const Scratch scratch;
  const Variable ours("TOLLER_CACHE", "/a"), users("XDG_CACHE_HOME", "/b"), home("HOME", "/c");
  const Variable temporary("TMPDIR", fs::current_path().string());
  CHECK(toller::detail::cache_folder() == "/a/");
  const Variable without_ours("TOLLER_CACHE", std::nullopt);
  CHECK(toller::detail::cache_folder() == "/b/toller");
  const Variable empty_users("XDG_CACHE_HOME", "");
  CHECK(toller::detail::cache_folder() == "/c/.cache/toller");
  const Variable without_home("HOME", std::nullopt);
  const fs::path folder = fs::current_path() / ("toller-" + std::to_string(::geteuid()));
  CHECK(toller::detail::cache_folder() == folder);
  CHECK(fs::status(folder).permissions() == fs::perms::owner_all);
  fs::remove(folder);
  fs::create_symlink("/tmp", folder);  // another's doing
  CHECK(toller::detail::cache_folder().empty());
}
