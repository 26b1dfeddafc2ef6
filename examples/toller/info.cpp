// SPDX-License-Identifier: Apache-2.0
// toller info: what a model folder holds, and what it makes of a text.
#include <iomanip>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "common.hpp"

namespace program {
namespace info_command {

struct Options {
  ModelChoice choice{};
  Compute compute{};
  std::string text{}, role = "document";
  bool json = false;
};

nlohmann::json describe_format(const toller::RoleFormat& f) {
  return {{"max_length", f.max_length},
          {"marker", f.marker},
          {"prompt", f.prompt},
          {"expansion", f.expand},
          {"attend_to_expansion", f.attend_to_expansion},
          {"skiplist", f.skiplist.size()}};
}

/// `late interaction`, or the way in which token vectors become one.
std::string pooling_name(const toller::FolderModules& modules) {
  for (const auto& module : modules)
    for (const auto& [key, on] : module.config.items())
      if (key.starts_with("pooling_mode_") && on == true) return key.substr(13);
  return "late interaction";
}

template <class Model>
nlohmann::json inspect(const Model& model, const Options& o) {
  using namespace toller;
  const nlohmann::json config = nlohmann::json::parse(model.encoder().config_json());
  nlohmann::json info = {{"architecture", config.value("model_type", "")},
                         {"hidden_size", model.encoder().hidden_size()},
                         {"vocabulary", model.encoder().vocabulary_size()},
                         {"positions", model.encoder().max_positions()},
                         {"pooling", pooling_name(model.pooling().modules())},
                         {"dimension", model.pooling().output_size()},
                         {"query", describe_format(model.preprocessor().format(Role::query))},
                         {"document", describe_format(model.preprocessor().format(Role::document))}};
  for (const auto& module : model.pooling().modules()) info["modules"].push_back(module.type);
  std::int64_t count = 0;
  for (const Parameters& list : {model.encoder().parameters(), model.pooling().parameters()})
    for (const Parameter& p : list) {
      info["parameters"].push_back(
          {{"name", p.name}, {"shape", p.value.sizes().vec()}, {"type", toString(p.value.scalar_type())}});
      count += p.value.numel();
    }
  info["parameter_count"] = count;
  if (!o.text.empty()) {
    const Role role = o.role == "query" ? Role::query : Role::document;
    const TokenizedText tokens = model.preprocessor()(o.text, role);
    nlohmann::json words;
    for (const std::int64_t id : tokens.ids) words.push_back(model.preprocessor().tokenizer().id_to_token(id));
    const std::vector<std::string> texts{o.text};
    const auto pooled = model.encode(texts, role);
    info["text"] = {{"tokens", words},
                    {"ids", tokens.ids},
                    {"vectors", pooled.values.size(0)},
                    {"dimension", pooled.values.size(1)},
                    {"norm", pooled.values.norm(2, -1).mean().template item<double>()}};
  }
  return info;
}

void print(const nlohmann::json& info) {
  const auto line = [](const char* key, const auto& value) { std::cout << std::left << std::setw(16) << key << value << '\n'; };
  line("architecture", info["architecture"].get<std::string>());
  line("hidden size", info["hidden_size"]);
  line("vocabulary", info["vocabulary"]);
  line("positions", info["positions"]);
  line("pooling", info["pooling"].get<std::string>());
  line("modules", info.value("modules", nlohmann::json::array()).dump());
  line("dimension", info["dimension"]);
  for (const char* role : {"query", "document"}) {
    const auto& f = info[role];
    std::string text = std::to_string(f["max_length"].get<std::int64_t>()) + " tokens";
    if (!f["marker"].get<std::string>().empty()) text += ", marker " + f["marker"].dump();
    if (!f["prompt"].get<std::string>().empty()) text += ", prompt " + f["prompt"].dump();
    if (f["expansion"].get<bool>()) text += ", expanded with [MASK]";
    if (f["skiplist"].get<int>() > 0) text += ", " + f["skiplist"].dump() + " words skipped";
    line(role, text);
  }
  if (info.contains("text")) {
    line("tokens", info["text"]["tokens"].dump());
    line("ids", info["text"]["ids"].dump());
    line("vectors", info["text"]["vectors"].dump() + " x " + info["text"]["dimension"].dump());
    line("norm", info["text"]["norm"]);
  }
  line("parameters", info["parameter_count"]);
  for (const auto& p : info["parameters"])
    std::cout << "  " << std::left << std::setw(62) << p["name"].get<std::string>() << std::setw(16) << p["shape"].dump()
              << p["type"].get<std::string>() << '\n';
  std::cout << std::flush;
}

void run(const Options& o) {
  const at::Device device = o.compute.start();
  const nlohmann::json info = with_model(o.choice, device, [&](const auto& model) { return inspect(model, o); });
  if (o.json)
    std::cout << info.dump() << std::endl;
  else
    print(info);
}

}  // namespace info_command

void add_info(CLI::App& app) {
  auto* command = app.add_subcommand(
      "info", "Architecture, head, lengths and parameters of a model folder; tokens, dimension and norm of a text");
  auto o = std::make_shared<info_command::Options>();
  o->choice.add_to(*command);
  o->compute.add_to(*command);
  command->add_flag("--fresh-head", o->choice.options.fresh_head,
                    "The folder is a bare encoder: show it with a fresh mean pooling");
  command->add_option("--text", o->text, "A text to embed");
  command->add_option("--role", o->role, "query or document")
      ->check(CLI::IsMember({"query", "document"}))
      ->capture_default_str();
  command->add_flag("--json", o->json, "Print the result as JSON");
  command->callback([o] { info_command::run(*o); });
}

}  // namespace program
