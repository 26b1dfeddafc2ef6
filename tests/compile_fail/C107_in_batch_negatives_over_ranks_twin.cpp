// SPDX-License-Identifier: Apache-2.0
#include <toller/encoder/bert.hpp>
#include <toller/loss/contrastive.hpp>
#include <toller/parallelism/single_device.hpp>
#include <toller/pooling/single_vector.hpp>
#include <toller/similarity/cosine.hpp>
#include <toller/train/trainer.hpp>

using Embedder = toller::Model<toller::Bert, toller::MeanPooling>;

/// A parallelism that may have several ranks.
struct Ranks : toller::SingleDevice {
  static constexpr bool distributed = true;
};

void train(Embedder model) {
  toller::Trainer trainer{model, toller::Contrastive<toller::Cosine, toller::LocalNegatives>{}, toller::Fp32{}, Ranks{}};
}
