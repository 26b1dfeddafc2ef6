// SPDX-License-Identifier: Apache-2.0
// T0. Tab-separated files as datasets.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "toller/text/line_dataset.hpp"

namespace toller {

namespace detail {
class TsvFormat;
}  // namespace detail

/// The rows of a tab-separated file as records of one type.
template <class Record>
using TsvDataset = LineDataset<Record, detail::TsvFormat>;

/// How the columns are known: `header`, the first line names them; else `columns` names them by position ("" for one that
/// no field takes). `fields` says which name feeds which field of the record, where it is not one of the usual ones.
struct TsvOptions {
  bool header = true;
  std::vector<std::string> columns{};
  ReadOptions fields{};
};

/// Opens a file with tab-separated texts on each line; there is no quoting, so a text holds neither tab nor line end.
/// Records without lists can be read: `Text`, `LabelledText`, `Pair`, `Triplet` (columns `negative_1`, ...; empty ones
/// are no negatives), `LabelledPair`.
///
///   auto pairs = toller::read_tsv<toller::Pair>("train.tsv", {.header = false, .columns = {"", "query", "positive"}});
///
/// Errors   FileError R401: no such file. DataError R202: no rows; R204: no such column; R205: not a number; R206: invalid
///          UTF-8; R208: a row with more or fewer columns than the header or `columns`. ConfigError R209: neither header
///          nor columns, or both.
template <class Record>
[[nodiscard]] TsvDataset<Record> read_tsv(const std::filesystem::path& path, TsvOptions options = {});

namespace detail {

[[nodiscard]] inline std::vector<std::string_view> split_tabs(std::string_view line) {
  std::vector<std::string_view> cells;
  for (;;) {
    const std::size_t tab = line.find('\t');
    cells.push_back(line.substr(0, tab));
    if (tab == std::string_view::npos) return cells;
    line.remove_prefix(tab + 1);
  }
}

/// One line's cells: what `read_fields` asks.
class TsvRow : public RowPlace {
public:
  using Names = std::initializer_list<std::string_view>;

  TsvRow(const std::vector<std::string>& columns, const std::vector<std::string_view>& cells, const RowPlace& place)
      : RowPlace(place), columns_(columns), cells_(cells) {}

  [[nodiscard]] std::string text(std::string_view given, Names usual) const { return std::string(require(given, usual).value); }
  [[nodiscard]] std::string optional_text(std::string_view given, Names usual) const {
    return std::string(given.empty() ? find(given, usual).value_or(Found{}).value : require(given, usual).value);
  }
  [[nodiscard]] std::int64_t integer(std::string_view given, Names usual) const {
    return parse<std::int64_t>(require(given, usual), "a whole number");
  }
  [[nodiscard]] double number(std::string_view given, Names usual) const {
    return parse<double>(require(given, usual), "a number");
  }
  [[nodiscard]] std::vector<std::string> texts_or_columns(std::string_view given, Names usual) const;

private:
  struct Found {
    std::string_view name{};
    std::string_view value{};
  };

  [[nodiscard]] std::optional<Found> find(std::string_view given, Names usual) const {
    if (!given.empty()) return find(given);
    for (const std::string_view name : usual)
      if (const auto found = find(name)) return found;
    return std::nullopt;
  }
  [[nodiscard]] std::optional<Found> find(std::string_view name) const {
    const auto at = std::find(columns_.begin(), columns_.end(), name);
    if (at == columns_.end()) return std::nullopt;
    return Found{name, cells_[static_cast<std::size_t>(at - columns_.begin())]};
  }
  [[nodiscard]] Found require(std::string_view given, Names usual) const {
    const std::optional<Found> found = find(given, usual);
    if (!found) fail_missing(given, usual, columns());
    return *found;
  }
  template <class T>
  [[nodiscard]] T parse(const Found& found, std::string_view what) const {
    T value{};
    const char* end = found.value.data() + found.value.size();
    const auto [stop, error] = std::from_chars(found.value.data(), end, value);
    if (error != std::errc{} || stop != end || !std::isfinite(static_cast<double>(value)))
      fail_type(found.name, what, cat('"', found.value, '"'));
    return value;
  }
  [[nodiscard]] std::string columns() const {
    std::string names;
    for (const std::string& name : columns_) names += (names.empty() ? "\"" : ", \"") + name + "\"";
    return names;
  }

  const std::vector<std::string>& columns_;
  const std::vector<std::string_view>& cells_;
};

class TsvFormat {
public:
  TsvFormat(const LineFile& lines, TsvOptions options) : options_(std::move(options)) {
    if (options_.header == !options_.columns.empty())
      throw ConfigError("R209", lines.path() + ": expected either a header or a list of columns");
    if (!options_.header) return;
    expect_utf8(lines.line(0), RowPlace(lines, 0));
    for (const std::string_view name : split_tabs(lines.line(0))) options_.columns.emplace_back(name);
  }
  [[nodiscard]] std::int64_t header_lines() const { return options_.header ? 1 : 0; }

  template <class Record>
  void read(Record& record, std::string_view line, const RowPlace& place) const {
    const std::vector<std::string_view> cells = split_tabs(line);
    if (cells.size() != options_.columns.size())
      place.fail("R208", cat("expected ", options_.columns.size(), " columns, found ", cells.size()));
    read_fields(record, TsvRow(options_.columns, cells, place), options_.fields);
  }

private:
  TsvOptions options_;
};

inline std::vector<std::string> TsvRow::texts_or_columns(std::string_view given, Names usual) const {
  std::vector<std::string> texts;
  bool known = given.empty();
  const auto take = [&](const std::optional<Found>& found) {
    if (found && !found->value.empty()) texts.emplace_back(found->value);
    known = known || found;
    return found.has_value();
  };
  if (take(find(given, usual))) return texts;
  take_columns(given, usual, [&](const std::string& name) { return take(find(name)); });
  if (!known) fail_missing(given, usual, columns());
  return texts;
}

}  // namespace detail

template <class Record>
TsvDataset<Record> read_tsv(const std::filesystem::path& path, TsvOptions options) {
  auto lines = std::make_shared<const LineFile>(path);
  detail::TsvFormat format(*lines, std::move(options));
  return {std::move(lines), std::move(format)};
}

}  // namespace toller
