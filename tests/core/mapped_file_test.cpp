// SPDX-License-Identifier: Apache-2.0
#include "toller/core/mapped_file.hpp"

#include <sys/stat.h>

#include <utility>

#include "support/temporary_folder.hpp"

using namespace toller;

TEST_CASE("a mapped file is the file's bytes, and writing to them leaves the file alone") {
  const TemporaryFolder folder;
  const auto path = folder.write("a.txt", "hello");
  MappedFile file(path);
  REQUIRE(file.bytes() == "hello");
  REQUIRE(file.path() == path);
  file.data()[0] = 'j';
  REQUIRE(file.bytes() == "jello");
  REQUIRE(file_bytes(path) == "hello");
  file.forget();
  REQUIRE(file.bytes() == "hello");

  MappedFile moved = std::move(file);
  REQUIRE(moved.bytes() == "hello");
  moved = MappedFile(folder.write("empty.txt", ""));
  REQUIRE(moved.bytes().empty());
  moved.forget();
}

TEST_CASE("what cannot be mapped is a FileError that names it and says why") {
  const TemporaryFolder folder;
  const auto complaint = [](const std::filesystem::path& path) -> std::string {
    try {
      MappedFile{path};
    } catch (const FileError& error) {
      return error.what();
    }
    return "";
  };
  const std::string root = folder.path().string();
  CHECK(complaint(folder.path() / "none") == "[R401] " + root + "/none: no such file");
  CHECK(complaint(folder.path()) == "[R401] " + root + ": expected a file, found a folder");
  CHECK(complaint("/dev/null") == "[R401] /dev/null: expected a file on disk, found a pipe or device");
  REQUIRE(::mkfifo((folder.path() / "pipe").c_str(), 0600) == 0);  // nobody writes: opening it must not wait
  CHECK(complaint(folder.path() / "pipe") == "[R401] " + root + "/pipe: expected a file on disk, found a pipe or device");
  const auto file = folder.write("file", "x");
  CHECK(complaint(file / "below") == "[R401] " + root + "/file/below: Not a directory");
}
