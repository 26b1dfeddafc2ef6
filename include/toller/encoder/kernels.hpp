// SPDX-License-Identifier: Apache-2.0
// T1. Which library multiplies the matrices of dense layers on the CPU: a table, never a timing.
#pragma once

#include <ATen/core/Tensor.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <optional>
#include <string>

namespace toller {

/// `aten` is what at::linear picks (MKL in fp32); `onednn` calls oneDNN past it; `widened` computes bfloat16 products in
/// float32 and rounds the result, for CPUs on which that is faster.
enum class LinearKernel : int { aten, onednn, widened };

/// One choice for each of the three products of a dense layer: y = x W', dx = dy W, dW = dy' x. `widened` is for all or none.
struct LinearKernels {
  LinearKernel forward = LinearKernel::aten;
  LinearKernel input = LinearKernel::aten;
  LinearKernel weight = LinearKernel::aten;
};

/// Set to choose one kernel for all products by hand; empty: the table decides.
inline std::optional<LinearKernel>& linear_kernel_override() {
  static std::optional<LinearKernel> choice;
  return choice;
}

/// What the table says for this CPU (or the override); the same on every run of one kind of machine.
[[nodiscard]] LinearKernels linear_kernels(at::ScalarType type);

/// The choice as one word, for recipes: `amd/avx2: fp32 onednn onednn onednn, bf16 ...`.
[[nodiscard]] std::string describe_linear_kernels();

namespace detail {

struct CpuKind {
  bool amd = false;
  bool intel = false;
  bool amx_bf16 = false;
  const char* isa = "default";
};

inline const CpuKind& cpu_kind() {
  static const CpuKind kind = [] {
    CpuKind k;
#if defined(__x86_64__)
    __builtin_cpu_init();
    k.amd = __builtin_cpu_is("amd") != 0;
    k.intel = __builtin_cpu_is("intel") != 0;
    unsigned a = 0, b = 0, c = 0, d = 0;
    k.amx_bf16 = __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d >> 22 & 1U) != 0;
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    k.isa = avx512 ? "avx512" : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? "avx2" : "default";
#endif
    return k;
  }();
  return kind;
}

}  // namespace detail

inline LinearKernels linear_kernels(at::ScalarType type) {
  if (type != at::kFloat && type != at::kBFloat16) return {};
  if (const auto choice = linear_kernel_override())
    if (*choice != LinearKernel::widened || type == at::kBFloat16) return {*choice, *choice, *choice};
  constexpr LinearKernel onednn = LinearKernel::onednn;
  const auto& cpu = detail::cpu_kind();
  // GFLOP/s a core, 4096 rows, 384 <-> 1536. AMD (AVX2 and up), fp32: aten 100-110, onednn 220-255. Intel, AVX512 without AMX:
  // fp32 aten 140-157, onednn 140-161 but 0.1-2 ms for each new number of rows; bf16 aten 78-84, onednn 79-84, widened as fp32.
  if (type == at::kFloat && cpu.amd) return {onednn, onednn, onednn};
  constexpr LinearKernel widened = LinearKernel::widened;
  if (type == at::kBFloat16 && cpu.intel && !cpu.amx_bf16) return {widened, widened, widened};
  return {};
}

inline std::string describe_linear_kernels() {
  const auto word = [](LinearKernel k) {
    return std::string(k == LinearKernel::onednn ? "onednn" : k == LinearKernel::widened ? "widened" : "aten");
  };
  const auto row = [&](at::ScalarType type) {
    const LinearKernels k = linear_kernels(type);
    return word(k.forward) + ' ' + word(k.input) + ' ' + word(k.weight);
  };
  const auto& cpu = detail::cpu_kind();
  return std::string(cpu.amd     ? "amd"
                     : cpu.intel ? "intel"
                                 : "other") +
         '/' + cpu.isa + ": fp32 " + row(at::kFloat) + ", bf16 " + row(at::kBFloat16);
}

}  // namespace toller
