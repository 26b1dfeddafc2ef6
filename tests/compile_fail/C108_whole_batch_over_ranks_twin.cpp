// SPDX-License-Identifier: Apache-2.0
#include <toller/encoder/bert.hpp>
#include <toller/loss/contrastive.hpp>
#include <toller/parallelism/single_device.hpp>
#include <toller/pooling/single_vector.hpp>
#include <toller/similarity/cosine.hpp>
#include <toller/train/trainer.hpp>

using Embedder = toller::Model<toller::Bert, toller::MeanPooling>;

/// A loss that needs all rows at once.
struct WholeBatch : toller::Contrastive<toller::Cosine> {
  static constexpr bool in_batch_negatives = false;
  static constexpr bool mean_over_rows = false;
};

/// A parallelism that may have several ranks.
struct Ranks : toller::SingleDevice {
  static constexpr bool distributed = true;
};

void train(Embedder model) {
  toller::Trainer trainer{model, WholeBatch{}, toller::Fp32{}, toller::SingleDevice{}};
}
