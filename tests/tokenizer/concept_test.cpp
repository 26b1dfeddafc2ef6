// SPDX-License-Identifier: Apache-2.0
// A tokenizer of one's own, as tokenizer/README.md shows it.
#include <toller/tokenizer/tokenizer.hpp>

struct ByteTokenizer {
  toller::Encoding encode(std::string_view text, const toller::EncodeOptions&) const {
    toller::Encoding result;
    for (std::size_t i = 0; i < text.size(); ++i) {
      result.ids.push_back(static_cast<unsigned char>(text[i]));
      result.types.push_back(0);
      result.special.push_back(0);
      result.offsets.emplace_back(i, i + 1);
      result.sequence.push_back(0);
    }
    return result;
  }
  toller::Encoding encode(std::string_view first, std::string_view second, const toller::EncodeOptions& options) const {
    return encode(std::string(first) + std::string(second), options);
  }
  std::int64_t vocabulary_size() const { return 256; }
  std::optional<std::int64_t> token_to_id(std::string_view token) const {
    return token.size() == 1 ? std::optional<std::int64_t>(static_cast<unsigned char>(token[0])) : std::nullopt;
  }
};
static_assert(toller::Tokenizer<ByteTokenizer>);

TEST_CASE("a tokenizer of one's own meets the concept, one that lacks a member does not") {
  struct Half {
    std::int64_t vocabulary_size() const { return 1; }
  };
  STATIC_REQUIRE_FALSE(toller::Tokenizer<Half>);
  REQUIRE(ByteTokenizer{}.encode("ab", "c", {}).ids == std::vector<std::int64_t>{97, 98, 99});
}
