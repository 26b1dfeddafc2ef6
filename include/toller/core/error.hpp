// SPDX-License-Identifier: Apache-2.0
// T0. Run-time errors: one line each, with a code that core/README.md explains.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace toller {

/// Base of everything the library throws: `[R204] train.jsonl:17: field "query" is missing`.
///
/// Errors   `code()` is stable across versions and indexed in core/README.md; `what()` is one line.
class Error : public std::runtime_error {
public:
  Error(std::string_view code, const std::string& message)
      : std::runtime_error(std::string("[").append(code).append("] ").append(one_line(message))), code_(code) {}
  [[nodiscard]] const std::string& code() const noexcept { return code_; }

private:
  /// Names from files may hold line breaks and escapes; a message does not.
  static std::string one_line(std::string text) {
    for (char& c : text)
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
    return text;
  }
  std::string code_;
};

/// A setting that cannot work, alone or with the others (R1xx).
class ConfigError : public Error {
public:
  using Error::Error;
};

/// A row, a text or a token that cannot be used (R2xx).
class DataError : public Error {
public:
  using Error::Error;
};

/// Tensors whose sizes do not go together (R3xx).
class ShapeError : public Error {
public:
  using Error::Error;
};

/// A file or folder that is missing, damaged, of another kind or not writable (R4xx).
class FileError : public Error {
public:
  using Error::Error;
};

/// A number that is not finite where one is needed (R5xx).
class NumericError : public Error {
public:
  using Error::Error;
};

/// Ranks that can't find, reach or agree with each other (R6xx).
class DistributedError : public Error {
public:
  using Error::Error;
};

namespace detail {

/// Joins printable parts into one string: `cat("row ", 3, " of ", path)`.
template <class... Parts>
[[nodiscard]] std::string cat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return std::move(out).str();
}

}  // namespace detail
}  // namespace toller
