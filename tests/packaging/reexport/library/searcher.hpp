// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <toller/core/values.hpp>

/// As many vectors as asked for.
toller::Embeddings some_vectors(std::int64_t count);
