// SPDX-License-Identifier: Apache-2.0
// T0. The one place where the version is written; CMake reads it here.
#pragma once

#define TOLLER_VERSION_MAJOR 0
#define TOLLER_VERSION_MINOR 1
#define TOLLER_VERSION_PATCH 0
#define TOLLER_VERSION "0.1.0"
