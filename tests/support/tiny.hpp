// SPDX-License-Identifier: Apache-2.0
// A tiny BERT with its tokenizer, and a few pairs to train it on.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "toller/text/records.hpp"

/// A bare encoder folder (config.json, model.safetensors, tokenizer.json): 900 words, 3 layers.
[[nodiscard]] inline std::filesystem::path tiny_folder() {
  const char* moved = std::getenv("TOLLER_GOLDEN");  // programs that run elsewhere than they were built
  return std::filesystem::path(moved == nullptr ? TOLLER_GOLDEN : moved) / "encoders" / "bert_classifier";
}

[[nodiscard]] inline std::vector<toller::Pair> tiny_pairs() {
  return {{"library for images", "This package reads and writes images of many kinds."},
          {"terminal editor", "A small editor for text files that runs in a terminal."},
          {"network tool", "Shows which programs use the network, and how much."},
          {"python module", "This module lets Python programs talk to devices."},
          {"game of cards", "A game in which cards are laid in order, for one player."},
          {"mail server", "Takes mail from other servers and keeps it for its users!"},
          {"font viewer", "Shows the letters of a font, large and small."},
          {"music player", "Plays music files, and lists them by name or by year."},
          {"", "?!"},
          {"data base", "Stores tables of data and answers questions about them."}};
}
