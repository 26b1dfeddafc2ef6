// SPDX-License-Identifier: Apache-2.0
// T0. Post-processors: where special tokens go around one text and around two.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "toller/tokenizer/detail/json_field.hpp"
#include "toller/tokenizer/detail/unicode.hpp"

namespace toller::detail {

/// One place of a template: a special token (`sequence` -1), or a whole text.
struct TemplatePart {
  int sequence = -1;
  std::int64_t id = 0;
  std::int64_t type = 0;
};
using Template = std::vector<TemplatePart>;

/// The post-processor of a tokenizer.json. All its kinds come down to two templates.
struct PostProcessor {
  Template single{{0, 0, 0}};
  Template pair{{0, 0, 0}, {1, 0, 1}};
  bool trim_offsets = false;      // offsets leave the white space out that an added token took
  bool add_prefix_space = false;  // but for one space at the text's beginning

  [[nodiscard]] static std::size_t special_tokens(const Template& parts) {
    return static_cast<std::size_t>(
        std::count_if(parts.begin(), parts.end(), [](const TemplatePart& p) { return p.sequence < 0; }));
  }

  /// Errors   FileError R231 for a kind it does not know, R232 for a malformed field.
  [[nodiscard]] static PostProcessor from_json(const JsonField& json) {
    PostProcessor result;
    bool filled = false;
    if (!json.value().is_null()) result.add(json, filled);
    return result;
  }

  /// Moves the ends of a token's place in `text` off white space.
  void trim(std::string_view text, bool is_first, std::size_t& begin, std::size_t& end) const {
    const std::size_t start = begin;
    const auto skip_space = [&](std::size_t& at) {
      std::size_t next = at;
      if (at >= end || !is_space(next_character(text, next))) return false;
      at = next;
      return true;
    };
    bool spaces = skip_space(begin);
    if (spaces && add_prefix_space && (is_first || start == 0))
      begin = start;
    else
      while (spaces) spaces = skip_space(begin);
    while (end > begin) {
      const std::size_t last = previous_start(text, end);
      std::size_t at = last;
      if (!is_space(next_character(text, at))) return;
      end = last;
    }
  }

private:
  void add(const JsonField& json, bool& filled) {
    const std::string kind = json.at("type").string();
    if (kind == "Sequence") {
      for (const JsonField& part : json.at("processors").items()) add(part, filled);
      return;
    }
    if (filled) json.fail("one template, not two");
    filled = true;
    if (kind == "TemplateProcessing") {
      single = parts(json.at("single"), json.at("special_tokens"));
      pair = parts(json.at("pair"), json.at("special_tokens"));
    } else if (kind == "BertProcessing") {
      const TemplatePart cls{-1, token_id(json.at("cls")), 0};
      const TemplatePart sep{-1, token_id(json.at("sep")), 0};
      single = {cls, {0, 0, 0}, sep};
      pair = {cls, {0, 0, 0}, sep, {1, 0, 1}, {-1, sep.id, 1}};
    } else if (kind == "RobertaProcessing") {
      const TemplatePart cls{-1, token_id(json.at("cls")), 0};
      const TemplatePart sep{-1, token_id(json.at("sep")), 0};
      single = {cls, {0, 0, 0}, sep};
      pair = {cls, {0, 0, 0}, sep, sep, {1, 0, 0}, sep};
      trim_offsets = json.boolean("trim_offsets", true);
      add_prefix_space = json.boolean("add_prefix_space", true);
    } else {
      unsupported(json, "post_processor", kind, "TemplateProcessing, BertProcessing, RobertaProcessing, Sequence");
    }
  }

  /// `["[SEP]", 102]`
  [[nodiscard]] static std::int64_t token_id(const JsonField& json) {
    const auto items = json.items();
    if (items.size() != 2) json.fail("a token and its id");
    return items[1].count();
  }

  [[nodiscard]] static Template parts(const JsonField& json, const JsonField& special) {
    Template result;
    bool used[2] = {false, false};
    for (const JsonField& part : json.items()) {
      const bool is_text = part.has("Sequence");
      const JsonField body = part.at(is_text ? "Sequence" : "SpecialToken");
      const std::int64_t type = body.at("type_id").count();
      const std::string id = body.at("id").string();
      if (is_text) {
        if ((id != "A" && id != "B") || used[id == "B"]) body.at("id").fail("\"A\" and \"B\", each once");
        used[id == "B"] = true;
        result.push_back({id == "B" ? 1 : 0, 0, type});
      } else {
        for (const JsonField& token : special.at(id.c_str()).at("ids").items()) result.push_back({-1, token.count(), type});
      }
    }
    return result;
  }
};

}  // namespace toller::detail
