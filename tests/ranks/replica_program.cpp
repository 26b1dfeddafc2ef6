// SPDX-License-Identifier: Apache-2.0
// What a replica and the ranks do apart from training, one check a run; every rank must end with 0.
//
//   replica_program unused|find_unused|static_graph|local|few_rows|many_rows|idle_table|on_main|main_throws|agree
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <iostream>
#include <thread>

#include "toller/parallelism/ddp.hpp"

using namespace toller;

namespace {

void expect(bool good, const std::string& what) {
  if (!good) throw std::runtime_error("not so: " + what);
}

/// Three weights; the loss of a rank uses the first two, or all.
struct Toy {
  Parameters parameters{};
  explicit Toy(double value) {
    for (const char* name : {"first", "second", "third"})
      parameters.push_back({name, at::full({4}, value, at::kDouble).set_requires_grad(true)});
  }
  [[nodiscard]] at::Tensor loss(double factor, bool all = true) const {
    const at::Tensor sum = parameters[0].value.sum().add(parameters[1].value.sum(), 2).mul(factor);
    return all ? sum.add(parameters[2].value.sum()) : sum;
  }
  [[nodiscard]] double gradient(int i) const { return parameters[static_cast<std::size_t>(i)].value.grad()[0].item<double>(); }
  void zero() {
    for (Parameter& p : parameters) p.value.mutable_grad().reset();
  }
};

/// A large table of which each rank's batch touches a few rows, or all; the sum is that of dense gradients, and few bytes are
/// sent.
void check_table(const Ddp& ddp, const ProcessGroup& group, bool few) {
  constexpr std::int64_t height = 50'000, width = 64;
  Parameters parameters{{"table", at::ones({height, width}).set_requires_grad(true), /*embedding=*/true},
                        {"bias", at::ones({width}).set_requires_grad(true)}};
  const DdpReplica replica = ddp.bind(parameters, group);
  for (int i = 0; i < 3; ++i) {
    const std::int64_t own = group.rank() + 1;
    const at::Tensor rows = few ? at::arange(own, 50, own, at::kLong) : at::arange(0, height, at::kLong);
    const auto before = group.counts()["all_reduce"].bytes;
    replica.begin_step();
    const at::Tensor loss =
        parameters[0].value.index_select(0, rows).sum(1).mul(rows.add(own)).sum().add(parameters[1].value.sum().mul(own));
    replica.sync(loss);
    group.guarded([&] { loss.backward(); });
    static_cast<void>(replica.end_step());
    const std::int64_t sent = group.counts()["all_reduce"].bytes - before,
                       whole = 2 * 4 * height * width * (group.size() - 1) / group.size();
    expect(few ? sent < whole / 20 : sent >= whole, "bytes: " + std::to_string(sent) + " of " + std::to_string(whole));
    at::Tensor expected = at::zeros({height});
    for (std::int64_t r = 1; r <= group.size(); ++r) {
      const at::Tensor its = few ? at::arange(r, 50, r, at::kLong) : at::arange(0, height, at::kLong);
      expected.index_add_(0, its, its.add(r).to(at::kFloat));
    }
    expect(parameters[0].value.grad().equal(expected.unsqueeze(1).expand({height, width})), "each row's sum over the ranks");
    expect(parameters[1].value.grad()[0].item<double>() == group.size() * (group.size() + 1) / 2.0, "the rest of the bucket");
    for (Parameter& p : parameters) p.value.mutable_grad().reset();
  }
}

/// A large table that some ranks' losses leave out, or all ranks'.
void check_idle_table(Ddp ddp, const ProcessGroup& group) {
  const Parameters parameters{{"table", at::ones({50'000, 64}).set_requires_grad(true), /*embedding=*/true},
                              {"bias", at::ones({64}).set_requires_grad(true)}};
  const at::Tensor &table = parameters[0].value, &bias = parameters[1].value;
  const auto step = [&](bool used) {
    const DdpReplica replica = ddp.bind(parameters, group);
    for (const Parameter& p : parameters) at::Tensor(p.value).mutable_grad().reset();
    replica.begin_step();
    const at::Tensor loss = used ? bias.sum().add(table[7].sum(), 2) : bias.sum();
    replica.sync(loss);
    group.guarded([&] { loss.backward(); });
    static_cast<void>(replica.end_step());
    expect(bias.grad()[0].item<double>() == group.size(), "the other parameter's sum");
  };
  ddp.find_unused_parameters = true;
  step(false);
  expect(!table.grad().defined(), "a table that no rank uses has no gradient");
  step(group.rank() == 1);
  expect(table.grad().sum().item<double>() == 2 * 64 && table.grad()[7][0].item<double>() == 2, "one rank's is all ranks'");
  ddp.find_unused_parameters = false;
  try {
    step(false);
  } catch (const DistributedError& error) {
    expect(std::string(error.what()).find("never ends: table;") != std::string::npos, error.what());
    return group.barrier();
  }
  expect(false, "an unused table is found");
}

void run(const std::string& what) {
  Ddp ddp = Ddp::from_env({.timeout = std::chrono::seconds(20)});
  const ProcessGroup group = ddp.join();
  const double factor = group.rank() + 1, sum_of_factors = group.size() * (group.size() + 1) / 2.0;
  if (what == "few_rows" || what == "many_rows") return check_table(ddp, group, what == "few_rows");
  if (what == "idle_table") return check_idle_table(ddp, group);
  ddp.find_unused_parameters = what == "find_unused";
  ddp.static_graph = what == "static_graph";
  Toy toy(group.rank() == 0 ? 3 : 5);  // the others take rank 0's
  const DdpReplica replica = ddp.bind(toy.parameters, group);
  expect(toy.parameters[0].value[0].item<double>() == 3, "parameters are rank 0's");
  const auto step = [&](bool all) {
    replica.begin_step();
    const at::Tensor loss = toy.loss(factor, all);
    replica.sync(loss);
    group.guarded([&] { loss.backward(); });
    static_cast<void>(replica.end_step());
  };
  if (what == "unused") {
    try {
      step(false);
    } catch (const DistributedError& error) {
      expect(std::string(error.what()) ==
                 "[R622] these parameters take no part in the loss, so their gradients' sum never ends: third; set "
                 "find_unused_parameters = true",
             error.what());
      group.barrier();
      return;
    }
    expect(false, "an unused parameter is found");
  } else if (what == "find_unused" || what == "static_graph") {
    for (int i = 0; i < 4; ++i) {
      step(what == "static_graph");
      expect(toy.gradient(0) == sum_of_factors && toy.gradient(1) == 2 * sum_of_factors, "gradients are sums over the ranks");
      expect(toy.parameters[2].value.grad().defined() == (what == "static_graph"), "an unused parameter has no gradient");
      toy.zero();
    }
  } else if (what == "local") {
    for (int i = 0; i < 3; ++i) {  // two passes on this rank alone, and one that adds all up
      const auto before = group.counts()["all_reduce"].calls;
      replica.begin_step();
      toy.loss(factor).backward();
      toy.loss(factor).backward();
      expect(group.counts()["all_reduce"].calls == before && toy.gradient(0) == 2 * factor,
             "nothing is sent before the last pass");
      const at::Tensor loss = toy.loss(factor);
      replica.sync(loss);
      group.guarded([&] { loss.backward(); });
      static_cast<void>(replica.end_step());
      expect(group.counts()["all_reduce"].calls == before + 1, "one bucket is one sum");
      expect(toy.gradient(1) == 6 * sum_of_factors, "all passes are in the sum");
      toy.zero();
    }
  } else if (what == "on_main") {
    int calls = 0;
    on_main([&] {
      std::this_thread::sleep_for(std::chrono::seconds(25));  // beyond the timeout
      ++calls;
    });
    expect(calls == (group.rank() == 0 ? 1 : 0), "rank 0 alone runs it");
  } else if (what == "main_throws") {
    try {
      on_main([] { throw std::runtime_error("no luck"); });
    } catch (const std::exception& error) {
      const std::string text = error.what();
      expect(group.rank() == 0 ? text == "no luck" : text.find("rank 0 (") != text.npos && text.ends_with("stopped: no luck"),
             text);
      return;
    }
    expect(false, "what rank 0 throws ends all");
  } else if (what == "agree") {
    group.agree("weather", "sun");
    try {
      group.agree("weather", group.rank() == 1 ? "wind=3, rain=1" : "wind=3, rain=2");
    } catch (const DistributedError& error) {
      const std::string text = error.what();
      expect(text.find("[R618] the weather differs between ranks: rank 0 (") == 0 &&
                 text.find("has rain=2, rank 1 (") != text.npos && text.ends_with("has rain=1"),
             text);
      return;
    }
    expect(group.size() == 1, "a difference is found");
  } else {
    throw std::runtime_error("unknown check " + what);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argc > 1 ? argv[1] : "");
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "rank " << get_rank() << ": " << error.what() << std::endl;
    return 1;
  }
}
