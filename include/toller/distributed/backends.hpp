// SPDX-License-Identifier: Apache-2.0
// T2. Gloo and NCCL as backends of one c10d process group.
#pragma once

#if !__has_include(<gloo/context.h>)
#error "[toller] add include/toller/distributed/gloo to the include path, as toller::toller does: LibTorch lacks Gloo's headers"
#endif
#ifndef USE_C10D_GLOO
#define USE_C10D_GLOO
#endif
#include <gloo/context.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#ifdef USE_C10D_NCCL
#include <ATen/cuda/CUDAContext.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif

#include <cstdlib>
#include <iterator>
#include <string>
#include <utility>

#include "toller/distributed/store.hpp"

namespace toller::detail {

/// Reaches the connections of a Gloo backend, which only its own members may name.
struct GlooConnections : c10d::ProcessGroupGloo {
  static void close(c10d::ProcessGroupGloo& gloo) {
    for (const auto& context : gloo.*(&GlooConnections::contexts_)) context->closeConnections();
  }
};

/// What tells one GPU from all others; its number does not, since a rank may be shown only its own.
[[nodiscard]] inline std::string gpu_identity([[maybe_unused]] at::Device gpu) {
#ifdef USE_C10D_NCCL
  const auto& uuid = at::cuda::getDeviceProperties(gpu.index())->uuid;
  return {std::begin(uuid.bytes), std::end(uuid.bytes)};
#else
  return gpu.str();  // such ranks end with R612
#endif
}

/// Tensors on the processor go by Gloo; those on `device`, when it is a CUDA device, by NCCL.
///
/// Gloo listens on the address from which this host reaches the store, unless GLOO_SOCKET_IFNAME names an interface.
[[nodiscard]] inline std::pair<c10::intrusive_ptr<c10d::ProcessGroup>, c10::intrusive_ptr<c10d::ProcessGroupGloo>>
make_process_group(Store& store, int rank, int size, at::Device device, Milliseconds timeout) {
  using Gloo = c10d::ProcessGroupGloo;
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store.handle(), rank, size);
  auto options = Gloo::Options::create(timeout);
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
  const auto colon = store.address().rfind(':');
  const std::string own = local_address_towards(store.address().substr(0, colon), std::stoi(store.address().substr(colon + 1)));
  if (interface != nullptr && *interface != '\0')
    options->devices.push_back(Gloo::createDeviceForInterface(interface));
  else
    options->devices.push_back(own.empty() ? Gloo::createDefaultDevice() : Gloo::createDeviceForHostname(own));
  const auto gloo =
      c10::make_intrusive<Gloo>(c10::make_intrusive<c10d::PrefixStore>("gloo", store.handle()), rank, size, options);
  group->setBackend(at::kCPU, c10d::ProcessGroup::BackendType::GLOO, gloo);
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  if (device.is_cuda()) {
#ifdef USE_C10D_NCCL
    if (process_variable("TORCH_NCCL_ASYNC_ERROR_HANDLING") == "0")
      throw DistributedError("R612",
                             "TORCH_NCCL_ASYNC_ERROR_HANDLING=0: a rank that fails would leave the others hanging; unset it");
    auto nccl_options = c10d::ProcessGroupNCCL::Options::create();
    nccl_options->timeout = timeout;
    const auto nccl = c10::make_intrusive<c10d::ProcessGroupNCCL>(
        c10::make_intrusive<c10d::PrefixStore>("nccl", store.handle()), rank, size, nccl_options);
    group->setBackend(at::kCUDA, c10d::ProcessGroup::BackendType::NCCL, nccl);
#else
    throw DistributedError(
        "R612", "several ranks on CUDA devices need NCCL, and this program was built without it: build with TOLLER_CUDA=ON");
#endif
  }
  return {group, gloo};
}

}  // namespace toller::detail
