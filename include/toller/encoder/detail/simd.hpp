// SPDX-License-Identifier: Apache-2.0
// T0. Kernels compiled for several instruction sets from one text, chosen when the program runs.
#pragma once

#include <cstdint>
#include <optional>

#include "toller/core/dropout_hash.hpp"

namespace toller::detail {

/// The instruction sets that kernels are compiled for.
enum class Isa : int { baseline, avx2, avx512 };

/// The best one of this CPU.
inline Isa best_isa() {
#if defined(__x86_64__)
  static const Isa best = [] {
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
      return Isa::avx512;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? Isa::avx2 : Isa::baseline;
  }();
  return best;
#else
  return Isa::baseline;
#endif
}

/// Set by tests to run another instruction set than the best one.
inline std::optional<Isa>& isa_override() {
  static std::optional<Isa> isa;
  return isa;
}

}  // namespace toller::detail

// The compiler lowers vectors by the instruction set of the function they stand in, before it inlines, so every function of a
// kernel must be of that set: the text is included once for each, inside a pragma that sets it.
namespace toller::detail::baseline {
inline constexpr int lanes = 4, tile_rows = 4;
#include "toller/encoder/detail/kernels.inc.hpp"
}  // namespace toller::detail::baseline

#if defined(__x86_64__)

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
namespace toller::detail::avx2 {
inline constexpr int lanes = 8, tile_rows = 4;
#include "toller/encoder/detail/kernels.inc.hpp"
}  // namespace toller::detail::avx2
#if defined(__clang__)
#pragma clang attribute pop
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma"))), apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,fma,prefer-vector-width=512")
#endif
namespace toller::detail::avx512 {
inline constexpr int lanes = 16, tile_rows = 8;
#include "toller/encoder/detail/kernels.inc.hpp"
}  // namespace toller::detail::avx512
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif

namespace toller::detail {

/// The kernels of one instruction set.
struct Kernels {
  decltype(&baseline::multiply) multiply;
  decltype(&baseline::softmax_row) softmax_row;
  decltype(&baseline::softmax_row_backward) softmax_row_backward;
  decltype(&baseline::widen) widen;
  decltype(&baseline::narrow) narrow;
  decltype(&baseline::dropout_row_add) dropout_row_add;
};

inline const Kernels& kernels() {
  static constexpr Kernels plain{baseline::multiply, baseline::softmax_row, baseline::softmax_row_backward,
                                 baseline::widen,    baseline::narrow,      baseline::dropout_row_add};
#if defined(__x86_64__)
  static constexpr Kernels wide{avx2::multiply, avx2::softmax_row, avx2::softmax_row_backward,
                                avx2::widen,    avx2::narrow,      avx2::dropout_row_add};
  static constexpr Kernels widest{avx512::multiply, avx512::softmax_row, avx512::softmax_row_backward,
                                  avx512::widen,    avx512::narrow,      avx512::dropout_row_add};
  const Isa isa = isa_override().value_or(best_isa());
  if (isa == Isa::avx512) return widest;
  if (isa == Isa::avx2) return wide;
#endif
  return plain;
}

}  // namespace toller::detail
