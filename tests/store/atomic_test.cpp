// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "support/temporary_folder.hpp"
#include "toller/store/atomic_file.hpp"
#include "toller/store/atomic_folder.hpp"
#include "toller/store/json_file.hpp"
#include "toller/store/write_safetensors.hpp"

using namespace toller;

namespace {

/// While it lives, no file can grow over `bytes`: what a full disk looks like to a program.
class FileSizeLimit {
public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }

private:
  rlimit before_{};
  sighandler_t handler_;
};

std::vector<std::string> listing(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

using Names = std::vector<std::string>;

/// The number of a process that has ended.
pid_t dead_process() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  return child;
}

}  // namespace

TEST_CASE("a file appears whole, in folders that are made for it") {
  const TemporaryFolder folder;
  write_file_atomically(folder.path() / "a/b/x.txt", "one");
  write_file_atomically(folder.path() / "a/b/x.txt", "two");
  REQUIRE(file_bytes(folder.path() / "a/b/x.txt") == "two");
  REQUIRE(listing(folder.path() / "a/b") == Names{"x.txt"});
}

TEST_CASE("a file that is not committed leaves nothing, and the old one stays") {
  const TemporaryFolder folder;
  const auto path = folder.write("x.txt", "old");
  {
    AtomicFile file(path);
    file.write("new");
    REQUIRE(listing(folder.path()).size() == 2);
  }
  REQUIRE(listing(folder.path()) == Names{"x.txt"});
  REQUIRE(file_bytes(path) == "old");
}

TEST_CASE("a full disk gives one line, no temporary file, and the old file stays") {
  const TemporaryFolder folder;
  const auto path = folder.write("x.safetensors", "old");
  {
    const FileSizeLimit limit(4096);
    REQUIRE_THROWS_WITH(write_safetensors(path, {{"w", at::zeros({4096})}}),
                        "[R420] cannot write " + path.string() + ": File too large");
  }
  REQUIRE(file_bytes(path) == "old");
  REQUIRE(listing(folder.path()) == Names{"x.safetensors"});
}

TEST_CASE("places that cannot be written are named") {
  const TemporaryFolder folder;
  const auto file = folder.write("file", "");
  REQUIRE_THROWS_WITH(write_file_atomically(folder.path(), ""),
                      "[R420] cannot write " + folder.path().string() + ": is a folder");
  REQUIRE_THROWS_WITH(write_file_atomically("/dev/full", "x"), "[R420] cannot write /dev/full: is not a regular file");
  REQUIRE_THROWS_WITH(write_file_atomically(file / "x", ""),
                      Catch::Matchers::StartsWith("[R420] cannot write " + (file / "x").string()));
  REQUIRE_THROWS_AS(write_file_atomically("/proc/none/x", ""), FileError);
  REQUIRE_THROWS_WITH(AtomicFolder(file),
                      "[R420] cannot write " + file.string() + ": a file of that name is in the place of the folder");
  if (::geteuid() == 0) return;  // permissions do not bind root
  std::filesystem::create_directory(folder.path() / "closed");
  std::filesystem::permissions(folder.path() / "closed",
                               std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  REQUIRE_THROWS_WITH(write_file_atomically(folder.path() / "closed/x", ""),
                      "[R420] cannot write " + (folder.path() / "closed/x").string() + ": Permission denied");
  std::filesystem::permissions(folder.path() / "closed", std::filesystem::perms::owner_all);
}

TEST_CASE("leftovers of dead processes go with the next save; others stay") {
  const TemporaryFolder folder;
  const std::string dead = std::to_string(dead_process());
  folder.write(".x.part-" + dead, "half");
  folder.write(".x.part-1", "of a process that runs");
  folder.write(".x.part-note", "no number");
  folder.write(".y.part-" + dead, "another file's");
  write_file_atomically(folder.path() / "x", "whole");
  REQUIRE(listing(folder.path()) == Names{".x.part-1", ".x.part-note", ".y.part-" + dead, "x"});
}

TEST_CASE("a folder appears whole; an old one is replaced, and what is not the model's stays") {
  const TemporaryFolder folder;
  const auto target = folder.path() / "model";
  const auto save = [&](const std::string& text, const std::string& extra) {
    AtomicFolder made(target.string() + "/");
    write_file_atomically(made.path() / "config.json", text);
    write_file_atomically(made.path() / extra / "config.json", text);
    made.commit([](const std::string& name) { return name != "notes.txt" && name != "runs"; });
  };
  save("one", "1_Pooling");
  REQUIRE(listing(target) == Names{"1_Pooling", "config.json"});
  folder.write("model/notes.txt", "mine");
  folder.write("model/runs/1", "mine too");
  save("two", "1_Dense");
  REQUIRE(listing(target) == Names{"1_Dense", "config.json", "notes.txt", "runs"});
  REQUIRE(file_bytes(target / "config.json") == "two");
  REQUIRE(file_bytes(target / "runs/1") == "mine too");
  REQUIRE(listing(folder.path()) == Names{"model"});
}

TEST_CASE("a folder that fails half-way leaves the old one") {
  const TemporaryFolder folder;
  folder.write("model/config.json", "old");
  const auto fail_half_way = [&] {
    AtomicFolder made(folder.path() / "model");
    write_file_atomically(made.path() / "config.json", "new");
    const FileSizeLimit limit(16);
    write_file_atomically(made.path() / "weights", std::string(100, 'x'));
    made.commit([](const std::string&) { return true; });
  };
  REQUIRE_THROWS_AS(fail_half_way(), FileError);
  REQUIRE(listing(folder.path()) == Names{"model"});
  REQUIRE(file_bytes(folder.path() / "model/config.json") == "old");
}

TEST_CASE("tensors that the format cannot hold are refused before anything is written") {
  const TemporaryFolder folder;
  const auto path = folder.path() / "x.safetensors";
  const std::string start = "[R422] cannot write " + path.string() + ": tensor \"w\": ";
  REQUIRE_THROWS_WITH(write_safetensors(path, {{"w", at::Tensor()}}), start + "is undefined");
  REQUIRE_THROWS_WITH(write_safetensors(path, {{"w", at::eye(2).to_sparse()}}), start + "has no plain storage");
  REQUIRE_THROWS_WITH(write_safetensors(path, {{"w", at::zeros({1}, at::kComplexHalf)}}),
                      start + "the format has no dtype ComplexHalf");
  REQUIRE_THROWS_WITH(write_safetensors(path, {{"w", at::eye(2)}, {"w", at::eye(2)}}), start + "a name that is taken");
  REQUIRE(listing(folder.path()).empty());
}

TEST_CASE("JSON errors name the file, the place and the key") {
  const TemporaryFolder folder;
  const auto path = folder.write("config.json", "{\n  \"a\": 1,\n  \"b\" 2\n}");
  REQUIRE_THROWS_WITH(read_json_file(path),
                      Catch::Matchers::StartsWith("[R410] " + path.string() + ": not JSON: parse error at line 3, column"));
  const auto nested = [&](std::size_t levels) {
    return read_json_file(folder.write("deep.json", std::string(levels, '[') + std::string(levels, ']')));
  };
  REQUIRE(nested(64).is_array());
  for (const std::size_t levels : {65U, 300'000U})
    REQUIRE_THROWS_WITH(nested(levels),
                        "[R410] " + (folder.path() / "deep.json").string() + ": JSON nested deeper than 64 levels");
  const auto huge = folder.write("huge.json", "{\"a\": 1e999}");
  REQUIRE_THROWS_WITH(read_json_file(huge), "[R410] " + huge.string() + ": key \"a\": number overflow parsing '1e999'");
  const auto json = nlohmann::json::parse(R"({"n": 3, "x": 1.5, "s": "text", "none": null, "list": ["a", 1]})");
  REQUIRE(json_value<std::int64_t>(json, "n", path) == 3);
  REQUIRE(json_value<double>(json, "x", path) == 1.5);
  REQUIRE(json_value<std::string>(json, "s", path) == "text");
  REQUIRE(json_value<bool>(json, "none", path) == std::nullopt);
  REQUIRE(json_value<bool>(json, "absent", path) == std::nullopt);
  REQUIRE_THROWS_WITH(json_value<std::int64_t>(json, "x", path),
                      "[R411] " + path.string() + ": key \"x\": expected a whole number, got 1.5");
  REQUIRE_THROWS_WITH(json_value<bool>(json, "n", path),
                      "[R411] " + path.string() + ": key \"n\": expected true or false, got 3");
  REQUIRE_THROWS_WITH(json_value<std::string>(json, "n", path),
                      "[R411] " + path.string() + ": key \"n\": expected a string, got 3");
  REQUIRE_THROWS_AS(json_value<std::vector<std::string>>(json, "list", path), FileError);
  REQUIRE_THROWS_WITH(json_value<bool>(nlohmann::json::array(), "n", path),
                      "[R411] " + path.string() + ": expected a JSON object, got array");
}

TEST_CASE("a bare new name is a place in the working folder") {
  const TemporaryFolder folder;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  toller::write_file_atomically("new-name", "text");
  REQUIRE(file_bytes("new-name") == "text");
  std::filesystem::current_path(before);
}
