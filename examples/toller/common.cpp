// SPDX-License-Identifier: Apache-2.0
#include "common.hpp"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "toller/distributed/spawn.hpp"

namespace program {

std::optional<at::Device> Compute::chosen() const {
  if (device == "auto") return std::nullopt;
  if (device != "cpu" && device != "cuda" && device.rfind("cuda:", 0) != 0)
    throw toller::ConfigError("R130", "--device " + device + ": it must be auto, cpu, cuda or cuda:N");
  if (device != "cpu" && !at::hasCUDA())
    throw toller::ConfigError("R124", "--device " + device + " was asked for, but no CUDA device can be used");
  if (device == "cuda") return std::nullopt;
  return at::Device(device);
}

int share_of_cores(int ranks) {
  const int own = toller::usable_cores();
  cpu_set_t launcher;
  CPU_ZERO(&launcher);
  const int all = ::sched_getaffinity(::getppid(), sizeof(launcher), &launcher) == 0 ? CPU_COUNT(&launcher) : own;
  return std::max(1, std::min(own, std::max(own, all) / ranks));
}

void Compute::set_threads(int ranks) const {
  const char* const wanted = std::getenv("OMP_NUM_THREADS");
  if (threads > 0)
    at::set_num_threads(threads);
  else if (wanted == nullptr || *wanted == '\0')
    at::set_num_threads(share_of_cores(ranks));
}

at::Device Compute::start() const {
  set_threads(1);
  return chosen().value_or(at::hasCUDA() ? toller::cuda(0) : toller::cpu());
}

std::unique_ptr<toller::AutocastGuard> Compute::guard(at::Device at) const {
  return AnyPrecision{precision == "bf16"}.guard(at);
}

void ModelChoice::add_to(CLI::App& command) {
  command.add_option("--model", model, "Model folder, or the hub name of a model in the local Hugging Face cache")->required();
  command.add_option("--query-length", options.query_length, "Longest query in tokens");
  command.add_option("--document-length", options.document_length, "Longest document in tokens");
  command.add_option("--query-prompt", options.query_prompt, "Text put before every query");
  command.add_option("--document-prompt", options.document_prompt, "Text put before every document");
}

fs::path ModelChoice::folder() const {
  if (fs::is_directory(model)) return model;
  const bool hub_name =
      std::count(model.begin(), model.end(), '/') <= 1 && !model.empty() && model[0] != '.' && model[0] != '/';
  if (!hub_name) throw toller::FileError("R131", model + ": no such folder");
  const auto variable = [](const char* name) { return std::getenv(name) ? std::string(std::getenv(name)) : std::string(); };
  fs::path cache = variable("HF_HUB_CACHE");
  if (cache.empty() && !variable("HF_HOME").empty()) cache = fs::path(variable("HF_HOME")) / "hub";
  if (cache.empty()) cache = fs::path(variable("HOME")) / ".cache" / "huggingface" / "hub";
  const std::string full = model.find('/') == std::string::npos ? "sentence-transformers/" + model : model;
  std::string name = "models--" + full;
  name.replace(name.find('/'), 1, "--");
  std::string revision;
  std::ifstream(cache / name / "refs" / "main") >> revision;
  const fs::path snapshot = cache / name / "snapshots" / revision;
  if (!revision.empty() && fs::is_directory(snapshot)) return snapshot;
  throw toller::FileError("R131",
                          model + ": neither a folder nor in " + cache.string() + "; to download it: hf download " + full);
}

bool is_late(const toller::ModelFolder& folder) {
  return folder.kind == toller::FolderKind::pylate || folder.kind == toller::FolderKind::stanford;
}

void check_writable(const fs::path& target, Target kind) {
  const auto fail = [&](const std::string& why) {
    throw toller::FileError("R132", target.string() + ": cannot be written: " + why);
  };
  if (target.empty()) fail("the name is empty");
  if (fs::exists(target) && fs::is_directory(target) != (kind == Target::folder))
    fail(kind == Target::folder ? "it is a file, not a folder" : "it is a folder, not a file");
  // What saving begins with, and takes back: a folder or file in the making, beside the place.
  if (kind == Target::folder)
    toller::AtomicFolder{target};
  else
    toller::AtomicFile{target};
}

}  // namespace program
