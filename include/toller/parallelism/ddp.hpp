// SPDX-License-Identifier: Apache-2.0
// T2. The whole model on every rank, gradients summed while the backward pass still runs.
#pragma once

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "toller/distributed/world.hpp"
#include "toller/parallelism/detail/bucket_memory.hpp"
#include "toller/parallelism/detail/sum_gradients.hpp"
#include "toller/parallelism/parallelism.hpp"

namespace toller {

struct Ddp;

/// One of several equal models. Gradients are views of the buckets that are sent, so they are held once.
class DdpReplica {
public:
  DdpReplica(const Parameters& parameters, ProcessGroup group, const Ddp& options);

  [[nodiscard]] const ProcessGroup& communicator() const { return group_; }
  void begin_step() const;
  void sync(const at::Tensor& root) const;
  [[nodiscard]] double end_step() const;

private:
  ProcessGroup group_;
  Parameters parameters_;
  std::vector<at::Tensor> tables_{};  ///< summed at the end, row by row; the reducer has the others
  bool find_unused_ = false;
  bool static_graph_ = false;
  mutable bool learn_graph_ = false;
  std::shared_ptr<detail::StepState> state_ = std::make_shared<detail::StepState>();
  std::shared_ptr<c10d::Reducer> reducer_{};
  mutable std::shared_ptr<detail::BucketMemory> memory_{};
};

/// Distributed data parallel: every rank holds the model and computes its rows of each batch. Losses and weights are those of
/// one process on the same batch.
///
///   Trainer trainer{model, Contrastive<MaxSim, CrossDeviceNegatives>{}, Bf16Mixed{}, Ddp::from_env({.timeout =
///   std::chrono::minutes(5)})};
///
/// Units    buckets in MiB of gradients: the first, then twice as much each up to `bucket_mib`; `timeout` as in WorldOptions.
/// Ranks    without a launcher it is one process. Rank 0 saves, or with `save_on_each_node` the first rank of each host.
/// Errors   DistributedError R600-R620; R622: a parameter takes no part in the loss, and `find_unused_parameters` is off.
/// Cost     one more copy of the gradients' size sent and received a step; see `toller plan`.
struct Ddp {
  static constexpr std::string_view name = "Ddp";
  static constexpr bool distributed = true;
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  double first_bucket_mib = 1;
  double bucket_mib = 25;
  bool find_unused_parameters = false;  ///< looks through the graph at each step: for models that leave some out
  bool static_graph = false;            ///< the same parameters take part in every step
  bool save_on_each_node = false;
  std::optional<at::Device> device{};  ///< empty: the CUDA device of this rank's number on its host, else the processor
  Launch launch{};

  static void fields(auto&, auto&&) {}  // none changes a result

  /// Reads who this process is from the launcher's variables; nothing is sent before a fit begins. Without a launcher it says
  /// so in a line on standard error.
  [[nodiscard]] static Ddp from_env();
  [[nodiscard]] static Ddp from_env(Ddp settings);

  [[nodiscard]] at::Device target() const {
    if (device) return *device;
    const int devices = at::hasCUDA() ? at::detail::getCUDAHooks().deviceCount() : 0;
    return devices == 0 ? cpu() : cuda(this_launch().local_rank.value_or(0) % devices);
  }
  [[nodiscard]] int ranks() const { return launch.world_size; }
  [[nodiscard]] ProcessGroup join() const;
  [[nodiscard]] DdpReplica bind(const Parameters& parameters, const ProcessGroup& group) const {
    return {parameters, group, *this};
  }
  [[nodiscard]] bool writes_files() const { return detail::writes_files(save_on_each_node); }
};

static_assert(ParallelismPolicy<Ddp>);

inline Ddp Ddp::from_env() {
  return from_env(Ddp{});
}

inline Ddp Ddp::from_env(Ddp settings) {
  settings.launch = read_launch(process_variable);
  if (settings.launch.launcher.empty())
    std::cerr << "toller: no launcher, so one process; for more: torchrun --no-python, mpirun, srun or toller::spawn\n";
  if (settings.launch.launcher == "SLURM" && settings.launch.world_size > 1 && !process_variable("SLURM_STEP_ID"))
    std::cerr << "toller: SLURM's job has " << settings.launch.world_size
              << " tasks, but no step: in a batch script, start the program by srun\n";
  return settings;
}

inline ProcessGroup Ddp::join() const {
  if (launch.world_size == 1) return {};
  World& world = World::join(launch, {.timeout = timeout, .device = target()});
  const ProcessGroup& group = world.group();
  if (const at::Device gpu = target(); gpu.is_cuda()) {
    const auto mine = static_cast<std::int64_t>(hash_text(detail::gpu_identity(gpu)));
    const at::Tensor all = group.all_gather(at::scalar_tensor(mine, at::kLong));
    const auto* gpus = all.const_data_ptr<std::int64_t>();
    for (int r = 1; r < group.size(); ++r)
      if (const auto* other = std::find(gpus, gpus + r, gpus[r]); other != gpus + r)
        throw DistributedError("R619", detail::cat(group.name(static_cast<int>(other - gpus)), " and ", group.name(r),
                                                   " share a GPU: start at most as many ranks a host as it has GPUs"));
    c10::impl::VirtualGuardImpl(at::kCUDA).setDevice(gpu);  // where NCCL's and the reducer's streams and events are made
  }
  return group;
}

inline DdpReplica::DdpReplica(const Parameters& parameters, ProcessGroup group, const Ddp& options)
    : group_(std::move(group)),
      parameters_(parameters),
      find_unused_(options.find_unused_parameters),
      static_graph_(options.static_graph) {
  if (group_.size() == 1) return;
  std::vector<at::Tensor> tensors;
  std::unordered_map<std::size_t, std::string> names;
  std::string shapes;
  for (const Parameter& p : parameters) {
    if (detail::is_large_table(p)) {
      tables_.push_back(p.value);
    } else {
      names.emplace(tensors.size(), p.name);
      tensors.push_back(p.value);
    }
    shapes += p.name + " of shape";
    for (const std::int64_t size : p.value.sizes()) shapes += " " + std::to_string(size);
    shapes += detail::cat(" and type ", p.value.scalar_type(), '\n');
  }
  group_.agree("model", shapes);
  for (const Parameter& p : parameters) {
    at::Tensor value = p.value.detach();
    group_.broadcast(value);
  }
  if (tensors.empty()) return;
  // Small ones while activations are at their most, large ones when most of those are gone.
  std::vector<std::size_t> limits;
  const auto add_limit = [&](double mib) { limits.push_back(static_cast<std::size_t>(std::max(mib, 0.0) * 1024 * 1024)); };
  for (double mib = options.first_bucket_mib; mib > 0 && mib < options.bucket_mib; mib *= 2) add_limit(mib);
  add_limit(options.bucket_mib);
  // Gradients come in about the opposite order of the forward pass.
  std::vector<at::Tensor> backwards(tensors.rbegin(), tensors.rend());
  auto [buckets, caps] = c10d::compute_bucket_assignment_by_size(backwards, limits);
  for (auto& bucket : buckets)
    for (auto& index : bucket) index = tensors.size() - 1 - index;
  reducer_ = std::make_shared<c10d::Reducer>(tensors, std::move(buckets), group_.handle(),
                                             std::vector<bool>(tensors.size(), false), static_cast<std::int64_t>(limits.back()),
                                             options.find_unused_parameters, /*gradient_as_bucket_view=*/true, std::move(names),
                                             static_cast<std::int64_t>(limits.front()),
                                             /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false,
                                             std::vector<std::int64_t>(limits.begin(), limits.end()));
  if (options.static_graph) reducer_->set_static_graph();
  learn_graph_ = options.static_graph;
  reducer_->register_comm_hook(std::make_unique<detail::SumGradients>(group_, state_));
}

/// Buckets follow the order in which gradients came in the first step. Here no gradients and activations are held. Where a
/// parameter may take no part, the reducer clears its place in a bucket before any gradient came, so buckets keep their memory.
inline void DdpReplica::begin_step() const {
  *state_ = {detail::Clock::now(), {}, group_.seconds_waited()};
  if (!reducer_) return;
  if (reducer_->should_rebuild_buckets()) {
    group_.barrier();  // what rebuilding sends has no patience
    if (reducer_->rebuild_buckets() && !find_unused_ && !static_graph_)
      memory_ = std::make_shared<detail::BucketMemory>(*reducer_);
  }
  if (memory_) memory_->release();
}

inline void DdpReplica::sync(const at::Tensor& root) const {
  if (!reducer_) return;
  if (std::exchange(learn_graph_, false))  // in the first step all sums come at its end, when it is known what takes part
    root.register_hook([reducer = reducer_.get()](const at::Tensor& gradient) {
      torch::autograd::Engine::get_default_engine().queue_callback([reducer] { reducer->delay_all_reduce(); });
      return gradient;
    });
  if (memory_) memory_->fill();
  reducer_->prepare_for_forward();
  reducer_->prepare_for_backward(find_unused_ ? std::vector<at::Tensor>{root} : std::vector<at::Tensor>{});
}

inline double DdpReplica::end_step() const {
  std::string unused;
  if (group_.size() > 1 && !find_unused_)
    for (const Parameter& p : parameters_)
      if (!p.value.grad().defined()) unused += (unused.empty() ? "" : ", ") + p.name;
  if (!unused.empty())
    throw DistributedError(
        "R622", detail::cat("these parameters take no part in the loss, so their gradients' sum never ends: ", unused,
                            "; set find_unused_parameters = true"));
  const auto end = state_->last_sum > state_->begun ? state_->last_sum : detail::Clock::now();
  const double waited = group_.seconds_waited() - state_->waited;
  for (const at::Tensor& table : tables_) detail::sum_touched(group_, table);
  return std::max(0.0, std::chrono::duration<double>(end - state_->begun).count() - waited);
}

}  // namespace toller
