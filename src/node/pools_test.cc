#include "node/pools.h"

#include <gtest/gtest.h>

#include <set>

#include "node/testing.h"

namespace space::node {
namespace {

using std::chrono::milliseconds;
using namespace testing;  // NOLINT

struct PoolsTest : ::testing::Test {
  asio::io_context loop;
  FakeMachines machines;
  void run(asio::awaitable<void> test) {
    asio::co_spawn(loop, std::move(test), [](std::exception_ptr e) { if (e) std::rethrow_exception(e); });
    loop.run();
  }
};

TEST_F(PoolsTest, FillsToItsBoundsOneAtATimeAndDrainsToNothing) {
  run([](PoolsTest& t) -> asio::awaitable<void> {
    const PoolLimits limits{2, 3, 4};
    Pools pools(t.loop.get_executor(), t.machines, limits);
    pools.keep(base_named("a"));
    co_await until([&] { return pools.stats().at(0).ready == 3 && pools.stats().at(0).spawned == 2; });
    co_await sleep_for(milliseconds(20));
    EXPECT_EQ(t.machines.alive_.size(), 5u);
    EXPECT_EQ(t.machines.most_busy_, 1);
    co_await pools.drain();
    EXPECT_TRUE(t.machines.alive_.empty());
    EXPECT_FALSE(pools.take(base_named("a")));
  }(*this));
}

TEST_F(PoolsTest, HandsOutReadyThenSpawnedThenNothingAndNeverTheSameTwice) {
  run([](PoolsTest& t) -> asio::awaitable<void> {
    const PoolLimits limits{1, 2, 4};
    Pools pools(t.loop.get_executor(), t.machines, limits);
    const auto base = base_named("a");
    EXPECT_FALSE(pools.take(base));
    co_await until([&] { return pools.stats().at(0).ready == 2 && pools.stats().at(0).spawned == 1; });
    std::set<std::string> seen;
    for (const bool ready : {true, true, false}) {
      auto taken = pools.take(base);
      EXPECT_TRUE(taken.has_value());
      if (!taken) co_return;
      EXPECT_EQ(taken->ready, ready);
      EXPECT_TRUE(seen.insert(taken->machine.id).second);
    }
    EXPECT_FALSE(pools.take(base));
    EXPECT_EQ(pools.stats().at(0).hits, 2u);
    EXPECT_EQ(pools.stats().at(0).misses, 3u);
    co_await pools.drain();
    EXPECT_EQ(t.machines.alive_, seen);  // what was handed out belongs to others now
  }(*this));
}

TEST_F(PoolsTest, KeepsMoreReadyWhenCreatesComeQuicklyUpToItsBound) {
  run([](PoolsTest& t) -> asio::awaitable<void> {
    const PoolLimits limits{0, 2, 4, 5};
    Pools pools(t.loop.get_executor(), t.machines, limits);
    const auto base = base_named("a");
    pools.keep(base);
    co_await until([&] { return pools.stats().at(0).ready == 2; });
    EXPECT_TRUE(pools.take(base));  // one is left: no reason for more
    EXPECT_EQ(pools.stats().at(0).ready_wanted, 2u);
    EXPECT_TRUE(pools.take(base));
    EXPECT_EQ(pools.stats().at(0).ready_wanted, 3u);
    EXPECT_FALSE(pools.take(base));
    EXPECT_FALSE(pools.take(base));
    EXPECT_EQ(pools.stats().at(0).ready_wanted, 5u);
    co_await until([&] { return pools.stats().at(0).ready == 5; });
    co_await pools.drain();
  }(*this));
}

TEST_F(PoolsTest, AnotherTemplateOrSizeIsNeverHandedOut) {
  run([](PoolsTest& t) -> asio::awaitable<void> {
    const PoolLimits limits{0, 1, 4};
    Pools pools(t.loop.get_executor(), t.machines, limits);
    pools.keep(base_named("a"));
    co_await until([&] { return pools.stats().at(0).ready == 1; });
    EXPECT_FALSE(pools.take(base_named("b")));
    co_await pools.drain();
  }(*this));
}

TEST_F(PoolsTest, TheLeastUsedKindGivesWay) {
  run([](PoolsTest& t) -> asio::awaitable<void> {
    const PoolLimits limits{0, 1, 2};
    Pools pools(t.loop.get_executor(), t.machines, limits);
    for (const char* key : {"a", "b", "c"}) {
      pools.keep(base_named(key));
      co_await until([&] { return pools.stats().back().ready == 1; });
    }
    co_await until([&] { return t.machines.alive_.size() == 2; });
    EXPECT_EQ(pools.stats().front().template_digest, "sha256:b");
    co_await pools.drain();
    EXPECT_TRUE(t.machines.alive_.empty());
  }(*this));
}

TEST_F(PoolsTest, GivesWayToCreatesButDoesNotStarve) {
  run([](PoolsTest& t) -> asio::awaitable<void> {
    const PoolLimits limits{0, 1, 4};
    Pools pools(t.loop.get_executor(), t.machines, limits);
    Pools::Foreground create(pools);
    pools.keep(base_named("a"));
    co_await sleep_for(milliseconds(100));
    EXPECT_TRUE(t.machines.alive_.empty());
    co_await until([&] { return pools.stats().at(0).ready == 1; });
    co_await pools.drain();
  }(*this));
}

TEST_F(PoolsTest, AMachineThatDiesLeavesTheStore) {
  run([](PoolsTest& t) -> asio::awaitable<void> {
    const PoolLimits limits{0, 1, 4};
    Pools pools(t.loop.get_executor(), t.machines, limits);
    const auto base = base_named("a");
    pools.keep(base);
    co_await until([&] { return pools.stats().at(0).ready == 1; });
    const std::string dead = *t.machines.alive_.begin();
    const auto end = std::exchange(*t.machines.last_end_, nullptr);
    end();
    EXPECT_EQ(pools.stats().at(0).ready, 0u);
    co_await until([&] { return pools.stats().at(0).ready == 1; });
    auto taken = pools.take(base);
    EXPECT_NE(taken->machine.id, dead);
    EXPECT_FALSE(*t.machines.last_end_) << "a taken machine is no longer the pool's to watch";
    co_await pools.drain();
    EXPECT_EQ(t.machines.alive_.size(), 1u);
  }(*this));
}

TEST_F(PoolsTest, AFailureIsTriedAgainLaterAndStopsNothing) {
  run([](PoolsTest& t) -> asio::awaitable<void> {
    t.machines.failing_["spawn"] = 1;
    const PoolLimits limits{1, 0, 4};
    Pools pools(t.loop.get_executor(), t.machines, limits);
    pools.keep(base_named("a"));
    co_await until([&] { return t.machines.failing_["spawn"] == 0; });
    co_await until([&] { return pools.stats().at(0).spawned == 1; });
    co_await pools.drain();
    EXPECT_TRUE(t.machines.alive_.empty());
  }(*this));
}

TEST_F(PoolsTest, OffMeansOff) {
  run([](PoolsTest& t) -> asio::awaitable<void> {
    Pools pools(t.loop.get_executor(), t.machines, PoolLimits{});
    EXPECT_FALSE(pools.take(base_named("a")));
    co_await sleep_for(milliseconds(10));
    EXPECT_TRUE(t.machines.alive_.empty());
    co_await pools.drain();
  }(*this));
}

}  // namespace
}  // namespace space::node
