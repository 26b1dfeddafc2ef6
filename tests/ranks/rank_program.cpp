// SPDX-License-Identifier: Apache-2.0
// Trains a tiny model for a few steps as one rank or alone, writes losses, first gradients and last weights; can be told to
// fail.
//
//   rank_program KIND --out FILE [--all: FILE.RANK of every rank] [--single] [--spawn N] [--model DIR] [--fp64] [--dropout]
//                [--batch N] [--rows N] [--steps N] [--mini-batch N] [--mini-batch-tokens N] [--accumulate N] [--local]
//                [--temperature T]
//                [--counts] [--timeout SECONDS] [--fault RANK:WHAT:STEP]
//                [--memory: only trains, as users do, and prints the most that was resident, in KiB]
//                [--cuda: on a GPU of its own]
//   rank_program compare A B [A B ...]: a line for each
//   rank_program devices: how many CUDA devices there are
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <range/v3/view/transform.hpp>
#include <thread>

#include "../../examples/toller/any_step.hpp"
#include "support/tiny.hpp"
#include "toller/store/safetensors.hpp"
#include "toller/store/write_safetensors.hpp"
#include "toller/toller.hpp"

using namespace toller;

namespace {

/// `--name value` and `--flag` from the command line.
struct Arguments {
  std::map<std::string, std::string> given{};
  Arguments(int argc, char** argv) {
    for (int i = 2; i < argc; ++i) {
      const std::string name = argv[i];
      const bool has_value = i + 1 < argc && std::string(argv[i + 1]).rfind("--", 0) != 0;
      given[name] = has_value ? argv[++i] : "yes";
    }
  }
  [[nodiscard]] bool has(const std::string& name) const { return given.contains(name); }
  [[nodiscard]] std::string text(const std::string& name, const std::string& otherwise = "") const {
    return has(name) ? given.at(name) : otherwise;
  }
  [[nodiscard]] std::int64_t number(const std::string& name, std::int64_t otherwise) const {
    return has(name) ? std::stoll(given.at(name)) : otherwise;
  }
};

/// What shall go wrong, on which rank, at which step.
struct Fault {
  int rank = -1;
  std::string what{};
  std::int64_t step = 0;

  static Fault read(const std::string& text) {
    if (text.empty()) return {};
    const auto a = text.find(':'), b = text.find(':', a + 1);
    return {std::stoi(text.substr(0, a)), text.substr(a + 1, b - a - 1), std::stoll(text.substr(b + 1))};
  }
  [[nodiscard]] bool here(const std::string& kind) const { return rank == get_rank() && what == kind; }
};
Fault fault;
std::int64_t steps_done = 0;

/// Keeps the gradients of the first step, and breaks things inside a step.
struct Recording {
  static constexpr std::string_view name = "Recording";
  std::vector<at::Tensor>* gradients = nullptr;
  const Parameters* parameters = nullptr;

  static void fields(auto&, auto&&) {}
  [[nodiscard]] Fp32::Guard guard(at::Device) const {
    if (steps_done + 1 == fault.step && fault.here("throw_inside")) throw std::runtime_error("out of luck in the forward pass");
    if (steps_done + 1 == fault.step && fault.here("kill_inside")) raise(SIGKILL);
    if (steps_done + 1 == fault.step && fault.here("stop_inside")) raise(SIGSTOP);
    if (steps_done + 1 == fault.step && fault.here("hang_inside")) std::this_thread::sleep_for(std::chrono::seconds(1000));
    return {};
  }
  void backward(const at::Tensor& loss) const { loss.backward(); }
  template <class Update>
  bool step(Update&& update) const {
    if (gradients != nullptr && gradients->empty())
      for (const Parameter& p : *parameters) gradients->push_back(p.value.grad().detach().clone());
    update();
    return true;
  }
};

/// A Contrastive whose loss can become NaN on one rank.
template <class Inner>
struct Breakable : Inner {
  [[nodiscard]] LossValue operator()(const typename Inner::input_type& queries, const typename Inner::input_type& documents,
                                     const Relevance& target) const {
    LossValue value = Inner::operator()(queries, documents, target);
    if (steps_done + 1 == fault.step && fault.here("throw_loss")) throw std::runtime_error("out of luck in the loss");
    if (steps_done + 1 == fault.step && fault.here("nan")) value.sum = value.sum.mul(std::nan(""));
    return value;
  }
};

/// Collectives up to the end of the last step and of the one before it.
struct StepCounts {
  CollectiveCounts before{}, last{};
};

/// Records each step; breaks things between steps.
struct Watcher {
  nlohmann::json* losses = nullptr;
  bool log = false;
  std::int64_t stop_after = 0;
  StepCounts* counts = nullptr;
  void on(const FitBegin&) const {
    if (fault.here("late")) std::this_thread::sleep_for(std::chrono::seconds(fault.step));
  }
  void on(const StepEnd& event) const {
    losses->push_back(event.loss);
    counts->before = std::move(counts->last);
    if (const World* world = World::joined()) counts->last = world->group().counts();
    steps_done = event.step;
    if (log) std::cerr << "step " << event.step << std::endl;
    if (event.step == stop_after) event.stop->ask("told to");
    if (event.step != fault.step) return;
    if (fault.here("throw_before")) throw std::runtime_error("out of luck before the step");
    if (fault.here("exit")) std::_Exit(3);
    if (fault.here("kill")) raise(SIGKILL);
    if (fault.here("stop")) raise(SIGSTOP);
    if (fault.here("busy")) std::this_thread::sleep_for(std::chrono::seconds(20));
  }
};

std::vector<Triplet> make_rows(std::int64_t count) {
  const auto pairs = tiny_pairs();
  std::vector<Triplet> rows;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto& a = pairs[static_cast<std::size_t>(i) % pairs.size()];
    const auto& b = pairs[static_cast<std::size_t>(i * 7 + 3) % pairs.size()];
    Triplet row{a.query + (i < 10 ? "" : " number " + std::to_string(i)), a.positive + " " + b.query, {}};
    if (i % 3 == 0) row.negatives.push_back(b.positive + (i % 2 == 0 ? " " + a.positive : ""));
    rows.push_back(std::move(row));
  }
  return rows;
}

template <class M, class Loss, class Parallelism>
int train(M model, const Loss& loss, const Parallelism& parallelism, const Arguments& arguments) {
  Parameters parameters = model.encoder().parameters();
  for (const Parameter& p : model.pooling().parameters()) parameters.push_back(p);
  if (arguments.has("--fp64"))
    for (Parameter& p : parameters) p.value.set_data(p.value.detach().to(at::kDouble));
  std::vector<at::Tensor> gradients;
  nlohmann::json losses = nlohmann::json::array();
  StepCounts counts;
  program::AnyStep step;
  step.cache = {.mini_batch_tokens = arguments.number("--mini-batch-tokens", 0),
                .mini_batch = arguments.number("--mini-batch", 0)};
  step.parts.steps = arguments.number("--accumulate", 1);
  auto rows = make_rows(arguments.number("--rows", 40));
  if (fault.here("other_data")) rows.back().positive += " on this rank";
  if (fault.here("other_size")) rows.pop_back();
  if (fault.here("no_rows")) rows.clear();
  const auto reader = std::this_thread::get_id();
  const auto data = ranges::views::transform(rows, [reader](const Triplet& row) {
    const bool hangs = fault.here("hang") && row.query.ends_with("number 11") && std::this_thread::get_id() != reader;
    if (hangs) std::this_thread::sleep_for(std::chrono::seconds(1000));
    return row;
  });
  const bool memory = arguments.has("--memory");
  Trainer trainer{model, Breakable<Loss>{loss}, Recording{memory ? nullptr : &gradients, &parameters}, parallelism, step};
  const FitOptions options{.epochs = 20,
                           .steps = arguments.number("--steps", 5),
                           .batch_size = arguments.number("--batch", 8),
                           .optimizer = {.lr = 2e-5, .max_grad_norm = 0},
                           .seed = fault.here("other_seed") ? 1U : 7U,
                           .dropout = arguments.has("--dropout"),
                           .resume = Resume::last(arguments.text("--checkpoint"))};
  const Watcher watcher{
      .losses = &losses, .log = arguments.has("--log"), .stop_after = arguments.number("--stop-after", 0), .counts = &counts};
  const Checkpoint checkpoint{.dir = arguments.text("--checkpoint"), .every_steps = arguments.has("--checkpoint") ? 100 : 0};
  const FitReport report =
      arguments.has("--checkpoint") ? trainer.fit(data, options, watcher, checkpoint) : trainer.fit(data, options, watcher);
  if (fault.here("after_fit")) throw std::runtime_error("out of luck after the fit");
  std::cerr << "rank " << get_rank() << ": " << report.steps << " steps"
            << (report.stopped ? ", stopped by " + report.reason : "") << "\n";
  if (memory) {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    std::cout << usage.ru_maxrss << std::endl;
    return 0;
  }
  const std::string out = arguments.text("--out");
  if (out.empty()) return 0;
  NamedTensors tensors;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    tensors.emplace_back("weight." + parameters[i].name, parameters[i].value.detach());
    if (!arguments.has("--weights-only")) tensors.emplace_back("gradient." + parameters[i].name, gradients.at(i));
  }
  if (!arguments.has("--weights-only"))
    tensors.emplace_back("losses", at::tensor(losses.get<std::vector<double>>(), at::kDouble));
  write_safetensors(arguments.has("--all") ? out + "." + std::to_string(get_rank()) : out, tensors);
  if (const World* world = World::joined(); world != nullptr && arguments.has("--counts")) {
    for (const auto& [name, count] : world->group().counts())
      std::cout << name << ' ' << count.calls << ' ' << count.bytes << '\n';
    for (auto& [name, count] : counts.last)
      std::cout << "step " << name << ' ' << count.calls - counts.before[name].calls << ' '
                << count.bytes - counts.before[name].bytes << '\n';
  }
  return 0;
}

template <class M, class Similarity>
int choose(const M& model, const Arguments& arguments) {
  const bool on_cuda = arguments.has("--cuda");
  const std::string given = arguments.text("--temperature");
  const double temperature = given.empty() ? Similarity::default_temperature : std::stod(given);
  if (arguments.has("--single"))
    return train(model, Contrastive<Similarity>{.temperature = temperature}, SingleDevice{on_cuda ? cuda(0) : cpu()},
                 arguments);
  Ddp settings{.timeout = std::chrono::seconds(arguments.number("--timeout", 60)),
               .device = on_cuda ? std::optional<at::Device>() : cpu()};
  if (!arguments.has("--memory")) settings.first_bucket_mib = settings.bucket_mib = 0.05;  // the tiny model in several buckets
  const auto ddp = Ddp::from_env(settings);
  if (arguments.has("--local"))
    return train(model, Contrastive<Similarity, LocalNegatives>{.temperature = temperature}, ddp, arguments);
  return train(model, Contrastive<Similarity, CrossDeviceNegatives>{.temperature = temperature}, ddp, arguments);
}

/// How far A is from B, both written by `train`: losses relative to the largest; gradients all together, the norm of the
/// difference over the norm; the worst single tensor of them, against its largest entry; weights as they are.
void compare(const std::string& a, const std::string& b) {
  const auto left = SafetensorsFile::open(a), right = SafetensorsFile::open(b);
  if (left.names().size() != right.names().size()) throw std::runtime_error(a + " and " + b + " hold different tensors");
  double losses = 0, weights = 0, worst_gradient = 0, difference_squared = 0, gradient_squared = 0;
  for (const std::string& name : right.names()) {
    if (name.ends_with("attention.self.key.bias")) continue;  // its gradient is zero, and Adam turns rounding into steps
    const at::Tensor x = left.tensor(name).to(at::kDouble), y = right.tensor(name).to(at::kDouble), d = x.sub(y);
    if (!d.isfinite().all().item<bool>()) throw std::runtime_error(name + " is not finite");
    const double largest = d.abs().max().item<double>(), relative = largest / std::max(y.abs().max().item<double>(), 1e-30);
    if (name == "losses") {
      losses = relative;
    } else if (name.starts_with("weight.")) {
      weights = std::max(weights, largest);
    } else {
      worst_gradient = std::max(worst_gradient, relative);
      difference_squared += d.square().sum().item<double>();
      gradient_squared += y.square().sum().item<double>();
    }
  }
  std::cout << nlohmann::json{{"losses", losses},
                              {"gradients", std::sqrt(difference_squared / gradient_squared)},
                              {"worst gradient", worst_gradient},
                              {"weights", weights}}
                   .dump()
            << std::endl;
}

int run(int argc, char** argv) {
  const std::string kind = argc > 1 ? argv[1] : "";
  if (kind == "hold-store" && argc == 3) {
    Launch launch{.world_size = 2, .address = "127.0.0.1", .port = std::stoi(argv[2])};
    const auto store = toller::detail::connect_store(launch, std::chrono::seconds(10));
    std::cerr << "holding" << std::endl;
    std::this_thread::sleep_for(std::chrono::seconds(600));
    return 0;
  }
  if (kind == "compare") {
    for (int i = 2; i + 1 < argc; i += 2) compare(argv[i], argv[i + 1]);
    return 0;
  }
  if (kind == "devices") {
    std::cout << (at::hasCUDA() ? static_cast<int>(at::detail::getCUDAHooks().deviceCount()) : 0) << std::endl;
    return 0;
  }
  const Arguments arguments(argc, argv);
  fault = Fault::read(arguments.text("--fault"));
  at::set_num_threads(1);
  const ModelOptions options{
      .fresh_head = true, .seed = fault.here("other_init") ? 5U : 0U, .query_length = 12, .document_length = 24};
  const int dim = fault.here("other_shape") ? 8 : 16;
  const std::filesystem::path folder = arguments.text("--model", tiny_folder().string());
  if (kind == "colbert")
    return choose<Model<Bert, LateInteraction>, MaxSim>(
        Model<Bert, LateInteraction>::from_pretrained(folder, {.dim = dim}, options), arguments);
  if (kind == "dense")
    return choose<Model<Bert, MeanPooling>, Cosine>(Model<Bert, MeanPooling>::from_pretrained(folder, {}, options), arguments);
  std::cerr << "usage: rank_program colbert|dense|compare ...\n";
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Arguments arguments(argc, argv);
    if (!arguments.has("--spawn")) return run(argc, argv);
    spawn(static_cast<int>(arguments.number("--spawn", 2)), [&] { run(argc, argv); });
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "rank " << get_rank() << ": " << error.what() << std::endl;
    return 1;
  }
}
