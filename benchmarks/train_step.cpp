// SPDX-License-Identifier: Apache-2.0
// Times training steps on real pairs; options and JSON keys are those of the peers' scripts in benchmarks/peers.
#include <sys/resource.h>

#include <ATen/Parallel.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "toller/toller.hpp"

namespace {

struct Options {
  std::string data{}, model{}, precision = "fp32", kind = "colbert", device = "cpu";
  std::int64_t batch = 32, steps = 12, warmup = 3, doc_length = 180;
  int threads = 2;
};

struct Timer {
  std::vector<toller::StepEnd> steps{};
  void on(const toller::StepEnd& event) { steps.push_back(event); }
};

template <class Pooling, class Similarity>
void run(const Options& o) {
  using namespace toller;
  using Retriever = Model<AutoEncoder, Pooling>;
  constexpr bool late = std::is_same_v<Pooling, LateInteraction>;
  ModelOptions options{.fresh_head = true, .document_length = o.doc_length};
  if (!late) options.query_length = o.doc_length;
  auto model = Retriever::from_pretrained(o.model, {}, options);
  std::vector<Pair> rows;
  const auto all = read_jsonl<Pair>(o.data);
  const auto wanted = static_cast<std::size_t>(o.batch * (o.steps + o.warmup));
  for (std::size_t i = 0; i < std::min(wanted, all.size()); ++i) rows.push_back(all[i]);
  Timer timer;
  const SingleDevice device{o.device == "cuda" ? cuda(0) : cpu()};
  const FitOptions fit{.steps = o.steps + o.warmup,
                       .batch_size = o.batch,
                       .optimizer = {.lr = 3e-6, .schedule = Schedule::constant},
                       .shuffle = false};
  if (o.precision == "bf16")
    Trainer{model, Contrastive<Similarity>{}, Bf16Mixed{}, device}.fit(rows, fit, timer);
  else
    Trainer{model, Contrastive<Similarity>{}, Fp32{}, device}.fit(rows, fit, timer);

  std::vector<double> seconds;
  double total = 0;
  std::int64_t tokens = 0;
  for (std::size_t i = static_cast<std::size_t>(o.warmup); i < timer.steps.size(); ++i) {
    seconds.push_back(timer.steps[i].seconds);
    total += timer.steps[i].seconds;
    tokens += timer.steps[i].tokens;
  }
  std::sort(seconds.begin(), seconds.end());
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  // Nothing is padded: the tokens computed are the tokens there are, query expansion included.
  std::cout << nlohmann::json{{"peer", "toller-" + o.kind},
                              {"precision", o.precision},
                              {"device", o.device},
                              {"loss", "contrastive"},
                              {"batch", o.batch},
                              {"pairs_per_s", static_cast<double>(o.batch * o.steps) / total},
                              {"median_step", seconds[seconds.size() / 2]},
                              {"tokens", tokens},
                              {"padded", tokens},
                              {"peak_mb", static_cast<double>(usage.ru_maxrss) / 1024},
                              {"first_loss", timer.steps.front().loss},
                              {"last_loss", timer.steps.back().loss},
                              {"kernels", describe_linear_kernels()}}
                   .dump()
            << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  CLI::App app{"Times training steps"};
  app.add_option("--data", o.data, "JSONL of query, positive")->required();
  app.add_option("--model", o.model, "Model folder")->required();
  app.add_option("--batch", o.batch)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--steps", o.steps, "Timed steps")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--warmup", o.warmup, "Steps before them")->capture_default_str();
  app.add_option("--threads", o.threads)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--precision", o.precision)->check(CLI::IsMember({"fp32", "bf16"}))->capture_default_str();
  app.add_option("--device", o.device)->check(CLI::IsMember({"cpu", "cuda"}))->capture_default_str();
  app.add_option("--doc-length", o.doc_length)->capture_default_str();
  app.add_option("--kind", o.kind)->check(CLI::IsMember({"colbert", "mve", "dense"}))->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  at::set_num_threads(o.threads);
  try {
    if (o.kind == "dense")
      run<toller::MeanPooling, toller::Cosine>(o);
    else
      run<toller::LateInteraction, toller::MaxSim>(o);
  } catch (const std::exception& error) {
    std::cerr << "train_step: " << error.what() << '\n';
    return 1;
  }
}
