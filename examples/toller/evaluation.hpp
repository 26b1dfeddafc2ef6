// SPDX-License-Identifier: Apache-2.0
// Scores of a model on a held-out collection, shared by `evaluate` and `train --eval`.
#pragma once

#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "common.hpp"
#include "toller/evaluate/beir.hpp"
#include "toller/evaluate/retrieval.hpp"

namespace program {

/// Embeds queries and documents, searches exactly, and gives the metrics by name.
template <class Similarity, class Model>
nlohmann::json evaluate_model(const Model& model, const toller::RetrievalData& data, const Compute& compute) {
  const auto embed = [&](const std::vector<std::string>& texts, toller::Role role) {
    const auto guard = compute.guard(model.device());
    return model.encode(texts, role);
  };
  const auto queries = embed(data.queries, toller::Role::query);
  const auto report = toller::evaluate_retrieval(Similarity{}, queries, embed(data.documents, toller::Role::document), data);
  nlohmann::json metrics;
  toller::RetrievalReport::fields(report, [&](std::string_view name, double value) { metrics[std::string(name)] = value; });
  return metrics;
}

/// `before  nDCG@10 0.8110  MRR@10 0.7830  ...` on standard output.
inline void print_metrics(const std::string& label, const nlohmann::json& metrics) {
  std::cout << std::left << std::setw(8) << label << std::fixed << std::setprecision(4);
  for (const auto& [name, key] : {std::pair{"nDCG@10", "ndcg@10"},
                                  {"MRR@10", "mrr@10"},
                                  {"MAP@100", "map@100"},
                                  {"recall@100", "recall@100"},
                                  {"accuracy@1", "accuracy@1"}})
    std::cout << "  " << name << ' ' << metrics[key].get<double>();
  std::cout << std::endl;
}

}  // namespace program
