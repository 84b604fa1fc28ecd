// What the tests of Sandboxes share: a node without VMs and HTTP. Only tests include it.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "node/recovery.h"
#include "node/sandboxes.h"
#include "node/testing.h"

namespace space::node::testing {

class FakeBases : public BaseSource {
 public:
  Task<tmpl::Release> resolve(const std::string& reference) override {
    if (reference != "base" && !reference.empty() && !reference.starts_with("sha256:"))
      co_return fail(ErrorKind::not_found, "template_not_found", "no such template");
    co_return tmpl::Release{};
  }
  Task<std::shared_ptr<const tmpl::Base>> base(const tmpl::Release&, const WantedSize&) override {
    co_await sleep_for(making_);
    co_return base_;
  }
  std::shared_ptr<const tmpl::Base> base_ = base_named("a");
  std::chrono::milliseconds making_{0};
};

class FakeDriver : public vmm::Driver {
 public:
  explicit FakeDriver(FakeMachines& machines) : machines_(machines) {}
  std::string name() const override { return "fake"; }
  std::string accelerator() const override { return "none"; }
  std::string state_key() const override { return ""; }
  Task<std::unique_ptr<vmm::Vm>> spawn(vmm::VmSpec) override { co_return fail(ErrorKind::unsupported, "fake", ""); }
  Task<std::unique_ptr<vmm::Vm>> adopt(const std::string&) override { co_return fail(ErrorKind::unsupported, "fake", ""); }
  Task<std::vector<std::string>> list() override { co_return std::vector<std::string>(machines_.alive_.begin(), machines_.alive_.end()); }
  Task<> sweep(const std::string& id) override {
    machines_.alive_.erase(id);
    co_return Result<>{};
  }
  Task<> merge_generations(vmm::DiskMerge) override { co_return Result<>{}; }

 private:
  FakeMachines& machines_;
};

// A node without VMs and HTTP. `restart` is a kill -9: what was in memory is gone, folders and VMs stay.
struct World {
  explicit World(asio::any_io_executor e) : executor(e) { restart(); }
  void restart() {
    sandboxes.reset();
    pools.reset();
    events.emplace(executor);
    pools.emplace(executor, machines, PoolLimits{});
    const Sandboxes::Parts p{machines, bases, *pools, records, disk, *events, system_clock(), *vault, std::string(64, 'b')};
    parts.emplace(p);
    sandboxes.emplace(executor, p, 3);
  }
  asio::any_io_executor executor;
  TempDir dir = TempDir::make("/tmp", "space-sandboxes-test").value();
  RecordStore records{dir.path()};
  BlockingPool disk{2};
  std::unique_ptr<Vault> vault = vault_in(dir.path());
  FakeMachines machines{&records};
  FakeBases bases;
  FakeDriver driver{machines};
  std::optional<Events> events;
  std::optional<Pools> pools;
  std::optional<Sandboxes::Parts> parts;
  std::optional<Sandboxes> sandboxes;

  CreateRequest request(std::string id = new_id(), std::string operation = "op1") const {
    CreateRequest r;
    r.id = std::move(id);
    r.operation = std::move(operation);
    r.tenant = "acme";
    r.template_reference = "base";
    r.env = {{"A", "1"}};
    return r;
  }
  std::size_t folders() const {
    return records.sandboxes().value().size() + records.pool().value().size() + records.trash().value().size();
  }
};

struct SandboxesTest : ::testing::Test {
  asio::io_context loop;
  void run(asio::awaitable<void> (*test)(World&)) {
    World world(loop.get_executor());
    ASSERT_TRUE(world.records.open());
    bool finished = false;
    asio::co_spawn(
        loop,
        [](World& w, auto body, bool& done) -> asio::awaitable<void> {
          co_await body(w);
          done = true;
        }(world, test, finished),
        [](std::exception_ptr e) {
          if (e) std::rethrow_exception(e);
        });
    while (!finished && loop.run_one() > 0) {
    }
    loop.stop();
  }
};

}  // namespace space::node::testing
