// SPDX-License-Identifier: Apache-2.0
// T2. One vector for each text.
#pragma once

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "toller/core/full_precision.hpp"
#include "toller/core/normalize.hpp"
#include "toller/pooling/dense_stack.hpp"
#include "toller/pooling/detail/keep_tokens.hpp"
#include "toller/pooling/pooling.hpp"
#include "toller/pooling/reduce.hpp"

namespace toller {

/// `SingleVector` with the weights of its head.
template <Reduction Reduce>
class BoundSingleVector {
public:
  BoundSingleVector(DenseStack head, bool normalize, bool include_prompt)
      : head_(std::move(head)), normalize_(normalize), include_prompt_(include_prompt) {}

  [[nodiscard]] Embeddings pool(const TokenEmbeddings& tokens) const {
    const TokenBatch& batch = tokens.batch;
    TokenRuns runs = detail::keep_tokens(tokens, batch.all_attended ? at::Tensor() : batch.attended);
    runs.values = full_precision(runs.values);
    std::vector<std::uint64_t> keys;
    if (batch.dropout_key && head_.has_dropout())
      for (const std::int64_t text : batch.text_index) keys.push_back(mix_seed(static_cast<std::uint64_t>(text)));
    const at::Tensor vectors = full_precision(head_.forward(Reduce::reduce(runs), batch.dropout_key, keys));
    return {normalize_ ? normalize_rows(vectors) : vectors};
  }

  [[nodiscard]] std::int64_t output_size() const { return head_.output_size(); }
  [[nodiscard]] Parameters parameters() const { return head_.parameters(); }
  [[nodiscard]] FolderModules modules() const;
  void to(at::Device device) { head_.to(device); }

private:
  DenseStack head_;
  bool normalize_, include_prompt_;
};

/// vector = normalise(Dense(... reduce of the attended tokens))
///
/// Fresh: the `head` given (none), normalised. From a folder: its Pooling, Dense and Normalize modules; what is set here must
/// agree with them.
///
/// Shapes   [T, H] -> Embeddings [N, D].
/// Types    reduced in float32; the head follows autocast.
/// Masks    tokens with `attended` false do not count. A text without tokens gives zeros (MaxPooling: -1e9), never NaN.
/// Errors   FileError R803 (no pooling or no head); ConfigError R320 (another pooling), R321, R322 (contradiction), R323,
///          R324; ShapeError R301.
template <Reduction Reduce>
struct SingleVector {
  static constexpr std::string_view name = Reduce::name;
  using output_type = Embeddings;
  std::optional<bool> normalize{};
  std::vector<DenseLayer> head{};

  static void fields(auto& self, auto&& visit) {
    visit("normalize", self.normalize);
    visit("head", self.head);
  }

  [[nodiscard]] BoundSingleVector<Reduce> bind(std::int64_t hidden, std::uint64_t seed) const {
    return {DenseStack(hidden, head, seed), normalize.value_or(true), true};
  }

  [[nodiscard]] BoundSingleVector<Reduce> bind(std::int64_t hidden, const FolderModules& modules) const;
};

using ClsPooling = SingleVector<ReduceCls>;
using MeanPooling = SingleVector<ReduceMean>;
using MaxPooling = SingleVector<ReduceMax>;
using MeanSqrtLengthPooling = SingleVector<ReduceMeanSqrtLength>;
using WeightedMeanPooling = SingleVector<ReduceWeightedMean>;
using LastTokenPooling = SingleVector<ReduceLastToken>;

namespace detail {

inline constexpr std::string_view pooling_keys[] = {
    ReduceCls::key, ReduceMean::key, ReduceMax::key, ReduceMeanSqrtLength::key, ReduceWeightedMean::key, ReduceLastToken::key};

/// Throws unless the folder's Pooling module is of this way alone.
inline void expect_pooling(const FolderModule& module, std::string_view wanted, std::string_view name) {
  std::string on;
  for (const auto& [key, value] : module.config.items())
    if (key.starts_with("pooling_mode_") && value.is_boolean() && value.get<bool>())
      on += (on.empty() ? "" : " and ") + key.substr(13);
  if (on != wanted.substr(13))
    throw ConfigError("R320", cat("the folder pools by ", on.empty() ? "nothing" : on, ", ", name, " by ", wanted.substr(13)));
}

}  // namespace detail

template <Reduction Reduce>
FolderModules BoundSingleVector<Reduce>::modules() const {
  FolderModule pooling{"Pooling", {{"word_embedding_dimension", head_.input_size()}, {"include_prompt", include_prompt_}}, {}};
  for (const std::string_view key : detail::pooling_keys) pooling.config[std::string(key)] = false;
  pooling.config[std::string(Reduce::key)] = true;
  FolderModules result{pooling};
  for (auto& module : head_.modules()) result.push_back(std::move(module));
  if (normalize_) result.push_back({"Normalize"});
  return result;
}

template <Reduction Reduce>
BoundSingleVector<Reduce> SingleVector<Reduce>::bind(std::int64_t hidden, const FolderModules& modules) const {
  if (modules.empty() || modules.front().type != "Pooling") {
    const bool none = std::none_of(modules.begin(), modules.end(), [](const auto& m) { return m.type == "Pooling"; });
    if (none && !modules.empty())
      throw ConfigError("R320",
                        detail::cat("the folder has no Pooling module but ", modules.front().type, ", as a ColBERT has; ", name,
                                    " gives one vector a text: pass .fresh_head = true to start it"));
    throw FileError("R803",
                    detail::cat("the folder has no Pooling module, so no ", name, ": pass .fresh_head = true to start one"));
  }
  detail::expect_pooling(modules.front(), Reduce::key, name);
  const bool normalized = modules.back().type == "Normalize";
  DenseStack saved(hidden, FolderModules(modules.begin() + 1, modules.end() - (normalized ? 1 : 0)));
  if (normalize && *normalize != normalized)
    throw ConfigError("R322", detail::cat(name, ": normalize is ", *normalize ? "true" : "false", ", in the folder it is not"));
  const std::vector<DenseLayer> layers = saved.specs();
  if (!head.empty() && layers.empty())
    throw FileError("R803", "the folder has no head behind its pooling: pass .fresh_head = true to start one");
  if (!head.empty() &&
      !(head.size() == layers.size() && std::equal(head.begin(), head.end(), layers.begin(), same_spec<DenseLayer>)))
    throw ConfigError("R322", detail::cat(name, ": the head asked for is not that of the folder; leave it empty"));
  return {std::move(saved), normalized, modules.front().config.value("include_prompt", true)};
}

static_assert(PoolingPolicy<MeanPooling>);

}  // namespace toller
