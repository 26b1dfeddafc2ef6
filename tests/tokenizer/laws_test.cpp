// SPDX-License-Identifier: Apache-2.0
// What holds for every text.
#include <random>
#include <thread>

#include "toller/tokenizer/auto_tokenizer.hpp"
#include "toller/tokenizer/detail/unicode.hpp"

using namespace toller;

namespace {

/// Random valid UTF-8 of ASCII, letters, marks, ideographs, special tokens and any other characters.
std::string random_text(std::mt19937_64& random) {
  static constexpr std::pair<char32_t, char32_t> blocks[] = {
      {0x20, 0x7E},     {0x00, 0x1F},     {0xA0, 0x24F},      {0x300, 0x36F},     {0x370, 0x6FF},
      {0x900, 0xDFF},   {0x1100, 0x11FF}, {0x2000, 0x206F},   {0x3000, 0x30FF},   {0x4E00, 0x9FFF},
      {0xAC00, 0xD7A3}, {0xE000, 0xFFFF}, {0x1F300, 0x1FAFF}, {0x10000, 0x10FFFF}};
  static constexpr std::string_view words[] = {"[MASK]",   "<mask>",           "</s>", "[SEP]", "the", "package", "  ",
                                               "\xC4\xB0", "e\xCC\x81\xCC\xA3"};
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  std::string text;
  for (std::size_t i = below(40); i > 0; --i) {
    if (below(4) == 0) text += words[below(std::size(words))];
    const auto [first, last] = blocks[below(std::size(blocks))];
    toller::detail::append_character(text, first + static_cast<char32_t>(below(last - first + 1)));
  }
  return text;
}

AutoTokenizer golden_tokenizer(const std::string& name) {
  return AutoTokenizer::from_pretrained(std::filesystem::path(TOLLER_GOLDEN) / "tokenizers" / name);
}

}  // namespace

TEST_CASE("any valid text encodes: ids in range, places in order and in bounds, length kept", "[laws]") {
  const std::string name = GENERATE("wordpiece_small", "wordpiece_cased", "wordpiece_mpnet");
  const AutoTokenizer tokenizer = golden_tokenizer(name);
  std::mt19937_64 random(7);
  for (int round = 0; round < 3000; ++round) {
    const std::string text = random_text(random);
    INFO(name << ", round " << round << ": " << text);
    const Encoding all = tokenizer.encode(text);
    REQUIRE(all.types.size() == all.size());
    REQUIRE(all.special.size() == all.size());
    REQUIRE(all.sequence.size() == all.size());
    std::size_t before = 0;
    bool in_order = true, in_range = true;
    for (std::size_t i = 0; i < all.size(); ++i) {
      in_range = in_range && all.ids[i] >= 0 && all.ids[i] < tokenizer.vocabulary_size();
      if (all.special[i] != 0) continue;
      const auto [begin, end] = all.offsets[i];
      in_order = in_order && before <= begin && begin <= end && end <= text.size();
      before = begin;
    }
    REQUIRE(in_range);
    REQUIRE(in_order);

    const auto limit = static_cast<std::int64_t>(2 + random() % 30);
    const Side side = random() % 2 == 0 ? Side::right : Side::left;
    const Encoding cut = tokenizer.encode(text, {.max_length = limit, .truncation_side = side});
    REQUIRE(cut.size() == std::min(all.size(), static_cast<std::size_t>(limit)));
    const std::string other = random_text(random);
    REQUIRE(static_cast<std::int64_t>(tokenizer.encode(text, other, {.max_length = limit + 2}).size()) <= limit + 2);
  }
}

TEST_CASE("random bytes either encode or are refused as not UTF-8", "[laws]") {
  const AutoTokenizer tokenizer = golden_tokenizer("wordpiece_small");
  std::mt19937_64 random(11);
  int refused = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string bytes = random_text(random);
    for (std::size_t i = random() % 3; i > 0 && !bytes.empty(); --i)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    const bool valid = !toller::detail::invalid_utf8_at(bytes);
    if (valid)
      REQUIRE_NOTHROW(tokenizer.encode(bytes));
    else
      REQUIRE_THROWS_AS(tokenizer.encode(bytes), DataError);
    refused += valid ? 0 : 1;
  }
  REQUIRE(refused > 100);
}

TEST_CASE("threads that share a tokenizer get what one thread gets", "[laws]") {
  const AutoTokenizer tokenizer = golden_tokenizer("wordpiece_mpnet");
  std::mt19937_64 random(13);
  std::vector<std::string> texts(400);
  for (auto& text : texts) text = random_text(random);
  std::vector<Encoding> expected;
  for (const auto& text : texts) expected.push_back(tokenizer.encode(text));
  std::vector<std::thread> threads;
  std::vector<int> same(4, 0);
  for (std::size_t t = 0; t < same.size(); ++t)
    threads.emplace_back([&, t] {
      for (std::size_t i = 0; i < texts.size(); ++i) same[t] += tokenizer.encode(texts[i]) == expected[i] ? 1 : 0;
    });
  for (auto& thread : threads) thread.join();
  REQUIRE(same == std::vector<int>(4, 400));
}
