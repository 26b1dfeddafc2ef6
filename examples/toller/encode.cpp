// SPDX-License-Identifier: Apache-2.0
// toller encode: texts of a JSONL file -> embeddings in a safetensors file.
#include <ATen/ops/tensor.h>

#include <chrono>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "common.hpp"
#include "toller/store/safetensors.hpp"
#include "toller/store/write_safetensors.hpp"
#include "toller/text/read_jsonl.hpp"

namespace program {
namespace encode_command {

struct Options {
  ModelChoice choice{};
  Compute compute{};
  std::string input{}, output{}, field = "text", role = "document";
  std::int64_t batch_tokens = 8192;
  bool json = false;
};

void run(const Options& o) {
  using namespace toller;
  const at::Device device = o.compute.start();
  check_writable(o.output, Target::file);
  const auto rows = read_jsonl<Text>(o.input, {.text = o.field});
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < rows.size(); ++i) texts.push_back(rows[i].text);
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  with_model(o.choice, device, [&](const auto& model) {
    const auto guard = o.compute.guard(device);
    const auto pooled = model.encode(texts, o.role == "query" ? Role::query : Role::document, {.batch_tokens = o.batch_tokens});
    const at::Tensor values = pooled.values.to(at::kFloat).cpu().contiguous();
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(pooled)>, MultiVector>)
      tensors = {{"vectors", values}, {"offsets", at::tensor(pooled.offsets, at::kLong)}};
    else
      tensors = {{"embeddings", values}};
  });
  write_safetensors(o.output, tensors);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (o.json)
    std::cout << nlohmann::json{{"texts", texts.size()}, {"seconds", seconds}, {"output", o.output}}.dump() << std::endl;
  else
    std::cerr << texts.size() << " texts in " << seconds << " s -> " << o.output << std::endl;
}

}  // namespace encode_command

void add_encode(CLI::App& app) {
  auto* command = app.add_subcommand("encode", "Texts of a JSONL file -> embeddings (dense) or vectors and offsets (ColBERT)");
  auto o = std::make_shared<encode_command::Options>();
  o->choice.add_to(*command);
  o->compute.add_to(*command);
  command->add_option("--input", o->input, "JSONL file")->required();
  command->add_option("--field", o->field, "Its field with the text")->capture_default_str();
  command->add_option("--role", o->role, "query or document")
      ->check(CLI::IsMember({"query", "document"}))
      ->capture_default_str();
  command->add_option("--output", o->output, "safetensors file")->required();
  command->add_option("--batch-tokens", o->batch_tokens, "Tokens of one forward pass")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_flag("--json", o->json, "Print the result as JSON");
  command->callback([o] { encode_command::run(*o); });
}

}  // namespace program
