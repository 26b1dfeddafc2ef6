// SPDX-License-Identifier: Apache-2.0
// toller tokenize: texts on standard input, token ids on standard output, both JSON lines.
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "common.hpp"

namespace program {
namespace tokenize_command {

struct Options {
  ModelChoice choice{};
  std::string role{};
  std::optional<std::int64_t> max_length{};
};

/// One line as a JSON object with a string `text`.
nlohmann::json read_line(const std::string& line, std::int64_t number) {
  const auto fail = [&](std::string_view code, const std::string& what) {
    throw toller::DataError(code, "standard input:" + std::to_string(number) + ": " + what);
  };
  nlohmann::json row = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!row.is_object()) fail("R203", "not a JSON object in UTF-8");
  if (!row.contains("text")) fail("R204", "field \"text\" is missing");
  if (!row["text"].is_string()) fail("R205", "field \"text\" is not a string");
  if (row.contains("pair") && !row["pair"].is_null() && !row["pair"].is_string())
    fail("R205", "field \"pair\" is not a string");
  return row;
}

void run(const Options& o) {
  using namespace toller;
  const fs::path dir = o.choice.folder();
  const ModelFolder folder = read_model_folder(dir);
  AutoTokenizer tokenizer = AutoTokenizer::from_pretrained(folder.encoder_dir);
  std::optional<Preprocessor> preprocessor;
  const Role role = o.role == "query" ? Role::query : Role::document;
  if (!o.role.empty()) {
    const bool late = is_late(folder);
    ModelOptions options = o.choice.options;
    if (o.max_length) options.max_length = options.query_length = options.document_length = o.max_length;
    constexpr std::int64_t no_limit = std::int64_t{1} << 40;
    const TextFormat format = late ? TextFormat::make<MultiVector>(folder.settings, options, true, no_limit)
                                   : TextFormat::make<Embeddings>(folder.settings, options, false, no_limit);
    for (const std::string& marker : {format.query.marker, format.document.marker})
      if (!marker.empty()) tokenizer.add_token(marker);
    preprocessor.emplace(tokenizer, format.query, format.document);
  }
  if (!std::cin) throw FileError("R137", "standard input: cannot be read");
  std::string line;
  for (std::int64_t number = 1; std::getline(std::cin, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const nlohmann::json row = read_line(line, number);
    const std::string text = row["text"].get<std::string>();
    nlohmann::json out;
    if (preprocessor) {
      const TokenizedText tokens = (*preprocessor)(text, role);
      out = {{"ids", tokens.ids}, {"attention", tokens.attended}};
    } else {
      const EncodeOptions options{.max_length = o.max_length};
      const bool pair = row.contains("pair") && row["pair"].is_string();
      const Encoding tokens =
          pair ? tokenizer.encode(text, row["pair"].get<std::string>(), options) : tokenizer.encode(text, options);
      out = {{"ids", tokens.ids}, {"attention", std::vector<int>(tokens.ids.size(), 1)}};
      if (pair) out["types"] = tokens.types;
    }
    std::cout << out.dump() << '\n';
  }
  if (std::cin.bad()) throw FileError("R137", "standard input: cannot be read");
}

}  // namespace tokenize_command

void add_tokenize(CLI::App& app) {
  auto* command =
      app.add_subcommand("tokenize", "JSONL {\"text\", \"pair\"} on standard input -> JSONL {\"ids\", \"attention\"}");
  auto o = std::make_shared<tokenize_command::Options>();
  o->choice.add_to(*command);
  command->add_option("--role", o->role, "Write the text as the model does for a query or document")
      ->check(CLI::IsMember({"query", "document"}));
  command->add_option("--max-length", o->max_length, "Longest text in tokens (default: no limit, or the model's with --role)");
  command->callback([o] { tokenize_command::run(*o); });
}

}  // namespace program
