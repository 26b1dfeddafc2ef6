// SPDX-License-Identifier: Apache-2.0
// T0. The hosts of a job as SLURM and LSF write them.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "toller/core/error.hpp"

namespace toller {

namespace detail {

[[noreturn]] inline void bad_list(std::string_view variable, std::string_view list, std::string_view expected) {
  throw DistributedError("R604", cat(variable, " is \"", list, "\": expected ", expected));
}

/// A number of at most nine digits, or -1.
[[nodiscard]] inline long small_number(std::string_view text) {
  const bool digits = std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  return digits && !text.empty() && text.size() <= 9 ? std::stol(std::string(text)) : -1;
}

/// Cuts at the commas that are not within brackets.
[[nodiscard]] inline std::vector<std::string> cut_at_commas(std::string_view text) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char c : text) {
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    if (c == ',' && depth == 0)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

/// The names in `01-03,07`, or none if that cannot be read.
[[nodiscard]] inline std::vector<std::string> expand_ranges(std::string_view text) {
  std::vector<std::string> names;
  for (const std::string& part : cut_at_commas(text)) {
    const std::size_t dash = part.find('-');
    const std::string from = part.substr(0, dash), to = dash == std::string::npos ? from : part.substr(dash + 1);
    const long low = small_number(from), high = small_number(to);
    if (low < 0 || high < low || high - low >= 1'000'000) return {};
    for (long i = low; i <= high; ++i) {
      const std::string digits = std::to_string(i);
      names.push_back(std::string(from.size() - std::min(from.size(), digits.size()), '0') + digits);
    }
  }
  return names;
}

}  // namespace detail

/// The hosts that a SLURM node list names, in its order: `node[01-03,07],gpu5` is node01, node02, node03, node07, gpu5.
///
/// Several groups in one name are combined, the last one fastest: `r[1-2]n[1-2]` is r1n1, r1n2, r2n1, r2n2.
/// Errors   DistributedError R604, naming `variable`, where the list came from.
[[nodiscard]] inline std::vector<std::string> slurm_hosts(std::string_view list, std::string_view variable) {
  const auto bad = [&] { detail::bad_list(variable, list, "hosts such as node[01-03,07],gpu5"); };
  std::vector<std::string> hosts;
  for (const std::string& name : detail::cut_at_commas(list)) {
    std::vector<std::string> grown(1);
    std::size_t at = 0;
    while (at < name.size()) {
      const std::size_t open = std::min(name.find('[', at), name.size());
      for (std::string& host : grown) host.append(name, at, open - at);
      if (open == name.size()) break;
      const std::size_t close = name.find(']', open);
      if (close == std::string::npos) bad();
      const std::vector<std::string> ends = detail::expand_ranges(std::string_view(name).substr(open + 1, close - open - 1));
      if (ends.empty() || grown.size() * ends.size() > 1'000'000) bad();
      std::vector<std::string> longer;
      for (const std::string& host : grown)
        for (const std::string& end : ends) longer.push_back(host + end);
      grown = std::move(longer);
      at = close + 1;
    }
    if (name.empty() || grown.front().find_first_of("[] \t") != std::string::npos) bad();
    hosts.insert(hosts.end(), grown.begin(), grown.end());
  }
  return hosts;
}

/// Tasks on each node as SLURM writes them: `4(x2),3` is 4, 4, 3.
///
/// Errors   DistributedError R604, naming `variable`, where the list came from.
[[nodiscard]] inline std::vector<int> slurm_tasks_per_node(std::string_view list, std::string_view variable) {
  std::vector<int> tasks;
  for (const std::string& part : detail::cut_at_commas(list)) {
    const std::size_t open = part.find("(x");
    const bool repeated = open != std::string::npos && part.back() == ')';
    const long count = detail::small_number(part.substr(0, open));
    const long times = repeated ? detail::small_number(part.substr(open + 2, part.size() - open - 3)) : 1;
    const bool readable = repeated || open == std::string::npos;
    if (!readable || count < 0 || times < 1 || times > 1'000'000) detail::bad_list(variable, list, "tasks such as 4(x2),3");
    tasks.insert(tasks.end(), static_cast<std::size_t>(times), static_cast<int>(count));
  }
  return tasks;
}

/// The different hosts of an LSF list, in its order: `batch1 1 node7 42` (LSB_MCPU_HOSTS) or `node7 node7 node8` (LSB_HOSTS).
[[nodiscard]] inline std::vector<std::string> lsf_hosts(std::string_view list) {
  std::vector<std::string> hosts;
  std::istringstream words{std::string(list)};
  for (std::string word; words >> word;)
    if (detail::small_number(word) < 0 && std::find(hosts.begin(), hosts.end(), word) == hosts.end()) hosts.push_back(word);
  return hosts;
}

}  // namespace toller
