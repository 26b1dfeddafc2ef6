// SPDX-License-Identifier: Apache-2.0
// T2. The encoder that a folder's config.json names, picked when the program runs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <variant>

#include "toller/encoder/bert.hpp"

namespace toller {

/// Any of the encoders, chosen by `model_type`. A handle: copies share weights.
///
/// Errors   ConfigError R433: an architecture that is not supported.
class AutoEncoder {
public:
  [[nodiscard]] static AutoEncoder from_pretrained(const std::filesystem::path& dir) {
    const std::string where = (dir / "config.json").string();
    const std::string type = detail::model_type(detail::parse_config(read_config_text(dir), where));
    if (type == "bert") return AutoEncoder(Bert::from_pretrained(dir));
    throw ConfigError("R433", where + ": model_type is \"" + type + "\", supported: bert");
  }
  [[nodiscard]] static AutoEncoder from_config(const std::string& config_json, std::uint64_t seed) {
    return AutoEncoder(Bert::from_config(config_json, seed));
  }

  [[nodiscard]] TokenEmbeddings forward(const TokenBatch& batch) const {
    return std::visit([&](const auto& e) { return e.forward(batch); }, encoder_);
  }
  [[nodiscard]] std::int64_t hidden_size() const {
    return std::visit([](const auto& e) { return e.hidden_size(); }, encoder_);
  }
  [[nodiscard]] std::int64_t vocabulary_size() const {
    return std::visit([](const auto& e) { return e.vocabulary_size(); }, encoder_);
  }
  [[nodiscard]] std::int64_t max_positions() const {
    return std::visit([](const auto& e) { return e.max_positions(); }, encoder_);
  }
  [[nodiscard]] Parameters parameters() const {
    return std::visit([](const auto& e) { return e.parameters(); }, encoder_);
  }
  [[nodiscard]] Parameters buffers() const {
    return std::visit([](const auto& e) { return e.buffers(); }, encoder_);
  }
  [[nodiscard]] Parameters saved_tensors() const {
    return std::visit([](const auto& e) { return e.saved_tensors(); }, encoder_);
  }
  [[nodiscard]] std::string config_json() const {
    return std::visit([](const auto& e) { return e.config_json(); }, encoder_);
  }
  void resize_vocabulary(std::int64_t rows, std::uint64_t seed) {
    std::visit([&](auto& e) { e.resize_vocabulary(rows, seed); }, encoder_);
  }
  void to(at::Device device) {
    std::visit([&](auto& e) { e.to(device); }, encoder_);
  }

private:
  explicit AutoEncoder(Bert bert) : encoder_(std::move(bert)) {}
  std::variant<Bert> encoder_;
};

static_assert(EncoderPolicy<Bert> && EncoderPolicy<AutoEncoder>);

}  // namespace toller
