// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>

#include "toller/callbacks/tensor_board.hpp"

using namespace toller;

namespace {

/// CRC-32C a bit at a time, from its definition (polynomial 0x1EDC6F41, reflected in and out).
std::uint32_t slow_crc(const std::string& bytes) {
  std::uint64_t crc = 0xFFFFFFFF;
  for (const char byte : bytes)
    for (int bit = 0; bit < 8; ++bit) {
      const std::uint64_t in = (static_cast<unsigned char>(byte) >> bit) & 1U;
      crc = (crc & 1) != in ? (crc >> 1) ^ 0x82F63B78 : crc >> 1;
    }
  return static_cast<std::uint32_t>(~crc);
}

std::uint32_t masked(std::uint32_t crc) {
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

template <class T>
T read(const std::string& bytes, std::size_t& at) {
  T value{};
  REQUIRE(at + sizeof value <= bytes.size());
  std::memcpy(&value, bytes.data() + at, sizeof value);
  at += sizeof value;
  return value;
}

std::uint64_t read_varint(const std::string& bytes, std::size_t& at) {
  std::uint64_t value = 0;
  for (unsigned shift = 0;; shift += 7) {
    const auto byte = read<unsigned char>(bytes, at);
    value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return value;
  }
}

struct Decoded {
  double wall_time = 0;
  std::int64_t step = 0;
  std::string version{};
  std::map<std::string, float> scalars{};
};

/// Field by field; `visit(number, varint, bytes)`.
template <class Visit>
void decode(const std::string& bytes, Visit visit) {
  for (std::size_t at = 0; at < bytes.size();) {
    const auto key = read_varint(bytes, at);
    std::uint64_t number = 0;
    std::string chunk;
    if ((key & 7) == 0)
      number = read_varint(bytes, at);
    else {
      const std::size_t size = (key & 7) == 1 ? 8 : (key & 7) == 5 ? 4 : read_varint(bytes, at);
      REQUIRE(at + size <= bytes.size());
      chunk = bytes.substr(at, size);
      at += size;
    }
    visit(static_cast<int>(key >> 3), number, chunk);
  }
}

std::vector<Decoded> decode_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  std::vector<Decoded> events;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::string header = bytes.substr(at, 8);
    const auto length = read<std::uint64_t>(bytes, at);
    REQUIRE(read<std::uint32_t>(bytes, at) == masked(slow_crc(header)));
    const std::string data = bytes.substr(at, length);
    at += length;
    REQUIRE(read<std::uint32_t>(bytes, at) == masked(slow_crc(data)));
    Decoded& event = events.emplace_back();
    decode(data, [&](int field, std::uint64_t number, const std::string& chunk) {
      std::size_t zero = 0;
      if (field == 1) event.wall_time = read<double>(chunk, zero);
      if (field == 2) event.step = static_cast<std::int64_t>(number);
      if (field == 3) event.version = chunk;
      if (field == 5)
        decode(chunk, [&](int, std::uint64_t, const std::string& value) {
          std::string tag;
          float scalar = 0;
          decode(value, [&](int part, std::uint64_t, const std::string& content) {
            std::size_t start = 0;
            if (part == 1) tag = content;
            if (part == 2) scalar = read<float>(content, start);
          });
          event.scalars[tag] = scalar;
        });
    });
  }
  return events;
}

struct Folder {
  std::filesystem::path path = std::filesystem::temp_directory_path() / ("toller_tb_" + std::to_string(::getpid()));
  Folder() { std::filesystem::remove_all(path); }
  ~Folder() { std::filesystem::remove_all(path); }
};

}  // namespace

TEST_CASE("the checksum is CRC-32C") {
  STATIC_REQUIRE(toller::detail::crc32c("123456789") == 0xE3069283U);
  REQUIRE(toller::detail::crc32c("") == 0);
  REQUIRE(toller::detail::crc32c(std::string(32, '\0')) == 0x8A9136AAU);
  REQUIRE(slow_crc("123456789") == 0xE3069283U);
}

TEST_CASE("the event file holds a version and the scalars of each step") {
  const Folder folder;
  TensorBoard board(folder.path / "deep" / "runs");
  board.on(FitBegin{});
  for (int i = 1; i <= 300; ++i)
    board.on(StepEnd{.step = i,
                     .loss = 1.0 / i,
                     .accuracy = 0.5,
                     .similarity = 24.5,
                     .lr = 3e-5,
                     .grad_norm = 2,
                     .rows = 32,
                     .seconds = i == 300 ? 0 : 0.5});
  board.on(FitEnd{});
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path / "deep" / "runs")) files.push_back(entry.path());
  REQUIRE(files.size() == 1);
  REQUIRE(files[0].filename().string().starts_with("events.out.tfevents."));
  const auto events = decode_file(files[0]);
  REQUIRE(events.size() == 301);
  REQUIRE(events[0].version == "brain.Event:2");
  REQUIRE(events[0].wall_time > 1.6e9);
  REQUIRE(events[7].step == 7);
  REQUIRE(events[299].step == 299);
  const std::map<std::string, float> expected{{"train/loss", 1.0f / 7},    {"train/accuracy", 0.5f},
                                              {"train/similarity", 24.5f}, {"train/grad_norm", 2},
                                              {"train/lr", 3e-5f},         {"train/pairs_per_second", 64}};
  REQUIRE(events[7].scalars == expected);
  REQUIRE_FALSE(events[300].scalars.contains("train/pairs_per_second"));
}

TEST_CASE("twenty steps are on disk without waiting for the end") {
  const Folder folder;
  TensorBoard board(folder.path);
  board.on(FitBegin{});
  for (int i = 1; i <= 20; ++i) board.on(StepEnd{.step = i});
  REQUIRE(decode_file(std::filesystem::directory_iterator(folder.path)->path()).size() == 21);
}

TEST_CASE("a folder that cannot be made is one line at the start") {
  TensorBoard board("/dev/null/runs");
  REQUIRE_THROWS_AS(board.on(FitBegin{}), FileError);
  REQUIRE_THROWS_WITH(board.on(FitBegin{}), Catch::Matchers::StartsWith("[R450] /dev/null/runs/events.out.tfevents."));
}
