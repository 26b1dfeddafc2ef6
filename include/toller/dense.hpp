// SPDX-License-Identifier: Apache-2.0
// T2. Door: dense embedders, one vector a text.
#pragma once

#include "toller/common.hpp"
#include "toller/loss/contrastive.hpp"
#include "toller/pooling/single_vector.hpp"
#include "toller/similarity/cosine.hpp"
#include "toller/similarity/dot.hpp"
