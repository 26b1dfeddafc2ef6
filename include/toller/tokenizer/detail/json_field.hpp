// SPDX-License-Identifier: Apache-2.0
// T0. Reading tokenizer.json: a field knows its file and path, so that every complaint can name both.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "toller/core/error.hpp"
#include "toller/core/mapped_file.hpp"
#include "toller/store/json_file.hpp"

namespace toller::detail {

/// A place in a JSON file.
///
/// Errors   FileError R232: `tokenizer.json: "model.unk_token": expected a string, got null`.
class JsonField {
public:
  JsonField(const nlohmann::json& value, std::string file, std::string path = {})
      : value_(&value), file_(std::move(file)), path_(std::move(path)) {}

  [[nodiscard]] const nlohmann::json& value() const { return *value_; }
  [[nodiscard]] const std::string& file() const { return file_; }

  /// Whether an object has the field, and not null there.
  [[nodiscard]] bool has(const char* name) const {
    return value_->is_object() && value_->contains(name) && !(*value_)[name].is_null();
  }

  [[nodiscard]] JsonField at(const char* name) const {
    if (!value_->is_object()) fail("an object");
    if (!value_->contains(name)) throw FileError("R232", cat(file_, ": field \"", below(name), "\" is missing"));
    return {(*value_)[name], file_, below(name)};
  }
  [[nodiscard]] std::vector<JsonField> items() const {
    if (!value_->is_array()) fail("an array");
    std::vector<JsonField> result;
    for (std::size_t i = 0; i < value_->size(); ++i)
      result.emplace_back((*value_)[i], file_, path_ + "[" + std::to_string(i) + "]");
    return result;
  }
  [[nodiscard]] std::string string() const {
    if (!value_->is_string()) fail("a string");
    return value_->get<std::string>();
  }
  [[nodiscard]] std::int64_t integer() const {
    if (!value_->is_number_integer()) fail("a whole number");
    return value_->get<std::int64_t>();
  }
  /// A token id or a count: from 0 on, below 2^31.
  [[nodiscard]] std::int64_t count() const {
    const std::int64_t n = integer();
    if (n < 0 || n > 0x7FFFFFFF) fail("a whole number from 0 to 2147483647");
    return n;
  }
  [[nodiscard]] bool boolean(const char* name, bool otherwise) const {
    if (!has(name)) return otherwise;
    const JsonField field = at(name);
    if (!field.value().is_boolean()) field.fail("true or false");
    return field.value().get<bool>();
  }
  [[noreturn]] void fail(std::string_view expected) const {
    std::string got = value_->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    if (got.size() > 60) got = std::string(value_->type_name());
    throw FileError("R232", cat(file_, ": \"", path_, "\": expected ", expected, ", got ", got));
  }

private:
  [[nodiscard]] std::string below(const char* name) const { return path_.empty() ? name : path_ + "." + name; }

  const nlohmann::json* value_;
  std::string file_;
  std::string path_;
};

/// A kind that this library does not read.
[[noreturn]] inline void unsupported(const JsonField& field, std::string_view part, std::string_view kind,
                                     std::string_view known) {
  throw FileError("R231", cat(field.file(), ": ", part, " of kind \"", kind, "\" is not supported; supported: ", known));
}

/// A file's whole text. Errors: FileError R401.
[[nodiscard]] inline std::string read_text(const std::string& path) {
  return std::string(MappedFile(path).bytes());
}

/// Text as JSON. Errors: FileError R230 with the place where it stops being JSON; or it is nested deeper than 64 levels.
[[nodiscard]] inline nlohmann::json parse_json(const std::string& text, const std::string& file) {
  try {
    return parse_shallow_json(text, [&](const std::string& what) { throw FileError("R230", cat(file, ": ", what)); });
  } catch (const nlohmann::json::parse_error& error) {
    throw FileError("R230", cat(file, ": not JSON from byte ", error.byte, " on"));
  }
}

}  // namespace toller::detail
