// SPDX-License-Identifier: Apache-2.0
// T0. A file that is whole or is not there: written beside its place, flushed to disk, then renamed.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "toller/core/error.hpp"

namespace toller {

namespace detail {

/// `.<name>.<kind>-<pid>` beside the target: hidden, of the same file system, and its owner can be told.
[[nodiscard]] inline std::filesystem::path beside(const std::filesystem::path& target, std::string_view kind) {
  return target.parent_path() / cat('.', target.filename().string(), '.', kind, '-', ::getpid());
}

/// Removes what processes that have ended (or this one) left half-written beside `target`.
inline void remove_leftovers(const std::filesystem::path& target, std::string_view kind) {
  const std::string prefix = cat('.', target.filename().string(), '.', kind, '-');
  std::error_code ignored;
  for (std::filesystem::directory_iterator entry(target.parent_path(), ignored), end; !ignored && entry != end;
       entry.increment(ignored)) {
    const std::string name = entry->path().filename().string();
    if (name.compare(0, prefix.size(), prefix) != 0) continue;
    const char* const last = name.data() + name.size();
    pid_t owner = 0;
    const auto [stopped, error] = std::from_chars(name.data() + prefix.size(), last, owner);
    if (error != std::errc{} || stopped != last || owner <= 0) continue;
    if (owner == ::getpid() || (::kill(owner, 0) != 0 && errno == ESRCH)) {
      std::error_code failed;
      std::filesystem::remove_all(entry->path(), failed);
    }
  }
}

[[noreturn]] inline void fail_to_write(const std::filesystem::path& target, std::string_view why) {
  throw FileError("R420", cat("cannot write ", target.string(), ": ", why));
}

/// The target as an absolute path without links, `..` or a trailing slash; its parent folders are made.
[[nodiscard]] inline std::filesystem::path prepared_target(const std::filesystem::path& target) {
  std::error_code error;
  // absolute first: a relative path whose first part does not exist would stay relative
  auto real = std::filesystem::weakly_canonical(std::filesystem::absolute(target), error);
  if (error) fail_to_write(target, error.message());
  if (!real.has_filename()) real = real.parent_path();
  if (!real.has_filename()) fail_to_write(target, "is not the name of a file or folder");
  std::filesystem::create_directories(real.parent_path(), error);
  if (error) fail_to_write(target, error.message());
  return real;
}

/// Flushes a file or folder to disk. Gives 0 or the error number.
inline int flush_to_disk(const std::filesystem::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return errno;
  const int error = ::fsync(file) == 0 || errno == EINVAL ? 0 : errno;
  ::close(file);
  return error;
}

}  // namespace detail

/// A file in the making. `commit()` puts it in its place; without it, nothing of it remains.
///
/// One writer at a time for each place. Leftovers of a process that was killed are removed by the next writer of that place.
/// Errors   FileError R420: the folder is not writable, the disk is full, or a folder or device is in the place.
class AtomicFile {
public:
  explicit AtomicFile(const std::filesystem::path& target)
      : target_(detail::prepared_target(target)), part_(detail::beside(target_, "part")) {
    std::error_code ignored;
    const auto status = std::filesystem::status(target_, ignored);
    if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
      detail::fail_to_write(target_, std::filesystem::is_directory(status) ? "is a folder" : "is not a regular file");
    detail::remove_leftovers(target_, "part");
    file_ = ::open(part_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file_ < 0) detail::fail_to_write(target_, std::strerror(errno));
  }
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile() { discard(); }

  void write(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(file_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) fail(written < 0 ? errno : ENOSPC);
      bytes.remove_prefix(static_cast<std::size_t>(written));
    }
  }

  void commit() {
    if (::fsync(file_) != 0 && errno != EINVAL) fail(errno);
    if (::close(std::exchange(file_, -1)) != 0) fail(errno);
    if (::rename(part_.c_str(), target_.c_str()) != 0) fail(errno);
    part_.clear();
    detail::flush_to_disk(target_.parent_path());
  }

private:
  [[noreturn]] void fail(int error) {
    discard();
    detail::fail_to_write(target_, std::strerror(error));
  }
  void discard() noexcept {
    if (file_ >= 0) ::close(std::exchange(file_, -1));
    if (!part_.empty()) ::unlink(part_.c_str());
    part_.clear();
  }

  std::filesystem::path target_;
  std::filesystem::path part_;
  int file_ = -1;
};

/// Writes a whole file atomically. Errors as `AtomicFile`.
inline void write_file_atomically(const std::filesystem::path& path, std::string_view bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

}  // namespace toller
