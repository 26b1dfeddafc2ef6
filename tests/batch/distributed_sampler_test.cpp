// SPDX-License-Identifier: Apache-2.0
#include "toller/batch/distributed_sampler.hpp"

#include <fstream>
#include <numeric>

using namespace toller;
using Json = nlohmann::json;
using Rows = std::vector<std::int64_t>;

TEST_CASE("each rank's rows are the reference's", "[golden]") {
  std::ifstream file(TOLLER_GOLDEN "/samplers/distributed.json");
  REQUIRE(file);
  const Json cases = Json::parse(file)["cases"];
  REQUIRE(cases.size() == 112);
  for (const Json& c : cases) {
    const Json& epochs = c["indices[epoch][rank]"];
    const std::int64_t world_size = c["world"];
    for (std::int64_t rank = 0; rank < world_size; ++rank) {
      DistributedSampler sampler(c["size"], world_size, rank, c["seed"], c["shuffle"], c["drop_last"]);
      for (std::size_t epoch = 0; epoch < epochs.size(); ++epoch) {
        sampler.set_epoch(static_cast<std::int64_t>(epoch));
        const Rows expected = epochs[epoch][static_cast<std::size_t>(rank)].get<Rows>();
        CHECK(sampler.indices() == expected);
        CHECK(sampler.size() == std::ssize(expected));
      }
    }
  }
}

TEST_CASE("without repeats the ranks have every row once, and differ by one row at most", "[laws]") {
  for (const std::int64_t rows : {1, 5, 16, 101})
    for (const std::int64_t world_size : {1, 3, 4, 7, 150})
      for (const bool shuffle : {false, true}) {
        Rows all;
        for (std::int64_t rank = 0; rank < world_size; ++rank) {
          DistributedSampler sampler(rows, world_size, rank, 5, shuffle, /*drop_last=*/false, /*pad=*/false);
          sampler.set_epoch(2);
          const Rows mine = sampler.indices();
          CHECK(sampler.size() == std::ssize(mine));
          CHECK((std::ssize(mine) == rows / world_size || std::ssize(mine) == (rows + world_size - 1) / world_size));
          // The same order as with repeats, up to where those begin.
          DistributedSampler padded(rows, world_size, rank, 5, shuffle);
          padded.set_epoch(2);
          const Rows longer = padded.indices();
          CHECK(std::equal(mine.begin(), mine.end(), longer.begin()));
          all.insert(all.end(), mine.begin(), mine.end());
        }
        std::sort(all.begin(), all.end());
        Rows expected(static_cast<std::size_t>(rows));
        std::iota(expected.begin(), expected.end(), 0);
        CHECK(all == expected);
      }
}

TEST_CASE("what a rank's sampler can not do is said in one line") {
  CHECK_THROWS_WITH(DistributedSampler(5, 2, 2), "[R228] sampler: no rank 2 of 2");
  CHECK_THROWS_WITH(DistributedSampler(5, 2, -1), "[R228] sampler: no rank -1 of 2");
  CHECK_THROWS_WITH(DistributedSampler(5, 0, 0), "[R228] sampler: no rank 0 of 0");
  CHECK_THROWS_WITH(DistributedSampler(0, 2, 0), "[R222] sampler: the dataset has no rows");
}
