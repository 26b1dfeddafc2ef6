// SPDX-License-Identifier: Apache-2.0
// T0. The records that training data are made of.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

namespace toller {

/// One text, and its id where the file has one.
struct Text {
  std::string text{};
  std::string id{};
  friend bool operator==(const Text&, const Text&) = default;
};

/// A text and its class.
struct LabelledText {
  std::string text{};
  std::int64_t label = 0;
  friend bool operator==(const LabelledText&, const LabelledText&) = default;
};

/// A query and a document that answers it.
struct Pair {
  std::string query{};
  std::string positive{};
  friend bool operator==(const Pair&, const Pair&) = default;
};

/// A query, a document that answers it and any number of documents that do not.
struct Triplet {
  std::string query{};
  std::string positive{};
  std::vector<std::string> negatives{};
  friend bool operator==(const Triplet&, const Triplet&) = default;
};

/// A query with all its documents, answering (label > 0) or not.
struct Group {
  std::string query{};
  std::vector<std::string> documents{};
  std::vector<double> labels{};
  friend bool operator==(const Group&, const Group&) = default;
};

/// A query with documents and a teacher's scores for them.
struct ScoredList {
  std::string query{};
  std::vector<std::string> documents{};
  std::vector<double> scores{};
  friend bool operator==(const ScoredList&, const ScoredList&) = default;
};

/// Two texts and how well they go together.
struct LabelledPair {
  std::string first{};
  std::string second{};
  double label = 0;
  friend bool operator==(const LabelledPair&, const LabelledPair&) = default;
};

/// A record with a query and its positive document, as losses with in-batch negatives need.
template <class R>
concept PairRecord = requires(const R& r) {
  { r.query } -> std::convertible_to<std::string>;
  { r.positive } -> std::convertible_to<std::string>;
};

}  // namespace toller
