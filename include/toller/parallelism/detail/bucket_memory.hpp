// SPDX-License-Identifier: Apache-2.0
// T2. When the buckets of gradients hold memory.
#pragma once

#include <c10/core/Storage.h>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace toller::detail {

/// Gives the reducer's buckets memory from their first gradient to the end of the step, as the gradients of one process have
/// it: none is held in the forward pass, so they are cut from what the activations gave back. Buckets on other devices keep
/// theirs.
class BucketMemory {
public:
  explicit BucketMemory(const c10d::Reducer& reducer) {
    for (const c10d::GradBucket& bucket : reducer.get_grad_buckets(/*return_zero_tensors=*/false)) {
      if (!bucket.getBuffer().is_cpu()) continue;
      const c10::Storage& storage = storages_.emplace_back(bucket.getBuffer().storage());
      // Runs before the gradient is kept, so before the reducer copies it.
      const auto hold = [storage, bytes = storage.nbytes(), filling = filling_](const at::Tensor&) {
        if (*filling && storage.nbytes() == 0) resize(storage, bytes);
      };
      for (const at::Tensor& parameter : bucket.getParameters()) hooks_.emplace_back(parameter, parameter.register_hook(hold));
    }
  }
  BucketMemory(const BucketMemory&) = delete;
  BucketMemory& operator=(const BucketMemory&) = delete;
  ~BucketMemory() {
    for (const auto& [parameter, hook] : hooks_) parameter.remove_hook(hook);
  }

  /// Before a step, when no gradient is a view of a bucket. Backward passes from here to `fill` only add up on this rank.
  void release() {
    *filling_ = false;
    for (const c10::Storage& storage : storages_) resize(storage, 0);
  }
  /// Before the backward pass whose gradients go to the buckets.
  void fill() { *filling_ = true; }

private:
  static void resize(const c10::Storage& storage, std::size_t bytes) {
    storage.set_data_ptr_noswap(storage.allocator()->allocate(bytes));
    storage.set_nbytes(bytes);
  }

  std::vector<c10::Storage> storages_{};
  std::vector<std::pair<at::Tensor, unsigned>> hooks_{};
  std::shared_ptr<bool> filling_ = std::make_shared<bool>(false);
};

}  // namespace toller::detail
