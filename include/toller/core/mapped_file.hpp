// SPDX-License-Identifier: Apache-2.0
// T0. A file as bytes in memory, read by the system when they are looked at.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>

#include "toller/core/error.hpp"

namespace toller {

/// A regular file mapped for reading; the bytes live as long as this object. Movable, not copyable.
///
/// The mapping is private: whoever writes through `data()` changes memory, never the file.
/// Errors   FileError R401, naming the path: missing, a folder, not a regular file, or not readable.
/// Cost     Pages are read at first touch; a file that another process cuts meanwhile ends this one (SIGBUS).
class MappedFile {
public:
  explicit MappedFile(std::filesystem::path path) : path_(std::move(path)) {
    const int file = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // so that a pipe does not wait for a writer
    if (file < 0) fail(errno == ENOENT ? "no such file" : std::strerror(errno));
    struct stat status = {};
    const bool known = ::fstat(file, &status) == 0;
    const bool regular = known && S_ISREG(status.st_mode);
    int error = errno;
    if (regular && status.st_size > 0) {
      size_ = static_cast<std::size_t>(status.st_size);
      void* mapping = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file, 0);
      error = errno;
      data_ = mapping == MAP_FAILED ? nullptr : static_cast<char*>(mapping);
    }
    ::close(file);
    if (known && S_ISDIR(status.st_mode)) fail("expected a file, found a folder");
    if (known && !regular) fail("expected a file on disk, found a pipe or device");
    if (!known || (size_ > 0 && data_ == nullptr)) fail(std::strerror(error));
  }
  MappedFile(MappedFile&& other) noexcept
      : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(path_, other.path_), std::swap(data_, other.data_), std::swap(size_, other.size_);
    return *this;
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile() {
    if (data_ != nullptr) ::munmap(data_, size_);
  }

  [[nodiscard]] std::string_view bytes() const noexcept { return {data_ == nullptr ? "" : data_, size_}; }
  [[nodiscard]] char* data() const noexcept { return data_; }
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  /// Gives the pages looked at so far back to the system; they are read again when looked at again, without what was written.
  void forget() const noexcept {
    if (data_ != nullptr) ::madvise(data_, size_, MADV_DONTNEED);
  }

private:
  [[noreturn]] void fail(std::string_view why) const { throw FileError("R401", detail::cat(path_.string(), ": ", why)); }

  std::filesystem::path path_;
  char* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace toller
