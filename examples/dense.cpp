// SPDX-License-Identifier: Apache-2.0
// Fine-tunes a dense embedder on pairs. usage: dense MODEL_DIR PAIRS.jsonl OUTPUT_DIR
#include <toller/dense.hpp>

#include <iostream>

int main(int argc, char** argv) try {
  if (argc != 4) return std::cerr << "usage: dense MODEL_DIR PAIRS.jsonl OUTPUT_DIR\n", 2;
  using Embedder = toller::Model<toller::Bert, toller::MeanPooling>;
  auto model = Embedder::from_pretrained(argv[1]);

  toller::Trainer trainer{model, toller::Contrastive<toller::Cosine>{.temperature = 0.05}, toller::Bf16Mixed{},
                          toller::SingleDevice{}};
  auto pairs = toller::read_jsonl<toller::Pair>(argv[2]);
  trainer.fit(pairs, {.epochs = 1, .batch_size = 32, .optimizer = {.lr = 3e-5}}, toller::ProgressBar{},
              toller::TensorBoard{"runs"}, toller::Checkpoint{.dir = "runs/ckpt", .every_steps = 500});
  model.save_pretrained(argv[3]);  // sentence_transformers.SentenceTransformer(OUTPUT_DIR) loads it
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
