// expect: C109
// SPDX-License-Identifier: Apache-2.0
#include <toller/encoder/bert.hpp>
#include <toller/loss/contrastive.hpp>
#include <toller/pooling/late_interaction.hpp>
#include <toller/pooling/single_vector.hpp>
#include <toller/similarity/cosine.hpp>
#include <toller/similarity/max_sim.hpp>
#include <toller/train/trainer.hpp>

using Embedder = toller::Model<toller::Bert, toller::MeanPooling>;
using Colbert = toller::Model<toller::Bert, toller::LateInteraction>;

struct Misspelt {
  void on_step_end(const toller::StepEnd&) {}
};

void train(Embedder model, const std::vector<toller::Pair>& data) {
  toller::Trainer trainer{model, toller::Contrastive<toller::Cosine>{}};
  trainer.fit(data, {.steps = 1}, Misspelt{});
}
