// SPDX-License-Identifier: Apache-2.0
// Headers of others that most tests need; none of ours.
#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <catch2/catch_all.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>
