// SPDX-License-Identifier: Apache-2.0
// T0. The bytes of a TensorBoard event file: TFRecord frames around Event protobufs.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace toller::detail {

/// CRC-32C (Castagnoli) of some bytes: "123456789" has 0xE3069283.
[[nodiscard]] constexpr std::uint32_t crc32c(std::string_view bytes) {
  constexpr auto table = [] {
    std::array<std::uint32_t, 256> made{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t c = i;
      for (int bit = 0; bit < 8; ++bit) c = (c >> 1) ^ ((c & 1) != 0 ? 0x82F63B78U : 0U);
      made[i] = c;
    }
    return made;
  }();
  std::uint32_t crc = ~0U;
  for (const char byte : bytes) crc = (crc >> 8) ^ table[(crc ^ static_cast<unsigned char>(byte)) & 0xFFU];
  return ~crc;
}

/// An unsigned number as its bytes, least significant first.
template <class Unsigned>
[[nodiscard]] std::string little_endian(Unsigned value) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof(Unsigned); ++i) bytes += static_cast<char>((value >> (8 * i)) & 0xFFU);
  return bytes;
}

/// Length, its checksum, data, their checksum. A checksum is rotated and shifted, as data may hold checksums themselves.
///
/// Source   TensorFlow's record format (`lib/io/record_writer`).
[[nodiscard]] inline std::string tf_record(std::string_view data) {
  const auto checksum = [](std::string_view bytes) {
    return little_endian<std::uint32_t>(std::rotr(crc32c(bytes), 15) + 0xA282EAD8U);
  };
  const std::string length = little_endian<std::uint64_t>(data.size());
  return length + checksum(length) + std::string(data) + checksum(data);
}

// --- protobuf: (field number << 3 | wire type), then a varint (0), 8 bytes (1), length and bytes (2) or 4 bytes (5) ---

[[nodiscard]] inline std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(0x80U | (value & 0x7FU));
  return bytes += static_cast<char>(value);
}

[[nodiscard]] inline std::string proto_bytes(unsigned field, std::string_view bytes) {
  return varint(field << 3U | 2U) + varint(bytes.size()) + std::string(bytes);
}

[[nodiscard]] inline std::string proto_double(unsigned field, double value) {
  return varint(field << 3U | 1U) + little_endian(std::bit_cast<std::uint64_t>(value));
}

[[nodiscard]] inline std::string proto_float(unsigned field, float value) {
  return varint(field << 3U | 5U) + little_endian(std::bit_cast<std::uint32_t>(value));
}

/// The first event of a file: wall_time = 1, file_version = 3.
[[nodiscard]] inline std::string tf_version_event(double wall_time) {
  return proto_double(1, wall_time) + proto_bytes(3, "brain.Event:2");
}

/// Scalars of one step: wall_time = 1, step = 2, summary = 5 { value = 1 { tag = 1, simple_value = 2 } }.
[[nodiscard]] inline std::string tf_scalar_event(double wall_time, std::int64_t step,
                                                 const std::vector<std::pair<std::string_view, double>>& scalars) {
  std::string summary;
  for (const auto& [tag, value] : scalars)
    summary += proto_bytes(1, proto_bytes(1, tag) + proto_float(2, static_cast<float>(value)));
  return proto_double(1, wall_time) + varint(2U << 3U) + varint(static_cast<std::uint64_t>(step)) + proto_bytes(5, summary);
}

}  // namespace toller::detail
