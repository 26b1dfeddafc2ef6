// SPDX-License-Identifier: Apache-2.0
// toller doctor: do the ranks find each other, on which devices, and how fast do they talk?
#include <ATen/DeviceAccelerator.h>
#include <ATen/Parallel.h>
#include <torch/headeronly/version.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lone_process.hpp"
#include "ranks.hpp"
#include "toller/core/version.hpp"
#include "toller/distributed/host.hpp"

namespace program {
namespace doctor_command {

struct Options {
  Compute compute{};
  Ranks ranks{.timeout = 60};
  std::int64_t megabytes = 64;
  bool json = false;
};

using Faults = std::vector<std::string>;

std::int64_t free_memory() {
  std::ifstream file("/proc/meminfo");
  for (std::string name, rest; file >> name && std::getline(file, rest);)
    if (name == "MemAvailable:") return std::stoll(rest) * 1024;
  return 0;
}

/// What this rank is and runs on.
nlohmann::json describe(const toller::Ddp& ddp, const toller::ProcessGroup& team) {
  using namespace toller;
  const Launch launch = this_launch();
  const at::Device device = ddp.target();
  nlohmann::json rank = {{"rank", team.rank()},
                         {"host", toller::detail::host_name()},
                         {"pid", ::getpid()},
                         {"local_rank", launch.local_rank.value_or(0)},
                         {"launcher", launch.launcher.empty() ? "none" : launch.launcher},
                         {"device", device.str()},
                         {"threads", at::get_num_threads()},
                         {"cores", usable_cores()},
                         {"host_cores", ::sysconf(_SC_NPROCESSORS_ONLN)},
                         {"free_memory", free_memory()},
                         {"toller", TOLLER_VERSION},
                         {"torch", TORCH_VERSION}};
  if (device.is_cuda()) {
    rank["free_device_memory"] = at::accelerator::getMemoryInfo(device.index()).first;
    rank["cuda"] = at::detail::getCUDAHooks().versionCUDART();
  }
#ifdef USE_C10D_NCCL
  rank["nccl"] = c10d::getNcclVersion();
#endif
  return rank;
}

/// Every rank's text, on all of them.
std::vector<std::string> gather_texts(const toller::ProcessGroup& team, const std::string& mine) {
  const auto all = team.all_gather(at::scalar_tensor(static_cast<std::int64_t>(mine.size()), at::kLong));
  const auto longest = all.max().item<std::int64_t>();
  at::Tensor bytes = at::zeros({longest}, at::kByte);
  std::copy(mine.begin(), mine.end(), bytes.mutable_data_ptr<std::uint8_t>());
  const at::Tensor gathered = team.all_gather(bytes);
  std::vector<std::string> texts;
  for (int r = 0; r < team.size(); ++r) {
    const auto* begin = gathered[r].const_data_ptr<std::uint8_t>();
    texts.emplace_back(begin, begin + all[r].item<std::int64_t>());
  }
  return texts;
}

/// What is wrong with ranks that have met; the same on each of them.
Faults compare(const nlohmann::json& ranks) {
  Faults faults;
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> hosts;  // threads, cores
  std::map<std::string, int> devices;
  for (const auto& r : ranks) {
    const auto name = "rank " + r["rank"].dump(), host = r["host"].get<std::string>(), device = r["device"].get<std::string>();
    const auto threads = r["threads"].get<std::int64_t>(), cores = r["cores"].get<std::int64_t>();
    if (threads > cores)
      faults.push_back(toller::detail::cat(name, " has ", threads, " threads on the ", cores,
                                           " cores that it may use: set OMP_NUM_THREADS=", cores, ", or let the launcher bind ",
                                           "it to more cores"));
    auto& sum = hosts[host];
    sum = {sum.first + threads, r["host_cores"].get<std::int64_t>()};
    if (device != "cpu") {
      const auto [other, first] = devices.emplace(host + " " + device, r["rank"].get<int>());
      if (!first)
        faults.push_back(toller::detail::cat("[R619] rank ", other->second, " and ", name, " share ", device, " of ", host,
                                             ": start at most as many ranks a host as it has GPUs"));
    }
    for (const char* part : {"toller", "torch", "cuda", "nccl"})
      if (r.value(part, nlohmann::json()) != ranks[0].value(part, nlohmann::json()))
        faults.push_back(toller::detail::cat(name, " has ", part, " ", r.value(part, nlohmann::json()).dump(), ", rank 0 has ",
                                             ranks[0].value(part, nlohmann::json()).dump()));
  }
  if (faults.empty())
    for (const auto& [host, sum] : hosts)
      if (sum.first > sum.second)
        faults.push_back(toller::detail::cat("the ranks on ", host, " have ", sum.first, " threads together on ", sum.second,
                                             " cores: set OMP_NUM_THREADS=cores / ranks there, or nothing"));
  return faults;
}

/// Gloo and the store would listen where only this machine can reach them.
void expect_reachable(const toller::Launch& launch) {
  if (launch.address.empty() || launch.local_world_size.value_or(launch.world_size) >= launch.world_size) return;
  const auto [addresses, why] = toller::detail::resolve(launch.address, launch.port, SOCK_STREAM);
  const std::string address = addresses ? toller::detail::print_address(addresses->ai_addr) : "";
  if (address.starts_with("127.") || address == "::1")
    throw toller::ConfigError(
        "R139", toller::detail::cat(
                    "rank 0 is to be met at ", launch.address, ", which is ", address, " here, so each host would look ",
                    "for it on itself; but only ", *launch.local_world_size, " of ", launch.world_size,
                    " ranks are on this host: set MASTER_ADDR to a name or address of rank 0's host that all can reach"));
}

/// Seconds of a sum over the ranks of so many bytes; 0 if it is wrong.
double time_all_reduce(const toller::ProcessGroup& team, at::Device device, std::int64_t bytes) {
  at::Tensor ones = at::ones({bytes / 4}, at::TensorOptions().dtype(at::kFloat).device(device));
  double seconds = 0;
  for (int turn = 0; turn < 2; ++turn) {  // the first opens connections
    ones.fill_(1);
    team.barrier();
    const auto start = std::chrono::steady_clock::now();
    team.all_reduce(ones);
    static_cast<void>(ones[0].item<float>());  // waits for the device
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  return ones.eq(team.size()).all().item<bool>() ? seconds : 0;
}

void print(const nlohmann::json& result) {
  const auto text = [](const nlohmann::json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); };
  const auto gib = [](const nlohmann::json& bytes) {
    std::ostringstream out;
    out << std::fixed << std::setprecision(1) << bytes.get<double>() / (1 << 30);
    return out.str();
  };
  std::vector<std::vector<std::string>> rows{{"rank", "host", "pid", "local", "launcher", "device", "threads", "cores",
                                              "free GiB", "toller", "torch", "CUDA", "NCCL"}};
  for (const auto& r : result["ranks"]) {
    const std::string device = r.contains("free_device_memory") ? " + " + gib(r["free_device_memory"]) : "";
    rows.push_back({text(r["rank"]), text(r["host"]), text(r["pid"]), text(r["local_rank"]), text(r["launcher"]),
                    text(r["device"]), text(r["threads"]), text(r["cores"]), gib(r["free_memory"]) + device, text(r["toller"]),
                    text(r["torch"]), text(r.value("cuda", nlohmann::json("-"))), text(r.value("nccl", nlohmann::json("-")))});
  }
  std::vector<std::size_t> widths(rows[0].size());
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) line += row[i] + std::string(widths[i] - row[i].size() + 2, ' ');
    std::cout << line.substr(0, line.find_last_not_of(' ') + 1) << '\n';
  }
  if (const auto sum = result.find("all_reduce"); sum != result.end())
    std::cout << "all-reduce of " << (*sum)["megabytes"] << " MiB: " << std::setprecision(3)
              << (*sum)["seconds"].get<double>() * 1000 << " ms, " << (*sum)["gbit_per_second"].get<double>()
              << " Gbit/s sent by each rank\n";
  for (const auto& fault : result["faults"]) std::cout << "fault: " << fault.get<std::string>() << '\n';
  std::cout << (result["faults"].empty() ? "no fault found\n" : "") << std::flush;
}

void run_rank(const Options& o) {
  using namespace toller;
  const Ddp ddp = o.ranks.ddp(o.compute);
  ProcessGroup team;
  Faults faults;
  if (ddp.launch.world_size > 1) {
    expect_reachable(ddp.launch);
    team = World::join(ddp.launch, {.timeout = ddp.timeout, .device = ddp.target()}).group();
  } else {
    faults = LoneProcess{}.look();
  }
  try {
    o.compute.set_threads(this_launch().local_world_size.value_or(1));
    nlohmann::json result = {{"ranks", nlohmann::json::array()}};
    for (const std::string& rank : gather_texts(team, describe(ddp, team).dump()))
      result["ranks"].push_back(nlohmann::json::parse(rank));
    const Faults differences = compare(result["ranks"]);
    faults.insert(faults.end(), differences.begin(), differences.end());
    const bool shared = std::any_of(faults.begin(), faults.end(), [](const auto& f) { return f.starts_with("[R619]"); });
    if (team.size() > 1 && !shared) {
      const std::int64_t bytes = o.megabytes << 20;
      const double seconds = time_all_reduce(team, ddp.target(), bytes), share = 2.0 * (team.size() - 1) / team.size();
      if (seconds == 0) faults.emplace_back("a sum of ones over the ranks is not their number");
      result["all_reduce"] = {{"megabytes", o.megabytes},
                              {"seconds", seconds},
                              {"gbit_per_second", share * static_cast<double>(bytes) * 8 / std::max(seconds, 1e-9) / 1e9}};
    }
    result["faults"] = faults;
    if (team.rank() == 0 && o.json) std::cout << result.dump() << std::endl;
    if (team.rank() == 0 && !o.json) print(result);
    team.barrier();  // a launcher may end all ranks once one of them has ended
  } catch (const std::exception& error) {
    team.fail(error.what());
    throw;
  }
  if (faults.empty()) return;
  if (team.rank() != 0) std::exit(1);
  throw ConfigError("R139",
                    toller::detail::cat(faults.size(), faults.size() == 1 ? " fault" : " faults", ": ", faults.front()));
}

}  // namespace doctor_command

void add_doctor(CLI::App& app) {
  auto* command = app.add_subcommand("doctor", "Meet the other ranks, say what each runs on, time a sum over them");
  auto o = std::make_shared<doctor_command::Options>();
  command->add_option("--threads", o->compute.threads, "Threads of the processor, as for train")->check(CLI::Range(0, 512));
  command->add_option("--device", o->compute.device, "auto, cpu, cuda or cuda:N")->capture_default_str();
  o->ranks.add_to(*command);
  command->add_option("--megabytes", o->megabytes, "MiB of the sum")->check(CLI::Range(1, 65536))->capture_default_str();
  command->add_flag("--json", o->json, "Print the result as JSON");
  command->callback([o] { o->ranks.run([&] { doctor_command::run_rank(*o); }); });
}

}  // namespace program
