// SPDX-License-Identifier: Apache-2.0
// T1. The element types of safetensors files and torch's names for them.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>
#include <string_view>

namespace toller::detail {

struct Dtype {
  std::string_view name;
  at::ScalarType type;
};

inline constexpr std::array<Dtype, 18> dtypes{{{"F64", at::ScalarType::Double},
                                               {"F32", at::ScalarType::Float},
                                               {"F16", at::ScalarType::Half},
                                               {"BF16", at::ScalarType::BFloat16},
                                               {"I64", at::ScalarType::Long},
                                               {"I32", at::ScalarType::Int},
                                               {"I16", at::ScalarType::Short},
                                               {"I8", at::ScalarType::Char},
                                               {"U64", at::ScalarType::UInt64},
                                               {"U32", at::ScalarType::UInt32},
                                               {"U16", at::ScalarType::UInt16},
                                               {"U8", at::ScalarType::Byte},
                                               {"BOOL", at::ScalarType::Bool},
                                               {"F8_E4M3", at::ScalarType::Float8_e4m3fn},
                                               {"F8_E5M2", at::ScalarType::Float8_e5m2},
                                               {"F8_E8M0", at::ScalarType::Float8_e8m0fnu},
                                               {"C64", at::ScalarType::ComplexFloat},
                                               {"C128", at::ScalarType::ComplexDouble}}};

[[nodiscard]] inline std::optional<at::ScalarType> dtype_of_name(std::string_view name) {
  for (const Dtype& dtype : dtypes)
    if (dtype.name == name) return dtype.type;
  return std::nullopt;
}

[[nodiscard]] inline std::optional<std::string_view> name_of_dtype(at::ScalarType type) {
  for (const Dtype& dtype : dtypes)
    if (dtype.type == type) return dtype.name;
  return std::nullopt;
}

}  // namespace toller::detail
