// SPDX-License-Identifier: Apache-2.0
// toller train: fine-tunes a ColBERT or a dense embedder on pairs or triplets of a JSONL file.
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "any_step.hpp"
#include "evaluation.hpp"
#include "ranks.hpp"
#include "toller/callbacks/checkpoint.hpp"
#include "toller/callbacks/progress_bar.hpp"
#include "toller/callbacks/tensor_board.hpp"
#include "toller/loss/contrastive.hpp"
#include "toller/similarity/cosine.hpp"
#include "toller/similarity/max_sim.hpp"
#include "toller/text/read_jsonl.hpp"
#include "toller/train/trainer.hpp"

namespace program {
namespace train_command {

struct Options {
  ModelChoice choice{};
  Compute compute{};
  Ranks ranks{};
  AnyStep step{};
  toller::FitOptions fit{};
  std::string data{}, output{}, evaluation{}, schedule = "linear", tensor_board{}, checkpoint{};
  std::int64_t checkpoint_every = 500;
  std::optional<double> temperature{};
  std::optional<std::int64_t> dimension{};
  bool late = false, json = false, keep_duplicates = false, in_order = false, no_dropout = false, resume = false,
       save_on_each_node = false;
};

/// `--mini-batch`, `--mini-batch-tokens` or `--accumulate`; none: the batch at once.
void add_step(CLI::App& command, AnyStep& step) {
  const CLI::Range size(std::int64_t{1}, std::int64_t{1} << 40), few(std::int64_t{1}, std::int64_t{1'000'000});
  auto* texts =
      command.add_option("--mini-batch", step.cache.mini_batch, "GradCache: this many texts at once, the same result")
          ->check(size);
  auto* tokens = command
                     .add_option("--mini-batch-tokens", step.cache.mini_batch_tokens,
                                 "GradCache: texts of this many tokens at once, the same result")
                     ->check(size);
  command.add_option("--accumulate", step.parts.steps, "Parts of a batch; negatives come from the same part alone, so fewer")
      ->check(few)
      ->excludes(texts, tokens);
  tokens->excludes(texts);
}

/// A callback that may not have been asked for.
template <class Callback>
struct Maybe {
  std::optional<Callback> callback{};
  void on(const toller::FitBegin& event) { tell(event); }
  void on(const toller::StepEnd& event) { tell(event); }
  void on(const toller::FitEnd& event) { tell(event); }

private:
  template <class Event>
  void tell(const Event& event) {
    if (callback) toller::detail::notify(event, *callback);
  }
};

/// Trains one kind of model from start to folder, on every rank; gives what rank 0 prints with `--json`.
template <class Pooling, class Similarity>
nlohmann::json train(const Options& o, const Pooling& pooling, const toller::Ddp& ddp, const toller::ProcessGroup& team) {
  using namespace toller;
  auto model = Model<AutoEncoder, Pooling>::from_pretrained(o.choice.folder(), pooling, o.choice.options);
  model.to(ddp.target());
  const auto data = read_jsonl<Triplet>(o.data);
  nlohmann::json result = {{"model", o.choice.model}, {"rows", data.size()}};
  std::optional<RetrievalData> held_out;
  const auto score = [&](const char* when) {
    if (!o.evaluation.empty())
      on_main([&] {
        if (!held_out) held_out = read_beir(o.evaluation);
        result[when] = evaluate_model<Similarity>(model, *held_out, o.compute);
        if (!o.json) print_metrics(when, result[when]);
      });
  };
  score("before");
  Contrastive<Similarity, CrossDeviceNegatives> loss;
  if (o.temperature) loss.temperature = *o.temperature;
  loss.mask_duplicates = !o.keep_duplicates;
  Trainer trainer{model, loss, AnyPrecision{o.compute.precision == "bf16"}, ddp, o.step};
  Maybe<TensorBoard> curves;
  if (!o.tensor_board.empty()) curves.callback.emplace(o.tensor_board);
  Maybe<Checkpoint> checkpoints;
  if (!o.checkpoint.empty()) checkpoints.callback = Checkpoint{.dir = o.checkpoint, .every_steps = o.checkpoint_every};
  const FitReport report = trainer.fit(data, o.fit, ProgressBar{}, curves, checkpoints);
  model.save_pretrained(o.output, {.on_each_node = o.save_on_each_node});
  barrier();  // a launcher may end all ranks once one of them has ended
  result.update({{"steps", report.steps}, {"loss", report.loss}, {"seconds", report.seconds}, {"output", o.output}});
  if (team.size() > 1) result["ranks"] = team.size();
  if (report.stopped) {
    if (team.rank() == 0)
      std::cerr << "toller: stopped by " << report.reason << " after step " << report.steps << "; the model so far is saved in "
                << o.output << std::endl;
    result["stopped"] = report.reason;
    return result;
  }
  score("after");
  if (!o.json && team.rank() == 0) std::cerr << "saved " << o.output << std::endl;
  return result;
}

/// The run of one rank, which others wait for.
nlohmann::json run_rank(Options o, const toller::Ddp& ddp, const toller::ProcessGroup& team) {
  using namespace toller;
  const InterruptGuard interrupts;  // from loading to saving: an interrupt ends the run at a step's end, never in a file
  team.phase("loading", /*busy=*/true);
  const int here = this_launch().local_world_size.value_or(1);
  o.compute.set_threads(here);
  if (o.fit.workers < 0 && here > 1) o.fit.workers = std::max(1, share_of_cores(here) / 2);
  if (ddp.writes_files()) {
    check_writable(o.output, Target::folder);
    if (!o.checkpoint.empty()) check_writable(fs::path(o.checkpoint) / "step-0", Target::folder);
  }
  barrier();
  if (o.resume) o.fit.resume = Resume::last(o.checkpoint);
  if (!o.late && is_late(read_model_folder(o.choice.folder())) && !o.choice.options.fresh_head)
    throw ConfigError("R133", o.choice.model + " is a late-interaction model: train it with `toller train colbert`");
  return o.late ? train<LateInteraction, MaxSim>(o, LateInteraction{.dim = o.dimension}, ddp, team)
                : train<AutoPooling, Cosine>(o, AutoPooling{.kind = o.choice.pooling}, ddp, team);
}

void run(Options o) {
  using namespace toller;
  o.fit.optimizer.schedule = o.schedule == "constant" ? Schedule::constant : Schedule::linear;
  o.fit.shuffle = !o.in_order;
  o.fit.dropout = !o.no_dropout;
  if (o.resume && o.checkpoint.empty()) throw ConfigError("R134", "--resume needs --checkpoint FOLDER");
  if (o.fit.batch_size && o.fit.batch_size_per_rank)
    throw ConfigError("R127", "--batch-size and --batch-size-per-rank are both given: they are two ways to say one thing");
  o.ranks.run([&] {
    Ddp ddp = o.ranks.ddp(o.compute);
    ddp.save_on_each_node = o.save_on_each_node;
    const ProcessGroup team = ddp.join();
    try {
      const nlohmann::json result = run_rank(o, ddp, team);
      if (o.json && team.rank() == 0) std::cout << result.dump() << std::endl;
      if (result.contains("stopped")) std::exit(130);
    } catch (const std::exception& error) {
      team.fail(error.what());
      throw;
    }
  });
}

void add_kind(CLI::App& train, const std::string& name, const std::string& what, bool late) {
  auto* command = train.add_subcommand(name, what);
  auto o = std::make_shared<train_command::Options>();
  o->late = late;
  o->choice.add_to(*command);
  o->compute.add_to(*command);
  auto& fit = o->fit;
  auto& optimizer = fit.optimizer;
  command->add_option("--data", o->data, "JSONL file: query, positive, and any number of negatives")->required();
  command->add_option("--output", o->output, "Folder for the trained model")->required();
  command->add_option("--eval", o->evaluation, "BEIR folder to score before and after");
  command->add_option("--epochs", fit.epochs, "Passes over the data")->capture_default_str();
  command->add_option("--steps", fit.steps, "Optimizer steps instead of epochs");
  command->add_option("--batch-size", fit.batch_size, "Rows a step, of all ranks together (32)");
  command->add_option("--batch-size-per-rank", fit.batch_size_per_rank,
                      "Rows of one rank, or of one of its parts with --accumulate; the other way to say it");
  add_step(*command, o->step);
  o->ranks.add_to(*command);
  command->add_flag("--save-on-each-node", o->save_on_each_node,
                    "Save on the first rank of every machine instead of on rank 0 alone");
  command->add_option("--lr", optimizer.lr, "Learning rate")->capture_default_str();
  command->add_option("--head-lr", optimizer.head_lr, "Learning rate of the head alone");
  command->add_option("--warmup", optimizer.warmup, "Steps of warm-up, or below 1 their share")->capture_default_str();
  command->add_option("--schedule", o->schedule, "linear or constant")
      ->check(CLI::IsMember({"linear", "constant"}))
      ->capture_default_str();
  command->add_option("--weight-decay", optimizer.weight_decay, "AdamW's weight decay")->capture_default_str();
  command->add_option("--max-grad-norm", optimizer.max_grad_norm, "Largest gradient norm, 0 for no clipping")
      ->capture_default_str();
  command
      ->add_option("--gradient-scale", optimizer.gradient_scale,
                   "Multiplies gradients before they are clipped, to compare with libraries that do")
      ->capture_default_str();
  command->add_option("--temperature", o->temperature,
                      late ? "What scores are divided by (1)" : "What scores are divided by (0.05)");
  command->add_option("--seed", fit.seed, "Of order, dropout and fresh weights")->capture_default_str();
  command->add_option("--workers", fit.workers, "Threads that make batches (-1: half the cores)")->capture_default_str();
  command->add_flag("--in-order", o->in_order, "Take the rows as they are in the file");
  command->add_flag("--drop-last", fit.drop_last, "Leave out an epoch's last short batch");
  command->add_flag("--no-dropout", o->no_dropout, "Train without the config's dropout");
  command->add_flag("--keep-duplicates", o->keep_duplicates, "Let equal texts of other rows count as negatives");
  command->add_flag("--fresh-head", o->choice.options.fresh_head, "Start a new head, whatever the folder holds");
  command->add_option("--tensorboard", o->tensor_board, "Folder for TensorBoard's event file");
  command->add_option("--checkpoint", o->checkpoint, "Folder for checkpoints");
  command->add_option("--checkpoint-every", o->checkpoint_every, "Steps between them")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40))
      ->capture_default_str();
  command->add_flag("--resume", o->resume, "Go on from the newest checkpoint, if there is one");
  command->add_flag("--json", o->json, "Print the result as JSON");
  if (late) {
    command->add_option("--dim", o->dimension, "Size of the vectors (128)");
    command->add_option("--query-prefix", o->choice.options.query_prefix, "Marker token of queries, \"\" for none (\"[Q] \")");
    command->add_option("--document-prefix", o->choice.options.document_prefix, "Marker token of documents (\"[D] \")");
    command->add_option("--query-expansion", o->choice.options.query_expansion,
                        "Pad queries with [MASK] to their length (true)");
  } else {
    command->add_option("--pooling", o->choice.pooling, "How token vectors become one (as saved, else mean_tokens)")
        ->check(CLI::IsMember(
            {"cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken"}));
  }
  command->callback([o] {
    o->choice.options.seed = o->fit.seed;
    run(*o);
  });
}

}  // namespace train_command

void add_train(CLI::App& app) {
  auto* command = app.add_subcommand("train", "Fine-tune a ColBERT or a dense embedder");
  command->require_subcommand(1);
  train_command::add_kind(*command, "colbert", "A late-interaction retriever", true);
  train_command::add_kind(*command, "dense", "An embedder, one vector a text", false);
}

}  // namespace program
