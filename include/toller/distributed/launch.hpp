// SPDX-License-Identifier: Apache-2.0
// T0. Reads from a launcher's variables who this process is among the ranks.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "toller/core/error.hpp"
#include "toller/distributed/detail/launchers.hpp"
#include "toller/distributed/environment.hpp"
#include "toller/distributed/launched.hpp"

namespace toller {

/// Reads rank, size and meeting place from the launcher's variables; a pure function of its arguments.
///
/// The first of these that is there says who this process is (an empty variable counts as not set):
///   1. `RANK`, `WORLD_SIZE`, `LOCAL_RANK`, `LOCAL_WORLD_SIZE`: `toller::spawn`, torchrun, PyTorchJob, or set by hand
///   2. `JSM_NAMESPACE_*` (LSF's jsrun), `OMPI_COMM_WORLD_*` (Open MPI), `MV2_COMM_WORLD_*` (MVAPICH),
///      `PMI_*` (MPICH, Intel MPI)
///   3. `SLURM_PROCID` with `SLURM_STEP_NUM_TASKS` or `SLURM_NTASKS`, but not in a shell that SLURM started (the interactive
///      step, or step 0 with `SLURM_PTY_PORT`; without a step, `SLURM_JOB_NAME` `bash` or `interactive`); before PMI's if both
///      say the same
/// The first of these says where the ranks meet:
///   1. `init_method`, else `TOLLER_INIT_METHOD`: `tcp://host:port` or `file:///path`
///   2. `MASTER_ADDR` and `MASTER_PORT`
///   3. SLURM and LSF: the step's or job's first (compute) host, port 15000 + the last four digits of the job's number, and
///      another one for each further step of a SLURM job
///   4. MPI with all ranks on this host: a file in the temporary folder whose name is this run's
/// A port that nothing says is 29500. `MASTER_ADDR` alone means nothing: then this process is alone.
/// Errors   DistributedError R600-R605: one line that names the variable, its value and what was expected.
[[nodiscard]] inline Launch read_launch(const Environment& environment, std::string_view init_method = {}) {
  const detail::Variables variables(environment);
  const detail::Launcher* const launcher = detail::find_launcher(variables);
  const std::string meeting = !init_method.empty() ? std::string(init_method) : variables.text("TOLLER_INIT_METHOD");
  const std::string_view said_by = !init_method.empty() ? "init_method" : "TOLLER_INIT_METHOD";
  if (launcher == nullptr && !meeting.empty())
    throw DistributedError("R605", detail::cat(said_by, " is \"", meeting, "\" but nothing says which rank this process is: ",
                                               "expected RANK and WORLD_SIZE, or a launcher's variables"));
  if (launcher == nullptr) return {};

  Launch launch = detail::read_ranks(variables, *launcher);
  launch.launcher = detail::launcher_name(variables, *launcher);
  launch.run = detail::run_name(variables, launch.launcher);
  if (!meeting.empty()) {
    detail::read_meeting(meeting, said_by, launch);
  } else if (const std::string address = variables.text("MASTER_ADDR"); !address.empty()) {
    launch.address = address;
    launch.port = detail::read_port(variables, launch.launcher);
    launch.store_elsewhere = launch.launcher == "torchrun" && variables.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  } else if (launch.world_size > 1) {
    detail::find_meeting(variables, *launcher, launch);
  }
  if (launch.launcher == "spawn") launch.run = std::filesystem::path(launch.file).parent_path().filename().string();
  return launch;
}

}  // namespace toller
