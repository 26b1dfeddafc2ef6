// SPDX-License-Identifier: Apache-2.0
// T1. Which parameters get which learning rate and weight decay.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <vector>

#include "toller/core/values.hpp"
#include "toller/optimizer/optimizer.hpp"

namespace toller {

/// Parameters that share a learning rate (before the schedule) and a weight decay.
struct ParameterGroup {
  Parameters parameters{};
  double lr = 0;
  double weight_decay = 0;
};

/// Whether weight decay applies to a parameter of this name: not to biases and to what belongs to a normalisation.
///
/// Source   the decay rule of transformers' Trainer: `bias`, `layernorm`, `rmsnorm` anywhere in the lower-cased name, or
///          a part that is `norm` or ends in `_norm`.
[[nodiscard]] inline bool is_decayed(std::string_view parameter) {
  std::string name(parameter);
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const std::string_view word : {"bias", "layernorm", "rmsnorm"})
    if (name.find(word) != std::string::npos) return false;
  for (auto at = name.find("norm"); at != std::string::npos; at = name.find("norm", at + 1)) {
    const bool begins = at == 0 || name[at - 1] == '.' || name[at - 1] == '_';
    const bool ends = at + 4 == name.size() || name[at + 4] == '.';
    if (begins && ends) return false;
  }
  return true;
}

/// The groups of a model: encoder and pooling head, each with and without weight decay; empty groups are left out.
[[nodiscard]] inline std::vector<ParameterGroup> parameter_groups(const Parameters& encoder, const Parameters& head,
                                                                  const OptimizerOptions& options) {
  std::vector<ParameterGroup> groups;
  const auto split = [&](const Parameters& parameters, double lr) {
    ParameterGroup decayed{{}, lr, options.weight_decay};
    ParameterGroup plain{{}, lr, 0};
    for (const Parameter& p : parameters) (is_decayed(p.name) ? decayed : plain).parameters.push_back(p);
    for (ParameterGroup* group : {&decayed, &plain})
      if (!group->parameters.empty()) groups.push_back(std::move(*group));
  };
  split(encoder, options.lr);
  split(head, options.head_lr.value_or(options.lr));
  return groups;
}

}  // namespace toller
