// SPDX-License-Identifier: Apache-2.0
// T2. A retriever: tokenizer, encoder and pooling, loaded from and saved to the folders that the Python libraries use.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "toller/batch/collate.hpp"
#include "toller/distributed/rank.hpp"
#include "toller/encoder/encoder.hpp"
#include "toller/export/model_folder.hpp"
#include "toller/pooling/pooling.hpp"
#include "toller/tokenizer/auto_tokenizer.hpp"
#include "toller/tokenizer/preprocessor.hpp"
#include "toller/train/text_format.hpp"

namespace toller {

/// How many texts are embedded at once. Units: tokens of one forward pass.
struct EmbedOptions {
  std::int64_t batch_tokens = 8192;
};

/// Which ranks write a folder.
struct SaveOptions {
  bool on_each_node = false;
};

/// Tokenizer, encoder and pooling as one thing. A handle: copies share weights.
///
/// Shapes   `forward` gives Embeddings [N, D], MultiVector [T', D] or Logits [N, L], as the pooling says.
/// Errors   FileError R4xx for damaged files, R803 for a folder without the head, ConfigError R111/R112 for lengths and
///          vocabularies that do not fit the encoder.
template <class Encoder, class Pooling>
class Model {
  static_assert(EncoderPolicy<Encoder>,
                "[toller C110] the first parameter is not an EncoderPolicy. encoder/README.md#the-concept");
  static_assert(PoolingPolicy<Pooling>, "[toller C110] the second parameter is not a PoolingPolicy. pooling/README.md#concept");

public:
  using output_type = typename Pooling::output_type;
  using encoder_type = Encoder;
  using pooling_type = Pooling;

  /// Loads a folder of Hugging Face, Sentence Transformers, PyLate or Stanford ColBERT.
  ///
  /// Fields of `pooling` and `options` that are empty are as saved, else the default. `fresh_head` starts a new head with
  /// weights drawn from `seed`, whatever the folder holds behind its encoder.
  [[nodiscard]] static Model from_pretrained(const std::filesystem::path& dir, const Pooling& pooling = {},
                                             const ModelOptions& options = {}) {
    const ModelFolder folder = read_model_folder(dir);
    const auto no_head = [&](const std::string& why) {
      return FileError("R803", detail::cat(dir.string(), ": ", why, ": pass .fresh_head = true (--fresh-head) to start one"));
    };
    if (folder.kind == FolderKind::plain && !options.fresh_head) throw no_head("has no modules.json, so it holds no head");
    Encoder encoder = Encoder::from_pretrained(folder.encoder_dir);
    AutoTokenizer tokenizer = AutoTokenizer::from_pretrained(folder.encoder_dir);
    const bool saved_format = folder.kind == FolderKind::pylate || folder.kind == FolderKind::stanford;
    const TextFormat format = TextFormat::make<output_type>(folder.settings, options, saved_format, encoder.max_positions());
    const std::int64_t words = tokenizer.vocabulary_size();
    for (const std::string& marker : {format.query.marker, format.document.marker})
      if (!marker.empty()) tokenizer.add_token(marker);
    if (tokenizer.vocabulary_size() > encoder.vocabulary_size()) {
      if (words > encoder.vocabulary_size())  // not for the markers' sake alone
        throw ConfigError("R112", detail::cat(dir.string(), ": the tokenizer has ", words, " tokens, the encoder embeds only ",
                                              encoder.vocabulary_size()));
      encoder.resize_vocabulary(tokenizer.vocabulary_size(), mix_seed(options.seed, Stream::init, 1));
    }
    const auto bind = [&] {
      if (options.fresh_head) return pooling.bind(encoder.hidden_size(), mix_seed(options.seed, Stream::init, 2));
      try {
        return pooling.bind(encoder.hidden_size(), folder.modules);
      } catch (const Error& error) {  // the pooling knows no folder
        if (error.code() != "R803" && error.code() != "R320") throw;
        throw FileError(error.code(), detail::cat(dir.string(), ": ", std::string(error.what()).substr(error.code().size() + 3),
                                                  " (--fresh-head)"));
      }
    };
    auto bound = bind();
    return Model(std::move(encoder), std::move(bound), Preprocessor(std::move(tokenizer), format.query, format.document),
                 folder.settings);
  }

  /// Embeds a batch of tokens; with a graph when gradients are on.
  [[nodiscard]] output_type forward(const TokenBatch& batch) const { return pooling_.pool(encoder_.forward(batch)); }

  /// Embeds texts as queries, in their order and without a graph: a vector of strings, or `{"a text", "another"}`.
  [[nodiscard]] output_type encode_queries(const std::vector<std::string>& texts, const EmbedOptions& options = {}) const {
    return encode(texts, Role::query, options);
  }
  /// Embeds texts as documents, in their order and without a graph.
  [[nodiscard]] output_type encode_documents(const std::vector<std::string>& texts, const EmbedOptions& options = {}) const {
    return encode(texts, Role::document, options);
  }

  /// Embeds texts in that role; texts of like length go through the encoder together.
  [[nodiscard]] output_type encode(std::span<const std::string> texts, Role role, const EmbedOptions& options = {}) const;

  /// Writes a folder that Sentence Transformers (one vector) or PyLate (many vectors) loads; an old one is replaced whole.
  ///
  /// Ranks    once ranks have met, rank 0 writes and the others return at once; with `on_each_node` the first rank of each
  /// host.
  void save_pretrained(const std::filesystem::path& dir, const SaveOptions& options = {}) const {
    if (!detail::writes_files(options.on_each_node)) return;
    constexpr bool late = std::is_same_v<output_type, MultiVector>;
    for (const Parameters& list : {encoder_.saved_tensors(), pooling_.parameters()})
      for (const Parameter& p : list)
        if (!p.value.isfinite().all().template item<bool>())
          throw NumericError("R502",
                             detail::cat("cannot save ", dir.string(), ": ", p.name, " has values that are not finite"));
    write_model_folder(dir, {.kind = late ? FolderKind::pylate : FolderKind::sentence_transformers,
                             .config_json = encoder_.config_json(),
                             .encoder_tensors = encoder_.saved_tensors(),
                             .modules = pooling_.modules(),
                             .settings = TextFormat{preprocessor_.format(Role::query), preprocessor_.format(Role::document)}
                                             .template settings<output_type>(settings_),
                             .tokenizer_json = preprocessor_.tokenizer().to_json(),
                             .tokenizer_config = preprocessor_.tokenizer().config()});
  }

  /// Moves every weight; all copies of this model see it.
  void to(at::Device device) {
    encoder_.to(device);
    pooling_.to(device);
  }

  [[nodiscard]] at::Device device() const { return encoder_.parameters().front().value.device(); }
  [[nodiscard]] const Encoder& encoder() const { return encoder_; }
  [[nodiscard]] const bound_pooling_t<Pooling>& pooling() const { return pooling_; }
  [[nodiscard]] const Preprocessor& preprocessor() const { return preprocessor_; }

private:
  Model(Encoder encoder, bound_pooling_t<Pooling> pooling, Preprocessor preprocessor, FolderSettings settings)
      : encoder_(std::move(encoder)),
        pooling_(std::move(pooling)),
        preprocessor_(std::move(preprocessor)),
        settings_(std::move(settings)) {}

  Encoder encoder_;
  bound_pooling_t<Pooling> pooling_;
  Preprocessor preprocessor_;
  FolderSettings settings_;
};

namespace detail {

/// Rows of `values` cut into pieces, reordered so that piece `i` of the input becomes piece `place[i]`.
inline Embeddings in_order(const std::vector<Embeddings>& parts, const std::vector<std::int64_t>& order) {
  std::vector<at::Tensor> values;
  for (const auto& part : parts) values.push_back(part.values);
  const at::Tensor all = at::cat(values);
  at::Tensor result = at::empty_like(all);
  result.index_copy_(0, to_tensor(order).to(all.device()), all);
  return {result};
}
inline Logits in_order(const std::vector<Logits>& parts, const std::vector<std::int64_t>& order) {
  std::vector<Embeddings> values;
  for (const auto& part : parts) values.push_back({part.values});
  return {in_order(values, order).values};
}
inline MultiVector in_order(const std::vector<MultiVector>& parts, const std::vector<std::int64_t>& order) {
  std::vector<at::Tensor> pieces(order.size());
  std::size_t next = 0;
  for (const auto& part : parts)
    for (std::int64_t i = 0; i < part.size(); ++i)
      pieces[static_cast<std::size_t>(order[next++])] = part.slice(i, i + 1).values;
  MultiVector result;
  for (const auto& piece : pieces) result.offsets.push_back(result.offsets.back() + piece.size(0));
  result.values = pieces.empty() ? parts.front().values : at::cat(pieces);
  return result;
}

}  // namespace detail

template <class Encoder, class Pooling>
typename Pooling::output_type Model<Encoder, Pooling>::encode(std::span<const std::string> texts, Role role,
                                                              const EmbedOptions& options) const {
  const at::NoGradGuard no_grad;
  const at::Device target = device();
  std::vector<TokenizedText> tokens(texts.size());
  at::parallel_for(0, static_cast<std::int64_t>(texts.size()), 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      tokens[static_cast<std::size_t>(i)] = preprocessor_(texts[static_cast<std::size_t>(i)], role);
  });
  std::vector<std::int64_t> order(texts.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return tokens[static_cast<std::size_t>(a)].ids.size() < tokens[static_cast<std::size_t>(b)].ids.size();
  });
  std::vector<output_type> parts;
  for (std::size_t begin = 0; begin < order.size();) {
    std::vector<TokenizedText> chosen;
    std::int64_t count = 0;
    do {
      chosen.push_back(std::move(tokens[static_cast<std::size_t>(order[begin++])]));
      count += static_cast<std::int64_t>(chosen.back().ids.size());
    } while (begin < order.size() &&
             count + static_cast<std::int64_t>(tokens[static_cast<std::size_t>(order[begin])].ids.size()) <=
                 options.batch_tokens);
    parts.push_back(forward(collate(chosen).to(target)));
  }
  if (parts.empty()) parts.push_back(forward(collate(std::vector<TokenizedText>{}).to(target)));
  return detail::in_order(parts, order);
}

}  // namespace toller
