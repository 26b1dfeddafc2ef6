// SPDX-License-Identifier: Apache-2.0
// T1. What a loss must have.
#pragma once

#include <concepts>

#include "toller/core/fields.hpp"
#include "toller/core/values.hpp"

namespace toller {

/// Pooled sides and a target in, one number out. Pure: it sees no model, tokenizer or process group.
///
/// `input_type` is what it compares; `target_type` what it needs to know of the batch; `in_batch_negatives` whether other rows
/// of the batch change a row's loss; `cross_device` whether other ranks' documents do; `local_negatives` that it may depend on
/// how the batch is split over ranks and micro-batches.
///
/// It returns the sum over this rank's rows and their number; a step divides by the rows of the whole batch.
///
/// Ranks    `cross_device`: on several ranks a step calls it with the documents of all ranks (`gather_sides`) and a target that
///          says which of them are whose; `needs_all_queries()`, where there is one and it is true, asks for all ranks'
///          queries, too. Such a loss goes through the same operations on every rank, one without rows included, since the
///          backward pass of what was gathered is a collective.
template <class L>
concept LossPolicy = Spec<L> &&
    requires(const L& loss, const typename L::input_type& side, const typename L::target_type& target) {
  { loss(side, side, target) } -> std::same_as<LossValue>;
  { L::in_batch_negatives } -> std::convertible_to<bool>;
  { L::cross_device } -> std::convertible_to<bool>;
  { L::local_negatives } -> std::convertible_to<bool>;
};

}  // namespace toller
