// expect: C104
// SPDX-License-Identifier: Apache-2.0
#include <toller/encoder/bert.hpp>
#include <toller/loss/contrastive.hpp>
#include <toller/parallelism/single_device.hpp>
#include <toller/pooling/single_vector.hpp>
#include <toller/similarity/cosine.hpp>
#include <toller/step/accumulate.hpp>
#include <toller/train/trainer.hpp>

using Embedder = toller::Model<toller::Bert, toller::MeanPooling>;

void train(Embedder model) {
  toller::Trainer trainer{model, toller::Contrastive<toller::Cosine>{}, toller::Fp32{}, toller::SingleDevice{},
                          toller::Accumulate<>{.steps = 4}};
}
