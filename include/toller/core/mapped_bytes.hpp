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
/// Errors   FileError R401: missing, not readable, or a folder.
/// Cost     Pages are read at first touch; a file that another process cuts meanwhile ends this one (SIGBUS).
class MappedBytes {
public:
  explicit MappedBytes(std::filesystem::path path) : path_(std::move(path)) {
    const int file = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) fail(std::strerror(errno));
    struct stat status = {};
    const bool regular = ::fstat(file, &status) == 0 && S_ISREG(status.st_mode);
    size_ = regular ? static_cast<std::size_t>(status.st_size) : 0;
    if (size_ > 0) {
      void* mapping = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file, 0);
      data_ = mapping == MAP_FAILED ? nullptr : static_cast<char*>(mapping);
    }
    const int error = errno;
    ::close(file);
    if (!regular) fail(S_ISDIR(status.st_mode) ? "is a folder, not a file" : "is not a regular file");
    if (size_ > 0 && data_ == nullptr) fail(std::strerror(error));
  }
  MappedBytes(MappedBytes&& other) noexcept
      : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  MappedBytes& operator=(MappedBytes&& other) noexcept {
    std::swap(path_, other.path_), std::swap(data_, other.data_), std::swap(size_, other.size_);
    return *this;
  }
  MappedBytes(const MappedBytes&) = delete;
  MappedBytes& operator=(const MappedBytes&) = delete;
  ~MappedBytes() {
    if (data_ != nullptr) ::munmap(data_, size_);
  }

  [[nodiscard]] std::string_view bytes() const noexcept { return {data_ == nullptr ? "" : data_, size_}; }
  [[nodiscard]] char* data() const noexcept { return data_; }
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

private:
  [[noreturn]] void fail(std::string_view why) const { throw FileError("R401", detail::cat(path_.string(), ": ", why)); }

  std::filesystem::path path_;
  char* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace toller
