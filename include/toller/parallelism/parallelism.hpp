// SPDX-License-Identifier: Apache-2.0
// T1. What a parallelism must have.
#pragma once

#include <concepts>
#include <type_traits>

#include "toller/core/fields.hpp"
#include "toller/core/values.hpp"
#include "toller/distributed/communicator.hpp"

namespace toller {

namespace detail {

template <class T>
concept IsTeam = Team<std::remove_cvref_t<T>>;

}  // namespace detail

/// Where parameters and gradients of a run live, once it runs: what a step and the loop see of a parallelism.
///
/// `sync(root)` is called once a step by every rank, before the last backward pass, which starts from `root`; backward passes
/// before it add up on this rank alone. `begin_step` comes before the forward pass. `end_step` comes after the last backward
/// pass: then the gradients are summed over all ranks. It gives the seconds that this rank computed by itself.
template <class R>
concept Replica = requires(const R& replica, const at::Tensor& root) {
  { replica.communicator() } -> detail::IsTeam;
  replica.begin_step();
  replica.sync(root);
  { replica.end_step() } -> std::same_as<double>;
};

/// Where parameters and gradients live. `distributed` says at compile time whether there may be several ranks; `join()` meets
/// the other ranks; `ranks()` is how many there will be; `target()` this rank's device, known after joining; `bind` makes the
/// replica; `writes_files()` says whether this rank saves what all ranks hold.
template <class P>
concept ParallelismPolicy = Spec<P> && requires(const P& parallelism, const Parameters& parameters) {
  { P::distributed } -> std::convertible_to<bool>;
  { parallelism.target() } -> std::same_as<at::Device>;
  { parallelism.ranks() } -> std::same_as<int>;
  { parallelism.join() } -> detail::IsTeam;
  { parallelism.bind(parameters, parallelism.join()) } -> Replica;
  { parallelism.writes_files() } -> std::same_as<bool>;
};

}  // namespace toller
