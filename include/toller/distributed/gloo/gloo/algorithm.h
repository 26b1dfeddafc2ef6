// SPDX-License-Identifier: Apache-2.0
// Declarations that torch/csrc/distributed/c10d/ProcessGroupGloo.hpp asks for; the code is in libtorch_cpu.so. Nothing of it is used here.
#pragma once
