// SPDX-License-Identifier: Apache-2.0
// Times training steps of one process: alone, or as one of several ranks, in turn with steps in which the same processes do not
// know of each other. Also measures memory. `ranks.sh` starts them.
#include <sys/resource.h>

#include <ATen/Parallel.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "toller/toller.hpp"

namespace {

using namespace toller;
using Clock = std::chrono::steady_clock;

struct Options {
  std::string data{}, model{}, kind = "colbert";
  std::int64_t batch = 32, steps = 4, warmup = 1, rounds = 1, mini_batch_tokens = 0;
  bool alone = false;
};

/// Seconds and pairs of the steps after the warm-up, added.
struct Timer {
  std::int64_t warmup = 0;
  double seconds = 0;
  std::int64_t rows = 0;
  void on(const StepEnd& event) {
    if (event.step > warmup) seconds += event.seconds, rows += event.rows;
  }
  [[nodiscard]] double speed() const { return static_cast<double>(rows) / seconds; }
};

/// What a replica does, and how long it goes on after this rank's last gradient: sums that nothing hides, and other ranks.
struct TimedReplica {
  DdpReplica replica;
  std::shared_ptr<Clock::time_point> last_gradient;
  std::vector<double>* exposed_ms;

  [[nodiscard]] const ProcessGroup& communicator() const { return replica.communicator(); }
  void begin_step() const { replica.begin_step(); }
  void sync(const at::Tensor& root) const { replica.sync(root); }
  [[nodiscard]] double end_step() const {
    const double seconds = replica.end_step();
    exposed_ms->push_back(std::chrono::duration<double, std::milli>(Clock::now() - *last_gradient).count());
    return seconds;
  }
};
struct TimedDdp : Ddp {
  std::vector<double>* exposed_ms = nullptr;

  [[nodiscard]] TimedReplica bind(const Parameters& parameters, const ProcessGroup& group) const {
    auto last = std::make_shared<Clock::time_point>();
    for (const Parameter& p : parameters)
      if (p.embedding)  // the backward pass ends there
        p.value.register_hook([last](const at::Tensor&) { *last = Clock::now(); });
    return {Ddp::bind(parameters, group), last, exposed_ms};
  }
};

/// The most memory that this process ever held.
double peak_mb() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

/// Milliseconds that a sum of so many bytes takes when nothing else goes on.
double all_reduce_milliseconds(const ProcessGroup& group, std::int64_t bytes) {
  constexpr std::int64_t bucket = 25 << 20;
  std::vector<double> times;
  at::Tensor all = at::zeros({bytes / 4});
  for (int round = 0; round < 5; ++round) {
    group.barrier();
    const auto start = Clock::now();
    for (at::Tensor part : all.split(bucket / 4)) group.all_reduce(part);
    times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  }
  return median(times);
}

template <class Pooling, class Similarity>
void run(const Options& o) {
  using Retriever = Model<Bert, Pooling>;
  auto model = Retriever::from_pretrained(o.model, {}, {.fresh_head = true});
  const Ddp ddp = o.alone ? Ddp{} : Ddp::from_env({.timeout = std::chrono::minutes(5)});
  const std::int64_t ranks = o.alone ? 1 : ddp.ranks(), steps = o.warmup + o.steps;
  const auto all = read_jsonl<Pair>(o.data);
  const auto rows = [&](std::int64_t first, std::int64_t count) {
    std::vector<Pair> some;
    for (std::int64_t i = 0; i < count; ++i) some.push_back(all[static_cast<std::size_t>(first + i) % all.size()]);
    return some;
  };
  const FitOptions fit{.steps = steps,
                       .batch_size_per_rank = o.batch,
                       .optimizer = {.lr = 3e-6, .schedule = Schedule::constant},
                       .shuffle = false,
                       .workers = 0};
  const auto fit_alone = [&](const std::vector<Pair>& data) {
    Timer timer{o.warmup};
    if (o.mini_batch_tokens > 0)
      Trainer{model, Contrastive<Similarity>{}, Fp32{}, SingleDevice{}, GradCache{.mini_batch_tokens = o.mini_batch_tokens}}
          .fit(data, fit, timer);
    else
      Trainer{model, Contrastive<Similarity>{}, Fp32{}, SingleDevice{}}.fit(data, fit, timer);
    return timer;
  };
  nlohmann::json result{{"kind", o.kind}, {"rank", get_rank()}};
  if (o.alone) {
    result["pairs_per_s"] = fit_alone(rows(0, o.batch * steps)).speed();
    result["peak_mb"] = peak_mb();
  } else {
    std::vector<double> joined, apart, ratios, exposed_ms;
    double summed = 0;
    for (std::int64_t round = 0; round < o.rounds; ++round) {
      const std::vector<Pair> data = rows(round * o.batch * ranks * steps, o.batch * ranks * steps);
      Timer timer{o.warmup};
      Trainer{model, Contrastive<Similarity, CrossDeviceNegatives>{}, Fp32{}, TimedDdp{ddp, &exposed_ms}}.fit(data, fit, timer);
      if (round == 0) result["peak_mb"] = peak_mb();  // before it was ever alone
      const ProcessGroup& group = World::joined()->group();
      if (round == 0) summed = static_cast<double>(group.counts()["all_reduce"].bytes) / static_cast<double>(steps);

      std::vector<Pair> mine;  // as the batches were dealt
      for (std::int64_t step = 0; step < steps; ++step) {
        std::vector<std::int64_t> places(static_cast<std::size_t>(o.batch * ranks));
        std::iota(places.begin(), places.end(), step * o.batch * ranks);
        const auto read = [&](std::int64_t row) { return data[static_cast<std::size_t>(row)]; };
        for (const RetrievalBatch& batch : rank_batches(places, read, model.preprocessor(), get_rank(), ranks))
          for (const std::int64_t row : batch.rows) mine.push_back(read(row));
      }
      group.barrier();
      const Timer own = fit_alone(mine);
      const at::Tensor each = group.all_gather(at::scalar_tensor(own.speed(), at::kDouble));
      joined.push_back(timer.speed());
      apart.push_back(each.sum().item<double>());
      ratios.push_back(joined.back() / apart.back());
    }
    result["pairs_per_s"] = median(joined);
    result["apart_pairs_per_s"] = median(apart);
    result["ratio"] = median(ratios);
    result["ratios"] = ratios;
    const at::Tensor exposed = at::scalar_tensor(median(exposed_ms), at::kDouble);
    result["exposed_ms"] =
        World::joined()->group().all_gather(exposed).min().item<double>();  // who comes last waits for no one
    // What is counted is sent: 2 (W - 1) / W of what is summed.
    const double bytes = summed * static_cast<double>(ranks) / static_cast<double>(2 * (ranks - 1));
    result["all_reduce_ms"] = all_reduce_milliseconds(World::joined()->group(), static_cast<std::int64_t>(bytes));
  }
  std::cout << result.dump() << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  CLI::App app{"Times training steps of one process, alone or as a rank"};
  app.option_defaults()->take_last();  // ranks.sh puts its own behind the user's
  app.add_option("--data", o.data, "JSONL of query, positive")->required();
  app.add_option("--model", o.model, "Model folder")->required();
  app.add_option("--kind", o.kind)->check(CLI::IsMember({"colbert", "dense"}))->capture_default_str();
  app.add_option("--batch", o.batch, "Rows a rank")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--steps", o.steps, "Timed steps")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--warmup", o.warmup, "Steps before them")->capture_default_str();
  app.add_option("--rounds", o.rounds, "Of steps together and steps apart")->check(CLI::PositiveNumber)->capture_default_str();
  auto* alone = app.add_flag("--alone", o.alone, "Not a rank: one process by itself");
  app.add_option("--mini-batch-tokens", o.mini_batch_tokens, "GradCache")->needs(alone);
  CLI11_PARSE(app, argc, argv);
  at::set_num_threads(1);
  try {
    o.kind == "dense" ? run<MeanPooling, Cosine>(o) : run<LateInteraction, MaxSim>(o);
  } catch (const std::exception& error) {
    std::cerr << "ranks_step: " << error.what() << '\n';
    return 1;
  }
}
