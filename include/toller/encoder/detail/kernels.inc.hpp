// SPDX-License-Identifier: Apache-2.0
// T0. The text of the vector kernels; simd.hpp includes it once for each instruction set, inside a namespace that sets `lanes`
// (floats a register) and `tile_rows`. No templates here: the pragma that sets the instruction set does not reach them.

using Vec = float __attribute__((vector_size(lanes * 4)));
using Bits = std::uint32_t __attribute__((vector_size(lanes * 4)));
using LooseVec = float __attribute__((vector_size(lanes * 4), aligned(4), may_alias));
using Halves = std::uint16_t __attribute__((vector_size(lanes * 2)));
using LooseHalves = std::uint16_t __attribute__((vector_size(lanes * 2), aligned(2), may_alias));

inline Vec load(const float* from) {
  return *reinterpret_cast<const LooseVec*>(from);
}
inline void store(float* to, Vec value) {
  *reinterpret_cast<LooseVec*>(to) = value;
}
inline Vec splat(float value) {
  return Vec{} + value;
}
inline Vec larger(Vec a, Vec b) {
  return a > b ? a : b;
}

inline float sum_of(Vec v) {
  float sum = 0;
  for (int l = 0; l < lanes; ++l) sum += v[l];
  return sum;
}

/// 0, 1, 2, ... of the columns from `first` on.
inline Bits columns_from(std::int64_t first) {
  Bits c{};
  for (int l = 0; l < lanes; ++l) c[l] = static_cast<std::uint32_t>(first) + static_cast<std::uint32_t>(l);
  return c;
}

/// e^x, 0 below -87; relative error under 2e-7 for x <= 0.
///
/// Source   range reduction by ln 2 in two parts and the polynomial of Cephes' expf.
inline Vec exponential(Vec x) {
  const Vec low = splat(-87.F);
  const auto tiny = x < low;
  x = larger(x, low);
  Vec n = x * 1.44269504088896341F + 12582912.F;
  const Bits exponent = reinterpret_cast<Bits>(n) << 23;
  n -= 12582912.F;
  const Vec r = x - n * 0.693359375F + n * 2.12194440e-4F;
  Vec y = r * 1.9875691500e-4F + 1.3981999507e-3F;
  y = y * r + 8.3334519073e-3F;
  y = y * r + 4.1665795894e-2F;
  y = y * r + 1.6666665459e-1F;
  y = y * r + 5.0000001201e-1F;
  y = y * (r * r) + r + 1.F;
  y = reinterpret_cast<Vec>(reinterpret_cast<Bits>(y) + exponent);
  return tiny ? Vec{} : y;
}

/// Factors of dropout for a run of columns: 0 or `scale`.
inline Vec dropout_factors(DropoutRow row, DropoutRate rate, Bits columns) {
  Bits x = columns * dropout_column_step + row.first;
  x = (x ^ (x >> 16)) * dropout_multiplier_1 + row.second;
  x = (x ^ (x >> 15)) * dropout_multiplier_2;
  x = x ^ (x >> 15);
  return x < (Bits{} + rate.threshold) ? Vec{} : splat(rate.scale);
}

inline void tile_of_two(std::int64_t k, const float* a, std::int64_t a_row, std::int64_t a_column, const float* b,
                        std::int64_t b_row, float* c, std::int64_t c_row) {
  Vec sum[tile_rows][2] = {};
  for (std::int64_t p = 0; p < k; ++p) {
    const Vec b0 = load(b + p * b_row), b1 = load(b + p * b_row + lanes);
#pragma GCC unroll 8
    for (int r = 0; r < tile_rows; ++r) {
      const Vec factor = splat(a[r * a_row + p * a_column]);
      sum[r][0] += factor * b0;
      sum[r][1] += factor * b1;
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < tile_rows; ++r) {
    store(c + r * c_row, sum[r][0]);
    store(c + r * c_row + lanes, sum[r][1]);
  }
}

inline void tile_of_one(std::int64_t k, const float* a, std::int64_t a_row, std::int64_t a_column, const float* b,
                        std::int64_t b_row, float* c, std::int64_t c_row) {
  Vec sum[tile_rows] = {};
  for (std::int64_t p = 0; p < k; ++p) {
    const Vec b0 = load(b + p * b_row);
#pragma GCC unroll 8
    for (int r = 0; r < tile_rows; ++r) sum[r] += splat(a[r * a_row + p * a_column]) * b0;
  }
#pragma GCC unroll 8
  for (int r = 0; r < tile_rows; ++r) store(c + r * c_row, sum[r]);
}

/// c = a b for small matrices: a[i, p] is at a + i a_row + p a_column; m and n are multiples of 16, k is any.
inline void multiply(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t a_row, std::int64_t a_column,
                     const float* b, std::int64_t b_row, float* c, std::int64_t c_row) {
  std::int64_t j = 0;
  for (; j + 2 * lanes <= n; j += 2 * lanes)
    for (std::int64_t i = 0; i < m; i += tile_rows)
      tile_of_two(k, a + i * a_row, a_row, a_column, b + j, b_row, c + i * c_row + j, c_row);
  for (; j < n; j += lanes)
    for (std::int64_t i = 0; i < m; i += tile_rows)
      tile_of_one(k, a + i * a_row, a_row, a_column, b + j, b_row, c + i * c_row + j, c_row);
}

/// Turns one row of scores into probabilities times dropout factors, in place; gives the log of the sum of exponentials.
inline float softmax_row(float* scores, const float* bias, std::int64_t n, const DropoutRow* row, DropoutRate rate) {
  Vec most = splat(-1e30F);
  for (std::int64_t j = 0; j < n; j += lanes) most = larger(most, load(scores + j) + load(bias + j));
  float top = most[0];
  for (int l = 1; l < lanes; ++l) top = top > most[l] ? top : most[l];
  Vec sum{};
  for (std::int64_t j = 0; j < n; j += lanes) {
    const Vec e = exponential(load(scores + j) + load(bias + j) - top);
    sum += e;
    store(scores + j, e);
  }
  const float total = sum_of(sum);
  const float scale = 1.F / total;
  if (row == nullptr) {
    for (std::int64_t j = 0; j < n; j += lanes) store(scores + j, load(scores + j) * scale);
  } else {
    Bits columns = columns_from(0);
    for (std::int64_t j = 0; j < n; j += lanes, columns += lanes)
      store(scores + j, load(scores + j) * dropout_factors(*row, rate, columns) * scale);
  }
  return top + __builtin_logf(total);
}

/// From scores and the gradient of the probabilities, in place: probabilities times dropout factors, and the scores' gradient.
inline void softmax_row_backward(float* scores, float* grad, const float* bias, std::int64_t n, float log_sum, float delta,
                                 const DropoutRow* row, DropoutRate rate) {
  Bits columns = columns_from(0);
  for (std::int64_t j = 0; j < n; j += lanes, columns += lanes) {
    const Vec p = exponential(load(scores + j) + load(bias + j) - log_sum);
    const Vec factor = row == nullptr ? splat(1.F) : dropout_factors(*row, rate, columns);
    store(scores + j, p * factor);
    store(grad + j, p * (load(grad + j) * factor - delta));
  }
}

inline Vec load_bf16(const std::uint16_t* from) {
  const auto halves = static_cast<Halves>(*reinterpret_cast<const LooseHalves*>(from));
  return reinterpret_cast<Vec>(__builtin_convertvector(halves, Bits) << 16);
}

/// Rounds to nearest even; every NaN that arithmetic makes stays one.
inline void store_bf16(std::uint16_t* to, Vec value) {
  const Bits bits = reinterpret_cast<Bits>(value);
  *reinterpret_cast<LooseHalves*>(to) = __builtin_convertvector((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16, Halves);
}

/// to = scale * from, from bfloat16.
inline void widen(const std::uint16_t* from, float* to, std::int64_t n, float scale) {
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) store(to + i, load_bf16(from + i) * scale);
  for (; i < n; ++i) {
    const std::uint32_t bits = static_cast<std::uint32_t>(from[i]) << 16;
    float value = 0;
    __builtin_memcpy(&value, &bits, 4);
    to[i] = value * scale;
  }
}

/// to = scale * from, to bfloat16.
inline void narrow(const float* from, std::uint16_t* to, std::int64_t n, float scale) {
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) store_bf16(to + i, load(from + i) * scale);
  for (; i < n; ++i) {
    const float value = from[i] * scale;
    std::uint32_t bits = 0;
    __builtin_memcpy(&bits, &value, 4);
    to[i] = static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
  }
}

/// to = x * dropout factors + residual (if there is one) for one row.
inline void dropout_row_add(const float* x, const float* residual, float* to, std::int64_t n, DropoutRow row,
                            DropoutRate rate) {
  std::int64_t j = 0;
  Bits columns = columns_from(0);
  for (; j + lanes <= n; j += lanes, columns += lanes) {
    const Vec kept = load(x + j) * dropout_factors(row, rate, columns);
    store(to + j, residual == nullptr ? kept : load(residual + j) + kept);
  }
  for (; j < n; ++j) {
    const float kept = dropout_bits(row, static_cast<std::uint32_t>(j)) < rate.threshold ? 0.F : x[j] * rate.scale;
    to[j] = residual == nullptr ? kept : residual[j] + kept;
  }
}
