// SPDX-License-Identifier: Apache-2.0
#include "toller/gather/gather.hpp"

#include <algorithm>
#include <atomic>

#include "support/gradients.hpp"
#include "support/thread_ranks.hpp"

using namespace toller;

namespace {

std::int64_t sum(const std::vector<std::int64_t>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), std::int64_t{0});
}

std::int64_t start(const std::vector<std::int64_t>& rows, int rank) {
  return std::accumulate(rows.begin(), rows.begin() + rank, std::int64_t{0});
}

struct Outcome {
  at::Tensor values{}, grad{};
  std::vector<std::int64_t> offsets{};
  CollectiveCounts forward{}, total{};
};

/// Something that is different for each rank and element, and not linear.
at::Tensor loss_of_rank(const at::Tensor& gathered, int rank) {
  const at::Tensor weight = at::arange(gathered.numel(), gathered.options().requires_grad(false)).view(gathered.sizes());
  return (gathered * gathered * (weight + 1) * (rank + 1) + gathered * weight).sum();
}

/// What each rank gets and what reaches its rows, for rows of `all` dealt as `rows` says.
template <bool with_gradients, class Wrap>
std::vector<Outcome> gather_ranks(const at::Tensor& all, const std::vector<std::int64_t>& rows, const Wrap& wrap) {
  return run_ranks(static_cast<int>(rows.size()), [&](const ThreadCommunicator& comm) {
    const std::int64_t begin = start(rows, comm.rank()), end = begin + rows[static_cast<std::size_t>(comm.rank())];
    const at::Tensor mine = leaf(all.slice(0, begin, end), all.scalar_type());
    const auto local = wrap(mine, comm.rank());
    const auto gathered = with_gradients ? all_gather_with_gradients(local, comm) : all_gather(local, comm);
    const at::Tensor values = toller::detail::values_of(gathered);
    Outcome result{values.detach(), {}, {}, comm.counts(), {}};
    if constexpr (std::is_same_v<std::decay_t<decltype(gathered)>, MultiVector>) result.offsets = gathered.offsets;
    loss_of_rank(values, comm.rank()).backward();
    result.grad = grad_of(mine);
    result.total = comm.counts();
    return result;
  });
}

/// The gradients of one process: of the ranks' losses together, or of one rank's alone.
at::Tensor reference_grad(const at::Tensor& all, int first, int last) {
  const at::Tensor x = leaf(all, all.scalar_type());
  at::Tensor loss = x.sum() * 0;
  for (int rank = first; rank < last; ++rank) loss = loss + loss_of_rank(x, rank);
  loss.backward();
  return grad_of(x);
}

const std::vector<std::vector<std::int64_t>> splits{{3, 2}, {0, 4}, {0, 0}, {2, 2, 2}, {2, 0, 5}, {1, 4, 0, 3}, {0, 0, 0, 6}};

template <bool with_gradients, class Wrap>
void expect_one_process(const at::Tensor& all, const std::vector<std::int64_t>& rows, const Wrap& wrap) {
  const int W = static_cast<int>(rows.size());
  const auto outcomes = gather_ranks<with_gradients>(all, rows, wrap);
  for (int rank = 0; rank < W; ++rank) {
    const Outcome& it = outcomes[static_cast<std::size_t>(rank)];
    CAPTURE(with_gradients, W, rank, rows);
    REQUIRE(it.values.equal(all));
    const at::Tensor reference = reference_grad(all, with_gradients ? 0 : rank, with_gradients ? W : rank + 1);
    const std::int64_t begin = start(rows, rank);
    REQUIRE(near(it.grad, reference.slice(0, begin, begin + it.grad.size(0)), 1e-12, 1e-12));
  }
}

std::int64_t calls(const CollectiveCounts& counts, const std::string& name) {
  const auto found = counts.find(name);
  return found == counts.end() ? 0 : found->second.calls;
}

/// What each rank throws.
template <class F>
std::vector<std::string> errors_of_ranks(int size, const F& f) {
  return run_ranks(size, [&](const ThreadCommunicator& comm) -> std::string {
    try {
      f(comm);
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing";
  });
}

}  // namespace

TEST_CASE("tensors of all ranks and their gradients are those of one process", "[laws]") {
  at::manual_seed(1);
  const auto same = [](const at::Tensor& x, int) { return x; };
  const auto side = [](const at::Tensor& x, int) { return Embeddings{x}; };
  const auto strided = [](const at::Tensor& x, int) { return x.transpose(1, 2).contiguous().transpose(1, 2); };
  for (const auto& rows : splits) {
    const at::Tensor matrix = at::randn({sum(rows), 3}, at::kDouble), cube = at::randn({sum(rows), 2, 3}, at::kDouble);
    expect_one_process<true>(matrix, rows, side);
    expect_one_process<false>(matrix, rows, side);
    expect_one_process<true>(cube, rows, strided);
    expect_one_process<false>(cube, rows, strided);
    expect_one_process<true>(matrix.select(1, 0).contiguous(), rows, same);
  }
}

TEST_CASE("ragged texts of all ranks and their gradients are those of one process", "[laws]") {
  at::manual_seed(2);
  using Lengths = std::vector<std::vector<std::int64_t>>;  // of each rank's texts
  for (const Lengths& lengths : {Lengths{{2, 3}, {1}}, Lengths{{}, {4, 0, 1}}, Lengths{{0, 0}, {}}, Lengths{{1}, {}, {5, 2, 2}},
                                 Lengths{{3}, {0}, {}, {2, 1, 4}}}) {
    std::vector<std::int64_t> tokens, all;
    for (const auto& rank : lengths) {
      tokens.push_back(sum(rank));
      all.insert(all.end(), rank.begin(), rank.end());
    }
    const auto wrap = [&](const at::Tensor& x, int rank) {
      return MultiVector{x, toller::detail::offsets_of(lengths[static_cast<std::size_t>(rank)])};
    };
    const at::Tensor values = at::randn({sum(tokens), 3}, at::kDouble);
    expect_one_process<true>(values, tokens, wrap);
    expect_one_process<false>(values, tokens, wrap);
    for (const Outcome& it : gather_ranks<true>(values, tokens, wrap)) REQUIRE(it.offsets == toller::detail::offsets_of(all));
  }
}

TEST_CASE("a gather makes the collectives that its README counts") {
  const at::Tensor all = at::ones({6, 4});
  const std::vector<std::int64_t> rows{1, 2, 3};
  const auto side = [](const at::Tensor& x, int) { return Embeddings{x}; };
  const auto ragged = [](const at::Tensor& x, int) { return MultiVector{x, {0, x.size(0)}}; };
  const auto expect = [&](const std::vector<Outcome>& outcomes, std::int64_t forward, std::int64_t backward) {
    for (const Outcome& it : outcomes) {
      REQUIRE(calls(it.forward, "all_gather") == 1);
      REQUIRE(calls(it.forward, "all_to_all") == forward);
      REQUIRE(calls(it.total, "all_gather") == 1);
      REQUIRE(calls(it.total, "all_to_all") == forward + backward);
      REQUIRE(it.total.size() == 2);
    }
  };
  expect(gather_ranks<false>(all, rows, side), 1, 0);
  expect(gather_ranks<true>(all, rows, side), 1, 1);
  expect(gather_ranks<false>(all, rows, ragged), 2, 0);
  expect(gather_ranks<true>(all, rows, ragged), 2, 1);
  const auto outcomes = gather_ranks<true>(all, rows, side);
  REQUIRE(outcomes[1].forward.at("all_to_all").bytes == 2 * (2 * 4 * 4));  // two rows of four floats, to two others
  REQUIRE(outcomes[1].total.at("all_to_all").bytes == 2 * (2 * 4 * 4) + (1 + 3) * 4 * 4);  // and theirs back
}

TEST_CASE("one process gets its own tensor back") {
  const at::Tensor x = at::randn({2, 3}).requires_grad_(true);
  const SingleProcess alone;
  REQUIRE(all_gather(x, alone).is_same(x));
  REQUIRE(all_gather_with_gradients(x, alone).is_same(x));
  REQUIRE(all_gather_with_gradients(Embeddings{x}, alone).values.is_same(x));
  const MultiVector ragged{x, {0, 2, 2}};
  REQUIRE(all_gather_with_gradients(ragged, alone).values.is_same(x));
  REQUIRE(all_gather(ragged, alone).offsets == ragged.offsets);
  const auto counts = run_ranks(1, [&](const ThreadCommunicator& comm) {
    (void)all_gather_with_gradients(ragged, comm);
    return comm.counts();
  });
  REQUIRE(counts[0].empty());
}

TEST_CASE("gradients are added in rank order, half types in float32") {
  const auto grad_of_first = [](at::ScalarType type, const std::vector<double>& factors) {
    return run_ranks(static_cast<int>(factors.size()), [&](const ThreadCommunicator& comm) {
      const at::Tensor x = leaf(at::ones({1, 1}), type);
      (all_gather_with_gradients(x, comm) * factors[static_cast<std::size_t>(comm.rank())]).sum().backward();
      return x.grad().item<double>();
    })[0];
  };
  REQUIRE(grad_of_first(at::kFloat, {1e8, 1, -1e8}) == 0);
  REQUIRE(grad_of_first(at::kFloat, {1e8, -1e8, 1}) == 1);
  REQUIRE(grad_of_first(at::kBFloat16, {256, 1, 1}) == 258);
  REQUIRE(grad_of_first(at::kHalf, {2048, 1, 1}) == 2050);
}

TEST_CASE("a rank whose rows need no gradient still takes part in the backward pass") {
  const auto grads = run_ranks(3, [](const ThreadCommunicator& comm) {
    const bool frozen = comm.rank() == 1;
    const at::Tensor x = leaf(at::ones({2, 2}), at::kDouble).requires_grad_(!frozen);
    const at::Tensor all = all_gather_with_gradients(x, comm);
    all.sum().backward();
    return grad_of(x);
  });
  REQUIRE(grads[0].equal(at::full({2, 2}, 3, at::kDouble)));
  REQUIRE(grads[1].equal(at::zeros({2, 2}, at::kDouble)));
  REQUIRE(grads[2].equal(at::full({2, 2}, 3, at::kDouble)));
}

TEST_CASE("nothing is recorded where no rank needs it") {
  const auto recorded = run_ranks(2, [](const ThreadCommunicator& comm) {
    const at::Tensor plain = at::ones({2, 2}), trained = at::ones({2, 2}).requires_grad_(true);
    bool any = all_gather_with_gradients(plain, comm).requires_grad() || all_gather(plain, comm).requires_grad();
    any = all_gather_with_gradients(at::ones({1}, at::kLong), comm).requires_grad() || any;
    const at::NoGradGuard guard;
    return all_gather_with_gradients(trained, comm).requires_grad() || all_gather(trained, comm).requires_grad() || any;
  });
  REQUIRE(recorded == std::vector<bool>{false, false});
}

TEST_CASE("ranks that do not go together all hear so") {
  const auto expect_all = [](int size, const std::string& message, const auto& f) {
    for (const std::string& heard : errors_of_ranks(size, f)) REQUIRE(heard == message);
  };
  expect_all(3, "[R630] gathering a tensor: rank 2 gives a tensor of Float [any, 5], rank 0 gives a tensor of Float [any, 4]",
             [](const auto& comm) {
               (void)all_gather(at::ones({1, comm.rank() == 2 ? 5 : 4}), comm);
             });
  expect_all(2,
             "[R630] gathering a tensor: rank 1 gives Embeddings of Double [any, 4], rank 0 gives Embeddings of Float [any, 4]",
             [](const auto& comm) {
               const auto type = comm.rank() == 1 ? at::kDouble : at::kFloat;
               (void)all_gather_with_gradients(Embeddings{at::ones({1, 4}, type)}, comm);
             });
  expect_all(2,
             "[R630] gathering a tensor: rank 1 gives a tensor of Float [any, 2, 2], rank 0 gives a tensor of Float [any, 4]",
             [](const auto& comm) {
               (void)all_gather(comm.rank() == 1 ? at::ones({1, 2, 2}) : at::ones({1, 4}), comm);
             });
  expect_all(
      2, "[R630] gathering a tensor: rank 1 gives Embeddings of Float [any, 4], rank 0 gives a MultiVector of Float [any, 4]",
      [](const auto& comm) {
        if (comm.rank() == 1)
          (void)all_gather(Embeddings{at::ones({1, 4})}, comm);
        else
          (void)all_gather(MultiVector{at::ones({1, 4}), {0, 1}}, comm);
      });
  expect_all(2, "[R630] rank 1 is in all_gather_with_gradients, rank 0 in all_gather", [](const auto& comm) {
    (void)(comm.rank() == 1 ? all_gather_with_gradients(at::ones({1}), comm) : all_gather(at::ones({1}), comm));
  });
  expect_all(2, "[R630] gathering a tensor: of ranks 1 and 0, one records a graph and one does not", [](const auto& comm) {
    const at::AutoGradMode mode(comm.rank() == 0);
    (void)all_gather_with_gradients(at::ones({1}), comm);
  });
  expect_all(2, "[R631] gathering a tensor: rank 1 gives no tensor",
             [](const auto& comm) { (void)all_gather(comm.rank() == 1 ? at::Tensor() : at::ones({1}), comm); });
  expect_all(2, "[R631] gathering a tensor: rank 0 gives a tensor of 0 dimensions; 1 to 5 can be sent",
             [](const auto& comm) { (void)all_gather(at::ones({}), comm); });
  expect_all(2, "[R631] gathering a tensor: rank 1 gives 2 vectors with offsets that end at 3", [](const auto& comm) {
    (void)all_gather(
        MultiVector{at::ones({2, 4}), comm.rank() == 1 ? std::vector<std::int64_t>{0, 3} : std::vector<std::int64_t>{0, 2}},
        comm);
  });
}

TEST_CASE("ranks in threads rethrow what one throws, and release the others") {
  std::atomic<int> released{0};
  REQUIRE_THROWS_WITH(run_ranks(3,
                                [&](const ThreadCommunicator& comm) {
                                  if (comm.rank() == 1) throw std::runtime_error("rank 1 fails");
                                  try {
                                    comm.barrier();
                                  } catch (const ThreadRanks::Released&) {
                                    ++released;
                                    throw;
                                  }
                                }),
                      "rank 1 fails");
  REQUIRE(released == 2);
  REQUIRE_THROWS_AS(run_ranks(2,
                              [](const ThreadCommunicator& comm) {
                                if (comm.rank() == 0) comm.barrier();  // the other never comes
                              }),
                    ThreadRanks::Released);
  REQUIRE_THROWS_AS(run_ranks(2,
                              [](const ThreadCommunicator& comm) {
                                at::Tensor x = at::ones({1});
                                comm.rank() == 0 ? comm.barrier() : comm.all_reduce(x);
                              }),
                    std::logic_error);
  const auto sums = run_ranks(3, [](const ThreadCommunicator& comm) {
    at::Tensor x = at::full({2}, comm.rank() + 1), y = at::full({1}, comm.rank());
    comm.all_reduce(x);
    comm.broadcast(y);
    return x.sum().item<std::int64_t>() + y.item<std::int64_t>();
  });
  REQUIRE(sums == std::vector<std::int64_t>{12, 12, 12});
}
