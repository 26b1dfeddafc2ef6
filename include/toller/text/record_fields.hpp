// SPDX-License-Identifier: Apache-2.0
// T0. Which column of a file feeds which field of a record.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "toller/text/records.hpp"

namespace toller {

/// The file's name for a record's field where it is not one of the usual names (empty: the usual ones, in this order).
///
///   query      query, anchor, question          documents  documents
///   positive   positive, document, answer       scores     scores
///   negatives  negatives, negative              labels     labels
///   text       text                             first      first, sentence1
///   id         id, _id (may be missing)         second     second, sentence2
///   label      label, score (LabelledText: label only)
///
/// Negatives are a list, a text, or the columns `NAME_1`, `NAME_2`, ...; a row without any has no negatives, unless
/// their name was given here: then each row needs them. A row is read by the first of the names that it has.
struct ReadOptions {
  std::string query{};
  std::string positive{};
  std::string negatives{};
  std::string text{};
  std::string id{};
  std::string label{};
  std::string documents{};
  std::string scores{};
  std::string labels{};
  std::string first{};
  std::string second{};
};

/// Fills a record from a row. For a record of your own, write `read_fields` beside it, in its namespace.
///
/// A row has `text`, `optional_text`, `integer`, `number`, and where the file can hold lists `texts`, `numbers`; each takes the
/// given name and the usual ones, and throws DataError with the row's place.
template <class Row>
void read_fields(Text& record, const Row& row, const ReadOptions& names) {
  record.text = row.text(names.text, {"text"});
  record.id = row.optional_text(names.id, {"id", "_id"});
}

template <class Row>
void read_fields(LabelledText& record, const Row& row, const ReadOptions& names) {
  record.text = row.text(names.text, {"text"});
  record.label = row.integer(names.label, {"label"});
}

template <class Row>
void read_fields(Pair& record, const Row& row, const ReadOptions& names) {
  record.query = row.text(names.query, {"query", "anchor", "question"});
  record.positive = row.text(names.positive, {"positive", "document", "answer"});
}

template <class Row>
void read_fields(Triplet& record, const Row& row, const ReadOptions& names) {
  record.query = row.text(names.query, {"query", "anchor", "question"});
  record.positive = row.text(names.positive, {"positive", "document", "answer"});
  record.negatives = row.texts_or_columns(names.negatives, {"negatives", "negative"});
}

template <class Row>
void read_fields(LabelledPair& record, const Row& row, const ReadOptions& names) {
  record.first = row.text(names.first, {"first", "sentence1"});
  record.second = row.text(names.second, {"second", "sentence2"});
  record.label = row.number(names.label, {"label", "score"});
}

template <class Row>
void read_fields(Group& record, const Row& row, const ReadOptions& names) {
  record.query = row.text(names.query, {"query", "anchor", "question"});
  record.documents = row.texts(names.documents, {"documents"});
  record.labels = row.numbers(names.labels, {"labels"});
  row.expect_equal("documents", record.documents.size(), "labels", record.labels.size());
}

template <class Row>
void read_fields(ScoredList& record, const Row& row, const ReadOptions& names) {
  record.query = row.text(names.query, {"query", "anchor", "question"});
  record.documents = row.texts(names.documents, {"documents"});
  record.scores = row.numbers(names.scores, {"scores"});
  row.expect_equal("documents", record.documents.size(), "scores", record.scores.size());
}

}  // namespace toller
