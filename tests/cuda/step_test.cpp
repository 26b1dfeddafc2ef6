// SPDX-License-Identifier: Apache-2.0
// A step on a GPU is that of the processor: encoder, pooling, similarity, loss, dropout, forward and backward.
#include "cuda/support.hpp"

using namespace toller;

namespace {

template <class M, class S>
void cuda_equals_cpu(at::ScalarType type, bool dropout, double tolerance) {
  const auto loss = four_directions<S>();
  CAPTURE(type, dropout);
  const Outcome host = step_on<M>(cpu(), loss, PlainStep{}, type, dropout);
  check_equal(step_on<M>(cuda(), loss, PlainStep{}, type, dropout), host, tolerance);
  check_equal(step_on<M>(cuda(), loss, GradCache{.mini_batch = 4}, type, dropout), host, tolerance);
  check_equal(step_on<M>(cuda(), loss, GradCache{.mini_batch_tokens = 64}, type, dropout), host, tolerance);
}

template <class M, class S>
void mixed_precision() {
  const auto loss = four_directions<S>();
  const Outcome full = step_on<M>(cpu(), loss);
  const auto mixed = [&](const auto& step) { return step_on<M>(cuda(), loss, step, at::kFloat, true, Bf16Mixed{}); };
  const Outcome plain = mixed(PlainStep{}), cached = mixed(GradCache{.mini_batch = 4});
  CHECK_THAT(plain.report.loss, Catch::Matchers::WithinRel(full.report.loss, 2e-2));
  CHECK(gradient_difference(plain, full) > 1e-4);
  CHECK(gradient_difference(plain, full) < 0.1);
  CHECK(gradient_difference(cached, plain) < 5e-2);
}

}  // namespace

TEST_CASE("a step on CUDA equals one on the processor") {
  need_cuda();
  const bool dropout = GENERATE(false, true);
  cuda_equals_cpu<Dense, Cosine>(at::kFloat, dropout, 1e-4);
  cuda_equals_cpu<Colbert, MaxSim>(at::kFloat, dropout, 1e-4);
  cuda_equals_cpu<Dense, Cosine>(at::kDouble, dropout, 1e-9);
  cuda_equals_cpu<Colbert, MaxSim>(at::kDouble, dropout, 1e-9);
}

TEST_CASE("a step in mixed precision on CUDA is near one in float32") {
  need_cuda();
  mixed_precision<Dense, Cosine>();
  mixed_precision<Colbert, MaxSim>();
}

TEST_CASE("a batch in page-locked memory is the same batch") {
  need_cuda();
  const Dense model = make_model<Dense>();
  const RetrievalBatch batch = collate_retrieval(rows(), model.preprocessor()), pinned = pin_memory(batch);
  const auto compare = [](const at::Tensor& locked, const at::Tensor& plain) {
    CHECK(locked.is_pinned());
    CHECK(locked.to(cuda(), locked.scalar_type(), /*non_blocking=*/true).cpu().equal(plain));
  };
  compare(pinned.tokens.ids, batch.tokens.ids);
  compare(pinned.tokens.positions, batch.tokens.positions);
  compare(pinned.tokens.types, batch.tokens.types);
  compare(pinned.tokens.attended, batch.tokens.attended);
  compare(pinned.tokens.scored, batch.tokens.scored);
  compare(pinned.relevance.positive, batch.relevance.positive);
  compare(pinned.relevance.owner, batch.relevance.owner);
  compare(pinned.relevance.query_hash, batch.relevance.query_hash);
  compare(pinned.relevance.document_hash, batch.relevance.document_hash);
  const RetrievalBatch none = pin_memory(collate_retrieval(std::vector<Triplet>{}, model.preprocessor()));
  CHECK(none.tokens.to(cuda()).ids.numel() == 0);
}
