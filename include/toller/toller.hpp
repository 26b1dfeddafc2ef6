// SPDX-License-Identifier: Apache-2.0
// T2. Everything.
#pragma once

#include "toller/colbert.hpp"
#include "toller/dense.hpp"
