// SPDX-License-Identifier: Apache-2.0
// T1. What ranks say to each other: the concept, the counts, and the trivial case of one process.
#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "toller/core/error.hpp"

namespace toller {

/// How often a collective was called and how many bytes this rank gave into it that left it.
struct CollectiveCount {
  std::int64_t calls = 0;
  std::int64_t bytes = 0;
};

/// Counts by name of the collective: "all_gather", "all_to_all", "all_reduce", "broadcast", "barrier".
using CollectiveCounts = std::map<std::string, CollectiveCount>;

/// The ranks of a run and what they can do together. Every rank calls the same members in the same order.
///
/// `all_gather(t)` stacks tensors of one size, [W, ...]; `all_to_all(t, send, receive)` sends `send[r]` rows of `t` to rank r,
/// one rank after the other, and gives the rows received in rank order; `all_reduce(t)` sums in place; `broadcast(t)` copies
/// rank 0's values into `t`. All of it without a graph.
template <class C>
concept Communicator = requires(const C& c, const at::Tensor& t, at::Tensor& out, const std::vector<std::int64_t>& rows) {
  { c.rank() } -> std::same_as<int>;
  { c.size() } -> std::same_as<int>;
  { c.all_gather(t) } -> std::same_as<at::Tensor>;
  { c.all_to_all(t, rows, rows) } -> std::same_as<at::Tensor>;
  c.all_reduce(out);
  c.broadcast(out);
  c.barrier();
  { c.counts() } -> std::convertible_to<CollectiveCounts>;
};

/// What the trainer asks besides: `meet(t, where)` is an `all_gather` that is patient with busy ranks; `phase` and `fail` say
/// what this rank does and why it leaves; `agree(what, value)` is an error on every rank unless all have the same; `guarded(f)`
/// runs what waits for other ranks and turns its failure into the cause.
template <class C>
concept Team = Communicator<C> && requires(const C& c, const at::Tensor& t, const std::string& text, void (*f)()) {
  { c.meet(t, text) } -> std::same_as<at::Tensor>;
  c.phase(text, true);
  c.fail(text);
  c.agree(text, text);
  c.guarded(f);
  { c.name(0) } -> std::convertible_to<std::string>;
};

/// One process: what it says, it hears.
struct SingleProcess {
  [[nodiscard]] int rank() const { return 0; }
  [[nodiscard]] int size() const { return 1; }
  [[nodiscard]] at::Tensor all_gather(const at::Tensor& t) const { return t.unsqueeze(0); }
  [[nodiscard]] at::Tensor all_to_all(const at::Tensor& t, const std::vector<std::int64_t>&,
                                      const std::vector<std::int64_t>&) const {
    return t;
  }
  void all_reduce(at::Tensor&) const {}
  void broadcast(at::Tensor&) const {}
  void barrier() const {}
  [[nodiscard]] CollectiveCounts counts() const { return {}; }

  [[nodiscard]] at::Tensor meet(const at::Tensor& t, const std::string&) const { return t.unsqueeze(0); }
  void phase(const std::string&, bool /*busy*/ = false) const {}
  void fail(const std::string&) const {}
  void agree(const std::string&, const std::string&) const {}
  template <class F>
  auto guarded(F&& f) const {
    return f();
  }
  [[nodiscard]] std::string name(int) const { return "rank 0"; }
};

static_assert(Team<SingleProcess>);

}  // namespace toller
