// SPDX-License-Identifier: Apache-2.0
// T1. Where the memory of a fit's tensors comes from on the host.
#pragma once

#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <unordered_map>
#include <utility>

namespace toller {

namespace detail {

/// One range of addresses from which large blocks are cut, best fit first, and into which they are joined again.
class HostHeap final : public c10::Allocator {
public:
  /// Smaller blocks are malloc's, which does well with them.
  static constexpr std::size_t least = 64 << 10;

  static HostHeap& instance() {
    static auto* const heap = new HostHeap;  // tensors may outlive all else
    return *heap;
  }

  c10::DataPtr allocate(std::size_t bytes) override {
    void* const data = bytes < least ? nullptr : take(bytes);
    if (data == nullptr) return c10::GetDefaultCPUAllocator()->allocate(bytes);
    c10::profiledCPUMemoryReporter().New(data, bytes);
    return {data, data, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }

  /// Some callers free with whatever allocator is current, so once it was current it stays so, and forwards while unused.
  void begin_use() {
    const std::lock_guard lock(mutex_);
    if (users_++ == 0 && c10::GetCPUAllocator() == c10::GetDefaultCPUAllocator()) c10::SetCPUAllocator(this);
  }
  void end_use() {
    const std::lock_guard lock(mutex_);
    if (--users_ > 0) return;
    for (const auto& [address, size] : holes_) forget(address, size);
    forget(top_, writable_ - top_);
  }

  /// Bytes of the range up to the last block that lives.
  [[nodiscard]] std::size_t extent() {
    const std::lock_guard lock(mutex_);
    return top_ - begin_;
  }

private:
  using Address = std::uintptr_t;
  static constexpr std::size_t alignment = 64;  ///< what LibTorch's own allocator gives
  static constexpr std::size_t growth = 64 << 20;

  /// Addresses alone, twice as many as the machine has bytes: a block gets memory when it is written.
  HostHeap() {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const std::size_t bytes = 2 * page * static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES));
    void* const range = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) return;  // then all blocks are malloc's
    begin_ = top_ = writable_ = reinterpret_cast<Address>(range);
    end_ = begin_ + bytes;
    page_ = page;
  }

  static void release(void* data) {
    HostHeap& heap = instance();
    const auto address = reinterpret_cast<Address>(data);
    if (address < heap.begin_ || address >= heap.end_) return c10::GetDefaultCPUAllocator()->raw_deleter()(data);
    c10::profiledCPUMemoryReporter().Delete(data);
    heap.put_back(address);
  }

  void* take(std::size_t bytes) {
    const std::size_t size = (bytes + alignment - 1) / alignment * alignment;
    const std::lock_guard lock(mutex_);
    if (users_ == 0) return nullptr;
    Address address = top_;
    if (const auto best = by_size_.lower_bound({size, 0}); best != by_size_.end()) {
      const auto [hole, start] = *best;
      address = start;
      remove_hole(holes_.find(start));
      if (hole > size) add_hole(start + size, hole - size);
    } else if (!grow(size)) {
      return nullptr;
    }
    blocks_.emplace(address, size);
    return reinterpret_cast<void*>(address);
  }

  bool grow(std::size_t size) {
    if (size > end_ - top_) return false;
    if (top_ + size > writable_) {
      const std::size_t more =
          std::min<std::size_t>((top_ + size - writable_ + growth - 1) / growth * growth, end_ - writable_);
      if (::mprotect(reinterpret_cast<void*>(writable_), more, PROT_READ | PROT_WRITE) != 0) return false;
      writable_ += more;
    }
    top_ += size;
    return true;
  }

  void put_back(Address address) {
    const std::lock_guard lock(mutex_);
    const auto block = blocks_.find(address);
    std::size_t size = block->second;
    blocks_.erase(block);
    if (users_ == 0) forget(address, size);
    const auto after = holes_.lower_bound(address);
    if (after != holes_.begin())
      if (const auto before = std::prev(after); before->first + before->second == address) {
        address = before->first;
        size += before->second;
        remove_hole(before);
      }
    if (after != holes_.end() && address + size == after->first) {
      size += after->second;
      remove_hole(after);
    }
    if (address + size == top_)
      top_ = address;
    else
      add_hole(address, size);
  }

  void add_hole(Address address, std::size_t size) {
    holes_.emplace(address, size);
    by_size_.emplace(size, address);
  }
  void remove_hole(std::map<Address, std::size_t>::iterator hole) {
    by_size_.erase({hole->second, hole->first});
    holes_.erase(hole);
  }
  /// The whole pages within go back to the kernel.
  void forget(Address address, std::size_t size) const {
    const Address first = (address + page_ - 1) / page_ * page_, last = (address + size) / page_ * page_;
    if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
  }

  std::mutex mutex_{};
  int users_ = 0;
  Address begin_ = 0, top_ = 0, writable_ = 0, end_ = 0;
  std::size_t page_ = 1;
  std::map<Address, std::size_t> holes_{};
  std::set<std::pair<std::size_t, Address>> by_size_{};
  std::unordered_map<Address, std::size_t> blocks_{};
};

}  // namespace detail

/// While one lives, large tensors on the host are cut from a range that keeps what they give back. The sizes of ragged batches
/// don't come again, and glibc serves them badly: aligned blocks don't fit the holes of blocks of their own size, and large
/// ones go back to the kernel, which clears them for the next step.
///
/// Cost     the range is as large as the most that lived at once, until the last HostMemory ends. A program that has set a CPU
///          allocator of its own keeps it.
class HostMemory {
public:
  HostMemory() { detail::HostHeap::instance().begin_use(); }
  ~HostMemory() { detail::HostHeap::instance().end_use(); }
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
};

}  // namespace toller
