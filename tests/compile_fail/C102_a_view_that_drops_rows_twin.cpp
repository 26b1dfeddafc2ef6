// SPDX-License-Identifier: Apache-2.0
#include <toller/encoder/bert.hpp>
#include <toller/loss/contrastive.hpp>
#include <toller/pooling/single_vector.hpp>
#include <toller/similarity/cosine.hpp>
#include <toller/text/views.hpp>
#include <toller/train/trainer.hpp>

void train(toller::Model<toller::Bert, toller::MeanPooling> model, const std::vector<toller::Pair>& data) {
  toller::Trainer trainer{model, toller::Contrastive<toller::Cosine>{}};
  trainer.fit(toller::keep_if(data, [](const toller::Pair& pair) { return !pair.query.empty(); }), {.steps = 1});
}
