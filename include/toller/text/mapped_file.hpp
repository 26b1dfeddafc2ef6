// SPDX-License-Identifier: Apache-2.0
// T0. A file mapped into memory, and an index of its lines.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "toller/core/error.hpp"

namespace toller {

/// A file's bytes, read only; the system loads the pages that are looked at.
///
/// Errors   DataError R201: no such file, a folder, or not readable.
class MappedFile {
public:
  explicit MappedFile(std::filesystem::path path);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile() {
    if (size_ > 0) ::munmap(data_, size_);
  }

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  [[nodiscard]] std::string_view bytes() const noexcept { return {static_cast<const char*>(data_), size_}; }
  /// Gives the pages looked at so far back to the system; they are read again when looked at again.
  void forget() const noexcept {
    if (size_ > 0) ::madvise(data_, size_, MADV_DONTNEED);
  }

private:
  std::filesystem::path path_;
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

/// The lines of a text file that are not blank, without their ends (LF or CRLF) and without a byte order mark.
///
/// Errors   those of MappedFile; DataError R202: no line but blank ones.
/// Cost     8 bytes a line, built in one pass over the file.
class LineFile {
public:
  explicit LineFile(std::filesystem::path path);

  [[nodiscard]] std::int64_t size() const noexcept { return std::ssize(starts_); }
  [[nodiscard]] std::string_view line(std::int64_t i) const;
  /// `train.jsonl:17`, with the number that an editor shows (blank lines count). Cost: a pass over the file.
  [[nodiscard]] std::string place(std::int64_t i) const;
  [[nodiscard]] std::string path() const { return file_.path().string(); }

private:
  static constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
  MappedFile file_;
  std::vector<std::uint64_t> starts_{};
};

inline MappedFile::MappedFile(std::filesystem::path path) : path_(std::move(path)) {
  const auto fail = [&](std::string_view reason) { throw DataError("R201", path_.string() + ": " + std::string(reason)); };
  const int file = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) fail(errno == ENOENT ? "no such file" : std::strerror(errno));
  struct stat status {};
  const bool known = ::fstat(file, &status) == 0;
  int error = errno;
  if (known && S_ISREG(status.st_mode) && status.st_size > 0) {
    data_ = ::mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ, MAP_PRIVATE, file, 0);
    error = errno;
    if (data_ != MAP_FAILED) size_ = static_cast<std::size_t>(status.st_size);
  }
  ::close(file);
  if (known && S_ISDIR(status.st_mode)) fail("expected a file, found a folder");
  if (known && !S_ISREG(status.st_mode)) fail("expected a file on disk, found a pipe or device");
  if (!known || data_ == MAP_FAILED) fail(std::strerror(error));
}

inline LineFile::LineFile(std::filesystem::path path) : file_(std::move(path)) {
  const std::string_view bytes = file_.bytes();
  constexpr std::size_t pages_held = 64 << 20;  // bytes
  std::size_t start = bytes.starts_with(byte_order_mark) ? byte_order_mark.size() : 0;
  for (std::size_t forgotten = 0; start < bytes.size();) {
    if (start - forgotten > pages_held) file_.forget(), forgotten = start;
    const std::size_t end = std::min(bytes.find('\n', start), bytes.size());
    if (bytes.substr(start, end - start).find_first_not_of(" \t\r") != std::string_view::npos) starts_.push_back(start);
    start = end + 1;
  }
  file_.forget();
  starts_.shrink_to_fit();
  if (starts_.empty()) throw DataError("R202", this->path() + ": the file has no rows");
}

inline std::string_view LineFile::line(std::int64_t i) const {
  const std::string_view bytes = file_.bytes();
  const std::size_t start = starts_[static_cast<std::size_t>(i)];
  std::string_view line = bytes.substr(start, std::min(bytes.find('\n', start), bytes.size()) - start);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

inline std::string LineFile::place(std::int64_t i) const {
  const std::string_view before = file_.bytes().substr(0, starts_[static_cast<std::size_t>(i)]);
  return detail::cat(path(), ":", 1 + std::count(before.begin(), before.end(), '\n'));
}

}  // namespace toller
