// SPDX-License-Identifier: Apache-2.0
#include "toller/core/host_memory.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <future>
#include <map>
#include <optional>
#include <random>
#include <vector>

using toller::HostMemory;
using toller::detail::HostHeap;

namespace {

std::uintptr_t address(const at::Tensor& tensor) {
  return reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr());
}

at::Tensor bytes(std::size_t size) {
  return at::empty({static_cast<std::int64_t>(size)}, at::kByte);
}

bool all_equal(const at::Tensor& tensor, int value) {
  const auto* data = tensor.const_data_ptr<std::uint8_t>();
  return std::all_of(data, data + tensor.numel(), [value](std::uint8_t b) { return b == value; });
}

/// Whether tensors made and dropped at random don't touch each other, and begin where LibTorch's would.
bool apart_and_aligned(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::map<std::uintptr_t, at::Tensor> live;  // by address, filled with a value of its own
  std::map<std::uintptr_t, int> values;
  for (int i = 0; i < 2000; ++i) {
    if (live.size() > 20 || (!live.empty() && random() % 3 == 0)) {
      const auto chosen = std::next(live.begin(), static_cast<std::ptrdiff_t>(random() % live.size()));
      if (!all_equal(chosen->second, values.at(chosen->first))) return false;
      values.erase(chosen->first);
      live.erase(chosen);
      continue;
    }
    const std::size_t size = std::size_t{1} << (8 + random() % 13), more = random() % size;
    const int value = static_cast<int>(random() % 256);
    const at::Tensor made = bytes(size + more).fill_(value);
    const auto after = live.lower_bound(address(made));
    if (address(made) % 64 != 0 || (after != live.end() && address(made) + made.nbytes() > after->first) ||
        (after != live.begin() && std::prev(after)->first + std::prev(after)->second.nbytes() > address(made)))
      return false;
    values[address(made)] = value;
    live.emplace(address(made), made);
  }
  return true;
}

}  // namespace

TEST_CASE("tensors of the heap are apart and aligned, and all of it comes back", "[laws]") {
  const HostMemory memory;
  const std::size_t before = HostHeap::instance().extent();
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    CHECK(apart_and_aligned(seed));
    CHECK(HostHeap::instance().extent() == before);
  }
}

TEST_CASE("threads share the heap", "[laws]") {
  const HostMemory memory;
  const std::size_t before = HostHeap::instance().extent();
  std::vector<std::future<bool>> threads;
  for (std::uint64_t seed = 10; seed < 14; ++seed) threads.push_back(std::async(std::launch::async, apart_and_aligned, seed));
  for (auto& thread : threads) CHECK(thread.get());
  CHECK(HostHeap::instance().extent() == before);
}

TEST_CASE("what a tensor gives back serves one of its size, or two neighbours a larger one") {
  const HostMemory memory;
  at::Tensor first = bytes(1 << 20), second = bytes(1 << 20), third = bytes(1 << 20);
  const auto place = address(first);
  first = at::Tensor();
  first = bytes(1 << 20);
  CHECK(address(first) == place);
  first = second = at::Tensor();
  second = bytes(2 << 20);
  CHECK(address(second) == place);
}

TEST_CASE("tensors may outlive the heap's use, and be older than it") {
  at::Tensor older = bytes(1 << 20).fill_(1), inner, kept;
  {
    std::optional<HostMemory> outer(std::in_place);
    {
      const HostMemory again;
      inner = bytes(1 << 20).fill_(2);
      older = at::Tensor();
    }
    kept = bytes(1 << 20).fill_(3);  // the outer one lives
    CHECK(HostHeap::instance().extent() >= 2 << 20);
  }
  CHECK(all_equal(inner, 2));
  CHECK(all_equal(kept, 3));
  inner = kept = at::Tensor();
  CHECK(HostHeap::instance().extent() == 0);
  const std::size_t before = HostHeap::instance().extent();
  const at::Tensor later = bytes(1 << 20);  // malloc's again
  CHECK(HostHeap::instance().extent() == before);
}

TEST_CASE("memory may be freed by whatever allocator is current") {
  c10::Allocator* const plain = c10::GetDefaultCPUAllocator();
  void* const older = plain->raw_allocate(1 << 20);
  void* inner = nullptr;
  {
    const HostMemory memory;
    c10::GetCPUAllocator()->raw_deallocate(older);
    inner = c10::GetCPUAllocator()->raw_allocate(1 << 20);
    c10::GetCPUAllocator()->raw_deallocate(c10::GetCPUAllocator()->raw_allocate(0));
  }
  CHECK(HostHeap::instance().extent() > 0);
  c10::GetCPUAllocator()->raw_deallocate(inner);
  CHECK(HostHeap::instance().extent() == 0);
}

TEST_CASE("what the machine lacks is refused as ever") {
  const HostMemory memory;
  CHECK_THROWS_AS(at::empty({std::int64_t{1} << 60}, at::kByte), c10::Error);
}

TEST_CASE("a program's own allocator stays") {
  struct Own final : c10::Allocator {
    c10::DataPtr allocate(std::size_t bytes) override { return c10::GetDefaultCPUAllocator()->allocate(bytes); }
    c10::DeleterFnPtr raw_deleter() const override { return c10::GetDefaultCPUAllocator()->raw_deleter(); }
    void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }
  };
  static Own own;
  c10::Allocator* const before = c10::GetCPUAllocator();
  c10::SetCPUAllocator(&own);
  {
    const HostMemory memory;
    CHECK(c10::GetCPUAllocator() == &own);
  }
  CHECK(c10::GetCPUAllocator() == &own);
  c10::SetCPUAllocator(before);
}
