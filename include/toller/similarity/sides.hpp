// SPDX-License-Identifier: Apache-2.0
// T1. What every similarity asks of its two sides.
#pragma once

#include "toller/core/error.hpp"
#include "toller/core/values.hpp"

namespace toller::detail {

/// Errors   ShapeError R310 unless both are [any, D] with one D on one device.
inline void expect_same_width(std::string_view name, const at::Tensor& queries, const at::Tensor& documents) {
  if (!queries.defined() || !documents.defined() || queries.dim() != 2 || documents.dim() != 2)
    throw ShapeError("R310", cat(name, ": both sides must be matrices [rows, D]"));
  if (queries.size(1) != documents.size(1))
    throw ShapeError("R310", cat(name, ": queries have size ", queries.size(1), ", documents ", documents.size(1)));
  if (queries.device() != documents.device())
    throw ShapeError("R310",
                     cat(name, ": queries are on ", queries.device().str(), ", documents on ", documents.device().str()));
}

}  // namespace toller::detail
