// SPDX-License-Identifier: Apache-2.0
// T1. Shape checks at the borders between rooms.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "toller/core/error.hpp"

namespace toller {

/// Any size is right in this place of `expect_shape`.
inline constexpr std::int64_t any_size = -1;

namespace detail {

template <class Sizes>
[[nodiscard]] std::string print_shape(const Sizes& sizes) {
  std::string text = "[";
  for (const std::int64_t s : sizes) text += (text.size() > 1 ? ", " : "") + (s < 0 ? "any" : std::to_string(s));
  return text + "]";
}

}  // namespace detail

/// Throws unless the tensor has exactly these sizes (`any_size` matches all).
///
/// Errors   ShapeError R301: `queries: expected [any, 128], got [32, 96]`.
inline void expect_shape(std::string_view what, const at::Tensor& tensor, std::initializer_list<std::int64_t> sizes) {
  bool fits = tensor.defined() && tensor.dim() == static_cast<std::int64_t>(sizes.size());
  if (fits) {
    std::int64_t i = 0;
    for (const std::int64_t size : sizes) fits = (size == any_size || tensor.size(i) == size) && fits, ++i;
  }
  if (!fits)
    throw ShapeError("R301", detail::cat(what, ": expected ", detail::print_shape(sizes), ", got ",
                                         tensor.defined() ? detail::print_shape(tensor.sizes()) : "no tensor"));
}

}  // namespace toller
