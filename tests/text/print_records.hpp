// SPDX-License-Identifier: Apache-2.0
// How a failed test shows a record.
#pragma once

#include <ostream>

#include "toller/text/views.hpp"

namespace toller {

template <class Record>
requires(std::same_as<Record, Text> || std::same_as<Record, LabelledText> || std::same_as<Record, Pair> ||
         std::same_as<Record, Triplet> || std::same_as<Record, Group> || std::same_as<Record, ScoredList> ||
         std::same_as<Record, LabelledPair>) std::ostream&
operator<<(std::ostream& out, const Record& record) {
  for_each_text(record, [&](std::string_view text) { out << '"' << text << "\" "; });
  return out;
}

}  // namespace toller
