// SPDX-License-Identifier: Apache-2.0
#include "support/temporary_folder.hpp"
#include "support/tiny.hpp"
#include "toller/toller.hpp"

using namespace toller;

namespace {

using Dense = Model<Bert, MeanPooling>;
using Colbert = Model<Bert, LateInteraction>;
const ModelOptions fresh{.fresh_head = true, .seed = 3};

std::vector<std::string> documents() {
  std::vector<std::string> texts;
  for (const Pair& pair : tiny_pairs()) texts.push_back(pair.positive);
  texts.insert(texts.end(), {"", "...", "a"});
  return texts;
}

at::Tensor text_vectors(const Embeddings& e, std::int64_t i) {
  return e.values[i];
}
at::Tensor text_vectors(const MultiVector& v, std::int64_t i) {
  return v.slice(i, i + 1).values;
}

template <class M>
void alone_as_together(const M& model) {
  const auto texts = documents();
  for (const Role role : {Role::query, Role::document}) {
    const auto together = model.encode(texts, role);
    const auto small = model.encode(texts, role, {.batch_tokens = 1});
    REQUIRE(together.size() == static_cast<std::int64_t>(texts.size()));
    REQUIRE(together.values.isfinite().all().template item<bool>());
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const auto alone = model.encode(std::vector<std::string>{texts[i]}, role);
      const auto at_i = static_cast<std::int64_t>(i);
      REQUIRE(at::allclose(text_vectors(together, at_i), text_vectors(alone, 0), 0, 1e-5));
      REQUIRE(at::allclose(text_vectors(together, at_i), text_vectors(small, at_i), 0, 1e-5));
    }
  }
}

template <class M>
void same_after_saving(const M& model) {
  const TemporaryFolder folder;
  const auto dir = folder.path() / "saved";
  model.save_pretrained(dir);
  model.save_pretrained(dir);  // over the first
  const M loaded = M::from_pretrained(dir);
  for (const Role role : {Role::query, Role::document})
    REQUIRE(model.encode(documents(), role).values.equal(loaded.encode(documents(), role).values));
  REQUIRE(loaded.preprocessor().format(Role::query).max_length == model.preprocessor().format(Role::query).max_length);
  REQUIRE(loaded.encoder().vocabulary_size() == model.encoder().vocabulary_size());
}

}  // namespace

TEST_CASE("a text's embedding does not depend on its batch", "[laws]") {
  alone_as_together(Dense::from_pretrained(tiny_folder(), {}, fresh));
  alone_as_together(Colbert::from_pretrained(tiny_folder(), {.dim = 8}, fresh));
}

TEST_CASE("a saved folder gives the same embeddings") {
  same_after_saving(Dense::from_pretrained(tiny_folder(), {}, fresh));
  same_after_saving(Colbert::from_pretrained(tiny_folder(), {.dim = 8}, fresh));
}

TEST_CASE("no texts give no embeddings") {
  REQUIRE(Dense::from_pretrained(tiny_folder(), {}, fresh).encode_queries({}).size() == 0);
  REQUIRE(Colbert::from_pretrained(tiny_folder(), {}, fresh).encode_documents({}).size() == 0);
}

TEST_CASE("late interaction writes queries and documents as PyLate does") {
  const auto model = Colbert::from_pretrained(tiny_folder(), {}, fresh);
  const auto& tokenizer = model.preprocessor().tokenizer();
  const auto query = model.preprocessor()("library for images", Role::query);
  REQUIRE(query.ids.size() == 32);
  REQUIRE(tokenizer.id_to_token(query.ids[1]) == "[Q] ");
  REQUIRE(query.attended.back() == 0);
  REQUIRE(model.encoder().vocabulary_size() == tokenizer.vocabulary_size());
  REQUIRE(model.encode_queries(std::vector<std::string>{"a", "b"}).values.size(0) == 64);
}

TEST_CASE("a folder without a head is an error unless a fresh one is asked for") {
  REQUIRE_THROWS_WITH(Dense::from_pretrained(tiny_folder()), "[R803] " + tiny_folder().string() +
                                                                 ": has no modules.json, so it holds no head: pass "
                                                                 ".fresh_head = true (--fresh-head) to start one");
}

TEST_CASE("the same seed starts the same head, another one another") {
  const auto head = [](std::uint64_t seed) {
    return Colbert::from_pretrained(tiny_folder(), {}, {.fresh_head = true, .seed = seed}).pooling().parameters().front().value;
  };
  REQUIRE(head(1).equal(head(1)));
  REQUIRE_FALSE(head(1).equal(head(2)));
}

TEST_CASE("lengths beyond the encoder's positions are refused") {
  const auto positions = Dense::from_pretrained(tiny_folder(), {}, fresh).encoder().max_positions();
  REQUIRE_THROWS_WITH(Dense::from_pretrained(tiny_folder(), {}, {.fresh_head = true, .max_length = positions + 1}),
                      "[R111] query length " + std::to_string(positions + 1) + " is beyond the encoder's " +
                          std::to_string(positions) + " positions");
}

TEST_CASE("a dense model with a head of its own is saved with it, dropout too") {
  const MeanPooling pooling{.head = projection_head(48, 12, 0.1)};
  const auto model = Dense::from_pretrained(tiny_folder(), pooling, fresh);
  REQUIRE(model.encode_queries({"python library"}).values.size(1) == 12);
  same_after_saving(model);
}
