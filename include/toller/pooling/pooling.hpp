// SPDX-License-Identifier: Apache-2.0
// T1. What a pooling must have.
#pragma once

#include <concepts>
#include <cstdint>

#include "toller/core/fields.hpp"
#include "toller/core/values.hpp"
#include "toller/store/model_folder.hpp"

namespace toller {

/// One of the three things that models compare.
template <class T>
concept PooledValue = std::same_as<T, Embeddings> || std::same_as<T, MultiVector> || std::same_as<T, Logits>;

/// What `bind` gives: the pooling with its weights. A handle: copies share weights.
///
/// `modules` is what a saved folder holds of it; `output_size` is D (or L).
template <class B, class Output>
concept BoundPooling = requires(B& bound, const B& fixed, const TokenEmbeddings& tokens, at::Device device) {
  { fixed.pool(tokens) } -> std::same_as<Output>;
  { fixed.output_size() } -> std::convertible_to<std::int64_t>;
  { fixed.parameters() } -> std::same_as<Parameters>;
  { fixed.modules() } -> std::same_as<FolderModules>;
  bound.to(device);
};

/// A pooling spec: says what it gives, and makes the bound pooling fresh or from a saved folder's modules.
///
/// `bind(H, seed)` makes fresh weights. `bind(H, modules)` takes the saved ones; fields of the spec that are empty are as
/// saved, a field that contradicts the folder is a ConfigError, and a folder that lacks the head is a FileError (R803).
template <class P>
concept PoolingPolicy = Spec<P> && PooledValue<typename P::output_type> &&
    requires(const P& pooling, std::int64_t hidden, std::uint64_t seed, const FolderModules& modules) {
  { pooling.bind(hidden, seed) } -> BoundPooling<typename P::output_type>;
  { pooling.bind(hidden, modules) } -> BoundPooling<typename P::output_type>;
};

/// The bound type of a pooling spec.
template <PoolingPolicy P>
using bound_pooling_t = decltype(std::declval<const P&>().bind(std::int64_t{}, std::uint64_t{}));

}  // namespace toller
