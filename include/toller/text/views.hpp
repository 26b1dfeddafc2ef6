// SPDX-License-Identifier: Apache-2.0
// T0. Datasets, the texts of their records, and what drops rows.
#pragma once

#include <algorithm>
#include <compare>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <range/v3/iterator/access.hpp>
#include <range/v3/range/access.hpp>
#include <range/v3/range/concepts.hpp>
#include <range/v3/range/primitives.hpp>
#include <range/v3/range/traits.hpp>
#include <range/v3/view/all.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "toller/core/error.hpp"
#include "toller/core/seed.hpp"
#include "toller/text/line_dataset.hpp"
#include "toller/text/records.hpp"

namespace toller {

/// The record type of a dataset.
template <class D>
using record_t = std::remove_cvref_t<ranges::range_reference_t<const std::remove_reference_t<D>>>;

/// A sized random-access range of records: an opened file, a vector, or a range-v3 transform or concat of them.
template <class D>
concept Dataset = ranges::random_access_range<const std::remove_reference_t<D>> &&
    ranges::sized_range<const std::remove_reference_t<D>> && std::is_class_v<record_t<D>>;

/// Rows of a dataset. Shapes: as a signed number.
template <Dataset D>
[[nodiscard]] std::int64_t rows_of(const D& dataset) {
  return static_cast<std::int64_t>(ranges::size(dataset));
}

/// Row `i` of a dataset, by value.
template <Dataset D>
[[nodiscard]] record_t<D> row_of(const D& dataset, std::int64_t i) {
  return *(ranges::begin(dataset) + static_cast<ranges::range_difference_t<const D>>(i));
}

/// Visits a record's texts in the order of its fields; ids, labels and scores are not texts.
template <class Record, class Visit>
void for_each_text(const Record& record, Visit&& visit);

/// The 64-bit hash of each of a record's texts, as `NoDuplicates` wants them.
template <class Record>
[[nodiscard]] std::vector<std::uint64_t> text_hashes(const Record& record);

/// Some rows of a dataset, in their order. `row(i)` is the number that row i has there.
///
/// A vector is referred to and must outlive it; opened files and views are shared or copied. Cost: 8 bytes a row.
template <class Base>
class Selection : public ranges::view_base {
public:
  using value_type = record_t<Base>;
  using iterator = detail::IndexIterator<Selection>;

  Selection() = default;
  Selection(Base base, std::vector<std::int64_t> rows)
      : base_(std::move(base)), rows_(std::make_shared<const std::vector<std::int64_t>>(std::move(rows))) {}

  [[nodiscard]] std::size_t size() const { return rows_ ? rows_->size() : 0; }
  [[nodiscard]] std::int64_t row(std::size_t i) const {
    if (i >= size()) throw DataError("R210", detail::cat("selection: no row ", i, " of ", size(), " rows"));
    return (*rows_)[i];
  }
  [[nodiscard]] value_type operator[](std::size_t i) const { return row_of(base_, row(i)); }
  [[nodiscard]] iterator begin() const { return {*this, 0}; }
  [[nodiscard]] iterator end() const { return {*this, static_cast<std::ptrdiff_t>(size())}; }

private:
  Base base_{};
  std::shared_ptr<const std::vector<std::int64_t>> rows_{};
};

/// The rows for which `predicate(record)` holds, evaluated once, now.
template <class D, class Predicate>
requires Dataset<D> && std::predicate < Predicate&, const record_t<D>
& > [[nodiscard]] Selection<ranges::views::all_t<D>> keep_if(D&& dataset, Predicate predicate);

/// The rows whose texts are not all equal to those of an earlier row, evaluated once, now; exact, not by hash alone.
///
/// Cost     one pass, 16 bytes a row while it runs; rows with equal hashes are read again.
template <class D>
requires Dataset<D>
[[nodiscard]] Selection<ranges::views::all_t<D>> distinct(D&& dataset);

template <class Record, class Visit>
void for_each_text(const Record& record, Visit&& visit) {
  if constexpr (requires { record.query; }) visit(std::string_view(record.query));
  if constexpr (requires { record.positive; }) visit(std::string_view(record.positive));
  if constexpr (requires { record.text; }) visit(std::string_view(record.text));
  if constexpr (requires { record.first; }) visit(std::string_view(record.first));
  if constexpr (requires { record.second; }) visit(std::string_view(record.second));
  if constexpr (requires { record.negatives; })
    for (const auto& text : record.negatives) visit(std::string_view(text));
  if constexpr (requires { record.documents; })
    for (const auto& text : record.documents) visit(std::string_view(text));
}

template <class Record>
std::vector<std::uint64_t> text_hashes(const Record& record) {
  std::vector<std::uint64_t> hashes;
  for_each_text(record, [&](std::string_view text) { hashes.push_back(hash_text(text)); });
  return hashes;
}

namespace detail {

template <class Record>
std::vector<std::string> texts_of(const Record& record) {
  std::vector<std::string> texts;
  for_each_text(record, [&](std::string_view text) { texts.emplace_back(text); });
  return texts;
}

}  // namespace detail

template <class D, class Predicate>
requires Dataset<D> && std::predicate < Predicate&, const record_t<D>
& > Selection<ranges::views::all_t<D>> keep_if(D&& dataset, Predicate predicate) {
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < rows_of(dataset); ++i)
    if (std::invoke(predicate, row_of(dataset, i))) rows.push_back(i);
  return {ranges::views::all(std::forward<D>(dataset)), std::move(rows)};
}

template <class D>
requires Dataset<D> Selection<ranges::views::all_t<D>> distinct(D&& dataset) {
  struct Row {
    std::uint64_t hash = 0;
    std::int64_t row = 0;
    auto operator<=>(const Row&) const = default;
  };
  std::vector<Row> all;
  for (std::int64_t i = 0; i < rows_of(dataset); ++i) {
    std::uint64_t hash = 0;
    for_each_text(row_of(dataset, i), [&](std::string_view text) { hash = mix_seed(hash, hash_text(text)); });
    all.push_back({hash, i});
  }
  std::sort(all.begin(), all.end());
  std::vector<std::int64_t> rows;
  for (auto run = all.begin(); run != all.end();) {  // rows of one hash, the earliest first
    const auto end = std::find_if(run, all.end(), [&](const Row& other) { return other.hash != run->hash; });
    rows.push_back(run->row);
    std::vector<std::vector<std::string>> kept;
    for (auto next = std::exchange(run, end) + 1; next != end; ++next) {
      if (kept.empty()) kept.push_back(detail::texts_of(row_of(dataset, rows.back())));
      auto texts = detail::texts_of(row_of(dataset, next->row));
      if (std::find(kept.begin(), kept.end(), texts) != kept.end()) continue;
      kept.push_back(std::move(texts));
      rows.push_back(next->row);
    }
  }
  std::sort(rows.begin(), rows.end());
  return {ranges::views::all(std::forward<D>(dataset)), std::move(rows)};
}

}  // namespace toller
