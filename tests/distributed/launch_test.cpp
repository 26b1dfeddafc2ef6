// SPDX-License-Identifier: Apache-2.0
#include "toller/distributed/launch.hpp"

#include <catch2/catch_test_macros.hpp>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "toller/distributed/host_list.hpp"

namespace {

using namespace toller;
using Table = std::map<std::string, std::string>;

Launch read(const Table& table, std::string_view init_method = {}) {
  return read_launch(
      [&](const std::string& name) {
        const auto found = table.find(name);
        return found == table.end() ? std::nullopt : std::optional<std::string>(found->second);
      },
      init_method);
}

std::string error(const Table& table, std::string_view init_method = {}) {
  try {
    static_cast<void>(read(table, init_method));
  } catch (const DistributedError& caught) {
    return caught.what();
  }
  return "no error";
}

Table with(Table table, const Table& more) {
  for (const auto& [name, value] : more) table[name] = value;
  return table;
}

Table without(Table table, const std::string& name) {
  table.erase(name);
  return table;
}

const Table plain{{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "host7"}, {"MASTER_PORT", "1234"}};
const Table open_mpi{{"OMPI_COMM_WORLD_RANK", "1"},
                     {"OMPI_COMM_WORLD_SIZE", "2"},
                     {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                     {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                     {"PMIX_NAMESPACE", "1955266561"},
                     {"OMPI_MCA_orte_precondition_transports", "c346-8b5b"},
                     {"toller.uid", "1000"},
                     {"toller.parent", "77-123456"}};
const Table slurm{
    {"SLURM_PROCID", "5"},       {"SLURM_NTASKS", "8"},  {"SLURM_LOCALID", "1"},     {"SLURM_JOB_NODELIST", "node[07-08,10]"},
    {"SLURM_JOB_ID", "1234567"}, {"SLURM_STEP_ID", "2"}, {"SLURM_JOB_NAME", "train"}};
const Table hydra{{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"toller.uid", "1000"}, {"toller.parent", "77-123456"}};
const Table lsf{{"JSM_NAMESPACE_RANK", "2"},
                {"JSM_NAMESPACE_SIZE", "12"},
                {"JSM_NAMESPACE_LOCAL_RANK", "2"},
                {"LSB_MCPU_HOSTS", "batch3 1 h41n08 42 h41n09 42"},
                {"LSB_JOBID", "99"}};

}  // namespace

TEST_CASE("without a launcher a process is alone") {
  CHECK(read({}) == Launch{});
  CHECK(read({{"MASTER_ADDR", "host7"}, {"MASTER_PORT", "nonsense"}}) == Launch{});
  CHECK(read({{"LOCAL_RANK", "1"}}) == Launch{});
  CHECK(read({{"RANK", ""}, {"WORLD_SIZE", ""}}) == Launch{});
}

TEST_CASE("RANK and WORLD_SIZE set by hand") {
  CHECK(read(plain) == Launch{3, 4, {}, {}, "host7", 1234, "", false, "environment", ""});
  CHECK(read(without(plain, "MASTER_PORT")).port == 29500);
  CHECK(read(with(plain, {{"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}})) ==
        Launch{3, 4, 1, 2, "host7", 1234, "", false, "environment", ""});
  CHECK(read({{"RANK", "0"}, {"WORLD_SIZE", "1"}}) == Launch{0, 1, {}, {}, "", 0, "", false, "environment", ""});
  // They win over what a scheduler says.
  CHECK(read(with(with(slurm, open_mpi), plain)).rank == 3);
  CHECK(read(with(with(slurm, open_mpi), plain)).launcher == "environment");
}

TEST_CASE("RANK and WORLD_SIZE that cannot be") {
  CHECK(error({{"RANK", "0"}}) == "[R600] RANK is set but WORLD_SIZE is not: expected both or neither");
  CHECK(error({{"WORLD_SIZE", "2"}}) == "[R600] WORLD_SIZE is set but RANK is not: expected both or neither");
  CHECK(error(with(plain, {{"WORLD_SIZE", "two"}})) == "[R601] WORLD_SIZE is \"two\": expected a whole number of at least 1");
  CHECK(error(with(plain, {{"WORLD_SIZE", "0"}})) == "[R601] WORLD_SIZE is \"0\": expected a whole number of at least 1");
  CHECK(error(with(plain, {{"RANK", "-1"}})) == "[R601] RANK is \"-1\": expected a whole number of at least 0");
  CHECK(error(with(plain, {{"RANK", "1 "}})) == "[R601] RANK is \"1 \": expected a whole number of at least 0");
  CHECK(error(with(plain, {{"RANK", "99999999999"}})) ==
        "[R601] RANK is \"99999999999\": expected a whole number of at least 0");
  CHECK(error(with(plain, {{"MASTER_PORT", "70000"}})) ==
        "[R601] MASTER_PORT is \"70000\": expected a whole number from 1 to 65535");
  CHECK(error(with(plain, {{"RANK", "4"}})) == "[R602] RANK is 4 and WORLD_SIZE is 4: expected RANK from 0 to 3");
  CHECK(error({{"RANK", "1"}, {"WORLD_SIZE", "1"}}) == "[R602] RANK is 1 and WORLD_SIZE is 1: expected RANK to be 0");
  CHECK(error(with(plain, {{"LOCAL_RANK", "2"}, {"LOCAL_WORLD_SIZE", "2"}})) ==
        "[R602] LOCAL_RANK is 2 and LOCAL_WORLD_SIZE is 2: expected LOCAL_RANK from 0 to 1");
  CHECK(error(with(plain, {{"LOCAL_RANK", "4"}})) ==
        "[R602] LOCAL_RANK is 4 and WORLD_SIZE is 4: expected LOCAL_RANK from 0 to 3");
  CHECK(error(with(plain, {{"LOCAL_WORLD_SIZE", "8"}})) ==
        "[R602] LOCAL_WORLD_SIZE is 8 and WORLD_SIZE is 4: expected at most as many ranks on a host as in all");
  CHECK(error(without(plain, "MASTER_ADDR")) ==
        "[R603] MASTER_ADDR is not set: 4 ranks (WORLD_SIZE) need the address of rank 0's host");
}

TEST_CASE("torchrun") {
  const Table table = with(plain, {{"LOCAL_RANK", "1"},
                                   {"LOCAL_WORLD_SIZE", "2"},
                                   {"TORCHELASTIC_RUN_ID", "none"},
                                   {"TORCHELASTIC_RESTART_COUNT", "2"},
                                   {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  CHECK(read(table) == Launch{3, 4, 1, 2, "host7", 1234, "", true, "torchrun", "none.2"});
  CHECK_FALSE(read(with(table, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}})).store_elsewhere);
  CHECK_FALSE(read(table, "tcp://other:1").store_elsewhere);
}

TEST_CASE("spawn's children") {
  CHECK(read({{"RANK", "1"},
              {"WORLD_SIZE", "2"},
              {"LOCAL_RANK", "1"},
              {"LOCAL_WORLD_SIZE", "2"},
              {"MASTER_ADDR", "leftover"},
              {"TORCHELASTIC_RUN_ID", "leftover"},
              {"TOLLER_SPAWN", "0"},
              {"TOLLER_INIT_METHOD", "file:///tmp/toller-spawn-Ab12/address"}}) ==
        Launch{1, 2, 1, 2, "", 0, "/tmp/toller-spawn-Ab12/address", false, "spawn", "toller-spawn-Ab12"});
}

TEST_CASE("SLURM") {
  CHECK(read(slurm) == Launch{5, 8, 1, {}, "node07", 20793, "", false, "SLURM", "1234567.2.0"});
  CHECK(read(with(slurm, {{"SLURM_RESTART_COUNT", "3"}})).run == "1234567.2.3");
  CHECK(read(with(slurm, {{"SLURM_STEP_NODELIST", "node10"}})).address == "node10");
  CHECK(read(with(slurm, {{"SLURM_STEP_NUM_TASKS", "6"}})).world_size == 6);
  CHECK(read(with(slurm, {{"MASTER_ADDR", "head"}})).address == "head");
  CHECK(read(with(slurm, {{"MASTER_ADDR", "head"}})).port == 20793);
  CHECK(read(with(slurm, {{"SLURM_STEP_ID", "0"}})).port == 19567);
  CHECK(read(without(slurm, "SLURM_STEP_ID")) == Launch{5, 8, 1, {}, "node07", 19567, "", false, "SLURM", "1234567.0.0"});
  CHECK(read(with(slurm, {{"MASTER_PORT", "77"}})).port == 77);
  CHECK(read(with(slurm, {{"SLURM_JOB_ID", "42"}})).port == 16268);
  CHECK(read(without(slurm, "SLURM_JOB_ID")).port == 29500);

  CHECK(read(with(slurm, {{"SLURM_NTASKS_PER_NODE", "2"}})).local_world_size == 2);
  CHECK(read(with(slurm, {{"SLURM_NTASKS_PER_NODE", "4(x2)"}})).local_world_size == 4);
  CHECK(read(with(slurm, {{"SLURM_STEP_TASKS_PER_NODE", "3(x2),2"}, {"SLURM_NODEID", "2"}})).local_world_size == 2);
  CHECK(read(with(slurm, {{"SLURM_STEP_TASKS_PER_NODE", "3(x2),2"}})).local_world_size == std::nullopt);
  // A step of one task within a job of eight a node.
  CHECK(read({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_NTASKS_PER_NODE", "8"}}) ==
        Launch{0, 1, {}, {}, "", 0, "", false, "SLURM", ""});

  // Typed into the shell of `srun --pty` or of `salloc`; started by a further srun there; a script that srun started.
  CHECK(read(with(slurm, {{"SLURM_PTY_PORT", "40001"}, {"SLURM_STEP_ID", "0"}})) == Launch{});
  CHECK(read(with(slurm, {{"SLURM_JOB_NAME", "interactive"}, {"SLURM_STEP_ID", "4294967290"}})) == Launch{});
  CHECK(read(with(slurm, {{"SLURM_PTY_PORT", "40001"}})).world_size == 8);
  CHECK(read(with(slurm, {{"SLURM_JOB_NAME", "interactive"}, {"SLURM_STEP_ID", "0"}})).world_size == 8);
  CHECK(read(with(slurm, {{"SLURM_JOB_NAME", "bash"}, {"SLURM_STEP_ID", "0"}})).world_size == 8);
  for (const char* name : {"bash", "interactive"})
    CHECK(read(without(with(slurm, {{"SLURM_JOB_NAME", name}}), "SLURM_STEP_ID")) == Launch{});
  CHECK(read(without(slurm, "SLURM_PROCID")) == Launch{});
  CHECK(read(without(slurm, "SLURM_NTASKS")) == Launch{});

  CHECK(error(with(slurm, {{"SLURM_PROCID", "8"}})) ==
        "[R602] SLURM_PROCID is 8 and SLURM_NTASKS is 8: expected SLURM_PROCID from 0 to 7");
  CHECK(error(without(slurm, "SLURM_JOB_NODELIST")) ==
        "[R603] MASTER_ADDR is not set: 8 ranks (SLURM_NTASKS) need the address of rank 0's host");
  CHECK(error(with(slurm, {{"SLURM_JOB_NODELIST", "node[07-"}})) ==
        "[R604] SLURM_JOB_NODELIST is \"node[07-\": expected hosts such as node[01-03,07],gpu5");
  CHECK(error(with(slurm, {{"SLURM_NTASKS_PER_NODE", "4(x"}})) ==
        "[R604] SLURM_NTASKS_PER_NODE is \"4(x\": expected tasks such as 4(x2),3");
  CHECK(error(with(slurm, {{"SLURM_JOB_ID", "12ab"}})) ==
        "[R601] SLURM_JOB_ID is \"12ab\": expected a whole number of at least 0");
}

TEST_CASE("Open MPI") {
  const std::string file = "/tmp/toller-1000-1955266561-c346-8b5b.address";
  CHECK(read(open_mpi) == Launch{1, 2, 1, 2, "", 0, file, false, "Open MPI", "1955266561-c346-8b5b"});
  CHECK(read(with(open_mpi, {{"TMPDIR", "/scratch"}, {"PMIX_NAMESPACE", "prterun-h/7@1"}})).file ==
        "/scratch/toller-1000-prterun-h_7_1-c346-8b5b.address");
  CHECK(read(without(with(open_mpi, {{"OMPI_MCA_ess_base_jobid", "55"}}), "PMIX_NAMESPACE")).run == "55-c346-8b5b");
  CHECK(read(without(open_mpi, "PMIX_NAMESPACE")).file == "/tmp/toller-1000-parent-77-123456.address");
  CHECK(read(with(open_mpi, {{"MASTER_ADDR", "host7"}})) ==
        Launch{1, 2, 1, 2, "host7", 29500, "", false, "Open MPI", "1955266561-c346-8b5b"});
  // An mpirun within a batch script, whose SLURM variables are the script's.
  CHECK(read(with(with(slurm, {{"SLURM_PROCID", "0"}}), open_mpi)).rank == 1);

  CHECK(error(with(open_mpi, {{"OMPI_COMM_WORLD_SIZE", "4"}})) ==
        "[R603] MASTER_ADDR is not set and not all ranks are on this host (OMPI_COMM_WORLD_SIZE is 4, "
        "OMPI_COMM_WORLD_LOCAL_SIZE is "
        "2): pass the address of rank 0's host, as in mpirun -x MASTER_ADDR=host");
  CHECK(error(without(open_mpi, "OMPI_COMM_WORLD_LOCAL_SIZE")) ==
        "[R603] MASTER_ADDR is not set and not all ranks are on this host (OMPI_COMM_WORLD_SIZE is 2, "
        "OMPI_COMM_WORLD_LOCAL_SIZE is "
        "not set): pass the address of rank 0's host, as in mpirun -x MASTER_ADDR=host");
  CHECK(error(without(open_mpi, "OMPI_COMM_WORLD_SIZE")) ==
        "[R600] OMPI_COMM_WORLD_RANK is set but OMPI_COMM_WORLD_SIZE is not: expected both or neither");
}

TEST_CASE("PMI, Intel MPI and MVAPICH") {
  CHECK(
      error(hydra) ==
      "[R603] MASTER_ADDR is not set and not all ranks are on this host (PMI_SIZE is 2, MPI_LOCALNRANKS is not set): pass the "
      "address of rank 0's host, as in mpirun -genv MASTER_ADDR host");
  CHECK(read(with(hydra, {{"MASTER_ADDR", "host7"}, {"MASTER_PORT", "7"}})) ==
        Launch{0, 2, {}, {}, "host7", 7, "", false, "PMI", ""});
  CHECK(read(with(hydra, {{"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "2"}})) ==
        Launch{0, 2, 0, 2, "", 0, "/tmp/toller-1000-parent-77-123456.address", false, "Intel MPI", ""});
  CHECK(read({{"MV2_COMM_WORLD_RANK", "1"},
              {"MV2_COMM_WORLD_SIZE", "2"},
              {"MV2_COMM_WORLD_LOCAL_RANK", "0"},
              {"MV2_COMM_WORLD_LOCAL_SIZE", "1"},
              {"PMI_RANK", "1"},
              {"PMI_SIZE", "2"},
              {"MASTER_ADDR", "host7"}}) == Launch{1, 2, 0, 1, "host7", 29500, "", false, "MVAPICH", ""});
  // srun --mpi=pmi2 sets both, and they agree; an mpirun within SLURM may run more ranks than SLURM has tasks.
  CHECK(read(with(slurm, {{"PMI_RANK", "5"}, {"PMI_SIZE", "8"}})).launcher == "SLURM");
  CHECK(read(with(slurm, {{"PMI_RANK", "9"}, {"PMI_SIZE", "16"}, {"MASTER_ADDR", "host7"}})).rank == 9);
}

TEST_CASE("LSF") {
  CHECK(read(lsf) == Launch{2, 12, 2, {}, "h41n08", 15099, "", false, "LSF", "99"});
  CHECK(read(with(lsf, {{"LSB_MCPU_HOSTS", "h41n08 12"}})).address == "h41n08");
  CHECK(read(with(without(lsf, "LSB_MCPU_HOSTS"), {{"LSB_HOSTS", "batch3 h7 h7 h8 h8"}})).address == "h7");
  CHECK(error(without(lsf, "LSB_MCPU_HOSTS")) ==
        "[R603] MASTER_ADDR is not set and not all ranks are on this host (JSM_NAMESPACE_SIZE is 12, JSM_NAMESPACE_LOCAL_SIZE "
        "is not "
        "set): pass the address of rank 0's host, as in jsrun -E MASTER_ADDR=host");
  CHECK(read(with(lsf, open_mpi)).launcher == "LSF");
}

TEST_CASE("an init method says where ranks meet") {
  CHECK(read(plain, "tcp://other:5") == Launch{3, 4, {}, {}, "other", 5, "", false, "environment", ""});
  CHECK(read(plain, "tcp://[fd00::2]:5").address == "fd00::2");
  CHECK(read(plain, "file:///shared/meet") == Launch{3, 4, {}, {}, "", 0, "/shared/meet", false, "environment", ""});
  CHECK(read(with(plain, {{"TOLLER_INIT_METHOD", "file:///shared/meet"}})).file == "/shared/meet");
  CHECK(read(with(plain, {{"TOLLER_INIT_METHOD", "file:///shared/meet"}}), "tcp://other:5").file.empty());
  CHECK(read(with(open_mpi, {{"OMPI_COMM_WORLD_SIZE", "4"}}), "tcp://other:5").address == "other");
  for (const std::string bad : {"env://", "tcp://host", "tcp://:5", "tcp://host:0", "tcp://host:70000", "tcp://fd00::2:5",
                                "tcp://host:5/path", "file://relative", "file:///", "host:5"}) {
    CAPTURE(bad);
    CHECK(error(plain, bad) == "[R605] init_method is \"" + bad + "\": expected tcp://host:port or file:///path");
  }
  CHECK(error(with(plain, {{"TOLLER_INIT_METHOD", "x"}})) ==
        "[R605] TOLLER_INIT_METHOD is \"x\": expected tcp://host:port or file:///path");
  CHECK(
      error({}, "tcp://other:5") ==
      "[R605] init_method is \"tcp://other:5\" but nothing says which rank this process is: expected RANK and WORLD_SIZE, or a "
      "launcher's variables");
}

TEST_CASE("lists of hosts") {
  using Hosts = std::vector<std::string>;
  CHECK(slurm_hosts("gpu5", "L") == Hosts{"gpu5"});
  CHECK(slurm_hosts("node[01-03,07],gpu5", "L") == Hosts{"node01", "node02", "node03", "node07", "gpu5"});
  CHECK(slurm_hosts("n[8-11]", "L") == Hosts{"n8", "n9", "n10", "n11"});
  CHECK(slurm_hosts("n[098-101]-ib.x", "L") == Hosts{"n098-ib.x", "n099-ib.x", "n100-ib.x", "n101-ib.x"});
  CHECK(slurm_hosts("r[1-2]n[3,5],a-b", "L") == Hosts{"r1n3", "r1n5", "r2n3", "r2n5", "a-b"});
  for (const std::string bad : {"", "n[", "n[1", "n1]", "n[]", "n[3-1]", "n[a]", "n[1-2", "n[[1-2]]", "a,,b", "a b",
                                "n[0-99999999]", "n[0-9999]m[0-9999]", "n[1,]"}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(slurm_hosts(bad, "L"), DistributedError);
  }
  CHECK(slurm_tasks_per_node("4(x2),3", "T") == std::vector<int>{4, 4, 3});
  for (const std::string bad : {"", "x", "4(x)", "4(x2", "4x2", "4(x2),"}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(slurm_tasks_per_node(bad, "T"), DistributedError);
  }
  CHECK(lsf_hosts("batch1 1 n7 42 n8 42") == Hosts{"batch1", "n7", "n8"});
  CHECK(lsf_hosts("n7 n7 n8") == Hosts{"n7", "n8"});
  CHECK(lsf_hosts("").empty());
}

TEST_CASE("this process's own variables") {
  CHECK(process_variable("PATH").has_value());
  CHECK_FALSE(process_variable("TOLLER_NO_SUCH_VARIABLE").has_value());
  CHECK(process_variable("toller.uid") == std::to_string(::getuid()));
  const std::string parent = process_variable("toller.parent").value();
  CHECK(parent.substr(0, parent.find('-')) == std::to_string(::getppid()));
  CHECK(parent.size() > parent.find('-') + 1);  // when it started
}
