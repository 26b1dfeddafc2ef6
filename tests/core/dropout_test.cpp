// SPDX-License-Identifier: Apache-2.0
#include "toller/core/dropout.hpp"

using namespace toller;

TEST_CASE("rows of dropout follow their keys, and keep the share and the scale they promise", "[laws]") {
  const at::Tensor ones = at::ones({3, 20000});
  const at::Tensor mask = dropout_rows(ones, 0.25, 7, 1, {11, 12, 13});
  const at::Tensor scale = at::full({}, 1 / 0.75F), kept = mask.gt(0);
  REQUIRE(mask.equal(kept.to(at::kFloat) * scale));
  REQUIRE(kept.to(at::kDouble).mean(1).sub(0.75).abs().max().item<double>() < 0.0153);  // five standard deviations

  REQUIRE(dropout_rows(ones, 0.25, 7, 1, {13, 11, 12}).equal(mask.roll(1, 0)));
  REQUIRE(dropout_rows(ones.slice(1, 0, 50), 0.25, 7, 1, {11, 12, 13}).equal(mask.slice(1, 0, 50)));
  REQUIRE(dropout_rows(ones, 0, 7, 1, {11, 12, 13}).equal(ones));

  // Another row, site or key gives an independent mask: two agree in 0.75^2 + 0.25^2 of the places.
  const auto agreement = [&](const at::Tensor& a, const at::Tensor& b) {
    return a.gt(0).eq(b.gt(0)).to(at::kDouble).mean().item<double>();
  };
  CHECK(std::abs(agreement(mask[0], mask[1]) - 0.625) < 0.0172);
  CHECK(std::abs(agreement(mask, dropout_rows(ones, 0.25, 7, 2, {11, 12, 13})) - 0.625) < 0.0099);
  CHECK(std::abs(agreement(mask, dropout_rows(ones, 0.25, 8, 1, {11, 12, 13})) - 0.625) < 0.0099);
}
