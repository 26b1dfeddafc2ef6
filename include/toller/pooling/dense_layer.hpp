// SPDX-License-Identifier: Apache-2.0
// T0. One layer of a head, as it is asked for.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "toller/core/error.hpp"

namespace toller {

/// What is applied to each element after a dense layer; `gelu` is the exact one.
enum class DenseActivation { identity, relu, gelu, tanh, sigmoid };

/// y = dropout(activation(W x + b) + r),   r = nothing, x (`residual`), or R x (`residual` where the sizes differ)
///
/// Units    `out` features, 1 to 65536; `dropout` the share that is zeroed in training.
struct DenseLayer {
  static constexpr std::string_view name = "DenseLayer";
  static constexpr std::int64_t largest_out = 65536;
  std::int64_t out = 0;
  bool bias = true;
  DenseActivation activation = DenseActivation::identity;
  bool residual = false;
  double dropout = 0;

  static void fields(auto& self, auto&& visit) {
    visit("out", self.out);
    visit("bias", self.bias);
    visit("activation", self.activation);
    visit("residual", self.residual);
    visit("dropout", self.dropout);
  }

  /// Errors   ConfigError R324.
  void check() const {
    if (out < 1 || out > largest_out)
      throw ConfigError("R324", detail::cat("a dense layer must have 1 to ", largest_out, " outputs (out), got ", out));
    if (!(dropout >= 0 && dropout < 1))
      throw ConfigError("R324", detail::cat("a dense layer's dropout must be in [0, 1), got ", dropout));
  }
};

/// The head of contrastive pre-training: Linear, ReLU, Dropout, Linear.
[[nodiscard]] inline std::vector<DenseLayer> projection_head(std::int64_t hidden, std::int64_t out, double dropout = 0.1) {
  return {{.out = hidden, .activation = DenseActivation::relu, .dropout = dropout}, {.out = out}};
}

}  // namespace toller
