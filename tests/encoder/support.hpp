// SPDX-License-Identifier: Apache-2.0
// Batches and small encoders for the tests of this room.
#pragma once

#include "toller/encoder/auto_encoder.hpp"

namespace toller::testing_encoder {

using Lengths = std::vector<std::int64_t>;

/// A batch of random ids with these lengths.
inline TokenBatch random_batch(const Lengths& lengths, std::uint64_t seed, std::int64_t vocabulary = 50) {
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  TokenBatch batch;
  std::vector<at::Tensor> positions{at::empty({0}, at::kLong)};
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    positions.push_back(at::arange(lengths[i], at::kLong));
    batch.offsets.push_back(batch.offsets.back() + lengths[i]);
    batch.text_index.push_back(static_cast<std::int64_t>(i));
  }
  batch.positions = at::cat(positions);
  batch.ids = at::randint(1, vocabulary, {batch.tokens()}, generator, at::kLong);
  batch.types = at::zeros({batch.tokens()}, at::kLong);
  batch.attended = batch.scored = at::ones({batch.tokens()}, at::kBool);
  return batch;
}

/// The batch of padded rows: the first `lengths[i]` positions of each, all of them attended where the mask says so.
inline TokenBatch from_padded(const at::Tensor& ids, const at::Tensor& mask, const at::Tensor& types, const at::Tensor& keep) {
  TokenBatch batch;
  std::vector<at::Tensor> id, position, type, attended;
  for (std::int64_t i = 0; i < ids.size(0); ++i) {
    const at::Tensor rows = keep[i].nonzero().squeeze(1);
    id.push_back(ids[i].index_select(0, rows));
    position.push_back(rows);
    type.push_back(types[i].index_select(0, rows));
    attended.push_back(mask[i].index_select(0, rows).to(at::kBool));
    batch.offsets.push_back(batch.offsets.back() + rows.size(0));
    batch.text_index.push_back(i);
  }
  batch.ids = at::cat(id);
  batch.positions = at::cat(position);
  batch.types = at::cat(type);
  batch.attended = at::cat(attended);
  batch.scored = at::ones_like(batch.attended);
  batch.all_attended = batch.attended.all().item<bool>();
  return batch;
}

inline std::string small_config(double hidden_dropout = 0, double attention_dropout = 0) {
  nlohmann::json json{{"model_type", "bert"},          {"vocab_size", 50},         {"hidden_size", 32},
                      {"num_hidden_layers", 2},        {"num_attention_heads", 4}, {"intermediate_size", 64},
                      {"max_position_embeddings", 40}, {"initializer_range", 0.3}};
  json["hidden_dropout_prob"] = hidden_dropout;
  json["attention_probs_dropout_prob"] = attention_dropout;
  return json.dump();
}

inline Bert small_bert(double hidden_dropout = 0, double attention_dropout = 0) {
  return Bert::from_config(small_config(hidden_dropout, attention_dropout), 3);
}

inline double furthest(const at::Tensor& a, const at::Tensor& b) {
  REQUIRE(a.sizes() == b.sizes());
  if (a.numel() == 0) return 0;
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

inline at::Tensor text(const TokenEmbeddings& out, std::int64_t i) {
  const auto& o = out.batch.offsets;
  return out.values.slice(0, o[static_cast<std::size_t>(i)], o[static_cast<std::size_t>(i) + 1]);
}

}  // namespace toller::testing_encoder
