// SPDX-License-Identifier: Apache-2.0
// T0. Where the lines of a file begin: found once a node for a large file, and shared by its processes.
#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <ios>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "toller/core/error.hpp"
#include "toller/core/mapped_file.hpp"
#include "toller/core/seed.hpp"

namespace toller {

namespace detail {

/// What tells a file from others, and from itself before it was changed; all zero where there is none.
struct FileStamp {
  std::uint64_t path = 0;  // hash of the real path
  std::uint64_t size = 0, inode = 0;
  std::uint64_t changed = 0;  // nanoseconds
  friend bool operator==(const FileStamp&, const FileStamp&) = default;
};

[[nodiscard]] inline FileStamp stamp_of(const std::filesystem::path& path) {
  std::error_code error;
  const auto real = std::filesystem::canonical(path, error);
  struct stat status = {};
  if (error || ::stat(real.c_str(), &status) != 0) return {};
  return {
      hash_text(real.native()), static_cast<std::uint64_t>(status.st_size), static_cast<std::uint64_t>(status.st_ino),
      static_cast<std::uint64_t>(status.st_mtim.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(status.st_mtim.tv_nsec)};
}

/// The user's folder for what can be made again; empty where there is none to trust.
[[nodiscard]] inline std::filesystem::path cache_folder() {
  using Place = std::pair<const char*, const char*>;
  for (const auto& [name, below] :
       std::array{Place{"TOLLER_CACHE", ""}, Place{"XDG_CACHE_HOME", "toller"}, Place{"HOME", ".cache/toller"}})
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0') return std::filesystem::path(value) / below;
  std::error_code ignored;
  const auto folder = std::filesystem::temp_directory_path(ignored) / cat("toller-", ::geteuid());
  struct stat status = {};  // everyone may write there: a folder that another user made is not ours
  ::mkdir(folder.c_str(), 0700);
  const bool ours = ::lstat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == ::geteuid();
  return ours ? folder : std::filesystem::path();
}

/// Begins an index file; the starts follow. Equal only if the file is this version's, of this data file and undamaged.
struct IndexHeader {
  std::uint64_t magic = 0x31'58'44'49'45'4e'49'4cULL;  // "LINEIDX1"; the last character is the version
  FileStamp file{};
  std::uint64_t lines = 0, checksum = 0;
  IndexHeader() = default;
  IndexHeader(const FileStamp& stamp, std::span<const std::uint64_t> starts) : file(stamp), lines(starts.size()) {
    for (const std::uint64_t start : starts) checksum = (checksum ^ start) * 0x9e3779b97f4a7c15ULL, checksum ^= checksum >> 32;
  }
  friend bool operator==(const IndexHeader&, const IndexHeader&) = default;
};

/// An exclusive lock, waited for; it is free again when the process ends in any way. False where there can be none.
class IndexLock {
public:
  explicit IndexLock(const std::filesystem::path& path) : file_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
    while (file_ >= 0 && ::flock(file_, LOCK_EX) != 0)
      if (errno != EINTR) ::close(std::exchange(file_, -1));
  }
  IndexLock(const IndexLock&) = delete;
  IndexLock& operator=(const IndexLock&) = delete;
  ~IndexLock() {
    if (file_ >= 0) ::flock(file_, LOCK_UN), ::close(file_);
  }
  explicit operator bool() const noexcept { return file_ >= 0; }

private:
  int file_;
};

/// Not flushed to disk: after a power cut the checksum tells.
inline bool write_index(const std::filesystem::path& path, const IndexHeader& header, std::span<const std::uint64_t> starts) {
  const std::filesystem::path part = path.string() + ".part";
  std::error_code error;
  std::filesystem::remove(part, error);  // a killed maker's; removed, not cut: where locks fail, another writes it
  std::ofstream out(part, std::ios::binary);
  out.write(reinterpret_cast<const char*>(&header), sizeof header);
  out.write(reinterpret_cast<const char*>(starts.data()), static_cast<std::streamsize>(starts.size_bytes()));
  out.close();
  if (out) std::filesystem::rename(part, path, error);
  const bool written = out && !error;
  if (!written) std::filesystem::remove(part, error);
  return written;
}

/// The starts of the lines that are not blank.
[[nodiscard]] inline std::vector<std::uint64_t> find_lines(const MappedFile& file) {
  const std::string_view bytes = file.bytes(), byte_order_mark = "\xEF\xBB\xBF";
  constexpr std::size_t pages_held = 64 << 20;  // bytes
  std::vector<std::uint64_t> starts;
  std::size_t start = bytes.starts_with(byte_order_mark) ? byte_order_mark.size() : 0;
  for (std::size_t forgotten = 0; start < bytes.size();) {
    if (start - forgotten > pages_held) file.forget(), forgotten = start;
    const std::size_t end = std::min(bytes.find('\n', start), bytes.size());
    if (bytes.substr(start, end - start).find_first_not_of(" \t\r") != std::string_view::npos) starts.push_back(start);
    start = end + 1;
  }
  file.forget();
  starts.shrink_to_fit();
  return starts;
}

}  // namespace detail

/// Where the lines of a file that are not blank begin.
///
/// A file of 16 MiB or more has its index in the cache folder, made by the first process that comes; the others wait for it
/// and map it. An index that is not whole or not of this very file is made again. Where none can be written, it is in memory.
/// Cost     8 bytes a line: of the process for a small file, of the node for a large one. One pass over the file to make it.
class LineIndex {
public:
  /// `stamp` was taken before the file was mapped, so that a file put in its place meanwhile is noticed.
  LineIndex(const MappedFile& file, const detail::FileStamp& stamp) {
    const auto same = [&] { return stamp.size == file.bytes().size() && detail::stamp_of(file.path()) == stamp; };
    std::filesystem::path index;
    if (constexpr std::size_t smallest_shared = 16 << 20; stamp.size >= smallest_shared && same())
      index = detail::cache_folder();
    std::optional<detail::IndexLock> lock;
    if (!index.empty()) {
      index /= detail::cat(std::hex, mix_seed(stamp.path, stamp.size, stamp.changed, stamp.inode), ".lines");
      std::error_code ignored;
      std::filesystem::create_directories(index.parent_path(), ignored);
      if (map(index, stamp)) return;
      lock.emplace(index.string() + ".lock");
      if (*lock && map(index, stamp)) return;
    }
    starts_ = made_ = detail::find_lines(file);
    if (lock && *lock && same() && detail::write_index(index, {stamp, made_}, made_) && map(index, stamp))
      std::vector<std::uint64_t>().swap(made_);
  }

  [[nodiscard]] std::int64_t size() const noexcept { return std::ssize(starts_); }
  [[nodiscard]] std::size_t operator[](std::int64_t i) const { return starts_[static_cast<std::size_t>(i)]; }

private:
  bool map(const std::filesystem::path& index, const detail::FileStamp& stamp) try {
    MappedFile file(index);
    detail::IndexHeader header;
    const std::string_view bytes = file.bytes();
    if (bytes.size() < sizeof header || bytes.size() % sizeof(std::uint64_t) != 0) return false;
    std::memcpy(&header, bytes.data(), sizeof header);
    const std::span starts(reinterpret_cast<const std::uint64_t*>(bytes.data() + sizeof header),
                           (bytes.size() - sizeof header) / sizeof(std::uint64_t));
    if (header != detail::IndexHeader(stamp, starts)) return false;
    starts_ = starts, shared_ = std::move(file);
    return true;
  } catch (const FileError&) {
    return false;
  }

  std::vector<std::uint64_t> made_{};
  std::optional<MappedFile> shared_{};
  std::span<const std::uint64_t> starts_{};
};

}  // namespace toller
