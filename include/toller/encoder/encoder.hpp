// SPDX-License-Identifier: Apache-2.0
// T1. What an encoder must have.
#pragma once

#include <concepts>
#include <cstdint>
#include <filesystem>

#include "toller/core/values.hpp"

namespace toller {

/// Token ids in, token embeddings out. A handle: copies share weights.
///
/// `forward` computes dropout if and only if `batch.dropout_key` is set; `parameters` are named as in Hugging Face's files;
/// `config_json` is the text of the `config.json` to save; `resize_vocabulary` grows or cuts the rows of the word embedding,
/// new rows drawn from a seed; `max_positions` is the longest text it takes, in tokens; `moved` gives the weights on a device.
template <class E>
concept EncoderPolicy = requires(E& encoder, const E& fixed, const TokenBatch& batch, at::Device device) {
  { fixed.forward(batch) } -> std::same_as<TokenEmbeddings>;
  { fixed.hidden_size() } -> std::convertible_to<std::int64_t>;
  { fixed.vocabulary_size() } -> std::convertible_to<std::int64_t>;
  { fixed.max_positions() } -> std::convertible_to<std::int64_t>;
  { fixed.parameters() } -> std::same_as<Parameters>;
  { fixed.config_json() } -> std::convertible_to<std::string>;
  encoder.resize_vocabulary(std::int64_t{}, std::uint64_t{});
  encoder.to(device);
  { E::from_pretrained(std::filesystem::path{}) } -> std::same_as<E>;
};

}  // namespace toller
