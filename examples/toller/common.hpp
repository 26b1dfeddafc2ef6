// SPDX-License-Identifier: Apache-2.0
// What the commands share: options that mean the same everywhere, and the choice of a model's types at run time.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "toller/encoder/auto_encoder.hpp"
#include "toller/export/model_folder.hpp"
#include "toller/pooling/auto_pooling.hpp"
#include "toller/pooling/late_interaction.hpp"
#include "toller/precision/autocast.hpp"
#include "toller/store/atomic_file.hpp"
#include "toller/store/atomic_folder.hpp"
#include "toller/train/model.hpp"

namespace program {

using toller::AutoEncoder;
namespace fs = std::filesystem;

/// The cores for this process, one of so many ranks on this machine: an equal share, and no more than a launcher bound it to.
[[nodiscard]] int share_of_cores(int ranks);

/// `--threads`, `--device`, `--precision`: how the numbers are computed.
struct Compute {
  int threads = 0;
  std::string device = "auto";
  std::string precision = "fp32";

  void add_to(CLI::App& command) {
    command
        .add_option("--threads", threads, "Threads of the processor (0: OMP_NUM_THREADS, else this rank's share of the cores)")
        ->check(CLI::Range(0, 512));
    command.add_option("--device", device, "auto, cpu, cuda or cuda:N")->capture_default_str();
    command.add_option("--precision", precision, "fp32 or bf16")->check(CLI::IsMember({"fp32", "bf16"}))->capture_default_str();
  }
  /// Sets the threads and gives the device.
  [[nodiscard]] at::Device start() const;
  /// The device that was named, if one was.
  [[nodiscard]] std::optional<at::Device> chosen() const;
  /// Shares the cores among so many ranks of this machine, unless threads were asked for.
  void set_threads(int ranks) const;
  [[nodiscard]] std::unique_ptr<toller::AutocastGuard> guard(at::Device at) const;
};

/// `--model`, and how its texts are written.
struct ModelChoice {
  std::string model{};
  toller::ModelOptions options{};
  std::optional<std::string> pooling{};  ///< of a fresh head; empty: as saved, else mean

  void add_to(CLI::App& command);
  /// The model's folder: itself, or a snapshot in the local Hugging Face cache.
  [[nodiscard]] fs::path folder() const;
};

/// Whether the folder holds a late-interaction head.
[[nodiscard]] bool is_late(const toller::ModelFolder& folder);

/// fp32 or bf16, chosen at run time: one instantiation of everything instead of two.
struct AnyPrecision {
  static constexpr std::string_view name = "AnyPrecision";
  bool bf16 = false;

  static void fields(auto& self, auto&& visit) { visit("bf16", self.bf16); }
  [[nodiscard]] std::unique_ptr<toller::AutocastGuard> guard(at::Device device) const {
    return bf16 ? std::make_unique<toller::AutocastGuard>(device, at::kBFloat16) : nullptr;
  }
  void backward(const at::Tensor& loss) const { loss.backward(); }
  template <class Update>
  bool step(Update&& update) const {
    update();
    return true;
  }
};

/// Calls `use(model)` with the model of the folder, whichever kind it is.
template <class Use>
auto with_model(const ModelChoice& choice, at::Device device, Use&& use) {
  using namespace toller;
  const fs::path dir = choice.folder();
  const auto run = [&]<class Pooling>(const Pooling& pooling) {
    auto model = Model<AutoEncoder, Pooling>::from_pretrained(dir, pooling, choice.options);
    model.to(device);
    return use(model);
  };
  return is_late(read_model_folder(dir)) ? run(LateInteraction{}) : run(AutoPooling{.kind = choice.pooling});
}

enum class Target { file, folder };
/// Fails now, not after hours of training, when a file or folder cannot be written there.
void check_writable(const fs::path& target, Target kind);

void add_tokenize(CLI::App& app);
void add_encode(CLI::App& app);
void add_train(CLI::App& app);
void add_info(CLI::App& app);
void add_evaluate(CLI::App& app);
void add_doctor(CLI::App& app);
void add_plan(CLI::App& app);

}  // namespace program
