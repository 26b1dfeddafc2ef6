// SPDX-License-Identifier: Apache-2.0
// Training and searching on a GPU give what they give on the processor.
#include "cuda/support.hpp"

using namespace toller;

namespace {

struct Recorder {
  std::vector<StepEnd> steps{};
  void on(const StepEnd& event) { steps.push_back(event); }
};

/// Three steps, the weights clipped, decayed and updated.
template <class M, class S>
std::vector<StepEnd> fit_on(at::Device device) {
  const M model = make_model<M>(at::kFloat);
  Recorder recorder;
  Trainer trainer{model, Contrastive<S>{}, Fp32{}, SingleDevice{device}};
  (void)trainer.fit(rows(), {.steps = 3, .batch_size = 5, .optimizer = {.lr = 1e-4, .weight_decay = 0.01}}, recorder);
  REQUIRE(model.device() == device);
  return recorder.steps;
}

template <class M, class S>
void fits_are_equal() {
  using Catch::Matchers::WithinRel;
  const auto host = fit_on<M, S>(cpu()), device = fit_on<M, S>(cuda(0));
  REQUIRE(host.size() == 3);
  REQUIRE(device.size() == 3);
  CHECK(std::abs(host[2].loss - host[0].loss) > 1e-3 * host[0].loss);
  for (std::size_t i = 0; i < host.size(); ++i) {
    CAPTURE(i);
    CHECK_THAT(device[i].loss, WithinRel(host[i].loss, 1e-3));
    CHECK_THAT(device[i].grad_norm, WithinRel(host[i].grad_norm, 1e-3));
  }
}

template <class M, class S>
void searches_are_equal() {
  std::vector<std::string> queries, documents;
  for (const Pair& pair : tiny_pairs()) queries.push_back(pair.query), documents.push_back(pair.positive);
  const auto found = [&](at::Device device) {
    M model = make_model<M>(at::kDouble);
    model.to(device);
    return search(S{}, model.encode_queries(queries), model.encode_documents(documents), 5,
                  {.query_block = 4, .document_block = 3});
  };
  const Ranking host = found(cpu()), device = found(cuda());
  CHECK(device.documents.equal(host.documents));
  CHECK(device.scores.allclose(host.scores, 1e-6, 1e-6));
}

}  // namespace

TEST_CASE("three steps on CUDA have the losses of the processor") {
  need_cuda();
  fits_are_equal<Dense, Cosine>();
  fits_are_equal<Colbert, MaxSim>();
}

TEST_CASE("a search on CUDA finds what the processor finds") {
  need_cuda();
  searches_are_equal<Dense, Cosine>();
  searches_are_equal<Colbert, MaxSim>();
}
