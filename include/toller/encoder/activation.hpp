// SPDX-License-Identifier: Apache-2.0
// T0. The activations of feed-forward layers.
#pragma once

namespace toller {

/// `gelu` is x Phi(x) by the error function; `gelu_tanh` its approximation by tanh (`gelu_new`).
enum class Activation : int { none, gelu, gelu_tanh, relu };

}  // namespace toller
