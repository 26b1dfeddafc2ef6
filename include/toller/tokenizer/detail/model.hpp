// SPDX-License-Identifier: Apache-2.0
// T0. What the models of a tokenizer.json have in common, and the reading of one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace toller::detail {

/// A token of normalised bytes `begin .. end`.
struct Piece {
  std::int64_t id = 0;
  std::size_t begin = 0;
  std::size_t end = 0;
};
using Pieces = std::vector<Piece>;

/// Words to pieces. Read from many threads.
class TokenModel {
public:
  virtual ~TokenModel() = default;

  /// Appends the pieces of a word that starts at byte `base` of the normalised text.
  virtual void split(std::string_view word, std::size_t base, Pieces& pieces) const = 0;
  [[nodiscard]] virtual std::optional<std::int64_t> token_to_id(std::string_view token) const = 0;
  /// The token of an id, or nothing where there is none.
  [[nodiscard]] virtual std::optional<std::string> id_to_token(std::int64_t id) const = 0;
  /// The highest id and one.
  [[nodiscard]] virtual std::int64_t size() const = 0;
  [[nodiscard]] virtual std::optional<std::int64_t> unknown_id() const = 0;
};

}  // namespace toller::detail
