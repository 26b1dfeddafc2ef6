// SPDX-License-Identifier: Apache-2.0
// T2. Door: late-interaction retrievers (ColBERT).
#pragma once

#include "toller/common.hpp"
#include "toller/loss/contrastive.hpp"
#include "toller/pooling/late_interaction.hpp"
#include "toller/similarity/max_sim.hpp"
