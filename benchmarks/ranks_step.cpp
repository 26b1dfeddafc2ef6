// SPDX-License-Identifier: Apache-2.0
// Times training steps of one rank: alone, or as one of several; `ranks.sh` starts them. Also measures memory.
#include <sys/resource.h>

#include <ATen/Parallel.h>
#include <ATen/ops/ones.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>

#include "toller/toller.hpp"

namespace {

using namespace toller;
using Clock = std::chrono::steady_clock;

struct Options {
  std::string data{}, model{}, kind = "colbert";
  std::int64_t batch = 32, steps = 8, warmup = 2, offset = 0, mini_batch_tokens = 0;
  bool alone = false;
};

struct Timer {
  std::vector<StepEnd> steps{};
  void on(const StepEnd& event) { steps.push_back(event); }
};

/// Milliseconds that a sum of so many bytes takes when nothing else goes on.
double all_reduce_milliseconds(const ProcessGroup& group, std::int64_t bytes) {
  constexpr std::int64_t bucket = 25 << 20;
  std::vector<double> times;
  for (int round = 0; round < 5; ++round) {
    group.barrier();
    const auto start = Clock::now();
    for (std::int64_t left = bytes; left > 0; left -= bucket) {
      at::Tensor part = at::ones({std::min(left, bucket) / 4});
      group.all_reduce(part);
    }
    times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

template <class Pooling, class Similarity>
void run(const Options& o) {
  using Retriever = Model<Bert, Pooling>;
  auto model = Retriever::from_pretrained(o.model, {}, {.fresh_head = true});
  std::int64_t bytes = 0;
  for (const Parameters& list : {model.encoder().parameters(), model.pooling().parameters()})
    for (const Parameter& p : list) bytes += static_cast<std::int64_t>(p.value.nbytes());

  const Ddp ddp = o.alone ? Ddp{} : Ddp::from_env({.timeout = std::chrono::minutes(5)});
  const std::int64_t ranks = o.alone ? 1 : ddp.ranks();
  std::vector<Pair> rows;
  const auto all = read_jsonl<Pair>(o.data);
  for (std::int64_t i = 0; i < o.batch * ranks * (o.steps + o.warmup); ++i)
    rows.push_back(all[static_cast<std::size_t>(o.offset + i) % all.size()]);
  Timer timer;
  const FitOptions fit{.steps = o.steps + o.warmup,
                       .batch_size_per_rank = o.batch,
                       .optimizer = {.lr = 3e-6, .schedule = Schedule::constant},
                       .shuffle = false,
                       .workers = 0};
  if (o.alone && o.mini_batch_tokens > 0)
    Trainer{model, Contrastive<Similarity>{}, Fp32{}, SingleDevice{}, GradCache{.mini_batch_tokens = o.mini_batch_tokens}}.fit(
        rows, fit, timer);
  else if (o.alone)
    Trainer{model, Contrastive<Similarity>{}, Fp32{}, SingleDevice{}}.fit(rows, fit, timer);
  else
    Trainer{model, Contrastive<Similarity, CrossDeviceNegatives>{}, Fp32{}, ddp}.fit(rows, fit, timer);

  double total = 0;
  for (std::size_t i = static_cast<std::size_t>(o.warmup); i < timer.steps.size(); ++i) total += timer.steps[i].seconds;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  nlohmann::json result{{"kind", o.kind},
                        {"rank", get_rank()},
                        {"pairs_per_s", static_cast<double>(o.batch * ranks * o.steps) / total},
                        {"step_ms", 1000 * total / static_cast<double>(o.steps)},
                        {"peak_mb", static_cast<double>(usage.ru_maxrss) / 1024}};
  if (const World* world = World::joined()) {
    result["waited_ms"] = 1000 * world->group().seconds_waited() / static_cast<double>(o.steps + o.warmup);
    result["all_reduce_ms"] = all_reduce_milliseconds(world->group(), bytes);
  }
  std::cout << result.dump() << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  CLI::App app{"Times training steps of one rank"};
  app.option_defaults()->take_last();  // ranks.sh puts its own behind the user's
  app.add_option("--data", o.data, "JSONL of query, positive")->required();
  app.add_option("--model", o.model, "Model folder")->required();
  app.add_option("--kind", o.kind)->check(CLI::IsMember({"colbert", "dense"}))->capture_default_str();
  app.add_option("--batch", o.batch, "Rows a rank")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--steps", o.steps, "Timed steps")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--warmup", o.warmup, "Steps before them")->capture_default_str();
  app.add_option("--offset", o.offset, "First row")->capture_default_str();
  app.add_option("--mini-batch-tokens", o.mini_batch_tokens, "GradCache, with --alone");
  app.add_flag("--alone", o.alone, "Not a rank: one process by itself");
  CLI11_PARSE(app, argc, argv);
  at::set_num_threads(1);
  try {
    o.kind == "dense" ? run<MeanPooling, Cosine>(o) : run<LateInteraction, MaxSim>(o);
  } catch (const std::exception& error) {
    std::cerr << "ranks_step: " << error.what() << '\n';
    return 1;
  }
}
