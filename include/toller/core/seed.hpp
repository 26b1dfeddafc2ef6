// SPDX-License-Identifier: Apache-2.0
// T0. Named random streams from one seed, and the 64-bit text hash.
#pragma once

#include <cstdint>
#include <string_view>

namespace toller {

/// A well-mixed 64-bit value from a seed and any number of counters: the same inputs give the same value everywhere.
///
/// Source   splitmix64: Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators".
template <class... Counters>
[[nodiscard]] constexpr std::uint64_t mix_seed(std::uint64_t seed, Counters... counters) noexcept {
  const auto mix = [](std::uint64_t x) {
    x += 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
  };
  std::uint64_t state = mix(seed);
  ((state = mix(state ^ mix(static_cast<std::uint64_t>(counters)))), ...);
  return state;
}

/// What a random stream is for; each gets its own numbers from the run's one seed.
enum class Stream : std::uint64_t { data = 1, dropout = 2, init = 3 };

/// 64-bit hash of a text's bytes; equal texts have equal hashes on every machine. Used to mask duplicates.
///
/// Source   FNV-1a with a splitmix64 finish.
[[nodiscard]] constexpr std::uint64_t hash_text(std::string_view text) noexcept {
  std::uint64_t h = 0xcbf29ce484222325ULL;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return mix_seed(h, text.size());
}

}  // namespace toller
