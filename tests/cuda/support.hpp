// SPDX-License-Identifier: Apache-2.0
// A step of the tiny model on any device.
#pragma once

#include <ATen/Context.h>

#include "step/support.hpp"

/// Ends a test case here, as skipped, where there is no GPU.
inline void need_cuda() {
  if (!at::hasCUDA()) SKIP("no CUDA device");
}

/// What a step over all ten rows leaves; the gradients are on the host.
template <class M, class Loss, class Step = toller::PlainStep, class Precision = toller::Fp32>
[[nodiscard]] Outcome step_on(at::Device device, const Loss& loss, const Step& step = {}, at::ScalarType type = at::kFloat,
                              bool dropout = true, Precision precision = {}) {
  M model = make_model<M>(type);
  model.to(device);
  auto batches = deal(model, {range(0, 10)}, dropout);
  for (toller::RetrievalBatch& batch : batches) {
    batch.tokens = batch.tokens.to(device);
    batch.relevance = batch.relevance.to(device);
  }
  Outcome outcome = run_step(model, loss, step, toller::SingleProcess{}, batches, precision);
  for (auto& [name, gradient] : outcome.gradients) gradient = gradient.cpu();
  return outcome;
}
