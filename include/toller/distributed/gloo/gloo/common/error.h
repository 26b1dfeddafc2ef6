// SPDX-License-Identifier: Apache-2.0
// Declarations that torch/csrc/distributed/c10d/ProcessGroupGloo.hpp asks for. Nothing of it is used here.
#pragma once
