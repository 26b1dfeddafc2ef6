// SPDX-License-Identifier: Apache-2.0
// T0. The lines of a mapped file, by number.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "toller/core/error.hpp"
#include "toller/core/mapped_file.hpp"
#include "toller/text/line_index.hpp"

namespace toller {

/// The lines of a text file that are not blank, without their ends (LF or CRLF) and without a byte order mark.
///
/// Errors   FileError R401: those of `MappedFile`. DataError R202: no line but blank ones.
/// Cost     that of `LineIndex`: 8 bytes a line, once a node for a large file.
class LineFile {
public:
  explicit LineFile(std::filesystem::path path);

  [[nodiscard]] std::int64_t size() const noexcept { return starts_.size(); }
  [[nodiscard]] std::string_view line(std::int64_t i) const;
  /// `train.jsonl:17`, with the number that an editor shows (blank lines count). Cost: a pass over the file.
  [[nodiscard]] std::string place(std::int64_t i) const;
  [[nodiscard]] std::string path() const { return file_.path().string(); }

private:
  detail::FileStamp stamp_;  // taken before the file is mapped
  MappedFile file_;
  LineIndex starts_;
};

inline LineFile::LineFile(std::filesystem::path path)
    : stamp_(detail::stamp_of(path)), file_(std::move(path)), starts_(file_, stamp_) {
  if (size() == 0) throw DataError("R202", this->path() + ": the file has no rows");
}

inline std::string_view LineFile::line(std::int64_t i) const {
  const std::string_view bytes = file_.bytes();
  const std::size_t start = starts_[i];
  std::string_view line = bytes.substr(start, std::min(bytes.find('\n', start), bytes.size()) - start);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

inline std::string LineFile::place(std::int64_t i) const {
  const std::string_view before = file_.bytes().substr(0, starts_[i]);
  return detail::cat(path(), ":", 1 + std::count(before.begin(), before.end(), '\n'));
}

}  // namespace toller
