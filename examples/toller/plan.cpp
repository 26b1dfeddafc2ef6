// SPDX-License-Identifier: Apache-2.0
// toller plan: bytes that a rank sends in a step, for as many ranks as there may be.
#include "toller/distributed/plan.hpp"

#include <iomanip>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "common.hpp"

namespace program {
namespace plan_command {

struct Options {
  ModelChoice choice{};
  std::string ranks = "8..4096", kind{};
  std::optional<std::int64_t> dimension{};
  std::int64_t rows_per_rank = 32, micro_batches = 1;
  std::optional<double> rows{}, document_tokens{}, query_tokens{};
  double documents = 1, gbit = 100;
  bool all_queries = false, json = false;
};

/// `8..4096`: doubling from 8 to 4096; `8,64`: these.
std::vector<std::int64_t> read_ranks(const std::string& text) {
  const auto number = [&](const std::string& part) {
    const bool good = !part.empty() && part.size() < 8 && part.find_first_not_of("0123456789") == std::string::npos;
    if (!good || std::stoll(part) < 1)
      throw toller::ConfigError("R138",
                                "--ranks " + text + ": expected FIRST..LAST or a list of numbers, like 8..4096 or 8,64");
    return static_cast<std::int64_t>(std::stoll(part));
  };
  std::vector<std::int64_t> ranks;
  if (const std::size_t dots = text.find(".."); dots != std::string::npos) {
    const std::int64_t last = number(text.substr(dots + 2));
    for (std::int64_t n = number(text.substr(0, dots)); n <= last; n *= 2) ranks.push_back(n);
    if (ranks.empty()) number("");
    return ranks;
  }
  std::istringstream parts(text + ",");
  for (std::string part; std::getline(parts, part, ',');) ranks.push_back(number(part));
  return ranks;
}

/// What the plan needs to know of a model.
struct Size {
  std::int64_t parameters = 0, gradient_bytes = 0, dimension = 0, query_length = 0, document_length = 0;
  bool late = false;
};

Size measure(const Options& o) {
  using namespace toller;
  ModelChoice choice = o.choice;
  const ModelFolder folder = read_model_folder(choice.folder());
  const bool late = o.kind.empty() ? is_late(folder) : o.kind == "colbert";
  choice.options.fresh_head = folder.kind == FolderKind::plain || late != is_late(folder) || o.dimension.has_value();
  const auto run = [&](const auto& pooling) {
    const auto model =
        Model<AutoEncoder, std::decay_t<decltype(pooling)>>::from_pretrained(choice.folder(), pooling, choice.options);
    Size size{.dimension = model.pooling().output_size(),
              .query_length = model.preprocessor().format(Role::query).max_length,
              .document_length = model.preprocessor().format(Role::document).max_length,
              .late = late};
    for (const Parameters& list : {model.encoder().parameters(), model.pooling().parameters()})
      for (const Parameter& p : list) {
        size.parameters += p.value.numel();
        size.gradient_bytes += static_cast<std::int64_t>(p.value.nbytes());
      }
    return size;
  };
  return late ? run(LateInteraction{.dim = o.dimension}) : run(AutoPooling{});
}

nlohmann::json plan(const Options& o, const Size& size, std::int64_t ranks, double rows) {
  const double texts = rows * o.documents;
  const toller::TrafficInput in{
      .ranks = ranks,
      .gradient_bytes = static_cast<double>(size.gradient_bytes),
      .queries = rows,
      .documents = texts,
      .document_vectors = size.late ? texts * o.document_tokens.value_or(static_cast<double>(size.document_length)) : texts,
      .query_vectors = size.late ? rows * o.query_tokens.value_or(static_cast<double>(size.query_length)) : rows,
      .dimension = size.dimension,
      .late_interaction = size.late,
      .all_queries = o.all_queries,
      .micro_batches = o.micro_batches};
  const toller::StepTraffic bytes = toller::traffic(in);
  return {{"ranks", ranks},
          {"rows_per_rank", rows},
          {"rows", rows * static_cast<double>(ranks)},
          {"gradients", bytes.gradients},
          {"vectors", bytes.vectors},
          {"vector_grads", bytes.vector_grads},
          {"numbers", bytes.numbers},
          {"announcements", bytes.announcements},
          {"meetings", bytes.meetings},
          {"total", bytes.total()},
          {"seconds", bytes.total() * 8 / (o.gbit * 1e9)}};
}

void print(const std::string& title, const nlohmann::json& lines, double gbit) {
  std::cout << '\n'
            << title << "\n  ranks  rows a rank   gradients     vectors   and back     numbers  all MiB  ms at " << gbit
            << " Gbit/s\n";
  const auto mib = [](const nlohmann::json& bytes) { return bytes.get<double>() / (1 << 20); };
  for (const auto& line : lines)
    std::cout << std::fixed << std::setw(7) << line["ranks"].get<std::int64_t>() << std::setprecision(2) << std::setw(13)
              << line["rows_per_rank"].get<double>() << std::setw(12) << mib(line["gradients"]) << std::setw(12)
              << mib(line["vectors"]) << std::setw(11) << mib(line["vector_grads"]) << std::setw(12)
              << mib(line["numbers"]) + mib(line["announcements"]) + mib(line["meetings"]) << std::setw(9) << mib(line["total"])
              << std::setw(10) << line["seconds"].get<double>() * 1000 << '\n';
  std::cout << std::defaultfloat << std::setprecision(6) << std::flush;
}

void run(const Options& o) {
  const std::vector<std::int64_t> ranks = read_ranks(o.ranks);
  const Size size = measure(o);
  const double rows = o.rows.value_or(static_cast<double>(o.rows_per_rank * ranks.front()));
  nlohmann::json result = {{"parameters", size.parameters},
                           {"gradient_bytes", size.gradient_bytes},
                           {"dimension", size.dimension},
                           {"late_interaction", size.late},
                           {"gbit", o.gbit},
                           {"fixed_per_rank", nlohmann::json::array()},
                           {"fixed_global", nlohmann::json::array()}};
  for (const std::int64_t n : ranks) {
    result["fixed_per_rank"].push_back(plan(o, size, n, static_cast<double>(o.rows_per_rank)));
    result["fixed_global"].push_back(plan(o, size, n, rows / static_cast<double>(n)));
  }
  if (o.json) {
    std::cout << result.dump() << std::endl;
    return;
  }
  std::cout << size.parameters << " parameters, " << (size.late ? "colbert: a vector a token" : "dense: a vector a text")
            << " (--kind), of " << size.dimension << "; MiB that each rank sends in a step (a mean over the ranks)\n";
  print(toller::detail::cat(o.rows_per_rank, " rows on each rank"), result["fixed_per_rank"], o.gbit);
  print(toller::detail::cat(rows, " rows on all ranks together"), result["fixed_global"], o.gbit);
}

}  // namespace plan_command

void add_plan(CLI::App& app) {
  auto* command = app.add_subcommand("plan", "Bytes that a rank sends in a step, and how long that takes at least");
  auto o = std::make_shared<plan_command::Options>();
  o->choice.add_to(*command);
  command->add_option("--ranks", o->ranks, "FIRST..LAST, doubling, or a list: 8,64,512")->capture_default_str();
  command->add_option("--kind", o->kind, "colbert or dense, with a fresh head if the folder is another kind (as the folder)")
      ->check(CLI::IsMember({"colbert", "dense"}));
  command->add_option("--batch-size", o->rows, "Rows of the fixed global batch (rows a rank x the first number of ranks)")
      ->check(CLI::PositiveNumber);
  command->add_option("--batch-size-per-rank", o->rows_per_rank, "Rows of a rank where those are fixed")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--documents", o->documents, "Documents a row: the positive and its negatives")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--document-tokens", o->document_tokens, "Vectors that a document keeps (ColBERT; the longest)")
      ->check(CLI::PositiveNumber);
  command->add_option("--query-tokens", o->query_tokens, "Vectors of a query (ColBERT with --all-queries; the longest)")
      ->check(CLI::PositiveNumber);
  command->add_option("--dim", o->dimension, "Size of the vectors of a fresh ColBERT head")->check(CLI::PositiveNumber);
  command->add_option("--accumulate", o->micro_batches, "Parts of a batch")->check(CLI::PositiveNumber)->capture_default_str();
  command->add_flag("--all-queries", o->all_queries, "For a symmetric loss, which compares the queries of all ranks too");
  command->add_option("--gbit", o->gbit, "Bandwidth of a rank in Gbit/s")->check(CLI::PositiveNumber)->capture_default_str();
  command->add_flag("--json", o->json, "Print the result as JSON");
  command->callback([o] { plan_command::run(*o); });
}

}  // namespace program
