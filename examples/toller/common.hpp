// SPDX-License-Identifier: Apache-2.0
// What the commands share: options that mean the same everywhere, and the choice of a model's types at run time.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "toller/encoder/auto_encoder.hpp"
#include "toller/export/model_folder.hpp"
#include "toller/pooling/late_interaction.hpp"
#include "toller/pooling/single_vector.hpp"
#include "toller/precision/bf16_mixed.hpp"
#include "toller/precision/fp32.hpp"
#include "toller/train/model.hpp"

namespace program {

using toller::AutoEncoder;
namespace fs = std::filesystem;

/// `--threads`, `--device`, `--precision`: how the numbers are computed.
struct Compute {
  int threads = 0;
  std::string device = "auto";
  std::string precision = "fp32";

  void add_to(CLI::App& command) {
    command.add_option("--threads", threads, "Threads of the processor (0: all cores)")->check(CLI::NonNegativeNumber);
    command.add_option("--device", device, "auto, cpu, cuda or cuda:N")->capture_default_str();
    command.add_option("--precision", precision, "fp32 or bf16")->check(CLI::IsMember({"fp32", "bf16"}))->capture_default_str();
  }
  /// Sets the threads and gives the device.
  [[nodiscard]] at::Device start() const;
};

/// `--model`, and how its texts are written.
struct ModelChoice {
  std::string model{};
  toller::ModelOptions options{};
  std::string pooling{};  ///< of a folder that names none; "": as saved, else mean

  void add_to(CLI::App& command, bool lengths = true);
  /// The model's folder: itself, or a snapshot in the local Hugging Face cache.
  [[nodiscard]] fs::path folder() const;
};

/// Which head a folder has: "late_interaction", "cls", "mean", ...
[[nodiscard]] std::string head_of(const toller::ModelFolder& folder);

/// Calls `use(model)` with the model of the folder, whichever kind it is.
template <class Use>
auto with_model(const ModelChoice& choice, at::Device device, Use&& use) {
  using namespace toller;
  const fs::path dir = choice.folder();
  const std::string head = choice.pooling.empty() ? head_of(read_model_folder(dir)) : choice.pooling;
  const auto run = [&]<class Pooling>(Pooling pooling) {
    auto model = Model<AutoEncoder, Pooling>::from_pretrained(dir, pooling, choice.options);
    model.to(device);
    return use(model);
  };
  if (head == "late_interaction") return run(LateInteraction{});
  if (head == "cls") return run(ClsPooling{});
  if (head == "max") return run(MaxPooling{});
  if (head == "mean_sqrt_len_tokens") return run(MeanSqrtLengthPooling{});
  if (head == "weightedmean") return run(WeightedMeanPooling{});
  if (head == "lasttoken") return run(LastTokenPooling{});
  return run(MeanPooling{});
}

/// Calls `use(precision)` with the precision that was asked for.
template <class Use>
auto with_precision(const std::string& name, Use&& use) {
  return name == "bf16" ? use(toller::Bf16Mixed{}) : use(toller::Fp32{});
}

/// Fails now, not after hours of training, when a folder cannot be written there.
void check_writable(const fs::path& target);

void add_tokenize(CLI::App& app);
void add_encode(CLI::App& app);
void add_train(CLI::App& app);
void add_info(CLI::App& app);
void add_evaluate(CLI::App& app);

}  // namespace program
