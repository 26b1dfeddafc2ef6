// SPDX-License-Identifier: Apache-2.0
// T2. The pooling that the folder names, for programs that learn it at run time.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "toller/pooling/single_vector.hpp"

namespace toller {

/// `AutoPooling` with its weights: one of the bound poolings to one vector.
class BoundAutoPooling {
public:
  using Any = std::variant<BoundSingleVector<ReduceMean>, BoundSingleVector<ReduceCls>, BoundSingleVector<ReduceMax>,
                           BoundSingleVector<ReduceMeanSqrtLength>, BoundSingleVector<ReduceWeightedMean>,
                           BoundSingleVector<ReduceLastToken>>;
  explicit BoundAutoPooling(Any pooling) : pooling_(std::move(pooling)) {}

  [[nodiscard]] Embeddings pool(const TokenEmbeddings& tokens) const {
    return std::visit([&](const auto& p) { return p.pool(tokens); }, pooling_);
  }
  [[nodiscard]] std::int64_t output_size() const {
    return std::visit([](const auto& p) { return p.output_size(); }, pooling_);
  }
  [[nodiscard]] Parameters parameters() const {
    return std::visit([](const auto& p) { return p.parameters(); }, pooling_);
  }
  [[nodiscard]] FolderModules modules() const {
    return std::visit([](const auto& p) { return p.modules(); }, pooling_);
  }
  void to(at::Device device) {
    std::visit([&](auto& p) { p.to(device); }, pooling_);
  }

private:
  Any pooling_;
};

/// One vector a text, pooled as the folder says; fresh, by `kind`.
///
/// `kind` is the last part of Sentence Transformers' key: cls_token, mean_tokens, max_tokens, mean_sqrt_len_tokens,
/// weightedmean_tokens, lasttoken. Empty: as saved, else mean_tokens.
///
/// Shapes   [T, H] -> Embeddings [N, D].
/// Errors   those of `SingleVector`; ConfigError R325: a kind that does not exist.
struct AutoPooling {
  static constexpr std::string_view name = "AutoPooling";
  using output_type = Embeddings;
  std::optional<std::string> kind{};

  static void fields(auto& self, auto&& visit) { visit("kind", self.kind); }

  [[nodiscard]] BoundAutoPooling bind(std::int64_t hidden, std::uint64_t seed) const {
    return choose(kind.value_or("mean_tokens"), hidden, seed);
  }
  [[nodiscard]] BoundAutoPooling bind(std::int64_t hidden, const FolderModules& modules) const {
    std::string saved = "mean_tokens";
    if (!modules.empty())
      for (const auto& [key, on] : modules.front().config.items())
        if (key.starts_with("pooling_mode_") && on == true) saved = key.substr(13);
    return choose(kind.value_or(saved), hidden, modules);
  }

private:
  template <class From>
  [[nodiscard]] static BoundAutoPooling choose(const std::string& wanted, std::int64_t hidden, const From& from) {
    std::optional<BoundAutoPooling> chosen;
    const auto offer = [&]<class Reduce>(const SingleVector<Reduce>& pooling) {
      if (wanted == Reduce::key.substr(13)) chosen.emplace(pooling.bind(hidden, from));
    };
    offer(MeanPooling{}), offer(ClsPooling{}), offer(MaxPooling{});
    offer(MeanSqrtLengthPooling{}), offer(WeightedMeanPooling{}), offer(LastTokenPooling{});
    if (!chosen) throw ConfigError("R325", detail::cat("there is no pooling \"", wanted, "\""));
    return *chosen;
  }
};

static_assert(PoolingPolicy<AutoPooling>);

}  // namespace toller
