// SPDX-License-Identifier: Apache-2.0
// T0. Collections for retrieval in BEIR's layout.
#pragma once

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "toller/core/error.hpp"
#include "toller/evaluate/metrics.hpp"
#include "toller/store/json_file.hpp"
#include "toller/text/line_file.hpp"

namespace toller {

/// Documents, queries and which answer which. Only queries that are judged are kept; all in the order of their files.
struct RetrievalData {
  std::vector<std::string> document_ids{};
  std::vector<std::string> documents{};
  std::vector<std::string> query_ids{};
  std::vector<std::string> queries{};
  Qrels qrels{};
};

/// Reads `corpus.jsonl`, `queries.jsonl` and `qrels/<split>.tsv` of a folder. A document's text is its title, a space and its
/// text, without space at the ends.
///
/// Errors   FileError R401: no such file. DataError, naming `file:line`: R202 (no rows), R265 (not a JSON object,
///          invalid UTF-8, or nested deeper than 64 levels), R266 (a field is missing or no text), R267 (an id twice), R268
///          (a line of the qrels that is not query, document, grade; or a query that the folder does not have).
[[nodiscard]] RetrievalData read_beir(const std::filesystem::path& folder, std::string_view split = "test");

namespace detail {

[[nodiscard]] inline std::string_view trimmed(std::string_view text) {
  constexpr std::string_view space = " \t\r\n";
  const auto begin = text.find_first_not_of(space);
  return begin == std::string_view::npos ? std::string_view() : text.substr(begin, text.find_last_not_of(space) + 1 - begin);
}

/// Calls `take(id, title, text)` for each row of a JSON Lines file; the title may be missing.
template <class Take>
void read_beir_texts(const std::filesystem::path& path, Take&& take) {
  const LineFile file(path);
  std::unordered_set<std::string> seen;
  for (std::int64_t i = 0; i < file.size(); ++i) {
    const auto fail = [&](std::string_view code, const std::string& message) {
      throw DataError(code, file.place(i) + ": " + message);
    };
    nlohmann::json row;
    try {
      row = parse_shallow_json(file.line(i), [&](const std::string& what) { fail("R265", what); });
    } catch (const nlohmann::json::exception&) {
    }
    if (!row.is_object()) fail("R265", "expected a JSON object in UTF-8");
    const auto field = [&](const char* name, bool needed) -> std::string {
      const auto at = row.find(name);
      if (at == row.end() || at->is_null()) {
        if (needed) fail("R266", cat("field \"", name, "\" is missing"));
        return {};
      }
      if (at->is_number_integer()) return at->dump();
      if (!at->is_string()) fail("R266", cat("field \"", name, "\": expected a text, found ", at->type_name()));
      return at->template get<std::string>();
    };
    std::string id = field("_id", true);
    if (!seen.insert(id).second) fail("R267", cat("id \"", id, "\" is there twice"));
    take(std::move(id), field("title", false), field("text", true));
  }
}

/// Whether the columns of a first line are names: query-id and corpus-id, or score for the grade; in any case.
[[nodiscard]] inline bool is_qrels_header(std::string_view query, std::string_view document, std::string_view grade) {
  const auto is = [](std::string_view column, std::string_view name) {
    column = trimmed(column);
    return std::equal(column.begin(), column.end(), name.begin(), name.end(),
                      [](char a, char b) { return std::tolower(static_cast<unsigned char>(a)) == b; });
  };
  return is(grade, "score") || (is(query, "query-id") && is(document, "corpus-id"));
}

/// How many words a line has, between spaces and tabs.
[[nodiscard]] inline int count_words(std::string_view line) {
  int words = 0;
  for (line = trimmed(line); !line.empty(); ++words)
    line = trimmed(line.substr(std::min(line.find_first_of(" \t"), line.size())));
  return words;
}

/// Reads `query-id TAB corpus-id TAB grade` lines; the first may be a header.
[[nodiscard]] inline Qrels read_qrels(const std::filesystem::path& path, const std::unordered_set<std::string>& queries) {
  const LineFile file(path);
  Qrels qrels;
  for (std::int64_t i = 0; i < file.size(); ++i) {
    const std::string_view line = file.line(i);
    const auto first = line.find('\t');
    const auto second = first == std::string_view::npos ? first : line.find('\t', first + 1);
    const std::string_view number = second == std::string_view::npos ? std::string_view() : trimmed(line.substr(second + 1));
    int grade = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), grade);
    if (error != std::errc() || end != number.data() + number.size()) {
      const bool three = second != std::string_view::npos;
      if (i == 0 && three && is_qrels_header(line.substr(0, first), line.substr(first + 1, second - first - 1), number))
        continue;
      const bool trec = count_words(line) == 4;
      throw DataError("R268", cat(file.place(i), ": expected query id, document id and whole grade, separated by tabs",
                                  trec ? "; got four columns, as a TREC file has (query, 0, document, grade)" : ""));
    }
    std::string query(line.substr(0, first));
    if (!queries.contains(query)) throw DataError("R268", cat(file.place(i), ": there is no query \"", query, "\""));
    if (!qrels[std::move(query)].emplace(line.substr(first + 1, second - first - 1), grade).second)
      throw DataError("R267", file.place(i) + ": this document is judged twice for this query");
  }
  if (qrels.empty()) throw DataError("R202", path.string() + ": the file has no rows");
  return qrels;
}

}  // namespace detail

inline RetrievalData read_beir(const std::filesystem::path& folder, std::string_view split) {
  RetrievalData data;
  std::unordered_set<std::string> known;
  std::vector<std::pair<std::string, std::string>> queries;
  detail::read_beir_texts(folder / "queries.jsonl", [&](std::string id, const std::string&, std::string text) {
    known.insert(id);
    queries.emplace_back(std::move(id), std::move(text));
  });
  data.qrels = detail::read_qrels(folder / "qrels" / (std::string(split) + ".tsv"), known);
  for (auto& [id, text] : queries) {
    if (!data.qrels.contains(id)) continue;
    data.query_ids.push_back(std::move(id));
    data.queries.emplace_back(detail::trimmed(text));
  }
  detail::read_beir_texts(folder / "corpus.jsonl", [&](std::string id, const std::string& title, const std::string& text) {
    data.document_ids.push_back(std::move(id));
    data.documents.emplace_back(detail::trimmed(title + " " + text));
  });
  return data;
}

}  // namespace toller
