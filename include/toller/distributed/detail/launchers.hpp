// SPDX-License-Identifier: Apache-2.0
// T0. The variables of each launcher, and what they say.
#pragma once

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "toller/core/error.hpp"
#include "toller/distributed/environment.hpp"
#include "toller/distributed/host_list.hpp"
#include "toller/distributed/launched.hpp"

namespace toller::detail {

/// Names of a launcher's variables, and how its users hand one more to all ranks.
struct Launcher {
  std::string_view name, rank, world_size, local_rank, local_world_size, pass_on;
};

inline constexpr Launcher by_hand{"environment", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", ""};
inline constexpr Launcher slurm_step{"SLURM", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "", ""};
inline constexpr Launcher slurm_job{"SLURM", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "", ""};
inline constexpr Launcher pmi{
    "PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "mpirun -genv MASTER_ADDR host"};
/// In this order: jsrun sets Open MPI's variables too, and MVAPICH may set PMI's.
inline constexpr std::array<Launcher, 3> mpis{{
    {"LSF", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_RANK", "JSM_NAMESPACE_LOCAL_SIZE",
     "jsrun -E MASTER_ADDR=host"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
     "mpirun -x MASTER_ADDR=host"},
    {"MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE",
     "mpirun_rsh ... MASTER_ADDR=host"},
}};

/// Reads variables: an empty one counts as not set, a number must be one.
class Variables {
public:
  explicit Variables(const Environment& environment) : environment_(environment) {}
  [[nodiscard]] std::string text(std::string_view name) const { return environment_(std::string(name)).value_or(""); }
  [[nodiscard]] bool has(std::string_view name) const { return !name.empty() && !text(name).empty(); }
  /// Errors   DistributedError R601.
  [[nodiscard]] std::optional<int> number(std::string_view name, int lowest, int highest = 0) const {
    if (!has(name)) return std::nullopt;
    const std::string digits = text(name);
    int value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    const bool good = error == std::errc() && end == digits.data() + digits.size();
    if (!good || value < lowest || (highest > 0 && value > highest))
      throw DistributedError("R601", cat(name, " is \"", digits, "\": expected a whole number ",
                                         highest > 0 ? cat("from ", lowest, " to ", highest) : cat("of at least ", lowest)));
    return value;
  }

private:
  const Environment& environment_;
};

/// The step's number within its job; steps that srun did not start have names of ten digits.
[[nodiscard]] inline std::string slurm_step_id(const Variables& variables) {
  const std::string_view name = variables.has("SLURM_STEP_ID") ? "SLURM_STEP_ID" : "SLURM_STEPID";
  return variables.has(name) ? variables.text(name) : "0";
}

/// Whether a user typed the command into a shell that SLURM started: in the interactive step of `salloc`, or in that of
/// `srun --pty`, whose variable an `srun` typed there inherits, but as a step of its own. Where no step is named, by the job's
/// name.
[[nodiscard]] inline bool in_slurm_shell(const Variables& variables) {
  if (!variables.has("SLURM_STEP_ID") && !variables.has("SLURM_STEPID")) {
    const std::string job = variables.text("SLURM_JOB_NAME");
    return job == "bash" || job == "interactive";
  }
  const long step = small_number(slurm_step_id(variables));
  return step < 0 || (step == 0 && variables.has("SLURM_PTY_PORT"));
}

/// The launcher whose variables are there, or nothing.
[[nodiscard]] inline const Launcher* find_launcher(const Variables& variables) {
  const auto said = [&](const Launcher& one) { return variables.has(one.rank) || variables.has(one.world_size); };
  if (said(by_hand)) return &by_hand;
  for (const Launcher& one : mpis)
    if (said(one)) return &one;

  const Launcher* const step = variables.has(slurm_step.world_size) ? &slurm_step : &slurm_job;
  const bool slurm = variables.has(step->rank) && variables.has(step->world_size) && !in_slurm_shell(variables);
  const bool same = slurm && variables.text(pmi.rank) == variables.text(step->rank) &&
                    variables.text(pmi.world_size) == variables.text(step->world_size);
  if (said(pmi) && !same) return &pmi;  // an mpirun within a SLURM job, whose own variables are the batch script's
  return slurm ? step : nullptr;
}

/// Tasks on this node, if SLURM says it without doubt.
[[nodiscard]] inline std::optional<int> slurm_local_size(const Variables& variables, const Launch& launch) {
  const std::string_view name =
      variables.has("SLURM_STEP_TASKS_PER_NODE") ? "SLURM_STEP_TASKS_PER_NODE" : "SLURM_NTASKS_PER_NODE";
  if (!variables.has(name)) return std::nullopt;
  const std::vector<int> tasks = slurm_tasks_per_node(variables.text(name), name);
  const bool equal = std::all_of(tasks.begin(), tasks.end(), [&](int n) { return n == tasks.front(); });
  const auto node = static_cast<std::size_t>(variables.number("SLURM_NODEID", 0).value_or(equal ? 0 : 1'000'000));
  if (!equal && node >= tasks.size()) return std::nullopt;
  const int size = equal ? tasks.front() : tasks[node];
  // The job's wish, which a step with fewer tasks need not fulfil.
  const bool fits = size <= launch.world_size && launch.local_rank.value_or(0) < size;
  return fits ? std::optional<int>(size) : std::nullopt;
}

/// Errors   DistributedError R600 (one of two), R601 (not a number), R602 (they contradict each other).
[[nodiscard]] inline Launch read_ranks(const Variables& variables, const Launcher& names) {
  const auto need = [&](std::string_view missing, std::string_view other) {
    if (!variables.has(missing))
      throw DistributedError("R600", cat(other, " is set but ", missing, " is not: expected both or neither"));
  };
  need(names.world_size, names.rank);
  need(names.rank, names.world_size);
  Launch launch;
  launch.world_size = *variables.number(names.world_size, 1);
  launch.rank = *variables.number(names.rank, 0);
  launch.local_rank = variables.number(names.local_rank, 0);
  launch.local_world_size =
      names.name == "SLURM" ? slurm_local_size(variables, launch) : variables.number(names.local_world_size, 1);

  const auto below = [&](std::string_view name, int value, std::string_view limit, int size) {
    if (value >= size)
      throw DistributedError("R602", cat(name, " is ", value, " and ", limit, " is ", size, ": expected ", name,
                                         size == 1 ? cat(" to be 0") : cat(" from 0 to ", size - 1)));
  };
  below(names.rank, launch.rank, names.world_size, launch.world_size);
  if (launch.local_world_size && *launch.local_world_size > launch.world_size)
    throw DistributedError("R602", cat(names.local_world_size, " is ", *launch.local_world_size, " and ", names.world_size,
                                       " is ", launch.world_size, ": expected at most as many ranks on a host as in all"));
  if (launch.local_rank && launch.local_world_size)
    below(names.local_rank, *launch.local_rank, names.local_world_size, *launch.local_world_size);
  if (launch.local_rank) below(names.local_rank, *launch.local_rank, names.world_size, launch.world_size);
  return launch;
}

[[nodiscard]] inline std::string launcher_name(const Variables& variables, const Launcher& launcher) {
  if (&launcher == &by_hand && variables.has("TOLLER_SPAWN")) return "spawn";
  if (&launcher == &by_hand && variables.has("TORCHELASTIC_RUN_ID")) return "torchrun";
  if (&launcher == &pmi && variables.has(pmi.local_rank)) return "Intel MPI";
  return std::string(launcher.name);
}

/// What all ranks of an Open MPI run share and no other run has; empty if PMIx does not say.
[[nodiscard]] inline std::string mpi_run(const Variables& variables) {
  std::string name = variables.text(variables.has("PMIX_NAMESPACE") ? "PMIX_NAMESPACE" : "OMPI_MCA_ess_base_jobid");
  const std::string drawn = variables.text("OMPI_MCA_orte_precondition_transports");  // at random, for each run
  if (!name.empty() && !drawn.empty()) name += "-" + drawn;
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '.') c = '_';
  return name;
}

[[nodiscard]] inline std::string run_name(const Variables& variables, std::string_view launcher) {
  const auto count = [&](std::string_view name) { return variables.has(name) ? variables.text(name) : "0"; };
  if (launcher == "torchrun") return variables.text("TORCHELASTIC_RUN_ID") + "." + count("TORCHELASTIC_RESTART_COUNT");
  if (launcher == "SLURM" && variables.has("SLURM_JOB_ID"))
    return variables.text("SLURM_JOB_ID") + "." + slurm_step_id(variables) + "." + count("SLURM_RESTART_COUNT");
  if (launcher == "LSF") return variables.text("LSB_JOBID");
  if (launcher == "Open MPI") return mpi_run(variables);
  return {};
}

/// Errors   DistributedError R601.
[[nodiscard]] inline int read_port(const Variables& variables, std::string_view launcher) {
  const std::string_view job = launcher == "SLURM" ? "SLURM_JOB_ID" : launcher == "LSF" ? "LSB_JOBID" : "";
  if (variables.has("MASTER_PORT") || !variables.has(job)) return variables.number("MASTER_PORT", 1, 65535).value_or(29500);
  const std::string id = variables.text(job);
  const long last = small_number(std::string_view(id).substr(id.size() - std::min<std::size_t>(id.size(), 4)));
  if (last < 0) throw DistributedError("R601", cat(job, " is \"", id, "\": expected a whole number of at least 0"));
  // Steps of one job may run side by side.
  const long step = launcher == "SLURM" ? std::max(small_number(slurm_step_id(variables)), 0L) : 0;
  return static_cast<int>(15000 + (last + step % 10000 * 613) % 10000);
}

/// Errors   DistributedError R605.
inline void read_meeting(std::string_view meeting, std::string_view said_by, Launch& launch) {
  const std::string_view tcp = "tcp://", file = "file://";
  if (meeting.substr(0, file.size()) == file && meeting.size() > file.size() + 1 && meeting[file.size()] == '/') {
    launch.file = meeting.substr(file.size());
    return;
  }
  const std::size_t colon = meeting.rfind(':');
  if (meeting.substr(0, tcp.size()) == tcp && colon > tcp.size()) {
    std::string_view host = meeting.substr(tcp.size(), colon - tcp.size());
    const bool brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';  // an IPv6 address
    if (brackets) host = host.substr(1, host.size() - 2);
    const long port = small_number(meeting.substr(colon + 1));
    if (port >= 1 && port <= 65535 && (brackets || host.find_first_of(":/[]") == std::string_view::npos)) {
      launch.address = host;
      launch.port = static_cast<int>(port);
      return;
    }
  }
  throw DistributedError("R605", cat(said_by, " is \"", meeting, "\": expected tcp://host:port or file:///path"));
}

/// Where ranks meet when neither an init method nor MASTER_ADDR says it.
///
/// Errors   DistributedError R603 (no address), R604 (a list of hosts that cannot be read).
inline void find_meeting(const Variables& variables, const Launcher& names, Launch& launch) {
  const auto first_of = [&](std::initializer_list<std::string_view> all) {
    for (const std::string_view name : all)
      if (variables.has(name)) return name;
    return std::string_view();
  };
  if (names.name == "SLURM") {
    const std::string_view list = first_of({"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"});
    if (!list.empty()) launch.address = slurm_hosts(variables.text(list), list).front();
  } else if (names.name == "LSF") {
    const std::vector<std::string> hosts = lsf_hosts(variables.text(first_of({"LSB_MCPU_HOSTS", "LSB_HOSTS"})));
    if (!hosts.empty()) launch.address = hosts[hosts.size() > 1 ? 1 : 0];  // jsrun runs on the first of several, ranks don't
  }
  if (!launch.address.empty()) {
    launch.port = read_port(variables, launch.launcher);
    return;
  }
  if (names.pass_on.empty())
    throw DistributedError("R603", cat("MASTER_ADDR is not set: ", launch.world_size, " ranks (", names.world_size,
                                       ") need the address of rank 0's host"));
  if (launch.local_world_size != launch.world_size)
    throw DistributedError("R603", cat("MASTER_ADDR is not set and not all ranks are on this host (", names.world_size, " is ",
                                       launch.world_size, ", ", names.local_world_size,
                                       launch.local_world_size ? cat(" is ", *launch.local_world_size) : cat(" is not set"),
                                       "): pass the address of rank 0's host, as in ", names.pass_on));
  const std::string run = mpi_run(variables);
  const std::string folder = variables.has("TMPDIR") ? variables.text("TMPDIR") : "/tmp";
  launch.file = cat(folder, "/toller-", variables.text("toller.uid"), "-",
                    run.empty() ? "parent-" + variables.text("toller.parent") : run, ".address");
}

}  // namespace toller::detail
