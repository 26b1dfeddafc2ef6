// SPDX-License-Identifier: Apache-2.0
// Fine-tunes a ColBERT on pairs. usage: colbert MODEL_DIR PAIRS.jsonl OUTPUT_DIR
#include <toller/colbert.hpp>

#include <iostream>

int main(int argc, char** argv) try {
  if (argc != 4) return std::cerr << "usage: colbert MODEL_DIR PAIRS.jsonl OUTPUT_DIR\n", 2;
  using Colbert = toller::Model<toller::Bert, toller::LateInteraction>;
  auto model = Colbert::from_pretrained(argv[1], {.dim = 128}, {.fresh_head = true, .seed = 0});

  toller::Trainer trainer{model, toller::Contrastive<toller::MaxSim>{.temperature = 1.0}, toller::Bf16Mixed{},
                          toller::SingleDevice{}};
  auto pairs = toller::read_jsonl<toller::Pair>(argv[2]);
  trainer.fit(pairs, {.epochs = 1, .batch_size = 32, .optimizer = {.lr = 3e-5}}, toller::ProgressBar{},
              toller::TensorBoard{"runs"}, toller::Checkpoint{.dir = "runs/ckpt", .every_steps = 500});
  model.save_pretrained(argv[3]);  // pylate.models.ColBERT(OUTPUT_DIR) loads it
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
