// SPDX-License-Identifier: Apache-2.0
// T0. JSON files, with errors that name the file, the place and the key.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "toller/core/error.hpp"
#include "toller/core/mapped_file.hpp"

namespace toller {

namespace detail {

/// nlohmann's message without its bracketed name, on one line.
[[nodiscard]] inline std::string json_reason(const nlohmann::json::exception& error) {
  std::string text = error.what();
  if (const auto end = text.find("] "); end != std::string::npos) text.erase(0, end + 2);
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  return text;
}

/// A name from a file as it can be shown on one line.
[[nodiscard]] inline std::string in_quotes(std::string_view name) {
  return nlohmann::json(name).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

inline constexpr int deepest_json = 64;

/// JSON nested at most `deepest_json` levels, so that nothing that walks through it can run out of stack.
///
/// Deeper text, and a number that no double holds, end in `fail(what)`, which must throw; text that is not JSON in nlohmann's
/// exception.
template <class Fail>
[[nodiscard]] nlohmann::json parse_shallow_json(std::string_view text, const Fail& fail) {
  using Event = nlohmann::json::parse_event_t;
  std::string key;
  const auto watch = [&](int depth, Event event, const nlohmann::json& value) {
    const bool opens = event == Event::array_start || event == Event::object_start;
    if (opens && depth >= deepest_json) fail(cat("JSON nested deeper than ", deepest_json, " levels"));
    if (event == Event::key) key = value.get_ref<const std::string&>();
    return true;
  };
  try {
    return nlohmann::json::parse(text, watch);
  } catch (const nlohmann::json::out_of_range& error) {
    fail(cat("key ", in_quotes(key), ": ", json_reason(error)));
    throw;
  }
}

template <class T>
constexpr std::string_view json_kind() {
  if constexpr (std::is_same_v<T, bool>)
    return "true or false";
  else if constexpr (std::is_integral_v<T>)
    return "a whole number";
  else if constexpr (std::is_arithmetic_v<T>)
    return "a number";
  else if constexpr (std::is_same_v<T, std::string>)
    return "a string";
  else
    return "a list or an object of another kind";
}

}  // namespace detail

/// Reads a JSON file.
///
/// Errors   FileError R401: missing or not readable. R410: not JSON, with line and column; or nested deeper than 64 levels.
[[nodiscard]] inline nlohmann::json read_json_file(const std::filesystem::path& path) {
  const MappedFile file(path);
  try {
    return detail::parse_shallow_json(
        file.bytes(), [&](const std::string& what) { throw FileError("R410", detail::cat(path.string(), ": ", what)); });
  } catch (const nlohmann::json::exception& error) {
    throw FileError("R410", detail::cat(path.string(), ": not JSON: ", detail::json_reason(error)));
  }
}

/// The value of a key of a JSON object read from `path`; empty if the key is missing or null.
///
/// Errors   FileError R411: `object` is no object, or the value is of another kind.
template <class T>
[[nodiscard]] std::optional<T> json_value(const nlohmann::json& object, std::string_view key,
                                          const std::filesystem::path& path) {
  const auto fail = [&](std::string_view what) -> std::optional<T> {
    throw FileError("R411", detail::cat(path.string(), ": ", what));
  };
  if (!object.is_object()) return fail("expected a JSON object, got " + std::string(object.type_name()));
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return std::nullopt;
  bool fits = true;
  if constexpr (std::is_same_v<T, bool>)
    fits = found->is_boolean();
  else if constexpr (std::is_integral_v<T>)
    fits = found->is_number_integer();
  else if constexpr (std::is_arithmetic_v<T>)
    fits = found->is_number();
  try {
    if (fits) return found->template get<T>();
  } catch (const nlohmann::json::exception&) {
  }
  return fail(detail::cat("key ", detail::in_quotes(key), ": expected ", detail::json_kind<T>(), ", got ",
                          found->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).substr(0, 60)));
}

}  // namespace toller
