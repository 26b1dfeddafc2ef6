// SPDX-License-Identifier: Apache-2.0
// toller evaluate: retrieval metrics of a model on a BEIR folder, by exact search.
#include <memory>

#include "evaluation.hpp"
#include "toller/similarity/cosine.hpp"
#include "toller/similarity/max_sim.hpp"

namespace program {
namespace evaluate_command {

struct Options {
  ModelChoice choice{};
  Compute compute{};
  std::string data{}, split = "test";
  bool json = false;
};

void run(const Options& o) {
  using namespace toller;
  const at::Device device = o.compute.start();
  const RetrievalData data = read_beir(o.data, o.split);
  const nlohmann::json metrics = with_model(o.choice, device, [&](const auto& model) {
    using Model = std::remove_cvref_t<decltype(model)>;
    using Compare = std::conditional_t<std::is_same_v<typename Model::output_type, MultiVector>, MaxSim, Cosine>;
    return evaluate_model<Compare>(model, data, o.compute);
  });
  if (o.json)
    std::cout << metrics.dump() << std::endl;
  else
    print_metrics(o.split, metrics);
}

}  // namespace evaluate_command

void add_evaluate(CLI::App& app) {
  auto* command = app.add_subcommand("evaluate", "nDCG@10, MRR@10, MAP@100, recall@100 and accuracy@1 on a BEIR folder");
  auto o = std::make_shared<evaluate_command::Options>();
  o->choice.add_to(*command);
  o->compute.add_to(*command);
  command->add_flag("--fresh-head", o->choice.options.fresh_head,
                    "The folder is a bare encoder: score it with a fresh mean pooling");
  command->add_option("--data", o->data, "Folder with corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv")->required();
  command->add_option("--split", o->split, "Which qrels")->capture_default_str();
  command->add_flag("--json", o->json, "Print the result as JSON");
  command->callback([o] { evaluate_command::run(*o); });
}

}  // namespace program
