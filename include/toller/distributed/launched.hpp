// SPDX-License-Identifier: Apache-2.0
// T0. What a launcher says of one rank.
#pragma once

#include <optional>
#include <string>

namespace toller {

/// Who this process is among the ranks, as its launcher says.
struct Launch {
  int rank = 0;
  int world_size = 1;
  std::optional<int> local_rank{};        ///< empty: found at the rendezvous by counting lower ranks on the same host
  std::optional<int> local_world_size{};  ///< empty: likewise
  std::string address{};                  ///< of the store, with `port`
  int port = 0;
  std::string file{};  ///< instead of address and port: rank 0 publishes "host:port" in this file, which all ranks see
  bool store_elsewhere = false;  ///< torchrun's agent holds the store: rank 0 connects as a client too
  std::string launcher{};        ///< "torchrun", "SLURM", "Open MPI", "PMI", ...; empty: none, this process is alone
  std::string run{};  ///< unique to this run and restart, the prefix of its keys in the store; empty: nothing is known

  [[nodiscard]] bool operator==(const Launch&) const = default;
};

}  // namespace toller
