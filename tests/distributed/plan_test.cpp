// SPDX-License-Identifier: Apache-2.0
#include "toller/distributed/plan.hpp"

#include "toller/gather/detail/announcement.hpp"

using namespace toller;

namespace {

TrafficInput example() {
  return {.ranks = 4,
          .gradient_bytes = 1000,
          .queries = 8,
          .documents = 16,
          .document_vectors = 300,
          .query_vectors = 96,
          .dimension = 128,
          .late_interaction = true};
}

}  // namespace

TEST_CASE("one process sends nothing") {
  TrafficInput in = example();
  in.ranks = 1;
  CHECK(traffic(in).total() == 0);
}

TEST_CASE("bytes of a step, worked out by hand") {
  const StepTraffic bytes = traffic(example());
  CHECK(bytes.gradients == 1500);
  CHECK(bytes.vectors == 3.0 * 300 * 128 * 4);
  CHECK(bytes.vector_grads == bytes.vectors);
  CHECK(bytes.numbers == 3.0 * 8 * (8 + 16 + 8 + 16 + 16));
  CHECK(bytes.announcements == 3 * 216);
  CHECK(bytes.meetings == 3 * 80);
  CHECK(bytes.total() == 1500 + 2 * 460800 + 1536 + 648 + 240);
}

TEST_CASE("a dense model tells no lengths, a symmetric loss sends queries too, parts announce themselves") {
  TrafficInput in = example();
  in.late_interaction = false;
  CHECK(traffic(in).numbers == 3.0 * 8 * 48);
  in = example();
  in.all_queries = true;
  CHECK(traffic(in).vectors == 3.0 * 396 * 128 * 4);
  CHECK(traffic(in).numbers == 3.0 * 8 * (48 + 16 + 8));
  in.micro_batches = 5;
  CHECK(traffic(in).announcements == 5 * 3 * 216);
}

TEST_CASE("what a rank announces is as large as the plan says") {
  CHECK(toller::detail::announcement_bytes == sizeof(toller::detail::Announcement));
}
