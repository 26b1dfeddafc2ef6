// SPDX-License-Identifier: Apache-2.0
// T0. An index of the lines of a mapped file.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "toller/core/error.hpp"
#include "toller/core/mapped_file.hpp"

namespace toller {

/// The lines of a text file that are not blank, without their ends (LF or CRLF) and without a byte order mark.
///
/// Errors   FileError R401: those of `MappedFile`. DataError R202: no line but blank ones.
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
