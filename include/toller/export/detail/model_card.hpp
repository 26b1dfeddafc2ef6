// SPDX-License-Identifier: Apache-2.0
// T1. The README.md of a saved model.
#pragma once

#include <string>

#include "toller/core/error.hpp"
#include "toller/export/folder_settings.hpp"

namespace toller::detail {

[[nodiscard]] inline std::string model_card(FolderKind kind, const FolderModules& modules, const FolderSettings& settings) {
  const bool late = kind == FolderKind::pylate;
  std::string layers = "Transformer";
  for (const FolderModule& module : modules) layers += " -> " + module.type;
  const auto length = [](const char* name, const std::optional<std::int64_t>& value) {
    return value ? cat("- ", name, ": ", *value, " tokens\n") : std::string();
  };
  return cat("---\nlibrary_name: ", late ? "PyLate" : "sentence-transformers", "\npipeline_tag: sentence-similarity\ntags:\n- ",
             late ? "ColBERT\n- PyLate" : "sentence-transformers",
             "\n- sentence-similarity\n- feature-extraction\n- toller\n---\n\n# ",
             late ? "A ColBERT model" : "A text embedding model", "\n\nTrained with toller.\n\n- layers: ", layers, "\n",
             late ? length("longest query", settings.query_length) + length("longest document", settings.document_length)
                  : length("longest text", settings.max_seq_length),
             "\n```python\n",
             late ? "from pylate import models\n\nmodel = models.ColBERT(\"this folder\")\n"
                    "queries = model.encode([\"a question\"], is_query=True)\n"
                    "documents = model.encode([\"a text\"], is_query=False)\n"
                  : "from sentence_transformers import SentenceTransformer\n\nmodel = SentenceTransformer(\"this folder\")\n"
                    "embeddings = model.encode([\"a text\"])\n",
             "```\n");
}

}  // namespace toller::detail
