// SPDX-License-Identifier: Apache-2.0
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>

#include "support/gradients.hpp"
#include "toller/similarity/max_sim.hpp"

using namespace toller;

namespace {

/// Hears of every allocation of the processor's allocator on this thread.
struct LargestAllocation : c10::MemoryReportingInfoBase {
  std::int64_t bytes = 0;
  void reportMemoryUsage(void*, std::int64_t size, std::size_t, std::size_t, c10::Device) override {
    bytes = std::max(bytes, size);
  }
  bool memoryProfilingEnabled() const override { return true; }
};

}  // namespace

TEST_CASE("no pass of MaxSim holds all similarities at once", "[laws]") {
  at::manual_seed(1);
  MultiVector q, d;
  for (int i = 0; i < 24; ++i) q.offsets.push_back(q.offsets.back() + 32);
  for (int i = 0; i < 128; ++i) d.offsets.push_back(d.offsets.back() + 100);
  q.values = leaf(at::randn({q.offsets.back(), 4}), at::kFloat);
  d.values = leaf(at::randn({d.offsets.back(), 4}), at::kFloat);
  const std::int64_t all = q.offsets.back() * d.offsets.back() * 4;
  const auto largest = std::make_shared<LargestAllocation>();
  {
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, largest);
    MaxSim{}.scores(q, d).sum().backward();
  }
  CAPTURE(largest->bytes, all);
  REQUIRE(largest->bytes > all / 16);  // the blocks were seen
  REQUIRE(largest->bytes <= 16 << 20);
  REQUIRE(all > 2 * largest->bytes);
}
