// SPDX-License-Identifier: Apache-2.0
#include "toller/batch/loader.hpp"

#include <atomic>
#include <chrono>
#include <set>
#include <thread>

#include "toller/core/seed.hpp"

using namespace toller;
using Numbers = std::vector<std::uint64_t>;

namespace {

std::uint64_t slow_number(std::int64_t epoch, std::int64_t k) {
  const std::uint64_t number = mix_seed(7, epoch, k);
  std::this_thread::sleep_for(std::chrono::microseconds(number % 300));
  return number;
}

template <class T>
std::vector<T> drain(Loader<T>& loader) {
  std::vector<T> all;
  while (auto batch = loader.next()) all.push_back(*batch);
  return all;
}

Numbers expected(std::int64_t epoch, std::int64_t begin, std::int64_t end) {
  Numbers all;
  for (std::int64_t k = begin; k < end; ++k) all.push_back(mix_seed(7, epoch, k));
  return all;
}

}  // namespace

TEST_CASE("batches come in order and do not depend on the workers", "[laws]") {
  for (const int workers : {0, 1, 3})
    for (const std::int64_t prefetch : {1, 4, 100}) {
      Loader<std::uint64_t> loader(40, slow_number, {.workers = workers, .prefetch = prefetch});
      CHECK(loader.workers() == workers);
      CHECK(drain(loader) == expected(0, 0, 40));
      CHECK_FALSE(loader.next());
      for (const std::int64_t epoch : {1, 4}) {
        loader.start_epoch(epoch);
        CHECK(drain(loader) == expected(epoch, 0, 40));
      }
    }
}

TEST_CASE("a loader knows its place and goes to any other") {
  for (const int workers : {0, 2}) {
    Loader<std::uint64_t> loader([](std::int64_t epoch) { return 10 + epoch; }, slow_number, {.workers = workers});
    CHECK(loader.position() == LoaderPosition{0, 0});
    CHECK(loader.batches() == 10);
    for (int i = 0; i < 3; ++i) (void)loader.next();
    CHECK(loader.position() == LoaderPosition{0, 3});
    loader.seek(2, 5);
    CHECK(loader.batches() == 12);
    CHECK(loader.position() == LoaderPosition{2, 5});
    CHECK(drain(loader) == expected(2, 5, 12));
    CHECK(loader.position() == LoaderPosition{2, 12});
    loader.seek(0, 10);
    CHECK_FALSE(loader.next());
    for (int i = 0; i < 50; ++i) {
      loader.seek(i % 3, i % 10);
      CHECK(*loader.next() == mix_seed(7, i % 3, i % 10));
    }
  }
}

TEST_CASE("an error comes at its place in the order, and the batches go on behind it") {
  for (const int workers : {0, 3}) {
    const auto make = [](std::int64_t epoch, std::int64_t k) {
      if (k == 5) throw DataError("R204", "row 5 is bad");
      return slow_number(epoch, k);
    };
    Loader<std::uint64_t> loader(8, make, {.workers = workers});
    for (int k = 0; k < 5; ++k) CHECK(*loader.next() == mix_seed(7, 0, k));
    CHECK_THROWS_WITH(loader.next(), "[R204] row 5 is bad");
    CHECK(drain(loader) == expected(0, 6, 8));
  }
}

TEST_CASE("the same threads work for all epochs, and no more than asked for") {
  std::mutex mutex;
  std::set<std::thread::id> ids;
  const auto make = [&](std::int64_t epoch, std::int64_t k) {
    {
      const std::lock_guard lock(mutex);
      ids.insert(std::this_thread::get_id());
    }
    return slow_number(epoch, k);
  };
  Loader<std::uint64_t> loader(30, make, {.workers = 2});
  for (int epoch = 0; epoch < 5; ++epoch) {
    loader.start_epoch(epoch);
    (void)drain(loader);
  }
  CHECK(ids.size() <= 2);
  CHECK_FALSE(ids.contains(std::this_thread::get_id()));
}

TEST_CASE("no more is made ahead than prefetch allows, and a half-used loader ends") {
  std::atomic<int> made{0};
  {
    Loader<int> loader(1000, [&](std::int64_t, std::int64_t) { return ++made; }, {.workers = 2, .prefetch = 3});
    CHECK(loader.next());
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  CHECK(made <= 1 + 4);
  const int after = made;
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  CHECK(made == after);
  {
    const Loader<int> never_used(10, [](std::int64_t, std::int64_t) { return 1; });
  }
}

TEST_CASE("batches that only move are fine, and the default is half of the cores") {
  Loader<std::unique_ptr<std::int64_t>> loader(3,
                                               [](std::int64_t, std::int64_t k) { return std::make_unique<std::int64_t>(k); });
  CHECK(loader.workers() >= 1);
  for (std::int64_t k = 0; k < 3; ++k) CHECK(**loader.next() == k);
  CHECK_FALSE(loader.next());
}

TEST_CASE("what a loader can not do is said in one line") {
  const auto one = [](std::int64_t, std::int64_t) { return 1; };
  CHECK_THROWS_WITH(Loader<int>(3, one, {.workers = -2}),
                    "[R220] loader: expected workers >= -1 and prefetch >= 1, got workers -2 and prefetch 4");
  CHECK_THROWS_WITH(Loader<int>(3, one, {.prefetch = 0}),
                    "[R220] loader: expected workers >= -1 and prefetch >= 1, got workers -1 and prefetch 0");
  Loader<int> loader(3, one, {.workers = 0});
  CHECK_THROWS_WITH(loader.seek(1, 4), "[R220] loader: no batch 4 in epoch 1 of 3 batches");
}
