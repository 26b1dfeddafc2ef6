// SPDX-License-Identifier: Apache-2.0
// T1. Which parts go together: one named relation and one numbered message each, explained in train/README.md.
#pragma once

#include <type_traits>

#include "toller/core/values.hpp"
#include "toller/loss/loss.hpp"
#include "toller/parallelism/parallelism.hpp"
#include "toller/pooling/pooling.hpp"
#include "toller/precision/precision.hpp"
#include "toller/step/step.hpp"

namespace toller::fits {

/// The loss compares what the pooling gives.
template <class Loss, class Output>
inline constexpr bool loss_takes = std::is_same_v<typename Loss::input_type, Output>;

/// The loss compares `Compared` while the pooling gives `Given`.
template <class Loss, class Output, class Compared, class Given>
inline constexpr bool mismatch_is = std::is_same_v<typename Loss::input_type, Compared>&& std::is_same_v<Output, Given>;

/// The dataset's record holds what the loss needs.
template <class Loss, class Record>
inline constexpr bool loss_accepts = Loss::template accepts<Record>;

/// Neither part refuses the other. A part refuses by `template <class Other> static constexpr bool unsupported_with`.
template <class A, class B>
inline constexpr bool supported_together = [] {
  bool fits = true;
  if constexpr (requires { A::template unsupported_with<B>; }) fits = fits && !A::template unsupported_with<B>;
  if constexpr (requires { B::template unsupported_with<A>; }) fits = fits && !B::template unsupported_with<A>;
  return fits;
}();

/// A loss that asks for the documents of other ranks runs where there may be some.
template <class Loss, class Parallelism>
inline constexpr bool has_other_ranks = [] {
  if constexpr (LossPolicy<Loss> && ParallelismPolicy<Parallelism>) return !Loss::cross_device || Parallelism::distributed;
  return true;
}();

/// A step that cuts the batch takes no negatives from a loss, unless one of the two says by type that it may.
template <class Loss, class Step>
inline constexpr bool step_keeps_negatives = [] {
  if constexpr (LossPolicy<Loss> && StepPolicy<Step>) {
    bool said = Loss::local_negatives;
    if constexpr (requires { Step::micro_batch_negatives; }) said = said || Step::micro_batch_negatives;
    return !Step::splits_batch || !Loss::in_batch_negatives || said;
  }
  return true;
}();

/// Ranks that share a batch take no negatives from a loss: it gathers them, or says by type that its own rank's are enough.
template <class Loss, class Parallelism>
inline constexpr bool ranks_keep_negatives = [] {
  if constexpr (LossPolicy<Loss> && ParallelismPolicy<Parallelism>)
    return !Parallelism::distributed || !Loss::in_batch_negatives || Loss::cross_device || Loss::local_negatives;
  return true;
}();

/// The loss is a sum over rows divided by their number, whatever the rows. A loss that is not says `static constexpr bool
/// mean_over_rows = false`.
template <class Loss>
inline constexpr bool mean_over_rows = [] {
  if constexpr (requires { Loss::mean_over_rows; }) return static_cast<bool>(Loss::mean_over_rows);
  return true;
}();

/// The parts of a batch add up to the loss of the whole, over ranks and over micro-batches.
template <class Loss, class Parallelism, class Step>
inline constexpr bool parts_add_up = [] {
  if constexpr (LossPolicy<Loss> && ParallelismPolicy<Parallelism> && StepPolicy<Step>)
    return mean_over_rows<Loss> || (!Step::splits_batch && (!Parallelism::distributed || Loss::cross_device));
  return true;
}();

}  // namespace toller::fits
