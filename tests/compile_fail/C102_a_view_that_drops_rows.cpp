// expect: C102
// SPDX-License-Identifier: Apache-2.0
#include <range/v3/view/filter.hpp>
#include <toller/encoder/bert.hpp>
#include <toller/loss/contrastive.hpp>
#include <toller/pooling/single_vector.hpp>
#include <toller/similarity/cosine.hpp>
#include <toller/train/trainer.hpp>

void train(toller::Model<toller::Bert, toller::MeanPooling> model, const std::vector<toller::Pair>& data) {
  toller::Trainer trainer{model, toller::Contrastive<toller::Cosine>{}};
  trainer.fit(data | ranges::views::filter([](const toller::Pair& pair) { return !pair.query.empty(); }), {.steps = 1});
}
