// expect: C106
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

/// A precision that has no kernel for MaxSim.
struct NoMaxSim : toller::Fp32 {
  template <class Other>
  static constexpr bool unsupported_with = std::is_same_v<Other, toller::Contrastive<toller::MaxSim>>;
};

void train(Colbert model) {
  toller::Trainer trainer{model, toller::Contrastive<toller::MaxSim>{}, NoMaxSim{}};
}
