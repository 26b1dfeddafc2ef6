// SPDX-License-Identifier: Apache-2.0
// T0. A file with a record on each line, read a row at a time.
#pragma once

#include <utf8proc.h>

#include <algorithm>
#include <compare>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <range/v3/range_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "toller/core/error.hpp"
#include "toller/text/line_file.hpp"
#include "toller/text/record_fields.hpp"

namespace toller {

/// The place of a row in its file, and the errors that name it.
///
/// Errors   DataError R204: `train.jsonl:17: field "query" is missing; the row has "id", "text"`; R205: a field of
///          another type; R207: lists that differ in length.
class RowPlace {
public:
  RowPlace(const LineFile& lines, std::int64_t row) : lines_(&lines), row_(row) {}
  [[noreturn]] void fail(std::string_view code, std::string_view message) const {
    throw DataError(code, lines_->place(row_) + ": " + std::string(message));
  }
  [[noreturn]] void fail_type(std::string_view field, std::string_view expected, std::string_view found) const {
    fail("R205", detail::cat("field \"", field, "\": expected ", expected, ", found ", found));
  }
  [[noreturn]] void fail_missing(std::string_view given, std::initializer_list<std::string_view> usual,
                                 const std::string& columns) const;
  void expect_equal(std::string_view a, std::size_t size_a, std::string_view b, std::size_t size_b) const {
    if (size_a != size_b) fail("R207", detail::cat(size_a, " ", a, ", but ", size_b, " ", b));
  }

private:
  const LineFile* lines_;
  std::int64_t row_;
};

namespace detail {

/// Goes through anything with `operator[]` that gives values.
template <class D>
class IndexIterator {
public:
  using iterator_concept = std::random_access_iterator_tag;
  using iterator_category = std::input_iterator_tag;  // gives values, not references
  using difference_type = std::ptrdiff_t;
  using value_type = std::remove_cvref_t<decltype(std::declval<const D&>()[0])>;
  using reference = value_type;
  using pointer = void;

  IndexIterator() = default;
  IndexIterator(const D& data, std::ptrdiff_t at) : data_(&data), at_(at) {}

  reference operator*() const { return (*data_)[static_cast<std::size_t>(at_)]; }
  reference operator[](std::ptrdiff_t n) const { return *(*this + n); }
  IndexIterator& operator+=(std::ptrdiff_t n) { return at_ += n, *this; }
  IndexIterator& operator-=(std::ptrdiff_t n) { return at_ -= n, *this; }
  IndexIterator& operator++() { return *this += 1; }
  IndexIterator& operator--() { return *this -= 1; }
  IndexIterator operator++(int) { return std::exchange(*this, *this + 1); }
  IndexIterator operator--(int) { return std::exchange(*this, *this - 1); }
  friend IndexIterator operator+(IndexIterator it, std::ptrdiff_t n) { return it += n; }
  friend IndexIterator operator+(std::ptrdiff_t n, IndexIterator it) { return it += n; }
  friend IndexIterator operator-(IndexIterator it, std::ptrdiff_t n) { return it -= n; }
  friend std::ptrdiff_t operator-(const IndexIterator& a, const IndexIterator& b) { return a.at_ - b.at_; }
  friend bool operator==(const IndexIterator& a, const IndexIterator& b) { return a.at_ == b.at_; }
  friend auto operator<=>(const IndexIterator& a, const IndexIterator& b) { return a.at_ <=> b.at_; }

private:
  const D* data_ = nullptr;
  std::ptrdiff_t at_ = 0;
};

/// Calls `take` with `NAME_1`, `NAME_2`, ... of the given name, else of each usual one, until it finds no such column.
template <class Take>
void take_columns(std::string_view given, std::initializer_list<std::string_view> usual, const Take& take) {
  const auto take_all = [&](std::string_view name) {
    for (int i = 1; take(cat(name, "_", i)); ++i) {
    }
  };
  if (!given.empty())
    take_all(given);
  else
    std::for_each(usual.begin(), usual.end(), take_all);
}

inline void expect_utf8(std::string_view line, const RowPlace& place) {
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(line.data());
  for (std::size_t i = 0; i < line.size();) {
    utf8proc_int32_t codepoint = 0;
    const utf8proc_ssize_t length =
        bytes[i] < 0x80 ? 1 : utf8proc_iterate(bytes + i, static_cast<utf8proc_ssize_t>(line.size() - i), &codepoint);
    if (length < 1) place.fail("R206", cat("invalid UTF-8 at byte ", i + 1, " of the line"));
    i += static_cast<std::size_t>(length);
  }
}

}  // namespace detail

/// A sized random-access range of records that are read from the file when asked for: rows never stay in memory.
///
/// Copies share the mapping and are safe to read from several threads. It is a range-v3 view: transform and concat
/// compose with it. The file must not be shortened while it is open.
///
/// Errors   DataError R210: no such row; R202-R208: what is wrong with the row, with `file:line`. The first row is read
///          when the file is opened.
/// Cost     8 bytes a row, once a node for a large file (`LineIndex`).
template <class Record, class Format>
class LineDataset : public ranges::view_base {
public:
  using value_type = Record;
  using iterator = detail::IndexIterator<LineDataset>;

  LineDataset() = default;
  LineDataset(std::shared_ptr<const LineFile> lines, Format format)
      : lines_(std::move(lines)), format_(std::make_shared<const Format>(std::move(format))) {
    if (size() == 0) throw DataError("R202", lines_->path() + ": the file has no rows");
    (void)(*this)[0];
  }

  [[nodiscard]] std::size_t size() const {
    return lines_ ? static_cast<std::size_t>(lines_->size() - format_->header_lines()) : 0;
  }
  [[nodiscard]] Record operator[](std::size_t row) const {
    if (row >= size())
      throw DataError("R210", detail::cat(lines_ ? lines_->path() : "dataset", ": no row ", row, " of ", size(), " rows"));
    const std::int64_t line = static_cast<std::int64_t>(row) + format_->header_lines();
    const RowPlace place(*lines_, line);
    const std::string_view text = lines_->line(line);
    detail::expect_utf8(text, place);
    Record record;
    format_->read(record, text, place);
    return record;
  }
  [[nodiscard]] iterator begin() const { return {*this, 0}; }
  [[nodiscard]] iterator end() const { return {*this, static_cast<std::ptrdiff_t>(size())}; }

private:
  std::shared_ptr<const LineFile> lines_{};
  std::shared_ptr<const Format> format_{};
};

inline void RowPlace::fail_missing(std::string_view given, std::initializer_list<std::string_view> usual,
                                   const std::string& columns) const {
  std::string also;
  for (const std::string_view name : usual)
    if (given.empty() && name != *usual.begin()) also += (also.empty() ? ", also as \"" : ", \"") + std::string(name) + "\"";
  fail("R204", detail::cat("field \"", given.empty() ? *usual.begin() : given, "\" is missing", also, "; the row has ",
                           columns.empty() ? "no fields" : columns));
}

}  // namespace toller
