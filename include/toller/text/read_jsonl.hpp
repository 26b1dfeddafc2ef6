// SPDX-License-Identifier: Apache-2.0
// T0. JSON Lines files as datasets.
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "toller/text/line_dataset.hpp"

namespace toller {

namespace detail {
class JsonFormat;
}  // namespace detail

/// The rows of a JSON Lines file as records of one type.
template <class Record>
using JsonlDataset = LineDataset<Record, detail::JsonFormat>;

/// Opens a file with a JSON object on each line; blank lines, CRLF and fields that no record needs are fine.
///
///   auto pairs = toller::read_jsonl<toller::Pair>("train.jsonl", {.query = "question"});
///
/// Errors   FileError R401: no such file. DataError R202: no rows; R203: malformed JSON; R204: a field is missing; R205: a
///          field of another type; R206: invalid UTF-8; R207: lists that differ in length. All name `file:line`.
template <class Record>
[[nodiscard]] JsonlDataset<Record> read_jsonl(const std::filesystem::path& path, ReadOptions fields = {});

namespace detail {

/// One line's object: what `read_fields` asks.
class JsonRow : public RowPlace {
public:
  using Json = nlohmann::json;
  using Names = std::initializer_list<std::string_view>;

  JsonRow(const Json& object, const RowPlace& place) : RowPlace(place), object_(object) {}

  [[nodiscard]] std::string text(std::string_view given, Names usual) const { return as_text(require(given, usual)); }
  [[nodiscard]] std::string optional_text(std::string_view given, Names usual) const {
    const Found found = given.empty() ? find(given, usual) : require(given, usual);
    if (!found.value || found.value->is_null()) return {};
    return found.value->is_number_integer() ? found.value->dump() : as_text(found);
  }
  [[nodiscard]] std::int64_t integer(std::string_view given, Names usual) const {
    const Found found = require(given, usual);
    if (!found.value->is_number_integer()) fail_type(found.name, "a whole number", describe(*found.value));
    const auto value = found.value->get<std::int64_t>();
    if (value < 0 && found.value->is_number_unsigned()) fail_type(found.name, "a 64-bit number", describe(*found.value));
    return value;
  }
  [[nodiscard]] double number(std::string_view given, Names usual) const {
    const Found found = require(given, usual);
    if (!found.value->is_number()) fail_type(found.name, "a number", describe(*found.value));
    return found.value->get<double>();
  }
  [[nodiscard]] std::vector<std::string> texts(std::string_view given, Names usual) const {
    return list<std::string>(require(given, usual), "texts", &Json::is_string);
  }
  [[nodiscard]] std::vector<double> numbers(std::string_view given, Names usual) const {
    return list<double>(require(given, usual), "numbers", &Json::is_number);
  }
  [[nodiscard]] std::vector<std::string> texts_or_columns(std::string_view given, Names usual) const;

private:
  struct Found {
    std::string_view name{};
    const Json* value = nullptr;
  };

  [[nodiscard]] Found find(std::string_view given, Names usual) const {
    if (!given.empty()) return find(given);
    for (const std::string_view name : usual)
      if (const Found found = find(name); found.value) return found;
    return {};
  }
  [[nodiscard]] Found find(std::string_view name) const {
    const auto at = object_.find(name);
    return at == object_.end() ? Found{} : Found{name, &*at};
  }
  [[nodiscard]] Found require(std::string_view given, Names usual) const {
    const Found found = find(given, usual);
    if (!found.value) fail_missing(given, usual, columns());
    return found;
  }
  [[nodiscard]] std::string as_text(const Found& found) const {
    if (!found.value->is_string()) fail_type(found.name, "a text", describe(*found.value));
    return found.value->get<std::string>();
  }
  template <class T>
  [[nodiscard]] std::vector<T> list(const Found& found, std::string_view what, bool (Json::*is)() const noexcept) const {
    if (!found.value->is_array()) fail_type(found.name, cat("a list of ", what), describe(*found.value));
    std::vector<T> items;
    for (const Json& item : *found.value) {
      if (!(item.*is)()) fail_type(found.name, cat("a list of ", what), cat(describe(item), " in it"));
      items.push_back(item.get<T>());
    }
    return items;
  }
  [[nodiscard]] std::string columns() const {
    std::string names;
    for (const auto& [name, value] : object_.items()) names += (names.empty() ? "\"" : ", \"") + name + "\"";
    return names;
  }
  [[nodiscard]] static std::string describe(const Json& value);

  const Json& object_;
};

class JsonFormat {
public:
  explicit JsonFormat(ReadOptions names) : names_(std::move(names)) {}
  [[nodiscard]] static std::int64_t header_lines() { return 0; }

  template <class Record>
  void read(Record& record, std::string_view line, const RowPlace& place) const {
    nlohmann::json object;
    try {
      object = nlohmann::json::parse(line);
    } catch (const nlohmann::json::parse_error& error) {
      place.fail("R203", cat("malformed JSON at byte ", error.byte, " of the line"));
    } catch (const nlohmann::json::out_of_range&) {
      place.fail("R203", "malformed JSON: a number too large to hold");
    }
    if (!object.is_object()) place.fail("R203", cat("expected a JSON object, found ", object.type_name()));
    read_fields(record, JsonRow(object, place), names_);
  }

private:
  ReadOptions names_;
};

inline std::vector<std::string> JsonRow::texts_or_columns(std::string_view given, Names usual) const {
  if (const Found found = find(given, usual); found.value) {
    if (found.value->is_null()) return {};
    return found.value->is_array() ? list<std::string>(found, "texts", &Json::is_string) : std::vector{as_text(found)};
  }
  std::vector<std::string> texts;
  bool known = given.empty();
  const auto take = [&](const std::string& name) {
    const Found found = find(name);
    if (found.value && !found.value->is_null()) texts.push_back(as_text(found));
    known = known || found.value;
    return found.value != nullptr;
  };
  take_columns(given, usual, take);
  if (!known) fail_missing(given, usual, columns());
  return texts;
}

inline std::string JsonRow::describe(const Json& value) {
  if (value.is_null()) return "null";
  if (value.is_boolean() || value.is_number()) return value.dump();
  return value.is_string() ? "a text" : value.is_array() ? "a list" : "an object";
}

}  // namespace detail

template <class Record>
JsonlDataset<Record> read_jsonl(const std::filesystem::path& path, ReadOptions fields) {
  return {std::make_shared<const LineFile>(path), detail::JsonFormat(std::move(fields))};
}

}  // namespace toller
