// SPDX-License-Identifier: Apache-2.0
// T0. Words and their ids: a hash table that is read without copying, and whose hash grows byte by byte.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace toller::detail {

/// Map from text to id. All keys lie in one string; filled once, then read from many threads.
class Vocabulary {
public:
  static constexpr std::uint64_t empty_hash = 0xcbf29ce484222325ULL;
  /// The hash of a text that grows by a byte (FNV-1a).
  [[nodiscard]] static constexpr std::uint64_t extend(std::uint64_t hash, char byte) {
    return (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3ULL;
  }

  explicit Vocabulary(std::size_t words = 0) {
    std::size_t slots = 16;
    while (slots < words * 2) slots *= 2;
    slots_.resize(slots);
  }

  /// Adds a word. At most as many as the constructor was told.
  void insert(std::string_view word, std::int64_t id) {
    std::uint64_t hash = empty_hash;
    for (const char c : word) hash = extend(hash, c);
    std::size_t at = slot(hash);
    while (slots_[at].id >= 0) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = {hash, keys_.size(), word.size(), id};
    keys_ += word;
    longest_ = std::max(longest_, word.size());
  }

  /// The id of a word whose hash is known, or -1.
  [[nodiscard]] std::int64_t find(std::string_view word, std::uint64_t hash) const {
    for (std::size_t at = slot(hash); slots_[at].id >= 0; at = (at + 1) & (slots_.size() - 1)) {
      const Slot& s = slots_[at];
      if (s.hash == hash && std::string_view(keys_).substr(s.begin, s.size) == word) return s.id;
    }
    return -1;
  }
  [[nodiscard]] std::optional<std::int64_t> find(std::string_view word) const {
    std::uint64_t hash = empty_hash;
    for (const char c : word) hash = extend(hash, c);
    const std::int64_t id = find(word, hash);
    return id < 0 ? std::nullopt : std::optional(id);
  }

  /// Bytes of the longest word.
  [[nodiscard]] std::size_t longest() const { return longest_; }

private:
  struct Slot {
    std::uint64_t hash = 0;
    std::size_t begin = 0;
    std::size_t size = 0;
    std::int64_t id = -1;
  };
  [[nodiscard]] std::size_t slot(std::uint64_t hash) const {
    return static_cast<std::size_t>(hash ^ hash >> 29) & (slots_.size() - 1);
  }

  std::vector<Slot> slots_;
  std::string keys_{};
  std::size_t longest_ = 0;
};

}  // namespace toller::detail
