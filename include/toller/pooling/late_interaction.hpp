// SPDX-License-Identifier: Apache-2.0
// T2. One small vector for each token: ColBERT's head.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "toller/core/full_precision.hpp"
#include "toller/core/normalize.hpp"
#include "toller/pooling/dense_stack.hpp"
#include "toller/pooling/detail/keep_tokens.hpp"
#include "toller/pooling/pooling.hpp"

namespace toller {

/// `LateInteraction` with its weights.
class BoundLateInteraction {
public:
  BoundLateInteraction(DenseStack head, bool normalize) : head_(std::move(head)), normalize_(normalize) {}

  /// Drops the tokens whose `scored` is false, then projects the others.
  [[nodiscard]] MultiVector pool(const TokenEmbeddings& tokens) const {
    const TokenRuns runs = detail::keep_tokens(tokens, tokens.batch.scored);
    const auto& key = tokens.batch.dropout_key;
    const auto keys = key && head_.has_dropout() ? detail::row_keys(runs, tokens.batch) : std::vector<std::uint64_t>{};
    const at::Tensor vectors = full_precision(head_.forward(runs.values, key, keys));
    return {normalize_ ? normalize_rows(vectors) : vectors, runs.offsets};
  }

  [[nodiscard]] std::int64_t output_size() const { return head_.output_size(); }
  [[nodiscard]] Parameters parameters() const { return head_.parameters(); }
  [[nodiscard]] FolderModules modules() const { return head_.modules(); }
  void to(at::Device device) { head_.to(device); }

private:
  DenseStack head_;
  bool normalize_;
};

/// vector(t) = normalise(Dense(... hidden(t))) for each scored token
///
/// Fresh: one layer to `dim` features (128), without activation, with `bias` (no) - or the `layers` given. From a folder: its
/// Dense modules; what is set here must agree with them. PyLate appends a further layer when another size is asked for; here
/// that is an error, and a fresh head is asked for explicitly.
///
/// Shapes   [T, H] -> MultiVector [T', D].
/// Types    vectors in float32; the projection follows autocast.
/// Masks    tokens with `scored` false are dropped before the projection.
/// Errors   FileError R803 (no head); ConfigError R320 (a pooling to one vector), R321, R322 (contradiction), R323, R324;
///          ShapeError R301.
/// Source   Khattab and Zaharia 2020, "ColBERT".
struct LateInteraction {
  static constexpr std::string_view name = "LateInteraction";
  using output_type = MultiVector;
  std::optional<std::int64_t> dim{};
  std::optional<bool> bias{};
  std::vector<DenseLayer> layers{};
  std::optional<bool> normalize{};

  static void fields(auto& self, auto&& visit) {
    visit("dim", self.dim);
    visit("bias", self.bias);
    visit("layers", self.layers);
    visit("normalize", self.normalize);
  }

  /// The layers of a fresh head.
  [[nodiscard]] std::vector<DenseLayer> fresh_layers() const {
    if (dim && (*dim < 1 || *dim > DenseLayer::largest_out))
      throw ConfigError("R324", detail::cat("LateInteraction: dim must be in 1 .. ", DenseLayer::largest_out, ", got ", *dim));
    if (layers.empty()) return {{.out = dim.value_or(128), .bias = bias.value_or(false)}};
    if (bias) throw ConfigError("R322", "LateInteraction: set the bias in each of the layers, or leave the layers empty");
    if (dim && *dim != layers.back().out)
      throw ConfigError("R322", detail::cat("LateInteraction: dim is ", *dim, " but the last layer gives ", layers.back().out));
    return layers;
  }

  [[nodiscard]] BoundLateInteraction bind(std::int64_t hidden, std::uint64_t seed) const {
    return {DenseStack(hidden, fresh_layers(), seed), normalize.value_or(true)};
  }

  [[nodiscard]] BoundLateInteraction bind(std::int64_t hidden, const FolderModules& modules) const;
};

inline BoundLateInteraction LateInteraction::bind(std::int64_t hidden, const FolderModules& modules) const {
  FolderModules dense;
  bool one_vector = false;
  for (const FolderModule& module : modules) {
    one_vector = one_vector || module.type == "Pooling";
    if (module.type != "Pooling" && module.type != "Normalize") dense.push_back(module);
  }
  if (dense.empty())
    throw FileError("R803", "the folder has no Dense module, so no LateInteraction head: pass .fresh_head = true to start one");
  if (one_vector)
    throw ConfigError("R320",
                      "the folder pools each text to one vector, LateInteraction keeps one for each token: "
                      "pass .fresh_head = true to start a new head");
  DenseStack head(hidden, dense);
  if (!layers.empty()) {
    std::vector<DenseLayer> saved = head.specs();
    const bool same =
        saved.size() == layers.size() && std::equal(saved.begin(), saved.end(), layers.begin(), same_spec<DenseLayer>);
    if (!same) throw ConfigError("R322", "LateInteraction: the layers asked for are not those of the folder; leave them empty");
  }
  if (dim && *dim != head.output_size())
    throw ConfigError("R322",
                      detail::cat("LateInteraction: dim is ", *dim, " but the folder's head gives ", head.output_size()));
  if (bias && *bias != head.specs().back().bias)
    throw ConfigError("R322", detail::cat("LateInteraction: bias is ", *bias ? "true" : "false", ", in the folder it is not"));
  return {std::move(head), normalize.value_or(true)};
}

static_assert(PoolingPolicy<LateInteraction>);

}  // namespace toller
