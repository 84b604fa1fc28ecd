#include "node/pools.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "node/pool_templates.h"
#include "node/testing.h"

namespace space::node {
namespace {

using std::chrono::milliseconds;
using namespace testing;  // NOLINT

struct PoolsTest : ::testing::Test {
  asio::io_context loop;
  FakeMachines machines;
  void run(asio::awaitable<void> test) {
    asio::co_spawn(loop, std::move(test), [](std::exception_ptr e) {
      if (e) std::rethrow_exception(e);
    });
    loop.run();
  }
};

asio::awaitable<bool> finds_one(Pools& pools, std::shared_ptr<const tmpl::Base> base) {
  const auto taken = co_await pools.take(base);
  co_return taken.machine.vm != nullptr;
}

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
    const auto base = base_named("a");
    EXPECT_FALSE(co_await finds_one(pools, base));
  }(*this));
}

TEST_F(PoolsTest, HandsOutReadyThenSpawnedThenNothingAndNeverTheSameTwice) {
  run([](PoolsTest& t) -> asio::awaitable<void> {
    const PoolLimits limits{1, 2, 4};
    Pools pools(t.loop.get_executor(), t.machines, limits);
    const auto base = base_named("a");
    EXPECT_FALSE(co_await finds_one(pools, base));
    co_await until([&] { return pools.stats().at(0).ready == 2 && pools.stats().at(0).spawned == 1; });
    std::set<std::string> seen;
    for (const bool ready : {true, true, false}) {
      auto taken = co_await pools.take(base);
      EXPECT_EQ(taken.ready, ready);
      EXPECT_EQ(taken.slot == nullptr, ready);
      EXPECT_TRUE(seen.insert(taken.machine.id).second);
    }
    EXPECT_FALSE(co_await finds_one(pools, base));
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
    EXPECT_TRUE(co_await finds_one(pools, base));  // one is left: no reason for more
    EXPECT_EQ(pools.stats().at(0).ready_wanted, 2u);
    EXPECT_TRUE(co_await finds_one(pools, base));
    EXPECT_EQ(pools.stats().at(0).ready_wanted, 3u);
    EXPECT_FALSE(co_await finds_one(pools, base));
    EXPECT_FALSE(co_await finds_one(pools, base));
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
    const auto other = base_named("b");
    EXPECT_FALSE(co_await finds_one(pools, other));
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

TEST_F(PoolsTest, AKindThatComesBackWhileOneIsMadeForItIsFilledFromThenOn) {
  run([](PoolsTest& t) -> asio::awaitable<void> {
    t.machines.step_ = milliseconds(20);
    const PoolLimits limits{0, 1, 1, 0, 2};
    Pools pools(t.loop.get_executor(), t.machines, limits);
    const auto base = base_named("a");
    pools.keep(base);
    co_await until([&] { return t.machines.busy_ == 1; });
    pools.keep(base_named("b"));
    co_await until([&] { return t.machines.busy_ == 2; });
    pools.keep(base);
    co_await until([&] { return pools.stats().at(0).ready >= 1; });
    co_await sleep_for(milliseconds(300));  // nothing is on its way any more
    while (co_await finds_one(pools, base)) {
    }
    co_await until([&] { return pools.stats().at(0).ready >= 1; });
    co_await pools.drain();
  }(*this));
}

TEST_F(PoolsTest, GivesWayToCreatesButDoesNotStarve) {
  run([](PoolsTest& t) -> asio::awaitable<void> {
    const PoolLimits limits{0, 4, 4};
    Pools pools(t.loop.get_executor(), t.machines, limits);
    const auto base = base_named("a");
    Pools::Foreground create(pools);
    pools.keep(base);
    co_await until([&] { return pools.stats().at(0).ready == 3; });  // three of four are urgent
    co_await sleep_for(milliseconds(100));
    EXPECT_EQ(pools.stats().at(0).ready, 3u);
    co_await until([&] { return pools.stats().at(0).ready == 4; });
    co_await pools.drain();
  }(*this));
}

TEST_F(PoolsTest, NoMoreAreMadeAtATimeThanMayBeAndWhoWaitsGetsTheFirst) {
  run([](PoolsTest& t) -> asio::awaitable<void> {
    const PoolLimits limits{0, 1, 4, 0, 2};
    Pools pools(t.loop.get_executor(), t.machines, limits);
    const auto base = base_named("a");
    std::optional<Pools::Taken> first = co_await pools.take(base);  // nothing is there: it may make one itself
    EXPECT_TRUE(first->slot);
    EXPECT_FALSE(first->machine);
    std::vector<bool> served;
    auto ask = [](Pools& from, std::shared_ptr<const tmpl::Base> of, std::vector<bool>& out) -> asio::awaitable<void> {
      const auto taken = co_await from.take(of);
      out.push_back(taken.ready);
    };
    co_await until([&] { return t.machines.busy_ == 1; });  // the refilling has the other slot
    spawn(t.loop.get_executor(), ask(pools, base, served));
    spawn(t.loop.get_executor(), ask(pools, base, served));
    co_await until([&] { return served.size() == 2; });
    EXPECT_TRUE(served[0]) << "what was made for the store is handed to who waits";
    EXPECT_FALSE(served[1]) << "and the slot that this sets free to the next";
    first.reset();
    co_await pools.drain();
  }(*this));
}

TEST_F(PoolsTest, WhatIsBeingMadeHurriesWhenACreateWaitsForIt) {
  run([](PoolsTest& t) -> asio::awaitable<void> {
    t.machines.step_ = milliseconds(20);
    const PoolLimits limits{0, 1, 4, 0, 1};
    Pools pools(t.loop.get_executor(), t.machines, limits);
    const auto base = base_named("a");
    const auto weight = [](const Machine& machine) { return static_cast<const FakeVm&>(*machine.vm).weight_; };
    pools.keep(base);
    co_await until([&] { return pools.stats().at(0).ready == 1; });
    const auto first = co_await pools.take(base);
    EXPECT_EQ(weight(first.machine), 0u) << "nobody waited for this one";
    co_await until([&] { return t.machines.alive_.size() == 2; });
    const auto second = co_await pools.take(base);
    EXPECT_TRUE(second.ready);
    EXPECT_EQ(weight(second.machine), wire::kWholeCpuWeight);
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
    auto taken = co_await pools.take(base);
    EXPECT_NE(taken.machine.id, dead);
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

// One name, of which the test says what it leads to.
class MovingTag : public BaseSource {
 public:
  Task<tmpl::Release> resolve(const std::string&) override {
    if (!now) co_return fail(ErrorKind::not_found, "template_not_found", "as the test wants it");
    co_return now->release;
  }
  Task<std::shared_ptr<const tmpl::Base>> base(const tmpl::Release&, const WantedSize&) override {
    ++made;
    co_return now;
  }
  std::shared_ptr<const tmpl::Base> now;
  int made = 0;
};

std::set<std::string> full_kinds(const Pools& pools, std::size_t ready) {
  std::set<std::string> digests;
  for (const PoolStats& kind : pools.stats())
    if (kind.ready == ready) digests.insert(kind.template_digest);
  return digests;
}

TEST_F(PoolsTest, ANewReleaseIsReadyBeforeItIsAskedForAndTheOldOneGoes) {
  run([](PoolsTest& t) -> asio::awaitable<void> {
    const PoolLimits limits{0, 2, 4};
    Pools pools(t.loop.get_executor(), t.machines, limits);
    MovingTag tag;
    const auto other = base_named("other");
    const PoolTemplates::Listing list = [&]() -> Task<std::vector<tmpl::Release>> {
      std::vector<tmpl::Release> all{other->release};
      if (tag.now) all.push_back(tag.now->release);
      co_return all;
    };
    const auto templates = std::make_shared<PoolTemplates>(t.loop.get_executor(), pools, tag, list, std::vector<std::string>{"base"});
    pools.keep(other);  // by a create; another name leads to it
    spawn(t.loop.get_executor(), templates->keep());
    co_await until([&] { return full_kinds(pools, 2) == std::set<std::string>{"sha256:other"}; });
    const std::set<std::string> before = t.machines.alive_;
    for (const char* key : {"a", "b"}) {
      tag.now = base_named(key);
      templates->look();
      const std::set<std::string> wanted{std::string("sha256:") + key, "sha256:other"};
      co_await until([&] { return full_kinds(pools, 2) == wanted && pools.stats().size() == 2; });
      co_await until([&] { return t.machines.alive_.size() == 4; });
      EXPECT_TRUE(std::includes(t.machines.alive_.begin(), t.machines.alive_.end(), before.begin(), before.end()))
          << "what another name leads to is left alone";
    }
    // The same files under another kernel are another base; what did not move is not made again.
    auto kernel = std::make_shared<tmpl::Base>();
    kernel->key = "b under another kernel";
    kernel->release = tag.now->release;
    kernel->release.kernel = "vmlinux-2";
    tag.now = kernel;
    templates->look();
    co_await until([&] { return tag.made == 3 && full_kinds(pools, 2).size() == 2 && t.machines.alive_.size() == 4; });
    for (int i = 0; i < 3; ++i) {
      templates->look();
      co_await sleep_for(milliseconds(20));
    }
    EXPECT_EQ(tag.made, 3);
    tag.now = nullptr;
    templates->look();
    co_await until([&] { return pools.stats().size() == 1 && t.machines.alive_ == before; });
    templates->stop();
    co_await pools.drain();
    EXPECT_TRUE(t.machines.alive_.empty());
  }(*this));
}

TEST_F(PoolsTest, WhatWasUsedSinceTheNamesWereReadStays) {
  run([](PoolsTest& t) -> asio::awaitable<void> {
    const PoolLimits limits{0, 1, 4};
    Pools pools(t.loop.get_executor(), t.machines, limits);
    const std::uint64_t as_of = pools.uses();
    pools.keep(base_named("a"));  // of a release that came behind the listing
    co_await pools.retain({}, as_of);
    EXPECT_EQ(pools.stats().size(), 1u);
    co_await pools.retain({}, pools.uses());
    EXPECT_TRUE(pools.stats().empty());
    co_await pools.drain();
    EXPECT_TRUE(t.machines.alive_.empty());
  }(*this));
}

TEST_F(PoolsTest, OffMeansOff) {
  run([](PoolsTest& t) -> asio::awaitable<void> {
    Pools pools(t.loop.get_executor(), t.machines, PoolLimits{});
    const auto base = base_named("a");
    EXPECT_FALSE(co_await finds_one(pools, base));
    co_await sleep_for(milliseconds(10));
    EXPECT_TRUE(t.machines.alive_.empty());
    co_await pools.drain();
  }(*this));
}

}  // namespace
}  // namespace space::node
